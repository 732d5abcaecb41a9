package breaker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/chain/breaker"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A host of one interceptor.
type host struct{ core.Interceptor }

func (h host) List(context.Context) ([]core.Descriptor, error) {
	return []core.Descriptor{h.Describe()}, nil
}

func (h host) Invoke(ctx context.Context, _ string, inv *core.Invocation) (core.Answer, error) {
	return core.Call(ctx, h.Interceptor, inv)
}
func (host) Close() error { return nil }

// gated returns a chain of one interceptor behind a breaker, and what calls it.
func gated(t *testing.T, i core.Interceptor) (b *breaker.Breaker, call func() error) {
	t.Helper()
	b = breaker.New(nil)
	ch, err := chain.New(&chain.Options{Gate: b, InvokeTimeout: 10 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	require.NoError(t, ch.AddHost(context.Background(), "h", host{i}))
	return b, func() error {
		_, err := ch.Execute(context.Background(), &chain.Request{
			Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving,
		})
		return err
	}
}

// stateOf returns the state of v.
func stateOf(b *breaker.Breaker) string { return string(b.Circuits()["v"].State) }

// An interceptor that keeps failing is left alone, tried again after a while, and
// back once it is well.
func TestCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ill atomic.Bool
		var calls atomic.Int64
		b, call := gated(t, ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			calls.Add(1)
			if ill.Load() {
				return nil, errors.New("ill")
			}
			return core.Allow(), nil
		}))
		for range 10 {
			require.NoError(t, call())
		}
		ill.Store(true)
		for range 10 {
			require.Error(t, call())
		}
		assert.Equal(t, "open", stateOf(b))
		before := calls.Load()
		err := call()
		require.ErrorIs(t, err, chain.ErrCircuitOpen)
		var abort *chain.AbortError
		require.ErrorAs(t, err, &abort, "closed: it stops the message")
		assert.Equal(t, chain.ReasonOverload, abort.Reason)
		assert.Equal(t, before, calls.Load(), "it is not called")

		time.Sleep(5*time.Second + time.Millisecond)
		assert.Equal(t, "half-open", stateOf(b))
		require.NotErrorIs(t, call(), chain.ErrCircuitOpen, "one is let through")
		assert.Equal(t, "open", stateOf(b), "and shows that it is still ill")
		time.Sleep(5*time.Second + time.Millisecond)
		ill.Store(false)
		require.NoError(t, call())
		assert.Equal(t, "closed", stateOf(b))
	})
}

// While a circuit is open, failOpen decides.
func TestOpenCircuitFollowsFailOpen(t *testing.T) {
	b, call := gated(t, ct.Validator("v", ct.Fail(errors.New("ill")), ct.FailOpen))
	for range 30 {
		require.NoError(t, call())
	}
	assert.Equal(t, "open", stateOf(b))
}

// Denials are what validators are for, panics and hangs are failures.
func TestWhatIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			handler ct.ValidatorFunc
			want    string
		}{
			"denial": {ct.Deny, "closed"},
			"panic":  {func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("x") }, "open"},
			"nil":    {func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return nil, nil }, "open"},
			"hang":   {ct.Sleep(time.Hour, core.Allow()), "open"},
		} {
			b, call := gated(t, ct.Validator("v", tt.handler))
			for range 25 {
				_ = call()
			}
			assert.Equal(t, tt.want, stateOf(b), name)
		}
	})
}

// An operator can close a circuit by hand.
func TestReset(t *testing.T) {
	b, call := gated(t, ct.Validator("v", ct.Fail(errors.New("ill"))))
	for range 25 {
		_ = call()
	}
	require.ErrorIs(t, call(), chain.ErrCircuitOpen)
	assert.False(t, b.Reset("nobody"))
	assert.True(t, b.Reset("v"))
	require.NotErrorIs(t, call(), chain.ErrCircuitOpen)
}

// Whoever watches is told each change once, in order, and none of a circuit that
// was replaced.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		release := make(chan struct{})
		b, call := gated(t, ct.Validator("v", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			select {
			case <-release:
				return core.Allow(), nil
			default:
				return nil, errors.New("ill")
			}
		}))
		stop := b.Watch(func(name string, from, to chain.CircuitState) {
			told = append(told, name+": "+string(from)+" to "+string(to))
		})
		for range 25 {
			_ = call()
		}
		time.Sleep(5*time.Second + time.Millisecond)
		_ = call()
		require.True(t, b.Reset("v"))
		require.True(t, b.Reset("v"), "again, which changes nothing")
		assert.Equal(t, []string{
			"v: closed to open", "v: open to half-open", "v: half-open to open", "v: open to closed",
		}, told)
		c := b.Circuits()["v"]
		assert.EqualValues(t, 2, c.Opened)
		assert.Equal(t, time.Now().UnixNano(), c.Since.UnixNano())
		stop()
		for range 25 {
			_ = call()
		}
		assert.Len(t, told, 4)
	})
}

// A call that began before a reset does not count against the new circuit.
func TestResetForgetsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(nil)
		e := &chain.Entry{Descriptor: core.Descriptor{Metadata: core.Metadata{Name: "v"}}}
		changes := 0
		defer b.Watch(func(string, chain.CircuitState, chain.CircuitState) { changes++ })()
		var ends []func(*chain.Outcome)
		for range 25 {
			done, err := b.Enter(e)
			require.NoError(t, err)
			ends = append(ends, done)
		}
		require.True(t, b.Reset("v"))
		for _, done := range ends {
			done(&chain.Outcome{Entry: e, Verdict: chain.VerdictError, Ran: true})
		}
		assert.Equal(t, "closed", stateOf(b))
		assert.Zero(t, changes)
	})
}
