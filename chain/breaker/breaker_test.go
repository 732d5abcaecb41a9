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
		assert.Equal(t, map[string]string{"v": "open"}, b.States())
		before := calls.Load()
		err := call()
		require.ErrorIs(t, err, chain.ErrCircuitOpen)
		var abort *chain.AbortError
		require.ErrorAs(t, err, &abort, "closed: it stops the message")
		assert.Equal(t, chain.ReasonOverload, abort.Reason)
		assert.Equal(t, before, calls.Load(), "it is not called")

		time.Sleep(5*time.Second + time.Millisecond)
		assert.Equal(t, map[string]string{"v": "half-open"}, b.States())
		require.NotErrorIs(t, call(), chain.ErrCircuitOpen, "one is let through")
		assert.Equal(t, map[string]string{"v": "open"}, b.States(), "and shows that it is still ill")
		time.Sleep(5*time.Second + time.Millisecond)
		ill.Store(false)
		require.NoError(t, call())
		assert.Equal(t, map[string]string{"v": "closed"}, b.States())
	})
}

// While a circuit is open, failOpen decides.
func TestOpenCircuitFollowsFailOpen(t *testing.T) {
	b, call := gated(t, ct.Validator("v", ct.Fail(errors.New("ill")), ct.FailOpen))
	for range 30 {
		require.NoError(t, call())
	}
	assert.Equal(t, map[string]string{"v": "open"}, b.States())
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
			assert.Equal(t, map[string]string{"v": tt.want}, b.States(), name)
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
