package chain

import "github.com/headgate-mcp/headgate/core"

// A Place says what part an interceptor has in a phase of an event.
type Place struct {
	Entry Entry
	// Order is its place among those that run, from 0 and in the order for
	// received messages: validators, which start together, then mutators. It
	// is -1 for one that does not run.
	Order int
	// Why says in one word why it runs, or does not.
	Why Why
}

// A Why is a reason to run or not to run. The set is closed.
type Why string

// The reasons.
const (
	WhyHooked   Why = "hooked"   // it runs
	WhyUnhooked Why = "unhooked" // its author declared no such hook
	WhyNarrowed Why = "narrowed" // the operator took the hook away
	WhyOff      Why = "off"      // the operator turned it off
	WhyFailing  Why = "failing"  // it is there and fails each time: see Health
)

// CheckConfig says whether a configuration fits an interceptor. For a name that
// no host lists the error wraps [ErrUnknownName].
func (c *Chain) CheckConfig(name string, config map[string]any) error {
	return c.snapshot.Load().checkConfigs(map[string]map[string]any{name: config})
}

// Explain says what each interceptor does for an event in a phase: first those
// that run, in order, then the others.
func (c *Chain) Explain(event string, phase core.Phase) []Place {
	s := c.snapshot.Load()
	var in, out []Place
	if p := s.plan(event, phase); p != nil {
		for _, steps := range [][]*step{p.validators, p.mutators} {
			for _, st := range steps {
				why := WhyHooked
				if st.entry.Health.Err != nil {
					why = WhyFailing
				}
				in = append(in, Place{st.entry.clone(), len(in), why})
			}
		}
	}
	for _, st := range s.steps {
		e := st.entry
		switch {
		case e.runs(event, phase):
		case !e.Matches(event, phase):
			out = append(out, Place{e.clone(), -1, WhyUnhooked})
		case e.Effective.Off:
			out = append(out, Place{e.clone(), -1, WhyOff})
		default:
			out = append(out, Place{e.clone(), -1, WhyNarrowed})
		}
	}
	return append(in, out...)
}
