package control_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(d time.Duration) *time.Time { t := now.Add(d); return &t }

// In each field the highest layer that says something holds.
func TestLayers(t *testing.T) {
	yes := true
	l := guard()
	e := l.At(now)
	assert.Equal(t, control.Active, e.Mode)
	assert.Equal(t, control.Declared, e.Source)
	assert.Equal(t, chain.Overrides{}, e.Chain(), "nothing differs from what is declared")

	l.Configured = &control.Settings{Mode: control.Audit, FailOpen: &yes}
	e = l.At(now)
	assert.Equal(t, control.Audit, e.Mode)
	assert.Equal(t, control.Configured, e.Sources["failOpen"])
	assert.Equal(t, control.Declared, e.Sources["timeoutMs"])

	l.Override = &control.Override{Settings: control.Settings{Mode: control.Off, TimeoutMs: 7}, ExpiresAt: at(time.Minute), Since: now}
	e = l.At(now)
	assert.Equal(t, control.Off, e.Mode)
	assert.Equal(t, control.Overridden, e.Source)
	assert.Equal(t, control.Configured, e.Sources["failOpen"], "an override says nothing of what it leaves out")
	assert.Equal(t, chain.Overrides{Off: true, FailOpen: &yes, Timeout: 7 * time.Millisecond}, e.Chain())

	e = l.At(now.Add(time.Minute))
	assert.Equal(t, control.Audit, e.Mode, "its time is over")
	l.Override.OnExpiry = control.Hold
	e = l.At(now.Add(time.Hour))
	assert.Equal(t, control.Off, e.Mode)
	assert.True(t, e.Overdue)
}

// Break-glass only weakens, leaves exceptions and pinned ones, and ends.
func TestBreakGlassLayer(t *testing.T) {
	glass := func(action string, except ...string) *control.BreakGlass {
		return &control.BreakGlass{Action: action, Except: except, ExpiresAt: now.Add(time.Hour)}
	}
	for name, tt := range map[string]struct {
		edit func(*control.Layers)
		at   time.Duration
		want control.Mode
	}{
		"an active one runs in audit": {func(l *control.Layers) { l.BreakGlass = glass(control.AuditAll) }, 0, control.Audit},
		"an active one is off":        {func(l *control.Layers) { l.BreakGlass = glass(control.OffAll) }, 0, control.Off},
		"one that is off stays so": {func(l *control.Layers) {
			l.BreakGlass = glass(control.AuditAll)
			l.Configured = &control.Settings{Mode: control.Off}
		}, 0, control.Off},
		"an exception": {func(l *control.Layers) { l.BreakGlass = glass(control.OffAll, "guard") }, 0, control.Active},
		"a pinned one": {func(l *control.Layers) { l.BreakGlass = glass(control.OffAll); l.Pinned = true }, 0, control.Active},
		"an override to active yields": {func(l *control.Layers) {
			l.BreakGlass = glass(control.AuditAll)
			l.Override = &control.Override{Settings: control.Settings{Mode: control.Active}}
		}, 0, control.Audit},
		"over": {func(l *control.Layers) { l.BreakGlass = glass(control.OffAll) }, time.Hour, control.Active},
	} {
		l := guard()
		tt.edit(&l)
		e := l.At(now.Add(tt.at))
		assert.Equal(t, tt.want, e.Mode, name)
	}
}

// Whatever the layers, what a chain is told has what holds: seen red with the
// mode of Chain swapped for the declared one.
func TestChainIsToldWhatHolds(t *testing.T) {
	modes := rapid.SampledFrom([]control.Mode{"", control.Active, control.Audit, control.Off})
	flags := rapid.SampledFrom([]*bool{nil, new(bool), func() *bool { b := true; return &b }()})
	settings := func(t *rapid.T) control.Settings {
		return control.Settings{Mode: modes.Draw(t, "mode"), FailOpen: flags.Draw(t, "failOpen"), TimeoutMs: rapid.Int64Range(0, 9).Draw(t, "ms")}
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := guard()
		if rapid.Bool().Draw(rt, "configured") {
			s := settings(rt)
			l.Configured = &s
		}
		if rapid.Bool().Draw(rt, "override") {
			l.Override = &control.Override{Settings: settings(rt), ExpiresAt: at(time.Duration(rapid.IntRange(-1, 1).Draw(rt, "left")) * time.Hour)}
		}
		e := l.At(now)
		o := e.Chain()
		mode := control.Active
		switch {
		case o.Off:
			mode = control.Off
		case o.Mode == core.ModeAudit:
			mode = control.Audit
		}
		if mode != e.Mode {
			rt.Fatalf("told %s, holds %s", mode, e.Mode)
		}
		if (o.FailOpen != nil && *o.FailOpen) != e.FailOpen {
			rt.Fatalf("told %v, holds %v", o.FailOpen, e.FailOpen)
		}
	})
}

// An override goes through the store as it is, and nothing else does.
func TestOverrideCodec(t *testing.T) {
	o, err := override(t, `{"mode":"audit","failOpen":false,"timeoutMs":5,"priorityHint":{"request":2},"hooks":[],"ticket":"T",`+why+`}`, false)
	require.NoError(t, err)
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	var back control.Override
	require.NoError(t, control.Strict(raw, &back))
	assert.Equal(t, o, &back)
	assert.Error(t, control.Strict([]byte(`{"mode":"audit","enforcePercent":50}`), &back), "half an override is another one")
}
