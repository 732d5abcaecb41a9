package chain

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A step is one interceptor as plans run it: all that can be settled before a
// message comes is settled here.
type step struct {
	entry    *Entry
	order    int // place of the interceptor in its chain, for ties
	audit    bool
	failOpen bool
	inline   bool
	timeout  time.Duration
	// auditTimeout bounds a run in audit mode, which nobody waits for.
	auditTimeout time.Duration
	headRoom     time.Duration // beyond timeout, for the way back
	config       map[string]any
	invoke       func(context.Context, *core.Invocation) (core.Answer, error)
	checkConfig  func(map[string]any) error
	guard        *Guard
	lane         *lane
	handles      []any
}

// A plan is what runs for one event in one phase.
type plan struct {
	validators []*step // by name
	mutators   []*step // by priority, then name
	// active counts the validators that can block; blocking says that some
	// interceptor can, mutators included.
	active   int
	blocking bool
	// flights counts the active ones of both types.
	flights int
	// audits says that some interceptor may still read the payload when the
	// phase is over.
	audits bool
	// copies says that the payload outlives the validators: mutators, audit
	// or the caller's own use follow.
	copies bool
	// bounded says that some interceptor has a compat to look at.
	bounded bool
}

func (p *plan) size() int { return len(p.validators) + len(p.mutators) }

// newPlan picks and orders the steps that see the event in the phase.
func newPlan(steps []*step, event string, phase core.Phase) *plan {
	p := &plan{}
	for _, st := range steps {
		if !st.entry.runs(event, phase) {
			continue
		}
		p.add(st)
	}
	if p.size() == 0 {
		return nil
	}
	p.sort(phase)
	return p
}

func (p *plan) add(st *step) {
	p.copies = p.copies || st.audit || st.entry.Type == core.TypeMutation
	p.audits = p.audits || st.audit
	if !st.audit {
		p.blocking = true
		p.flights++
	}
	p.bounded = p.bounded || st.entry.Compat != nil
	if st.entry.Type == core.TypeMutation {
		p.mutators = append(p.mutators, st)
		return
	}
	p.validators = append(p.validators, st)
	if !st.audit {
		p.active++
	}
}

// sort orders validators by name and mutators by priority, ties by name in
// byte order and then by the order in which hosts were added.
func (p *plan) sort(phase core.Phase) {
	byName := func(a, b *step) int {
		return cmp.Or(strings.Compare(a.entry.Name, b.entry.Name), cmp.Compare(a.order, b.order))
	}
	slices.SortFunc(p.validators, byName)
	slices.SortFunc(p.mutators, func(a, b *step) int {
		return cmp.Or(cmp.Compare(a.entry.Effective.Priority.For(phase), b.entry.Effective.Priority.For(phase)), byName(a, b))
	})
}

// only returns the part of the plan that has one of the names.
func (p *plan) only(names []string) *plan {
	out := &plan{}
	for _, st := range slices.Concat(p.validators, p.mutators) {
		if slices.Contains(names, st.entry.Name) {
			out.add(st)
		}
	}
	return out // order is kept
}
