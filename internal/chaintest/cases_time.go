package chaintest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timedOut wants a timeout of the named interceptor ("" for the whole phase).
func timedOut(name string, deadline time.Duration) func(*testing.T, *chain.Result, error) {
	return func(t *testing.T, res *chain.Result, err error) {
		t.Helper()
		abort := aborted(t, res, err, name, chain.StatusTimeout)
		assert.ErrorIs(t, abort, chain.ErrTimeout)
		assert.Equal(t, chain.ReasonTimeout, abort.Reason)
		assert.Equal(t, deadline, abort.Timeout)
		assert.Equal(t, "timeout", res.AbortedAt.Type)
		assert.Equal(t, deadline, res.TotalDuration, "the caller is answered at the deadline")
	}
}

// after wants check to hold, and the run to have taken exactly d.
func after(d time.Duration, check func(*testing.T, *chain.Result, error)) func(*testing.T, *chain.Result, error) {
	return func(t *testing.T, res *chain.Result, err error) {
		t.Helper()
		check(t, res, err)
		assert.Equal(t, d, res.TotalDuration)
	}
}

// timeCases say what deadlines do.
func timeCases() []Case {
	const second = time.Second
	hang := Deaf(time.Hour)
	return []Case{
		{
			Name:         "row 81: the default deadline holds against a handler that ignores its context",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Check:        timedOut("v", 5*second),
		},
		{
			Name:         "row 82: a deadline per interceptor, fail closed",
			Options:      chain.Options{InvokeTimeout: second},
			Interceptors: []core.Interceptor{Validator("v", hang), Validator("w", Allow)},
			Check: func(t *testing.T, res *chain.Result, err error) {
				timedOut("v", second)(t, res, err)
				assert.Equal(t, chain.VerdictAllow, outcome(t, res, "w").Verdict, "row 85: results gathered before are kept")
				out := outcome(t, res, "v")
				assert.Equal(t, chain.VerdictTimeout, out.Verdict)
				assert.Equal(t, second, out.Duration)
			},
		},
		{
			Name:         "row 82: a mutator's deadline",
			Options:      chain.Options{InvokeTimeout: second},
			Interceptors: []core.Interceptor{Mutator("m", SlowMutator(time.Hour, `{"late":1}`))},
			Check:        timedOut("m", second),
		},
		{
			Name:         "an override sets an interceptor's deadline",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Overrides:    map[string]chain.Overrides{"v": {Timeout: 2 * second}},
			Check:        timedOut("v", 2*second),
		},
		{
			Name:         "row 24: fail-open and its own deadline proceeds",
			Options:      chain.Options{InvokeTimeout: second},
			Interceptors: []core.Interceptor{Validator("v", hang, FailOpen)},
			Check:        after(second, passes),
		},
		{
			Name:         "row 90: a mutator that is late writes to nothing",
			Options:      chain.Options{InvokeTimeout: second},
			Interceptors: []core.Interceptor{Mutator("a", SlowMutator(2*second, `{"late":1}`), FailOpen), Mutator("b", SlowMutator(second/2, `{"b":1}`))},
			Check:        after(3*second/2, becomes(`{"b":1}`)),
		},
		{
			Name:         "row 83: the phase's deadline during validators",
			Options:      chain.Options{Timeout: second},
			Interceptors: []core.Interceptor{Validator("a", Deny), Validator("v", hang)},
			Check: func(t *testing.T, res *chain.Result, err error) {
				timedOut("", second)(t, res, err)
				assert.Equal(t, chain.VerdictDeny, outcome(t, res, "a").Verdict)
			},
		},
		{
			Name:         "row 84: the phase's deadline during mutators, nothing applied",
			Options:      chain.Options{Timeout: second},
			Interceptors: []core.Interceptor{Mutator("a", Append("1")), Mutator("b", SlowMutator(time.Hour, `{}`))},
			Check:        timedOut("", second),
		},
		{
			Name:         "row 25: the phase's deadline aborts though the last mutator is fail-open",
			Options:      chain.Options{Timeout: second, FailOpenBudget: -1},
			Interceptors: []core.Interceptor{Mutator("a", SlowMutator(time.Hour, `{}`), FailOpen)},
			Check:        timedOut("", second),
		},
		{
			Name:         "row 25: and a fail-open validator",
			Options:      chain.Options{Timeout: second, FailOpenBudget: -1},
			Interceptors: []core.Interceptor{Validator("a", hang, FailOpen)},
			Check:        timedOut("", second),
		},
		{
			Name:         "a request's own deadline",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Request:      chain.Request{Timeout: 3 * second},
			Check: func(t *testing.T, res *chain.Result, err error) {
				abort := aborted(t, res, err, "", chain.StatusTimeout)
				assert.Equal(t, 3*second, abort.Timeout)
				assert.Equal(t, 3*second, res.TotalDuration)
			},
		},
		{
			Name:    "fail-open interceptors share a budget, the rest is skipped",
			Options: chain.Options{Timeout: 4 * second, InvokeTimeout: second},
			Interceptors: []core.Interceptor{
				Mutator("m1", SlowMutator(time.Hour, `{}`), FailOpen), Mutator("m2", SlowMutator(time.Hour, `{}`), FailOpen),
				Mutator("m3", SlowMutator(time.Hour, `{}`), FailOpen), Mutator("m4", SlowMutator(time.Hour, `{}`), FailOpen),
			},
			Check: func(t *testing.T, res *chain.Result, err error) {
				after(2*second, passes)(t, res, err)
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
			Interceptors: []core.Interceptor{Validator("a", Sleep(second, core.Allow())), Validator("b", Sleep(3*second, core.Allow())), Validator("c", Sleep(2*second, core.Allow()))},
			Check:        after(3*second, passes),
		},
		{
			Name: "a denial does not cut off slower validators",
			Interceptors: []core.Interceptor{
				Validator("a", Deny), Validator("b", Sleep(40*time.Millisecond, core.Deny("no"))),
				Validator("c", Sleep(60*time.Millisecond, &core.ValidationResult{Severity: "warn"})),
			},
			Check: func(t *testing.T, res *chain.Result, err error) {
				abort := aborted(t, res, err, "a", chain.StatusValidationFailed)
				assert.Len(t, abort.Denials, 2)
				assert.Equal(t, chain.ValidationSummary{Errors: 2, Warnings: 1}, res.ValidationSummary)
			},
		},
		{
			Name:         "a handler that honours its context is cancelled at the deadline",
			Options:      chain.Options{InvokeTimeout: second},
			Interceptors: []core.Interceptor{Validator("v", Sleep(time.Hour, core.Allow()))},
			Check:        timedOut("v", second),
		},
		{
			Name:         "an inline handler that honours its context is ended at the deadline",
			Options:      chain.Options{InvokeTimeout: second},
			Interceptors: []core.Interceptor{Validator("v", Sleep(time.Hour, core.Allow()), Inline)},
			Check:        timedOut("v", second),
		},
		{
			Name:         "row 86: a caller that gives up is neither a denial nor a timeout",
			Interceptors: []core.Interceptor{Validator("v", hang)},
			Context:      cancelledAfter(second),
			Check:        cancelled(second),
		},
		{
			Name:         "row 86: also while a mutator runs",
			Interceptors: []core.Interceptor{Mutator("m", SlowMutator(time.Hour, `{}`))},
			Context:      cancelledAfter(second),
			Check:        cancelled(second),
		},
		{
			Name:         "row 86: also for an inline handler",
			Interceptors: []core.Interceptor{Validator("v", Sleep(time.Hour, core.Allow()), Inline)},
			Context:      cancelledAfter(second),
			Check:        cancelled(second),
		},
		{
			Name:         "row 86: also for fail-open",
			Interceptors: []core.Interceptor{Validator("v", hang, FailOpen)},
			Context:      cancelledAfter(second),
			Check:        cancelled(second),
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

func cancelled(d time.Duration) func(*testing.T, *chain.Result, error) {
	return func(t *testing.T, res *chain.Result, err error) {
		t.Helper()
		require.ErrorIs(t, err, context.Canceled)
		var abort *chain.AbortError
		assert.NotErrorAs(t, err, &abort)
		assert.Equal(t, chain.StatusCancelled, res.Status)
		assert.Nil(t, res.AbortedAt)
		assert.Equal(t, d, res.TotalDuration)
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
			Options:      chain.Options{InlineAudit: true, AuditTimeout: time.Second, Timeout: 500 * time.Millisecond},
			Interceptors: []core.Interceptor{x, Mutator("m", Append("m")), Validator("v", wantsClean)},
			Request:      chain.Request{Payload: []byte(`{"clean":true}`)},
			Check: func(t *testing.T, res *chain.Result, err error) {
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

// runChanges says that later registrations take effect, and removals.
func runChanges(t *testing.T, newRig NewRig) {
	t.Run("row 73: a late registration takes effect, row 74: so does a removal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rig := newRig(t, &chain.Options{})
			req := withDefaults(chain.Request{})
			_, err := rig.Chain.Execute(t.Context(), &req)
			require.NoError(t, err)

			require.NoError(t, rig.Add(Validator("late", Deny)))
			res, err := rig.Chain.Execute(t.Context(), &req)
			denied("late")(t, res, err)

			pinned := rig.Chain.Snapshot()
			require.True(t, rig.Remove("late"))
			_, err = rig.Chain.Execute(t.Context(), &req)
			require.NoError(t, err)
			_, err = pinned.Execute(t.Context(), &req)
			require.Error(t, err, "a pinned policy keeps the guard, or fails for want of it")
		})
	})
	t.Run("after Close a guarded message is refused, an unguarded one is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rig := newRig(t, &chain.Options{}, Validator("v", Allow))
			require.NoError(t, rig.Chain.Close())
			req := withDefaults(chain.Request{})
			_, err := rig.Chain.Execute(t.Context(), &req)
			require.ErrorIs(t, err, chain.ErrClosed)
			req.Event = "tools/list"
			_, err = rig.Chain.Execute(t.Context(), &req)
			require.NoError(t, err)
		})
	})
}
