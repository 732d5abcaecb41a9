package chain_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A ledger counts starts against ends and keeps what ended how.
type ledger struct {
	chain.NopObserver
	name string

	mu     sync.Mutex
	open   map[any]int
	events []string
	ends   map[string][]chain.Verdict
}

type ledgerKey struct{ l *ledger }

func newLedger(name string) *ledger {
	return &ledger{name: name, open: map[any]int{}, ends: map[string][]chain.Verdict{}}
}

func (l *ledger) Prepare(e *chain.Entry) any { return l.name + ":" + e.Name }

func (l *ledger) start(ctx context.Context, what string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := new(int)
	l.open[key]++
	l.events = append(l.events, l.name+" start "+what)
	return context.WithValue(ctx, ledgerKey{l}, key)
}

func (l *ledger) end(ctx context.Context, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[ctx.Value(ledgerKey{l})]--
	l.events = append(l.events, l.name+" end "+what)
}

func (l *ledger) ExecuteStart(ctx context.Context, x *chain.Execution) context.Context {
	return l.start(ctx, "execute")
}
func (l *ledger) ExecuteEnd(ctx context.Context, _ *chain.Result, _ error) { l.end(ctx, "execute") }

func (l *ledger) InvokeStart(ctx context.Context, i *chain.Invoke) context.Context {
	if i.Handle != l.name+":"+i.Entry.Name {
		panic("wrong handle")
	}
	return l.start(ctx, i.Entry.Name)
}

func (l *ledger) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	l.end(ctx, i.Entry.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[i.Entry.Name] = append(l.ends[i.Entry.Name], out.Verdict)
}

func (l *ledger) verdicts(name string) []chain.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ends[name])
}

// balanced wants each start to have exactly one end, with its own context.
func (l *ledger) balanced(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.open {
		require.Zero(t, n, l.events)
	}
}

func TestEachStartHasItsEnd(t *testing.T) {
	hang := ct.Deaf(time.Hour)
	tests := map[string]struct {
		interceptor core.Interceptor
		want        chain.Verdict
	}{
		"allow":  {ct.Validator("x", ct.Allow), chain.VerdictAllow},
		"deny":   {ct.Validator("x", ct.Deny), chain.VerdictDeny},
		"modify": {ct.Mutator("x", ct.Set(`{}`)), chain.VerdictModify},
		"error":  {ct.Validator("x", ct.Fail(errors.New("e"))), chain.VerdictError},
		"panic":  {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(1) }), chain.VerdictError},
		"Goexit": {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			runtime.Goexit()
			return nil, nil
		}), chain.VerdictError},
		"timeout":           {ct.Validator("x", hang), chain.VerdictTimeout},
		"fail-open timeout": {ct.Validator("x", hang, ct.FailOpen), chain.VerdictTimeout},
		"inline":            {ct.Validator("x", ct.Deny, ct.Inline), chain.VerdictDeny},
		"audit deny":        {ct.Validator("x", ct.Deny, ct.Audit), chain.VerdictDeny},
		"audit modify":      {ct.Mutator("x", ct.Set(`{}`), ct.Audit), chain.VerdictModify},
		"audit timeout":     {ct.Validator("x", hang, ct.Audit), chain.VerdictTimeout},
		"audit panic":       {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(1) }, ct.Audit), chain.VerdictError},
		"compat":            {ct.Validator("x", ct.Deny, func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2099"} }), chain.VerdictSkipped},
		"audit compat":      {ct.Validator("x", ct.Deny, ct.Audit, func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2099"} }), chain.VerdictSkipped},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(2 * time.Hour) })
				first, second := newLedger("first"), newLedger("second")
				ch := newChain(t, &chain.Options{Observer: first}, tt.interceptor)
				defer ch.AddObserver(second)()
				req := request()
				req.Protocol = "2026-07-28"
				_, _ = ch.Execute(t.Context(), req)
				time.Sleep(time.Minute) // audit has a deadline of its own
				for _, l := range []*ledger{first, second} {
					l.balanced(t)
					assert.Equal(t, []chain.Verdict{tt.want}, l.verdicts("x"))
				}
			})
		})
	}
}

func TestObserversNest(t *testing.T) {
	one, two := newLedger("1"), newLedger("2")
	var all []string
	record := func(l *ledger) chain.Observer { return tee{l, &all} }
	ch := newChain(t, &chain.Options{Observer: record(one)}, ct.Validator("v", ct.Allow))
	defer ch.AddObserver(record(two))()
	_, err := ch.Execute(t.Context(), request())
	require.NoError(t, err)
	assert.Equal(t, []string{"1 execute", "2 execute", "1 v", "2 v", "2 v end", "1 v end", "2 end", "1 end"}, all)
}

type tee struct {
	*ledger
	all *[]string
}

func (t tee) ExecuteStart(ctx context.Context, x *chain.Execution) context.Context {
	*t.all = append(*t.all, t.name+" execute")
	return ctx
}

func (t tee) ExecuteEnd(context.Context, *chain.Result, error) {
	*t.all = append(*t.all, t.name+" end")
}

func (t tee) InvokeStart(ctx context.Context, i *chain.Invoke) context.Context {
	*t.all = append(*t.all, t.name+" "+i.Entry.Name)
	return ctx
}

func (t tee) InvokeEnd(_ context.Context, i *chain.Invoke, _ *chain.Outcome) {
	*t.all = append(*t.all, t.name+" "+i.Entry.Name+" end")
}

// An observer that panics everywhere, and one that returns no context.
type badObserver struct{ panics bool }

func (b badObserver) do(ctx context.Context) context.Context {
	if b.panics {
		panic("observer")
	}
	return nil
}
func (b badObserver) Prepare(*chain.Entry) any { b.do(context.Background()); return nil }
func (b badObserver) MessageStart(ctx context.Context, _ *chain.Message) context.Context {
	return b.do(ctx)
}
func (b badObserver) MessageEnd(ctx context.Context, _ *chain.MessageEnd) { b.do(ctx) }
func (b badObserver) ExecuteStart(ctx context.Context, _ *chain.Execution) context.Context {
	return b.do(ctx)
}
func (b badObserver) ExecuteEnd(ctx context.Context, _ *chain.Result, _ error) { b.do(ctx) }
func (b badObserver) InvokeStart(ctx context.Context, _ *chain.Invoke) context.Context {
	return b.do(ctx)
}
func (b badObserver) InvokeEnd(ctx context.Context, _ *chain.Invoke, _ *chain.Outcome) { b.do(ctx) }

func TestObserversCannotHarm(t *testing.T) {
	for _, panics := range []bool{true, false} {
		t.Run(fmt.Sprint("panics ", panics), func(t *testing.T) {
			good := newLedger("good")
			ch := newChain(t, &chain.Options{Observer: badObserver{panics}}, ct.Validator("v", ct.Allow), ct.Mutator("m", ct.Set(`{}`)))
			defer ch.AddObserver(good)()
			res, err := ch.Execute(t.Context(), request())
			require.NoError(t, err)
			assert.Equal(t, `{}`, string(res.FinalPayload))
			good.balanced(t)
			snap := ch.Snapshot()
			ctx := snap.MessageStart(t.Context(), &chain.Message{})
			require.NotNil(t, ctx)
			snap.MessageEnd(ctx, &chain.MessageEnd{})
		})
	}
}

func TestRemovedObserverSeesNoMore(t *testing.T) {
	l := newLedger("l")
	ch := newChain(t, nil, ct.Validator("v", ct.Allow))
	remove := ch.AddObserver(l)
	assert.True(t, ch.Snapshot().Observed())
	remove()
	assert.False(t, ch.Snapshot().Observed())
	_, err := ch.Execute(t.Context(), request())
	require.NoError(t, err)
	assert.Empty(t, l.events)
}
