package admin

import (
	"net/http"
	"slices"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A coverageView says what no interceptor looks at, and which look at nothing.
type coverageView struct {
	Chain string `json:"chain"`
	// Uncovered are events and phases that no active interceptor sees. One in
	// audit holds nothing back.
	Uncovered []eventPhase `json:"uncovered"`
	// Dead are hooks that no message fits.
	Dead []deadHook `json:"dead"`
	// Idle are interceptors that have not run since the plane began.
	Idle []string `json:"idle"`
}

type eventPhase struct {
	Event string     `json:"event"`
	Phase core.Phase `json:"phase"`
	// AuditOnly says that interceptors see it, all of them in audit.
	AuditOnly bool `json:"auditOnly"`
}

type deadHook struct {
	Interceptor string     `json:"interceptor"`
	Event       string     `json:"event"`
	Phase       core.Phase `json:"phase"`
}

func (p *Plane) getCoverage(w http.ResponseWriter, c *call) error {
	q, err := c.query("chain")
	if err != nil {
		return err
	}
	out := []coverageView{}
	for _, name := range p.chainNames() {
		if q.Get("chain") == "" || q.Get("chain") == name {
			out = append(out, p.coverage(name))
		}
	}
	return reply(w, http.StatusOK, map[string]any{"chains": out})
}

// coverage looks at one chain.
func (p *Plane) coverage(name string) coverageView {
	entries := p.opts.Chains[name].Entries()
	v := coverageView{Chain: name, Uncovered: uncovered(entries), Dead: []deadHook{}, Idle: []string{}}
	for i := range entries {
		e := &entries[i]
		for _, h := range e.Hooks {
			for _, event := range h.Events {
				if !fires(event, h.Phase) {
					v.Dead = append(v.Dead, deadHook{e.Name, event, h.Phase})
				}
			}
		}
		if p.stats.of(e.Name).last.Load() == 0 {
			v.Idle = append(v.Idle, e.Name)
		}
	}
	return v
}

// uncovered returns the events and phases that no active interceptor sees.
func uncovered(entries []chain.Entry) []eventPhase {
	out := []eventPhase{}
	for _, event := range core.StandardMethods() {
		if core.IsNotification(event) || event == "ping" {
			continue // seen by name only, and rarely meant
		}
		for _, phase := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
			if !core.Interceptable(event, phase) {
				continue
			}
			seen, held := false, false
			for i := range entries {
				if e := &entries[i]; !e.Effective.Off && e.Matches(event, phase) && narrowed(e, event, phase) {
					seen, held = true, held || e.Effective.Mode != core.ModeAudit
				}
			}
			if !held {
				out = append(out, eventPhase{event, phase, seen})
			}
		}
	}
	return out
}

// narrowed reports whether what is left of an entry's hooks sees the event.
func narrowed(e *chain.Entry, event string, phase core.Phase) bool {
	return slices.ContainsFunc(e.Effective.Hooks, func(h core.Hook) bool { return h.Matches(event, phase) })
}

// fires reports whether any message of MCP fits an event of a hook. A literal
// that is not MCP's may be a method of somebody's own.
func fires(event string, phase core.Phase) bool {
	h := core.Hook{Events: []string{event}, Phase: phase}
	if core.Literal(event) {
		return core.Interceptable(event, phase)
	}
	return slices.ContainsFunc(core.StandardMethods(), func(m string) bool { return h.Matches(m, phase) })
}

// reportCoverage logs what no interceptor looks at.
func (p *Plane) reportCoverage() {
	for _, name := range p.chainNames() {
		v := p.coverage(name)
		p.opts.Logger.Info("coverage", "chain", name, "interceptors", len(v.Idle), "uncovered", len(v.Uncovered))
		for _, d := range v.Dead {
			p.opts.Logger.Warn("a hook can never fire", "chain", name, "interceptor", d.Interceptor, "event", d.Event, "phase", string(d.Phase))
		}
	}
}

func (p *Plane) chainNames() []string {
	names := make([]string, 0, len(p.opts.Chains))
	for name := range p.opts.Chains {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
