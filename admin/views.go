package admin

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/core"
)

// An itemView is one interceptor on the wire: all its layers and what holds. It
// has nothing that changes by itself, so that its ETag stands for all of it.
type itemView struct {
	Name        string            `json:"name"`
	Type        core.Type         `json:"type,omitempty"` // absent for one that no chain has at the moment
	Version     string            `json:"version,omitempty"`
	Description string            `json:"description,omitempty"`
	Host        string            `json:"host"`
	Chains      []string          `json:"chains"`
	Revision    uint64            `json:"revision"`
	ETag        string            `json:"etag"`
	Effective   control.Effective `json:"effective"`
	Layers      layersView        `json:"layers"`
	Pinned      bool              `json:"pinned"`
	Health      healthView        `json:"health"`
}

type layersView struct {
	Declared   control.Settings    `json:"declared"`
	Configured *control.Settings   `json:"configured"`
	Override   *control.Override   `json:"override"`
	BreakGlass *control.BreakGlass `json:"breakGlass"`
}

// A healthView says whether an interceptor can run as it is registered. Why it
// cannot stays in the log: it may quote a configuration. Whether its host is there
// at the moment is in its stats.
type healthView struct {
	OK bool `json:"ok"`
}

func viewItem(name string, it *item) itemView {
	return itemView{
		Name: name, Type: it.entry.Type, Version: it.entry.Version, Description: it.entry.Description, Host: it.entry.Host,
		Chains: it.chains, Revision: it.revision, ETag: it.tag(), Effective: it.effective, Pinned: it.layers.Pinned,
		Layers: layersView{it.layers.Declared, it.layers.Configured, it.layers.Override, it.layers.BreakGlass},
		Health: healthView{it.entry.Health.Err == nil},
	}
}

// A changeView is what came of a write.
type changeView struct {
	itemView
	Change    changedView   `json:"change"`
	Persisted persistedView `json:"persisted"`
	// Draining counts messages that are under way under the policy before.
	Draining int64 `json:"draining"`
	DryRun   bool  `json:"dryRun,omitempty"`
	Noop     bool  `json:"noop,omitempty"`
}

type changedView struct {
	ID       string `json:"id,omitempty"`
	Revision uint64 `json:"revision"`
	Actor    string `json:"actor"`
	Before   string `json:"before"`
	After    string `json:"after"`
}

// A persistedView says whether a change survives a restart, and whether it was
// written down on disk.
type persistedView struct {
	Local bool `json:"local"`
	Audit bool `json:"audit"`
}

func (p *Plane) persisted(ch *changed) persistedView {
	return persistedView{Local: p.store.Status().Durable, Audit: ch.audited && p.history.Durable()}
}

func viewRecord(r *history.Record) changedView {
	return changedView{ID: r.ID, Revision: r.Revision, Actor: r.Actor.Name, Before: r.Before, After: r.After}
}

// A stateView is everything, for backup and comparison.
type stateView struct {
	Service      string              `json:"service"`
	Revision     uint64              `json:"revision"`
	Interceptors []itemView          `json:"interceptors"`
	BreakGlass   *control.BreakGlass `json:"breakGlass"`
	// Standing are overrides for interceptors that are not there at the moment.
	Standing []string     `json:"standing"`
	History  history.Head `json:"history"`
	Store    storeView    `json:"store"`
}

type storeView struct {
	Kind    string `json:"kind"`
	Durable bool   `json:"durable"`
}

// A glassView is break-glass on the wire.
type glassView struct {
	Active     bool                `json:"active"`
	BreakGlass *control.BreakGlass `json:"breakGlass"`
	Revision   uint64              `json:"revision"`
	// Weakened and Spared are the interceptors that run weaker for it, and those
	// that do not.
	Weakened []string `json:"weakened"`
	Spared   []string `json:"spared"`
}

func viewGlass(s *state) glassView {
	v := glassView{Active: s.breakGlass != nil && !s.breakGlass.Over(s.at), Revision: s.glass, Weakened: []string{}, Spared: []string{}}
	if !v.Active {
		return v
	}
	v.BreakGlass = s.breakGlass
	for _, name := range s.names {
		if s.items[name].effective.Source == control.BrokenGlass {
			v.Weakened = append(v.Weakened, name)
		} else {
			v.Spared = append(v.Spared, name)
		}
	}
	return v
}

// An overrideView is an override that holds, in the list of those.
type overrideView struct {
	Name     string           `json:"name"`
	ETag     string           `json:"etag"`
	Override control.Override `json:"override"`
	// SecondsLeft is until its end; absent for none.
	SecondsLeft *float64 `json:"secondsLeft,omitempty"`
	Overdue     bool     `json:"overdue,omitempty"`
	// Standing says that no chain has the interceptor at the moment.
	Standing bool `json:"standing,omitempty"`
}

// viewOverrides lists the overrides that hold, the soonest end first.
func viewOverrides(m *memory, s *state, now time.Time) []overrideView {
	out := []overrideView{}
	for name, o := range m.overrides {
		if o.Over(now) {
			continue
		}
		tag := etag(m.records[keyOverride+name], "")
		if it := s.items[name]; it != nil {
			tag = it.tag()
		}
		v := overrideView{Name: name, ETag: tag, Override: *o, Overdue: o.Overdue(now), Standing: s.items[name] == nil}
		if o.ExpiresAt != nil {
			left := max(0, o.ExpiresAt.Sub(now).Seconds())
			v.SecondsLeft = &left
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b overrideView) int {
		x, y := a.Override.ExpiresAt, b.Override.ExpiresAt
		switch {
		case x != nil && y != nil:
			if c := x.Compare(*y); c != 0 {
				return c
			}
		case x != nil:
			return -1
		case y != nil:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// similar returns names that somebody may have meant.
func similar(name string, names []string) []string {
	var found []string
	for _, n := range names {
		if distance(name, n) <= 2 || len(name) > 2 && strings.Contains(n, name) {
			found = append(found, n)
		}
		if len(found) == 5 {
			break
		}
	}
	return found
}

// distance counts the edits between two names, up to a few.
func distance(a, b string) int {
	if len(a) > 128 || len(b) > 128 || len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
