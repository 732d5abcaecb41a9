package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// maxPage bounds a list; defaultPage is how long one is if not asked.
const (
	maxPage     = 1000
	defaultPage = 100
)

// limit reads how many are wanted.
func limit(q url.Values) (int, error) {
	if !q.Has("limit") {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 || n > maxPage {
		return 0, newProblem("malformed", "limit is not a number from 1 to 1000")
	}
	return n, nil
}

func (p *Plane) getWhoami(w http.ResponseWriter, c *call) error {
	can := []Role{}
	for _, r := range roles() {
		if c.who.Role.Includes(r) {
			can = append(can, r)
		}
	}
	return reply(w, http.StatusOK, map[string]any{
		"name": c.who.Name, "role": c.who.Role, "method": c.who.Method, "permissions": can, "service": p.opts.Service,
	})
}

func (p *Plane) getState(w http.ResponseWriter, c *call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	s := p.current()
	v := stateView{
		Service: p.opts.Service, Revision: s.revision, Interceptors: []itemView{}, Standing: s.standing,
		History: p.history.Head(), BreakGlass: viewGlass(s).BreakGlass,
	}
	if v.Standing == nil {
		v.Standing = []string{}
	}
	st := p.store.Status()
	v.Store = storeView{st.Kind, st.Durable}
	for _, name := range s.names {
		v.Interceptors = append(v.Interceptors, viewItem(name, s.items[name]))
	}
	return tagged(w, c, s.tag(), v)
}

// tagged answers with an ETag, or that there is nothing new.
func tagged(w http.ResponseWriter, c *call, tag string, v any) error {
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if fresh(c.Header, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return reply(w, http.StatusOK, v)
}

type listedView struct {
	itemView
	Stats *statsView `json:"stats,omitempty"`
}

func (p *Plane) getInterceptors(w http.ResponseWriter, c *call) error {
	q, err := c.query("mode", "source", "type", "event", "q", "chain", "limit", "cursor", "include")
	if err != nil {
		return err
	}
	n, err := limit(q)
	if err != nil {
		return err
	}
	s := p.current()
	list, next := []listedView{}, ""
	for _, name := range s.names {
		it := s.items[name]
		if name <= q.Get("cursor") || !wanted(name, it, q.Get) {
			continue
		}
		if len(list) == n {
			next = list[n-1].Name
			break
		}
		v := listedView{itemView: viewItem(name, it)}
		if q.Get("include") == "stats" {
			st := p.statsOf(name, it)
			v.Stats = &st
		}
		list = append(list, v)
	}
	out := map[string]any{"revision": s.revision, "interceptors": list}
	if next != "" {
		out["nextCursor"] = next
	}
	w.Header().Set("ETag", s.tag())
	return reply(w, http.StatusOK, out)
}

// wanted reports whether an interceptor is one of those asked for.
func wanted(name string, it *item, get func(string) string) bool {
	is := func(key, value string) bool { return get(key) == "" || get(key) == value }
	event := get("event")
	return is("mode", string(it.effective.Mode)) && is("source", string(it.effective.Source)) && is("type", string(it.entry.Type)) &&
		(get("chain") == "" || slices.Contains(it.chains, get("chain"))) &&
		strings.Contains(strings.ToLower(name), strings.ToLower(get("q"))) &&
		(event == "" || it.entry.Matches(event, core.PhaseRequest) || it.entry.Matches(event, core.PhaseResponse))
}

// itemOf returns the interceptor in the path.
func (p *Plane) itemOf(c *call) (string, *item, error) {
	name, err := c.name()
	if err != nil {
		return "", nil, err
	}
	s := p.current()
	if it := s.items[name]; it != nil {
		return name, it, nil
	}
	bad := newProblem("not-found", "no interceptor has this name")
	bad.similar = similar(name, s.names)
	return "", nil, bad
}

func (p *Plane) getInterceptor(w http.ResponseWriter, c *call) error {
	name, it, err := p.itemOf(c)
	if err != nil {
		return err
	}
	if it.effective.Overdue { // which came with time, and moved no revision
		c.Header.Del("If-None-Match")
	}
	return tagged(w, c, it.tag(), viewItem(name, it))
}

func (p *Plane) getStats(w http.ResponseWriter, c *call) error {
	name, it, err := p.itemOf(c)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, p.statsOf(name, it))
}

// statsOf reads the numbers of an interceptor.
func (p *Plane) statsOf(name string, it *item) statsView {
	v, f := p.stats.view(name)
	v.Draining = p.draining(it, f.policies)
	if v.Draining == 0 && !f.at.IsZero() {
		at := f.at
		for _, c := range it.chains {
			if n := p.watchers[c].drained.Load(); n > at.UnixNano() {
				at = time.Unix(0, n)
			}
		}
		at = at.UTC()
		v.DrainedAt = &at
	}
	if g := it.entry.Guard(); g != nil {
		v.Abandoned = g.Abandoned()
	}
	v.Circuit = p.circuit(name, it)
	for _, c := range it.chains {
		for _, h := range p.opts.Chains[c].HostStatuses() {
			if h.Name == it.entry.Host && v.HostFault == "" {
				v.HostFault = h.Health.Fault
			}
		}
	}
	return v
}

func (p *Plane) draining(it *item, policies map[string]uint64) (n int64) {
	for _, c := range it.chains {
		if since, ok := policies[c]; ok {
			n += p.watchers[c].draining(since)
		}
	}
	return n
}

func (p *Plane) getDecisions(w http.ResponseWriter, c *call) error {
	name, _, err := p.itemOf(c)
	if err != nil {
		return err
	}
	q, err := c.query("verdict", "mode", "since", "limit")
	if err != nil {
		return err
	}
	n, err := limit(q)
	if err != nil {
		return err
	}
	var since time.Time
	if text := q.Get("since"); text != "" {
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return newProblem("malformed", "since is not in the form of RFC 3339")
		}
	}
	list := []decision{}
	p.decisions.newest(func(d decision) bool {
		if d.Time.Before(since) {
			return len(list) < n
		}
		for _, st := range d.Steps {
			if st.Interceptor == name && (q.Get("verdict") == "" || string(st.Verdict) == q.Get("verdict")) &&
				(q.Get("mode") == "" || string(st.Mode) == q.Get("mode")) {
				list = append(list, d)
				break
			}
		}
		return len(list) < n
	})
	return reply(w, http.StatusOK, map[string]any{"decisions": list})
}

func (p *Plane) getDecision(w http.ResponseWriter, c *call) error {
	id, err := c.name()
	if err != nil {
		return err
	}
	d, ok := p.decisions.find(id)
	if !ok {
		return newProblem("not-found", "nothing was decided on such a message, or it is kept no more")
	}
	return reply(w, http.StatusOK, d)
}

func (p *Plane) getOverrides(w http.ResponseWriter, c *call) error {
	if _, err := c.query(); err != nil {
		return err
	}
	p.write.Lock()
	m, s := p.memory, p.state.Load()
	p.write.Unlock()
	return reply(w, http.StatusOK, map[string]any{"revision": s.revision, "overrides": viewOverrides(m, s, time.Now())})
}

func (p *Plane) getBreakGlass(w http.ResponseWriter, c *call) error {
	s := p.current()
	return tagged(w, c, s.tag(), viewGlass(s))
}

func (p *Plane) getChanges(w http.ResponseWriter, c *call) error {
	q, err := c.query("after", "interceptor", "actor", "outcome", "limit")
	if err != nil {
		return err
	}
	n, err := limit(q)
	if err != nil {
		return err
	}
	var after uint64
	if text := q.Get("after"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return newProblem("malformed", "after is not a sequence number")
		}
	}
	records, lost := p.history.Since(after)
	is := func(key, value string) bool { return q.Get(key) == "" || q.Get(key) == value }
	list := []history.Record{}
	for _, r := range records {
		if len(list) < n && is("interceptor", r.Target) && is("actor", r.Actor.Name) && is("outcome", string(r.Outcome)) {
			list = append(list, r)
		}
	}
	return reply(w, http.StatusOK, map[string]any{"changes": list, "truncated": lost, "head": p.history.Head()})
}

func (p *Plane) getChange(w http.ResponseWriter, c *call) error {
	id, err := c.name()
	if err != nil {
		return err
	}
	records, _ := p.history.Since(0)
	for _, r := range records {
		if r.ID == id {
			return reply(w, http.StatusOK, r)
		}
	}
	return newProblem("not-found", "no such change, or it is kept no more")
}

// A placeView is an interceptor's part in a phase.
type placeView struct {
	Interceptor string    `json:"interceptor"`
	Type        core.Type `json:"type"`
	Mode        string    `json:"mode"`
	Source      string    `json:"source"`
	FailOpen    bool      `json:"failOpen"`
	// Order is the place among those that run, from 0; -1 for one that does not.
	Order int       `json:"order"`
	Runs  bool      `json:"runs"`
	Why   chain.Why `json:"why"`
}

func (p *Plane) getPipeline(w http.ResponseWriter, c *call) error {
	q, err := c.query("event", "phase", "chain")
	if err != nil {
		return err
	}
	phase := core.Phase(q.Get("phase"))
	if q.Get("event") == "" || !phase.Valid() {
		return newProblem("malformed", "an event, and the phase request or response are wanted")
	}
	out := map[string][]placeView{}
	s := p.current()
	for name, ch := range p.opts.Chains {
		if q.Get("chain") != "" && q.Get("chain") != name {
			continue
		}
		list := []placeView{}
		for _, pl := range ch.Explain(q.Get("event"), phase) {
			v := placeView{
				Interceptor: pl.Entry.Name, Type: pl.Entry.Type, FailOpen: pl.Entry.Effective.FailOpen,
				Order: pl.Order, Runs: pl.Order >= 0, Why: pl.Why,
			}
			if it := s.items[pl.Entry.Name]; it != nil {
				v.Mode, v.Source = string(it.effective.Mode), string(it.effective.Source)
			}
			list = append(list, v)
		}
		out[name] = list
	}
	return reply(w, http.StatusOK, map[string]any{"event": q.Get("event"), "phase": phase, "chains": out})
}
