package chaintest

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timedOut wants a timeout of the named interceptor ("" for the whole phase).
func timedOut(name string, deadline time.Duration) func(*T, *chain.Result, error) {
	return func(t *T, res *chain.Result, err error) {
		t.Helper()
		abort := aborted(t, res, err, name, chain.StatusTimeout)
		assert.ErrorIs(t, abort, chain.ErrTimeout)
		assert.Equal(t, chain.ReasonTimeout, abort.Reason)
		assert.Equal(t, deadline, abort.Timeout)
		assert.Equal(t, "timeout", res.AbortedAt.Type)
		t.took(deadline, res.TotalDuration) // the caller is answered at the deadline
	}
}

// after wants check to hold, and the run to have taken d.
func after(d time.Duration, check func(*T, *chain.Result, error)) func(*T, *chain.Result, error) {
	return func(t *T, res *chain.Result, err error) {
		t.Helper()
		check(t, res, err)
		t.took(d, res.TotalDuration)
	}
}

// timeCases say what deadlines do.
func timeCases() []Case {
	// Long enough for processes on a busy machine; three are below the default
	// deadline of an invoke.
	const unit = 1500 * time.Millisecond
	hang := Deaf(time.Hour)
	return []Case{
		{
			Name:         "row 81: the default deadline holds against a handler that ignores its context",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Check:        timedOut("v", 5*time.Second),
		},
		{
			Name:         "row 82: a deadline per interceptor, fail closed",
			Options:      chain.Options{InvokeTimeout: unit},
			Interceptors: []core.Interceptor{Validator("v", hang), Validator("w", Allow)},
			Check: func(t *T, res *chain.Result, err error) {
				timedOut("v", unit)(t, res, err)
				assert.Equal(t, chain.VerdictAllow, outcome(t, res, "w").Verdict, "row 85: results gathered before are kept")
				out := outcome(t, res, "v")
				assert.Equal(t, chain.VerdictTimeout, out.Verdict)
				t.took(unit, out.Duration)
			},
		},
		{
			Name:         "row 82: a mutator's deadline",
			Options:      chain.Options{InvokeTimeout: unit},
			Interceptors: []core.Interceptor{Mutator("m", SlowMutator(time.Hour, `{"late":1}`))},
			Check:        timedOut("m", unit),
		},
		{
			Name:         "an override sets an interceptor's deadline",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Overrides:    map[string]chain.Overrides{"v": {Timeout: 2 * unit}},
			Check:        timedOut("v", 2*unit),
		},
		{
			Name:         "row 24: fail-open and its own deadline proceeds",
			Options:      chain.Options{InvokeTimeout: unit},
			Interceptors: []core.Interceptor{Validator("v", hang, FailOpen)},
			Check:        after(unit, passes),
		},
		{
			Name:         "row 90: a mutator that is late writes to nothing",
			Options:      chain.Options{InvokeTimeout: unit},
			Interceptors: []core.Interceptor{Mutator("a", SlowMutator(2*unit, `{"late":1}`), FailOpen), Mutator("b", SlowMutator(unit/2, `{"b":1}`))},
			Check:        after(3*unit/2, becomes(`{"b":1}`)),
		},
		{
			Name:         "row 83: the phase's deadline during validators",
			Options:      chain.Options{Timeout: unit},
			Interceptors: []core.Interceptor{Validator("a", Deny), Validator("v", hang)},
			Check: func(t *T, res *chain.Result, err error) {
				timedOut("", unit)(t, res, err)
				assert.Equal(t, chain.VerdictDeny, outcome(t, res, "a").Verdict)
			},
		},
		{
			Name:         "row 84: the phase's deadline during mutators, nothing applied",
			Options:      chain.Options{Timeout: unit},
			Interceptors: []core.Interceptor{Mutator("a", Append("1")), Mutator("b", SlowMutator(time.Hour, `{}`))},
			Check:        timedOut("", unit),
		},
		{
			Name:         "row 25: the phase's deadline aborts though the last mutator is fail-open",
			Options:      chain.Options{Timeout: unit, FailOpenBudget: -1},
			Interceptors: []core.Interceptor{Mutator("a", SlowMutator(time.Hour, `{}`), FailOpen)},
			Check:        timedOut("", unit),
		},
		{
			Name:         "row 25: and a fail-open validator",
			Options:      chain.Options{Timeout: unit, FailOpenBudget: -1},
			Interceptors: []core.Interceptor{Validator("a", hang, FailOpen)},
			Check:        timedOut("", unit),
		},
		{
			Name:         "a request's own deadline",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Request:      chain.Request{Timeout: 3 * unit},
			Check: func(t *T, res *chain.Result, err error) {
				abort := aborted(t, res, err, "", chain.StatusTimeout)
				assert.Equal(t, 3*unit, abort.Timeout)
				t.took(3*unit, res.TotalDuration)
			},
		},
		{
			Name:    "fail-open interceptors share a budget, the rest is skipped",
			Options: chain.Options{Timeout: 4 * unit, InvokeTimeout: unit},
			Interceptors: []core.Interceptor{
				Mutator("m1", SlowMutator(time.Hour, `{}`), FailOpen), Mutator("m2", SlowMutator(time.Hour, `{}`), FailOpen),
				Mutator("m3", SlowMutator(time.Hour, `{}`), FailOpen), Mutator("m4", SlowMutator(time.Hour, `{}`), FailOpen),
			},
			Check: func(t *T, res *chain.Result, err error) {
				after(2*unit, passes)(t, res, err)
				for _, name := range []string{"m1", "m2"} {
					assert.Equal(t, chain.VerdictTimeout, outcome(t, res, name).Verdict)
				}
				for _, name := range []string{"m3", "m4"} {
					assert.Equal(t, chain.VerdictSkipped, outcome(t, res, name).Verdict)
					assert.Equal(t, chain.ActionFailOpen, outcome(t, res, name).Action)
				}
			},
		},
		{
			Name:         "validators run at once",
			Interceptors: []core.Interceptor{Validator("a", Sleep(unit, core.Allow())), Validator("b", Sleep(3*unit, core.Allow())), Validator("c", Sleep(2*unit, core.Allow()))},
			Check:        after(3*unit, passes),
		},
		{
			Name: "a denial does not cut off slower validators",
			Interceptors: []core.Interceptor{
				Validator("a", Deny), Validator("b", Sleep(40*time.Millisecond, core.Deny("no"))),
				Validator("c", Sleep(60*time.Millisecond, &core.ValidationResult{Severity: "warn"})),
			},
			Check: func(t *T, res *chain.Result, err error) {
				abort := aborted(t, res, err, "a", chain.StatusValidationFailed)
				assert.Len(t, abort.Denials, 2)
				assert.Equal(t, chain.ValidationSummary{Errors: 2, Warnings: 1}, res.ValidationSummary)
			},
		},
		{
			Name:         "a handler that honours its context is cancelled at the deadline",
			Options:      chain.Options{InvokeTimeout: unit},
			Interceptors: []core.Interceptor{Validator("v", Sleep(time.Hour, core.Allow()))},
			Check:        timedOut("v", unit),
		},
		{
			Name:         "an inline handler that honours its context is ended at the deadline",
			Options:      chain.Options{InvokeTimeout: unit},
			Interceptors: []core.Interceptor{Validator("v", Sleep(time.Hour, core.Allow()), Inline)},
			Check:        timedOut("v", unit),
		},
		{
			Name:         "row 86: a caller that gives up is neither a denial nor a timeout",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Context:      cancelledAfter(unit),
			Check:        cancelled(unit),
		},
		{
			Name:         "row 86: also while a mutator runs",
			Interceptors: []core.Interceptor{Mutator("m", SlowMutator(time.Hour, `{}`))},
			Context:      cancelledAfter(unit),
			Check:        cancelled(unit),
		},
		{
			Name:         "row 86: also for an inline handler",
			Interceptors: []core.Interceptor{Validator("v", Sleep(time.Hour, core.Allow()), Inline)},
			Context:      cancelledAfter(unit),
			Check:        cancelled(unit),
		},
		{
			Name:         "row 86: also for fail-open",
			Interceptors: []core.Interceptor{Validator("v", hang, FailOpen)},
			Context:      cancelledAfter(unit),
			Check:        cancelled(unit),
		},
	}
}

func cancelledAfter(d time.Duration) func(*testing.T) context.Context {
	return func(t *testing.T) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(d, cancel)
		t.Cleanup(func() { timer.Stop(); cancel() })
		return ctx
	}
}

func cancelled(d time.Duration) func(*T, *chain.Result, error) {
	return func(t *T, res *chain.Result, err error) {
		t.Helper()
		require.ErrorIs(t, err, context.Canceled)
		var abort *chain.AbortError
		assert.NotErrorAs(t, err, &abort)
		assert.Equal(t, chain.StatusCancelled, res.Status)
		assert.Nil(t, res.AbortedAt)
		t.took(d, res.TotalDuration)
	}
}

// auditCases say that audit interceptors neither block nor change anything.
func auditCases() []Case {
	var cases []Case
	hostile := map[string]core.Interceptor{
		"row 13: denies":             Validator("x", Deny, Audit),
		"row 16: fails":              Validator("x", Fail(context.DeadlineExceeded), Audit),
		"row 20: panics":             Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("x") }, Audit),
		"row 20: no result":          Validator("x", Fail(nil), Audit),
		"row 18: hangs":              Validator("x", Deaf(time.Hour), Audit),
		"row 18: hangs inline":       Validator("x", Deaf(time.Hour), Audit, Inline),
		"row 21: rewrites":           Mutator("x", Set(`{"evil":1}`), Audit, Priority(core.NewPriority(-9))),
		"row 21: returns garbage":    Mutator("x", Set(`{{{`), Audit),
		"row 18: a mutator hangs":    Mutator("x", SlowMutator(time.Hour, `{}`), Audit, Priority(core.NewPriority(-9))),
		"scribbles on its payload":   Validator("x", scribbleValidator, Audit),
		"scribbles on its own, late": Validator("x", lateScribble, Audit),
	}
	for name, x := range hostile {
		for _, dir := range []core.Direction{core.Receiving, core.Sending} {
			cases = append(cases, Case{
				Name:         "audit " + name + ", " + string(dir),
				Interceptors: []core.Interceptor{x, Mutator("m", Append("m")), Validator("v", wantsClean)},
				Request:      chain.Request{Direction: dir, Payload: []byte(`{"clean":true}`)},
				Check:        after(0, becomes(`{"clean":true,"log":["m"]}`)),
			})
		}
		// Row 19: not even the phase's own deadline lets an audit block.
		cases = append(cases, Case{
			Name:         "audit " + name + ", inline audit",
			Options:      chain.Options{InlineAudit: true, AuditTimeout: 3 * time.Second, Timeout: 2 * time.Second},
			Interceptors: []core.Interceptor{x, Mutator("m", Append("m")), Validator("v", wantsClean)},
			Request:      chain.Request{Payload: []byte(`{"clean":true}`)},
			Check: func(t *T, res *chain.Result, err error) {
				becomes(`{"clean":true,"log":["m"]}`)(t, res, err)
				out := outcome(t, res, "x")
				assert.Equal(t, core.ModeAudit, out.Mode)
				assert.Equal(t, chain.ActionProceed, out.Action)
			},
		})
	}
	return cases
}

func scribbleValidator(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
	for i := range inv.Payload {
		inv.Payload[i] = 'x'
	}
	return core.Allow(), nil
}

func lateScribble(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
	<-ctx.Done()
	return scribbleValidator(ctx, inv)
}

func wantsClean(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
	var v struct {
		Clean bool `json:"clean"`
	}
	if err := inv.Decode(&v); err != nil || !v.Clean {
		return core.Deny("not clean"), nil
	}
	return core.Allow(), nil
}

// changeCases say that later registrations take effect, and removals.
func changeCases() []Case {
	return []Case{
		{
			Name: "row 73: a late registration takes effect, row 74: so does a removal",
			Do: func(t *T, rig *Rig) {
				res, err := t.execute(rig.Chain, chain.Request{})
				passes(t, res, err)

				require.NoError(t, rig.Add(Spare()))
				res, err = t.execute(rig.Chain, chain.Request{})
				denied("late")(t, res, err)

				pinned := rig.Chain.Snapshot()
				require.True(t, rig.Remove("late"))
				res, err = t.execute(rig.Chain, chain.Request{})
				passes(t, res, err)
				req := withDefaults(chain.Request{})
				_, err = pinned.Execute(t.Context(), &req)
				require.Error(t, err, "a pinned policy keeps the guard, or fails for want of it")
			},
		},
		{
			Name:         "after Close a guarded message is refused, an unguarded one is not",
			Interceptors: []core.Interceptor{Validator("v", Allow)},
			Do: func(t *T, rig *Rig) {
				require.NoError(t, rig.Chain.Close())
				_, err := t.execute(rig.Chain, chain.Request{})
				require.ErrorIs(t, err, chain.ErrClosed)
				_, err = t.execute(rig.Chain, chain.Request{Event: "tools/list"})
				require.NoError(t, err)
			},
		},
	}
}

// Spare is the interceptor that cases add to a chain that exists.
func Spare() core.Interceptor { return Validator("late", Deny) }
