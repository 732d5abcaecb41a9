package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A hookedHost runs something while it is being listed.
type hookedHost struct {
	fakeHost
	onList func()
}

func (h *hookedHost) List(ctx context.Context) ([]core.Descriptor, error) {
	if h.onList != nil {
		h.onList()
	}
	return h.fakeHost.List(ctx)
}

// A binder is a host in this process whose interceptors change.
type binder struct {
	fakeHost
	changed func()
}

func (b *binder) Bindings() []chain.Binding {
	list, _ := b.List(context.Background())
	out := make([]chain.Binding, len(list))
	for i, d := range list {
		out[i] = chain.Binding{Descriptor: d, Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
			return b.Invoke(ctx, d.Name, inv)
		}}
	}
	return out
}

func (b *binder) Watch(changed func()) (stop func()) {
	b.changed = changed
	return func() {}
}

// A closed chain stays closed, whatever is called on it later or at the time.
func TestClosedChainStaysClosed(t *testing.T) {
	tests := map[string]func(t *testing.T, ch *chain.Chain){
		"an observer that is removed": func(_ *testing.T, ch *chain.Chain) {
			remove := ch.AddObserver(chain.NopObserver{})
			_ = ch.Close()
			remove()
		},
		"an observer that is added": func(_ *testing.T, ch *chain.Chain) { _ = ch.Close(); ch.AddObserver(chain.NopObserver{}) },
		"a refresh under way": func(t *testing.T, ch *chain.Chain) {
			h := &hookedHost{}
			require.NoError(t, ch.AddHost(t.Context(), "h", h))
			h.onList = func() { _ = ch.Close() }
			require.ErrorIs(t, ch.Refresh(t.Context()), chain.ErrClosed)
		},
		"a host that changes": func(t *testing.T, ch *chain.Chain) {
			b := &binder{}
			require.NoError(t, ch.AddHost(t.Context(), "b", b))
			_ = ch.Close()
			b.changed()
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, nil, ct.Validator("v", ct.Allow))
			do(t, ch)
			_, err := ch.Execute(t.Context(), request())
			require.ErrorIs(t, err, chain.ErrClosed)
			assert.True(t, ch.Snapshot().Closed())
		})
	}
}

func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChain(t, nil, ct.Validator("v", ct.Deaf(500*time.Millisecond), ct.Audit))
		_, err := ch.Execute(t.Context(), request())
		require.NoError(t, err)
		start := time.Now()
		go func() { _ = ch.Close() }()
		synctest.Wait()
		require.NoError(t, ch.Close())
		assert.Equal(t, 500*time.Millisecond, time.Since(start))
	})
}

// A guard that comes while a refresh lists other hosts is not lost to it.
func TestRefreshKeepsWhatCameMeanwhile(t *testing.T) {
	b, h := &binder{}, &hookedHost{}
	ch, err := chain.New(nil)
	require.NoError(t, err)
	defer ch.Close()
	require.NoError(t, ch.AddHost(t.Context(), "local", b))
	require.NoError(t, ch.AddHost(t.Context(), "remote", h))
	h.onList = func() { b.set(ct.Validator("guard", ct.Deny)); b.changed() }
	require.NoError(t, ch.Refresh(t.Context()))
	_, err = ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrDenied)
}

// A host that is refused is live at no moment.
func TestRefusedHostIsNeverLive(t *testing.T) {
	ch := newChain(t, nil, ct.Validator("v", ct.Allow, ct.On(core.PhaseRequest, core.EventToolsList)))
	live := false
	defer ch.AddObserver(preparer(func() { live = live || ch.Snapshot().Hooked(core.EventToolsCall, core.PhaseRequest) }))()
	require.Error(t, ch.AddHost(t.Context(), "bad", &fakeHost{list: []core.Interceptor{ct.Validator("w", ct.Deny), ct.Validator("v", ct.Deny)}}))
	assert.False(t, live)
}

type prepare struct {
	chain.NopObserver
	f func()
}

func preparer(f func()) chain.Observer     { return prepare{f: f} }
func (p prepare) Prepare(*chain.Entry) any { p.f(); return nil }

// What Entries returns is the caller's to write to.
func TestEntriesAreCopies(t *testing.T) {
	ch := newChain(t, nil, ct.Validator("v", ct.Deny))
	e := ch.Entries()[0]
	e.Hooks[0].Events[0], e.Effective.Hooks[0].Events[0] = "x", "x"
	require.NoError(t, ch.SetOverrides(nil)) // plans are made anew
	_, err := ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrDenied)
}

// Where only audits are hooked, neither a deadline nor a caller that is gone
// nor a payload that cannot be read stops a message.
func TestAuditOnlyNeverStops(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx  context.Context
		edit func(*chain.Request)
	}{
		"no time":            {t.Context(), func(r *chain.Request) { r.Timeout = 1 }},
		"caller is gone":     {gone, func(*chain.Request) {}},
		"unreadable payload": {t.Context(), func(r *chain.Request) { r.Payload, r.Unreadable = nil, errors.New("odd") }},
	}
	for name, tt := range tests {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " inline ", inline), func(t *testing.T) {
				l := newLedger("l")
				ch := newChain(t, &chain.Options{Observer: l, InlineAudit: inline}, ct.Validator("v", ct.Deny, ct.Audit), ct.Mutator("m", ct.Set(`{}`), ct.Audit))
				req := request()
				tt.edit(req)
				_, err := ch.Execute(tt.ctx, req)
				require.NoError(t, err)
				require.NoError(t, ch.Close())
				l.balanced(t)
				assert.Len(t, l.verdicts("v"), 1)
			})
		}
	}
}

// An unreadable payload is a failure of what is active.
func TestUnreadablePayload(t *testing.T) {
	odd := errors.New("odd")
	for failOpen, edits := range map[bool][]ct.Edit{false: nil, true: {ct.FailOpen}} {
		ch := newChain(t, nil, ct.Validator("v", ct.Allow, edits...))
		req := request()
		req.Payload, req.Unreadable = nil, odd
		_, err := ch.Execute(t.Context(), req)
		if failOpen {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, odd)
	}
}

// flaky is data whose encoder works once.
type flaky struct{ runs *atomic.Int64 }

func (f flaky) MarshalJSON() ([]byte, error) {
	if f.runs.Add(1) > 1 {
		panic("once is enough")
	}
	return []byte(`1`), nil
}

// An answer's own encoders run once, where their panics are contained.
func TestEncodersOfAnswersRunOnce(t *testing.T) {
	for _, edits := range [][]ct.Edit{nil, {ct.Inline}, {ct.Audit}} {
		l := newLedger("l")
		ch := newChain(t, &chain.Options{Observer: l}, ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			return &core.ValidationResult{Valid: true, Info: map[string]any{"x": flaky{new(atomic.Int64)}}}, nil
		}, edits...))
		_, err := ch.Execute(t.Context(), request())
		require.NoError(t, err)
		require.NoError(t, ch.Close())
		assert.Equal(t, []chain.Verdict{chain.VerdictAllow}, l.verdicts("v"))
	}
}

// Row 90: a mutator that keeps its payload writes to nobody else's.
func TestMutatorsShareNoBuffer(t *testing.T) {
	var kept []byte
	var before, after string
	ch := newChain(t, nil,
		ct.Mutator("a", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			kept = inv.Payload
			return core.Unchanged(), nil
		}),
		ct.Mutator("b", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			before = string(inv.Payload)
			copy(kept, `{"NAME"`)
			after = string(inv.Payload)
			return core.Unchanged(), nil
		}))
	_, err := ch.Execute(t.Context(), request())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// A validator that scribbles on the shared buffer reaches neither mutators nor
// audit nor what goes on.
func TestScribblingValidatorReachesNothingElse(t *testing.T) {
	audited := make(chan string, 1)
	ch := newChain(t, nil,
		ct.Validator("scribbles", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			copy(inv.Payload, bytes.Repeat([]byte("x"), len(inv.Payload)))
			return core.Allow(), nil
		}),
		ct.Mutator("m", ct.Append("m")),
		ct.Mutator("z", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			audited <- string(inv.Payload)
			return core.Unchanged(), nil
		}, ct.Audit))
	req := request()
	req.Payload, req.Disposable = []byte(`{"a":1}`), true
	if writesAreChecked {
		t.Log("this build names the writer instead")
		return
	}
	res, err := ch.Execute(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, `{"a":1,"log":["m"]}`, string(res.FinalPayload))
	assert.Equal(t, `{"a":1,"log":["m"]}`, <-audited)
}

// A configuration is handed out as a copy each time.
func TestConfigIsCopiedPerInvoke(t *testing.T) {
	ch := newChain(t, &chain.Options{Config: map[string]map[string]any{"v": {"list": []any{"a"}}}},
		ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			list := inv.Config["list"].([]any)
			if list[0] != "a" || inv.Config["mine"] != nil {
				return core.Deny("changed"), nil
			}
			list[0], inv.Config["mine"] = "b", true
			return core.Allow(), nil
		}))
	for range 2 {
		_, err := ch.Execute(t.Context(), request())
		require.NoError(t, err)
	}
}

// What is left of the budget bounds a fail-open invoke.
func TestBudgetShortensTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		ch := newChain(t, &chain.Options{FailOpenBudget: 3 * time.Second}, ct.Validator("v", ct.Deaf(time.Hour), ct.FailOpen))
		start := time.Now()
		_, err := ch.Execute(t.Context(), request())
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

// An audit run's context does not end with its request.
func TestAuditContextIsDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		ch := newChain(t, nil, ct.Validator("x", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
			time.Sleep(time.Second)
			ended <- ctx.Err()
			return core.Allow(), nil
		}, ct.Audit))
		ctx, cancel := context.WithCancel(t.Context())
		_, err := ch.Execute(ctx, request())
		require.NoError(t, err)
		cancel()
		require.NoError(t, <-ended)
	})
}

// Narrowed hooks do not keep alive what a host has withdrawn.
func TestNarrowedHooksFollowTheDeclaredOnes(t *testing.T) {
	h := &fakeHost{list: []core.Interceptor{ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, "*"))}}
	ch, err := chain.New(nil)
	require.NoError(t, err)
	defer ch.Close()
	require.NoError(t, ch.AddHost(t.Context(), "h", h))
	require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"v": {Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}}}}))
	h.set(ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, core.EventToolsList)))
	require.NoError(t, ch.Refresh(t.Context()))
	_, err = ch.Execute(t.Context(), request())
	require.NoError(t, err)
}

// Inline handlers have their own time each, from when they begin.
func TestInlineHandlersHaveTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := ct.Deaf(20 * time.Millisecond)
		ch := newChain(t, &chain.Options{InvokeTimeout: 50 * time.Millisecond},
			ct.Validator("a", slow, ct.Inline), ct.Validator("b", slow, ct.Inline), ct.Validator("c", slow, ct.Inline),
			ct.Validator("d", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
				return core.Allow(), ctx.Err()
			}, ct.Inline))
		res, err := ch.Execute(t.Context(), request())
		require.NoError(t, err)
		for _, out := range res.Results[:3] {
			assert.Equal(t, 20*time.Millisecond, out.Duration)
		}
	})
}

// Callers that give up do not use up a guard: only a handler that runs on past
// its own deadline counts.
func TestCancellationsAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChain(t, &chain.Options{InvokeTimeout: time.Second}, ct.Validator("v", ct.Deaf(500*time.Millisecond)), ct.Validator("w", ct.Deaf(2*time.Second)))
		ctx, cancel := context.WithCancel(t.Context())
		for range chain.MaxAbandoned {
			go func() { _, _ = ch.Execute(ctx, request()) }()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		assert.Zero(t, ch.Entries()[0].Health.Abandoned)
		req := request()
		req.Interceptors = []string{"v"}
		_, err := ch.Execute(t.Context(), req)
		require.NoError(t, err)
		time.Sleep(time.Second) // the others' deadline passes
		synctest.Wait()
		assert.Zero(t, ch.Entries()[0].Health.Abandoned)
		assert.Equal(t, chain.MaxAbandoned, ch.Entries()[1].Health.Abandoned)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, ch.Entries()[1].Health.Abandoned)
	})
}

// panicApplier cannot judge a payload without a panic.
type panicApplier struct{}

func (panicApplier) Apply(json.RawMessage) (chain.Applied, error) { panic("odd decoder") }

// A panic in the judgement of a payload is the failure of who made it.
func TestApplierPanics(t *testing.T) {
	for failOpen, edits := range map[bool][]ct.Edit{false: nil, true: {ct.FailOpen}} {
		l := newLedger("l")
		ch := newChain(t, &chain.Options{Observer: l}, ct.Mutator("m", ct.Set(`{}`), edits...))
		req := request()
		req.Applier = panicApplier{}
		res, err := ch.Execute(t.Context(), req)
		l.balanced(t)
		if failOpen {
			require.NoError(t, err)
			assert.False(t, res.Mutated)
			continue
		}
		require.ErrorIs(t, err, chain.ErrUnfit)
		assert.Equal(t, chain.StatusMutationFailed, res.Status)
	}
}

// A host can be taken out and another put in its place.
func TestRemoveHost(t *testing.T) {
	dead := &fakeHost{list: []core.Interceptor{ct.Validator("guard", ct.Fail(errors.New("dead")))}}
	ch, err := chain.New(nil)
	require.NoError(t, err)
	defer ch.Close()
	require.NoError(t, ch.AddHost(t.Context(), "h", dead))
	require.Error(t, ch.RemoveHost("nobody"))
	require.NoError(t, ch.RemoveHost("h"))
	assert.Equal(t, 1, dead.closed)
	assert.Empty(t, ch.Entries())
	_, err = ch.Execute(t.Context(), request())
	require.NoError(t, err)
	require.NoError(t, ch.AddHost(t.Context(), "h", &fakeHost{list: []core.Interceptor{ct.Validator("guard", ct.Deny)}}))
	_, err = ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrDenied)
	assert.Equal(t, []string{"h"}, ch.Hosts())
}

// What observers are told of a mutator is what the result says, also where its
// change turns out not to fit.
func TestObserversSeeTheFinalOutcome(t *testing.T) {
	var ended *chain.Outcome
	l := outcomeObserver{f: func(out *chain.Outcome) { ended = out }}
	ch := newChain(t, &chain.Options{Observer: l}, ct.Mutator("m", ct.Set(`{}`)))
	req := request()
	req.Applier = panicApplier{}
	res, err := ch.Execute(t.Context(), req)
	require.Error(t, err)
	assert.Equal(t, chain.ActionBlock, ended.Action)
	assert.Equal(t, res.Results[0], *ended)
}

type outcomeObserver struct {
	chain.NopObserver
	f func(*chain.Outcome)
}

func (o outcomeObserver) InvokeEnd(_ context.Context, _ *chain.Invoke, out *chain.Outcome) { o.f(out) }

// A phase that runs out of time says whom it was waiting for.
func TestPhaseTimeoutNamesTheUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		ch := newChain(t, &chain.Options{Timeout: time.Second}, ct.Validator("a", ct.Allow), ct.Validator("slow", ct.Deaf(time.Hour)))
		_, err := ch.Execute(t.Context(), request())
		var abort *chain.AbortError
		require.ErrorAs(t, err, &abort)
		assert.Equal(t, []string{"slow"}, abort.Unfinished)
		assert.ErrorContains(t, err, `"slow"`)
	})
}
