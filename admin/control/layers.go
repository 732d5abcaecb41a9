package control

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A Source names a layer.
type Source string

// The layers, the lowest first.
const (
	Declared    Source = "declared"
	Configured  Source = "configured"
	Overridden  Source = "override"
	BrokenGlass Source = "breakGlass"
)

// Settings are what a layer can say. What is nil or empty it does not say.
type Settings struct {
	Mode         Mode           `json:"mode,omitempty"`
	FailOpen     *bool          `json:"failOpen,omitempty"`
	TimeoutMs    int64          `json:"timeoutMs,omitempty"`
	PriorityHint *core.Priority `json:"priorityHint,omitempty"`
	// Hooks narrow what is declared. An empty list is not nil: nothing is left.
	Hooks []core.Hook `json:"hooks,omitzero"`
}

// says reports whether the settings say anything.
func (s *Settings) says() bool {
	return s.Mode != "" || s.FailOpen != nil || s.TimeoutMs != 0 || s.PriorityHint != nil || s.Hooks != nil
}

// What to do when an override's time is over.
const (
	Revert = "revert" // it is as if it had never been
	Hold   = "hold"   // it stays, and is reported as overdue
)

// An Override is an operator's word on one interceptor.
type Override struct {
	Settings
	// ExpiresAt is when it ends; nil for never.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// OnExpiry says what happens then.
	OnExpiry string `json:"onExpiry,omitempty"`
	Reason   string `json:"reason"`
	Ticket   string `json:"ticket,omitempty"`
	// Since, Actor and Change are filled in by the plane.
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor"`
	Change string    `json:"change"`
}

// Over reports whether the override's time is over and it holds no more.
func (o *Override) Over(now time.Time) bool {
	return o.OnExpiry != Hold && o.expired(now)
}

// Overdue reports whether the override still holds after its time.
func (o *Override) Overdue(now time.Time) bool {
	return o.OnExpiry == Hold && o.expired(now)
}

func (o *Override) expired(now time.Time) bool {
	return o.ExpiresAt != nil && !now.Before(*o.ExpiresAt)
}

// What break-glass does.
const (
	AuditAll = "audit-all" // what is active runs in audit
	OffAll   = "off-all"   // nothing runs
)

// A BreakGlass weakens all interceptors at once, apart from some. Pinned ones
// are never weakened.
type BreakGlass struct {
	Action    string    `json:"action"`
	Except    []string  `json:"except,omitempty"`
	ExpiresAt time.Time `json:"expiresAt"`
	Reason    string    `json:"reason"`
	Ticket    string    `json:"ticket,omitempty"`
	Since     time.Time `json:"since"`
	Actor     string    `json:"actor"`
	Change    string    `json:"change"`
}

// Over reports whether its time is over.
func (b *BreakGlass) Over(now time.Time) bool { return !now.Before(b.ExpiresAt) }

// mode returns what is left of a mode.
func (b *BreakGlass) mode(m Mode) Mode {
	most := Audit
	if b.Action == OffAll {
		most = Off
	}
	if m.rank() > most.rank() {
		return most
	}
	return m
}

// Layers are all that is said of one interceptor.
type Layers struct {
	Name       string
	Declared   Settings
	Configured *Settings
	// Pinned says that nothing above what is configured may weaken it.
	Pinned     bool
	Override   *Override
	BreakGlass *BreakGlass
}

// Of returns the layers of an interceptor of which nothing is said but what its
// author declared.
func Of(d *core.Descriptor, timeout time.Duration) Layers {
	failOpen, priority := d.FailOpen, d.PriorityHint
	return Layers{Name: d.Name, Declared: Settings{
		Mode: declared(d.Mode), FailOpen: &failOpen, TimeoutMs: max(0, timeout.Milliseconds()),
		PriorityHint: &priority, Hooks: core.ExpandHooks(d.Hooks),
	}}
}

// Effective is what holds, and which layer says so.
type Effective struct {
	Mode         Mode              `json:"mode"`
	FailOpen     bool              `json:"failOpen"`
	TimeoutMs    int64             `json:"timeoutMs"` // 0 for none
	PriorityHint core.Priority     `json:"priorityHint"`
	Hooks        []core.Hook       `json:"hooks"`
	Source       Source            `json:"source"` // of the mode
	Sources      map[string]Source `json:"sources"`
	// Since and ExpiresAt are those of the layer that the mode comes from.
	Since     *time.Time `json:"since,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Overdue says that an override holds although its time is over.
	Overdue bool `json:"overdue,omitempty"`
}

// At returns what holds at a moment. It is the one place that decides.
func (l *Layers) At(now time.Time) Effective {
	e := Effective{Sources: map[string]Source{}}
	e.take(&l.Declared, Declared)
	if l.Configured != nil {
		e.take(l.Configured, Configured)
	}
	if o := l.Override; o != nil && !o.Over(now) && !l.spares(&e, o) {
		e.take(&o.Settings, Overridden)
		e.Overdue = o.Overdue(now)
		if e.Source == Overridden {
			e.Since, e.ExpiresAt = &o.Since, o.ExpiresAt
		}
	}
	if b := l.BreakGlass; b != nil && !b.Over(now) && !l.Pinned && !slices.Contains(b.Except, l.Name) {
		if m := b.mode(e.Mode); m != e.Mode {
			e.take(&Settings{Mode: m}, BrokenGlass)
			e.Since, e.ExpiresAt = &b.Since, &b.ExpiresAt
		}
	}
	return e
}

// spares reports whether an override does not count: it is from before the
// interceptor was pinned, and would weaken it.
func (l *Layers) spares(e *Effective, o *Override) bool {
	if !l.Pinned {
		return false
	}
	over := *e
	over.Sources = maps.Clone(e.Sources)
	over.take(&o.Settings, Overridden)
	return Weakens(e, &over)
}

// take puts a layer on top.
func (e *Effective) take(s *Settings, from Source) {
	if s.Mode != "" {
		e.Mode, e.Source, e.Sources["mode"] = s.Mode, from, from
	}
	if s.FailOpen != nil {
		e.FailOpen, e.Sources["failOpen"] = *s.FailOpen, from
	}
	if s.TimeoutMs != 0 || from == Declared {
		e.TimeoutMs, e.Sources["timeoutMs"] = s.TimeoutMs, from
	}
	if s.PriorityHint != nil {
		e.PriorityHint, e.Sources["priorityHint"] = *s.PriorityHint, from
	}
	if s.Hooks != nil {
		e.Hooks, e.Sources["hooks"] = s.Hooks, from
	}
}

// Base returns what holds without an operator's word.
func (l *Layers) Base() Effective {
	base := Layers{Name: l.Name, Declared: l.Declared, Configured: l.Configured}
	return base.At(time.Time{})
}

// Chain returns what a chain is told: what differs from what is declared.
func (e *Effective) Chain() chain.Overrides {
	var o chain.Overrides
	above := func(field string) bool { return e.Sources[field] != Declared }
	if above("mode") {
		switch e.Mode {
		case Active:
			o.Mode = core.ModeActive
		case Audit:
			o.Mode = core.ModeAudit
		case Off:
			o.Off = true
		}
	}
	if above("failOpen") {
		o.FailOpen = &e.FailOpen
	}
	if above("timeoutMs") {
		o.Timeout = time.Duration(e.TimeoutMs) * time.Millisecond
	}
	if above("priorityHint") {
		o.Priority = &e.PriorityHint
	}
	if above("hooks") {
		o.Hooks = e.Hooks
	}
	return o
}
