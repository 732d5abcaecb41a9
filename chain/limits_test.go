package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// outcomes runs n executions at once and counts how they end.
func outcomes(ch *chain.Chain, n int, req func() *chain.Request) (passed, refused, other int64) {
	var ok, overload, rest atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			_, err := ch.Execute(context.Background(), req())
			var abort *chain.AbortError
			switch {
			case err == nil:
				ok.Add(1)
			case errors.As(err, &abort) && abort.Reason == chain.ReasonOverload && errors.Is(err, chain.ErrOverload):
				overload.Add(1)
			default:
				rest.Add(1)
			}
		})
	}
	all.Wait()
	return ok.Load(), overload.Load(), rest.Load()
}

// A burst against a slow interceptor ends with as many goroutines as its limit
// says and with refusals for the rest, takes nothing from its neighbours, and
// is over within the second that it takes.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		slow := func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			time.Sleep(time.Second)
			return core.Allow(), nil
		}
		ch := newChain(t, &chain.Options{MaxConcurrent: 100},
			ct.Validator("slow", slow), ct.Validator("quick", ct.Allow, ct.On(core.PhaseRequest, core.EventResourcesRead)))
		neighbour := make(chan time.Duration, 1)
		go func() {
			time.Sleep(500 * time.Millisecond) // in the middle of it
			start := time.Now()
			req := request()
			req.Event = core.EventResourcesRead
			_, err := ch.Execute(context.Background(), req)
			assert.NoError(t, err)
			neighbour <- time.Since(start)
		}()
		start := time.Now()
		passed, refused, other := outcomes(ch, 10_000, request)
		assert.EqualValues(t, 100, passed)
		assert.EqualValues(t, 9_900, refused)
		assert.Zero(t, other)
		assert.LessOrEqual(t, most.Load(), int64(100))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Zero(t, <-neighbour)
		assert.Less(t, runtime.NumGoroutine(), 100, "nothing is left of it")
		passed, _, _ = outcomes(ch, 100, request)
		assert.EqualValues(t, 100, passed, "it has recovered")
	})
}

// What is over the limit follows the policy of the interceptor.
func TestOverloadFollowsFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChain(t, &chain.Options{MaxConcurrent: 1}, ct.Validator("v", ct.Sleep(time.Second, core.Allow()), ct.FailOpen))
		passed, refused, other := outcomes(ch, 50, request)
		assert.EqualValues(t, 50, passed)
		assert.Zero(t, refused+other)
	})
}

// All interceptors together have a limit too.
func TestInflightOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepy := ct.Sleep(time.Second, core.Allow())
		ch := newChain(t, &chain.Options{MaxInflight: 10}, ct.Validator("a", sleepy), ct.Validator("b", sleepy))
		passed, refused, other := outcomes(ch, 50, request)
		assert.LessOrEqual(t, passed, int64(5))
		assert.EqualValues(t, 50, passed+refused)
		assert.Zero(t, other)
	})
}

// Without limits there are none; and a handler that panics or ends its goroutine
// gives its place back.
func TestPlacesAreGivenBack(t *testing.T) {
	bad := func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("x") }
	gone := func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		runtime.Goexit()
		return nil, nil
	}
	for name, v := range map[string]core.Interceptor{
		"panic": ct.Validator("v", bad), "inline panic": ct.Validator("v", bad, ct.Inline), "goexit": ct.Validator("v", gone),
		"deny": ct.Validator("v", ct.Deny), "mutator": ct.Mutator("m", ct.Keep),
	} {
		ch := newChain(t, &chain.Options{MaxConcurrent: 1, MaxInflight: 1}, v)
		for range 20 {
			_, err := ch.Execute(context.Background(), request())
			require.NotErrorIs(t, err, chain.ErrOverload, name)
		}
	}
	ch := newChain(t, &chain.Options{MaxConcurrent: -1, MaxInflight: -1}, ct.Validator("v", ct.Allow))
	passed, _, _ := outcomes(ch, 2_000, request)
	assert.EqualValues(t, 2_000, passed)
}

// A payload that is too large is shown to nobody, in part or whole.
func TestPayloadsThatAreTooLarge(t *testing.T) {
	seen := 0
	look := func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		seen++
		return core.Allow(), nil
	}
	large := func() *chain.Request {
		req := request()
		req.Payload = json.RawMessage(`{"x":"` + strings.Repeat("y", 100) + `"}`)
		return req
	}
	ch := newChain(t, &chain.Options{MaxPayload: 100}, ct.Validator("v", look))
	_, err := ch.Execute(context.Background(), large())
	require.ErrorIs(t, err, chain.ErrPayloadTooLarge)
	var abort *chain.AbortError
	require.ErrorAs(t, err, &abort)
	assert.Equal(t, chain.ReasonOverload, abort.Reason)
	assert.Zero(t, seen)
	ch = newChain(t, &chain.Options{MaxPayload: 100}, ct.Validator("v", look, ct.FailOpen), ct.Validator("a", look, ct.Audit))
	res, err := ch.Execute(context.Background(), large())
	require.NoError(t, err)
	assert.Equal(t, large().Payload, res.FinalPayload, "it goes on as it was")
	assert.Zero(t, seen)
	ch = newChain(t, &chain.Options{MaxPayload: 100}, ct.Mutator("m", ct.Set(`{"x":"`+strings.Repeat("y", 100)+`"}`)))
	_, err = ch.Execute(context.Background(), request())
	require.ErrorIs(t, err, chain.ErrPayloadTooLarge, "nor may a mutator make one")
}

// A flood of messages is a failure, not a verdict that is cut off.
func TestTooManyMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		n    int
		want error
	}{"as many as may": {core.MaxMessages, chain.ErrDenied}, "one more": {core.MaxMessages + 1, core.ErrMalformed}} {
		t.Run(name, func(t *testing.T) {
			flood := ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
				r := core.Deny("found")
				r.Messages = slices.Repeat(r.Messages, tt.n)
				return r, nil
			})
			ch := newChain(t, nil, flood)
			_, err := ch.Execute(t.Context(), request())
			require.ErrorIs(t, err, tt.want)
			var abort *chain.AbortError
			require.ErrorAs(t, err, &abort)
			require.Equal(t, tt.n > core.MaxMessages, abort.Reason == chain.ReasonProtocol)
		})
	}
}
