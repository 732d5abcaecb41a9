package chain

import (
	"context"
	"maps"
	"sync/atomic"

	"github.com/headgate-mcp/headgate/core"
)

// A Snapshot is a chain's policy at one moment. It never changes, so that both
// phases of a message can run under one policy.
type Snapshot struct {
	chain     *Chain
	number    uint64
	closed    bool
	hosts     []*hosted // of which only what is fixed may be read
	steps     []*step
	names     map[string]*step
	plans     map[string]*plans
	patterns  bool   // some hook holds a pattern, so that unnamed events may run something
	nothing   *plans // of events that nothing is hooked on
	unnamed   atomic.Pointer[map[string]*plans]
	observers observers
	// propagator is that of the options, or the first observer that is one.
	propagator Propagator
}

// plans are those of one event: for requests, and for responses. A nil plan
// means that there is nothing to do.
type plans [2]*plan

// of returns the plan of a phase.
func (p *plans) of(phase core.Phase) *plan {
	if phase == core.PhaseResponse {
		return p[1]
	}
	return p[0]
}

// newPlans makes the plans of an event.
func (s *Snapshot) newPlans(event string) *plans {
	return &plans{newPlan(s.steps, event, core.PhaseRequest), newPlan(s.steps, event, core.PhaseResponse)}
}

// maxUnnamed bounds the plans that are kept for events which only patterns
// see: event names are an open set.
const maxUnnamed = 1024

// compile makes the plans of all events that MCP or a hook names.
func (s *Snapshot) compile() {
	events := map[string]bool{}
	for _, method := range core.StandardMethods() {
		events[method] = true
	}
	s.names = make(map[string]*step, len(s.steps))
	for _, st := range s.steps {
		s.names[st.entry.Name] = st
		for _, h := range st.entry.Hooks {
			for _, event := range h.Events {
				if core.Literal(event) {
					events[event] = true
				} else {
					s.patterns = true
				}
			}
		}
	}
	s.nothing = new(plans)
	s.plans = make(map[string]*plans, len(events))
	for event := range events {
		s.plans[event] = s.newPlans(event)
	}
	s.unnamed.Store(&map[string]*plans{})
}

// plansOf returns what runs for the event.
func (s *Snapshot) plansOf(event string) *plans {
	if p, ok := s.plans[event]; ok {
		return p
	}
	if !s.patterns {
		return s.nothing
	}
	known := s.unnamed.Load()
	if p, ok := (*known)[event]; ok {
		return p
	}
	p := s.newPlans(event)
	if len(*known) < maxUnnamed {
		grown := maps.Clone(*known)
		grown[event] = p
		s.unnamed.CompareAndSwap(known, &grown) // who loses makes the plans again
	}
	return p
}

// plan returns what runs for the event in the phase; nil for nothing.
func (s *Snapshot) plan(event string, phase core.Phase) *plan {
	return s.plansOf(event).of(phase)
}

// Hooked reports whether any interceptor sees messages of the event in the
// phase. It neither locks nor, for events that MCP or a hook names, allocates.
func (s *Snapshot) Hooked(event string, phase core.Phase) bool {
	return s.plan(event, phase) != nil
}

// HookedPhases is [Snapshot.Hooked] for both phases at once.
func (s *Snapshot) HookedPhases(event string) (request, response bool) {
	p := s.plansOf(event)
	return p[0] != nil, p[1] != nil
}

// Blocks reports whether any interceptor that sees messages of the event in the
// phase could stop or change one: not all of them are in audit mode. As
// Hooked it costs next to nothing.
func (s *Snapshot) Blocks(event string, phase core.Phase) bool {
	p := s.plan(event, phase)
	return p != nil && (p.blocking || s.closed)
}

// Closed reports whether the chain was closed: what was hooked is refused.
func (s *Snapshot) Closed() bool { return s.closed }

// Number counts the policies of the chain; a later one has a higher number.
func (s *Snapshot) Number() uint64 { return s.number }

// Observed reports whether anybody watches.
func (s *Snapshot) Observed() bool { return len(s.observers) > 0 }

// MessageStart tells the observers that a message was taken up.
func (s *Snapshot) MessageStart(ctx context.Context, m *Message) context.Context {
	return s.observers.messageStart(ctx, m)
}

// MessageEnd tells the observers how a message ended; ctx is what MessageStart
// returned.
func (s *Snapshot) MessageEnd(ctx context.Context, end *MessageEnd) {
	s.observers.messageEnd(ctx, end)
}

// entries returns the entries of all interceptors.
func (s *Snapshot) entries() []*Entry {
	out := make([]*Entry, len(s.steps))
	for i, st := range s.steps {
		out[i] = st.entry
	}
	return out
}
