package chain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// An Entry is one interceptor in a chain: what its author declared, what the
// operator said, and what comes of both. Entries are never changed once made.
type Entry struct {
	// Descriptor is what the host lists.
	core.Descriptor
	// Host is the name that the interceptor's host was added under.
	Host string
	// Remote says that the host is reached over a connection.
	Remote bool
	// DefaultTimeout is Options.InvokeTimeout: what an invoke may take unless
	// overrides say otherwise. Negative means no end.
	DefaultTimeout time.Duration
	// Overrides is what the operator said; zero if nothing.
	Overrides Overrides
	// Effective is what holds.
	Effective Effective
	// Health says how the interceptor fares. In entries that observers see
	// only Err is set.
	Health Health

	guard *Guard
	host  HealthReporter // nil if the host does not know
}

// HostHealth says why the interceptor's host cannot be reached at this moment;
// nil if it can, or if it is not known.
func (e *Entry) HostHealth() error {
	if e.host == nil {
		return nil
	}
	return e.host.Health().Err
}

// Guard returns the guard that limits the interceptor. Entries of several
// chains may have the same one. It is nil in an entry that no chain has made.
func (e *Entry) Guard() *Guard { return e.guard }

// Effective is the policy that holds for an entry.
type Effective struct {
	Mode     core.Mode
	FailOpen bool
	Priority core.Priority
	// Timeout bounds an invoke; negative means that nothing does.
	Timeout time.Duration
	// Hooks narrow the declared hooks if the operator set any; otherwise they
	// are the declared ones.
	Hooks []core.Hook
	// Off says that the interceptor does not run.
	Off bool
}

// Health says how an interceptor fares.
type Health struct {
	// Err is why the interceptor cannot run. It is then present and failing:
	// each invoke fails with Err, and FailOpen decides.
	Err error
	// Host is why the host cannot be reached at the moment; nil if it can.
	Host error
	// Abandoned counts invokes that ignored their deadline and still run.
	Abandoned int
	// AuditQueued counts audit runs that wait, AuditDropped those that never ran.
	AuditQueued  int
	AuditDropped uint64
}

// Overrides are the operator's word on one interceptor (SEP-2624, Capability
// vs Policy). The zero value overrides nothing.
type Overrides struct {
	// Mode replaces the declared mode; empty keeps it.
	Mode core.Mode
	// FailOpen replaces the declared failOpen; nil keeps it.
	FailOpen *bool
	// Priority replaces the whole declared hint; nil keeps it.
	Priority *core.Priority
	// Timeout replaces Options.InvokeTimeout; zero keeps it, negative means none.
	Timeout time.Duration
	// Hooks narrow the declared hooks. Nil keeps them; an empty list means
	// that the interceptor never runs.
	Hooks []core.Hook
	// Off takes the interceptor out of all plans.
	Off bool
	// Config replaces Options.Config for the interceptor; nil keeps it. One that
	// does not match the interceptor's schema is a fault of the entry.
	Config map[string]any
}

// check joins what is wrong with the overrides for an interceptor.
func (o *Overrides) check(d *core.Descriptor) error {
	var errs []error
	if _, err := core.ParseMode(string(o.Mode)); err != nil {
		errs = append(errs, err)
	}
	if o.Timeout > core.MaxTimeout {
		errs = append(errs, fmt.Errorf("timeout %v is over %v", o.Timeout, core.MaxTimeout))
	}
	for _, h := range core.ExpandHooks(o.Hooks) {
		if !h.Phase.Valid() {
			errs = append(errs, fmt.Errorf("hook: unknown phase %q", h.Phase))
			continue
		}
		for _, event := range h.Events {
			one := core.Hook{Events: []string{event}, Phase: h.Phase}
			if !slices.ContainsFunc(d.Hooks, func(declared core.Hook) bool { return declared.Covers(one) }) {
				errs = append(errs, fmt.Errorf("%w: %s of %s", ErrWidens, h.Phase, event))
			}
		}
	}
	return errors.Join(errs...)
}

// canonicalConfig gives the configuration the form that it would have after a
// trip over the wire.
func (o *Overrides) canonicalConfig() (err error) {
	if o.Config != nil {
		o.Config, err = canonicalConfig(o.Config)
	}
	return err
}

// clone copies what o shares with its maker.
func (o Overrides) clone() Overrides {
	if o.FailOpen != nil {
		failOpen := *o.FailOpen
		o.FailOpen = &failOpen
	}
	if o.Priority != nil {
		priority := *o.Priority
		o.Priority = &priority
	}
	o.Hooks = core.ExpandHooks(o.Hooks)
	o.Config = core.CloneMap(o.Config)
	return o
}

// newEntry works out what holds for an interceptor.
func newEntry(host string, d core.Descriptor, o Overrides, timeout time.Duration) *Entry {
	e := &Entry{Descriptor: d, Host: host, DefaultTimeout: timeout, Overrides: o}
	e.Effective = Effective{
		Mode: d.Mode, FailOpen: d.FailOpen, Priority: d.PriorityHint,
		Timeout: timeout, Hooks: d.Hooks, Off: o.Off,
	}
	if o.Mode != "" {
		e.Effective.Mode, _ = core.ParseMode(string(o.Mode))
	}
	if e.Effective.Mode == "" {
		e.Effective.Mode = core.ModeActive
	}
	if o.FailOpen != nil {
		e.Effective.FailOpen = *o.FailOpen
	}
	if o.Priority != nil {
		e.Effective.Priority = *o.Priority
	}
	if o.Timeout != 0 {
		e.Effective.Timeout = o.Timeout
	}
	if o.Hooks != nil {
		e.Effective.Hooks = o.Hooks
	}
	return e
}

// clone returns a copy that shares nothing with the policy.
func (e *Entry) clone() Entry {
	out := *e
	out.Descriptor = e.Descriptor.Clone()
	out.Overrides = e.Overrides.clone()
	out.Effective.Hooks = core.ExpandHooks(e.Effective.Hooks)
	return out
}

// runs reports whether the interceptor sees messages of the event in the
// phase. Narrowed hooks are held against the declared ones each time a plan is
// made, so that they cannot widen what a host has since withdrawn.
func (e *Entry) runs(event string, phase core.Phase) bool {
	return !e.Effective.Off && e.Matches(event, phase) &&
		slices.ContainsFunc(e.Effective.Hooks, func(h core.Hook) bool { return h.Matches(event, phase) })
}
