package admin

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A hostView is a host of a chain on the wire.
type hostView struct {
	Name   string `json:"name"`
	Chain  string `json:"chain"`
	Remote bool   `json:"remote"`
	// Up says whether the host can be reached; one that does not know is.
	Up    bool            `json:"up"`
	Fault chain.HostFault `json:"fault,omitempty"`
	// Since is when it became so; absent for a host that does not know.
	Since  *time.Time `json:"since,omitempty"`
	Losses uint64     `json:"losses"`
	// LastError is why it was lost last. It may quote addresses and what a peer
	// said, and is shown only to who may do something about it.
	LastError    string `json:"lastError,omitempty"`
	Interceptors int    `json:"interceptors"`
}

func viewHost(name string, h *chain.HostStatus, who Role) hostView {
	v := hostView{
		Name: h.Name, Chain: name, Remote: h.Remote, Up: h.Health.Err == nil, Fault: h.Health.Fault,
		Losses: h.Health.Losses, Interceptors: h.Interceptors,
	}
	if at := h.Health.Since; !at.IsZero() {
		at = at.UTC()
		v.Since = &at
	}
	if h.Health.Last != nil && who.Includes(RoleOperate) {
		v.LastError = oneLine(h.Health.Last)
	}
	return v
}

// maxError bounds what is shown of an error.
const maxError = 300

// oneLine writes an error that may come from elsewhere; a panic of its own is one
// without a text.
func oneLine(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "an error that cannot be shown"
		}
	}()
	text = err.Error()
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// hostsOf returns the hosts of all chains, or those of one name.
func (p *Plane) hostsOf(name string, who Role) []hostView {
	out := []hostView{}
	for _, key := range slices.Sorted(maps.Keys(p.opts.Chains)) {
		for _, h := range p.opts.Chains[key].HostStatuses() {
			if name == "" || h.Name == name {
				out = append(out, viewHost(key, &h, who))
			}
		}
	}
	return out
}

func (p *Plane) getHosts(w http.ResponseWriter, c *call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	return reply(w, http.StatusOK, map[string]any{"hosts": p.hostsOf("", c.who.Role)})
}

// refreshPatience bounds a refresh: less than a client usually waits.
const refreshPatience = 8 * time.Second

// refreshHost has the hosts of a name list again, or dial at once if they are
// away. It changes no policy of an operator's, but what interceptors there are.
func (p *Plane) refreshHost(w http.ResponseWriter, c *call) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	if _, err := c.query(); err != nil {
		return err
	}
	ch := &change{record: p.newRecord(c)}
	if err := p.reasonOf(c, ch); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), refreshPatience)
	defer cancel()
	found, failed := false, false
	for _, watcher := range p.watchers {
		err := watcher.chain.RefreshHost(ctx, name)
		if errors.Is(err, chain.ErrUnknownHost) {
			continue
		}
		found = true
		if err != nil {
			failed = true
			p.opts.Logger.Error("host not refreshed", "host", name, "chain", watcher.name, "err", err, "request_id", c.id)
		}
	}
	switch {
	case !found:
		return newProblem("not-found", "no host has this name")
	case failed:
		return newProblem("host-unavailable", "it was tried just now; GET /v1/hosts says why it is away")
	}
	p.nudge()
	r := p.writeDown(&ch.record, history.Applied)
	return reply(w, http.StatusOK, map[string]any{"hosts": p.hostsOf(name, c.who.Role), "change": viewRecord(&r)})
}

// writeDown records what an operator did that changes no layer.
func (p *Plane) writeDown(r *history.Record, outcome history.Outcome) history.Record {
	p.write.Lock()
	defer p.write.Unlock()
	r.Outcome, r.Revision = outcome, p.memory.contents.Revision
	done, _ := p.record(*r, true)
	p.metrics.changed(&done)
	p.log(&done).Warn("operator acted")
	return done
}

// lookAtHosts tells of hosts that were lost or are back since the last look.
// p.write is held.
func (p *Plane) lookAtHosts() {
	up := map[string]bool{}
	for key := range p.up {
		_, name, _ := strings.Cut(key, "\x00")
		delete(p.degraded, "host "+name)
	}
	for _, v := range p.hostsOf("", RoleRead) {
		key := v.Chain + "\x00" + v.Name
		if was, known := p.up[key]; known && was != v.Up {
			if raw, err := core.Encode(&v); err == nil {
				p.hub.publish(event{Type: eventHost, Data: raw})
			}
		}
		if up[key] = v.Up; !v.Up {
			p.degraded["host "+v.Name] = "the host is away, and its interceptors fail: GET /v1/hosts"
		}
	}
	p.up = up
}
