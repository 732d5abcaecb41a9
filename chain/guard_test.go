package chain_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAbandonedInvokesAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		ch := newChain(t, &chain.Options{InvokeTimeout: 100 * time.Millisecond}, ct.Validator("v", ct.Deaf(time.Hour)))
		for i := range 200 {
			start := time.Now()
			res, err := ch.Execute(t.Context(), request())
			if i < chain.MaxAbandoned {
				require.ErrorIs(t, err, chain.ErrTimeout)
				assert.True(t, res.Results[0].Abandoned)
				assert.Equal(t, 100*time.Millisecond, time.Since(start))
				continue
			}
			require.ErrorIs(t, err, chain.ErrTooManyAbandoned)
			assert.Zero(t, time.Since(start), "beyond the cap an invoke fails at once")
		}
		assert.Equal(t, chain.MaxAbandoned, ch.Entries()[0].Health.Abandoned)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, ch.Entries()[0].Health.Abandoned, "what ends is counted down")
		_, err := ch.Execute(t.Context(), request())
		require.ErrorIs(t, err, chain.ErrTimeout)
	})
}

func TestHandlersContext(t *testing.T) {
	type key struct{}
	tests := map[string]struct {
		opts chain.Options
		edit ct.Edit
	}{
		"in a goroutine of its own": {edit: func(*core.Metadata) {}},
		"inline":                    {edit: ct.Inline},
		"without a deadline":        {opts: chain.Options{InvokeTimeout: -1}, edit: func(*core.Metadata) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kept context.Context
				start := time.Now()
				ch := newChain(t, &tt.opts, ct.Validator("v", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
					kept = ctx
					assert.Equal(t, "value", ctx.Value(key{}))
					assert.NoError(t, ctx.Err())
					select {
					case <-ctx.Done():
						assert.Fail(t, "done before its time")
					default:
					}
					deadline, ok := ctx.Deadline()
					assert.True(t, ok)
					assert.Equal(t, 2*time.Second, deadline.Sub(start), "the caller's own deadline is earlier")
					child, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					_, ok = child.Deadline()
					assert.True(t, ok)
					return core.Allow(), nil
				}, tt.edit))
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), 2*time.Second)
				defer cancel()
				_, err := ch.Execute(ctx, request())
				require.NoError(t, err)
				assert.ErrorIs(t, kept.Err(), context.Canceled, "a context that was kept has ended")
				<-kept.Done()
			})
		})
	}
}

// An inline handler that asks its context only now and then still sees its end.
func TestInlineHandlerSeesItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChain(t, nil, ct.Validator("v", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
			for ctx.Err() == nil {
				time.Sleep(time.Second)
			}
			return nil, ctx.Err()
		}, ct.Inline))
		start := time.Now()
		_, err := ch.Execute(t.Context(), request())
		require.ErrorIs(t, err, chain.ErrTimeout)
		assert.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestGuardDo(t *testing.T) {
	inv := &core.Invocation{Event: core.EventToolsCall, Phase: core.PhaseRequest}
	call := func(h ct.ValidatorFunc) func(context.Context, *core.Invocation) (core.Answer, error) {
		return func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
			return core.Call(ctx, ct.Validator("v", h), inv)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var g chain.Guard
		answer, err := g.Do(t.Context(), core.TypeValidation, time.Second, false, inv, call(ct.Allow))
		require.NoError(t, err)
		assert.True(t, answer.Validation.Valid)

		_, err = g.Do(t.Context(), core.TypeValidation, time.Second, false, inv, call(ct.Deaf(time.Minute)))
		require.ErrorIs(t, err, chain.ErrTimeout)
		assert.Equal(t, 1, g.Abandoned())

		var panicked *chain.PanicError
		_, err = g.Do(t.Context(), core.TypeValidation, 0, false, inv, func(context.Context, *core.Invocation) (core.Answer, error) { panic("secret") })
		require.ErrorAs(t, err, &panicked)
		assert.Contains(t, string(panicked.Stack), "TestGuardDo")
		time.Sleep(time.Hour)
		assert.Zero(t, g.Abandoned())
	})
}

// A late result of an abandoned mutator is not read, also not by the race
// detector's account.
func TestAbandonedResultIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Hour) })
		ch := newChain(t, &chain.Options{InvokeTimeout: time.Second}, ct.Mutator("m", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			time.Sleep(time.Second) // exactly at the deadline: either may win
			for i := range inv.Payload {
				inv.Payload[i] = 'x'
			}
			return core.Unchanged(), nil
		}, ct.FailOpen), ct.Mutator("n", ct.Append("n")))
		for range 50 {
			req := request()
			res, err := ch.Execute(t.Context(), req)
			require.NoError(t, err)
			assert.JSONEq(t, `{"name":"echo","log":["n"]}`, string(res.FinalPayload))
		}
	})
}
