package mcpext_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func localChain(t testing.TB, ext *mcpext.Extension, opts *chain.Options) *chain.Chain {
	t.Helper()
	ch, err := ext.LocalChain(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ch.Close()) })
	return ch
}

// LocalChain is what it says: one list, then one invoke for each interceptor
// of each message.
func TestLocalChainMessages(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]int{}
	tap := func(m jsonrpc.Message) {
		mu.Lock()
		defer mu.Unlock()
		if req, ok := m.(*jsonrpc.Request); ok {
			sent[req.Method]++
		} else {
			sent["answers"]++
		}
	}
	count := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return map[string]int{core.MethodList: sent[core.MethodList], core.MethodInvoke: sent[core.MethodInvoke], "answers": sent["answers"]}
	}
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(
		ct.Validator("v1", ct.Allow), ct.Validator("v2", ct.Allow), ct.Mutator("m", ct.Append("m")),
		ct.Validator("other", ct.Allow, ct.On(core.PhaseRequest, core.EventToolsList)),
	))
	ch, err := ext.TappedLocalChain(t.Context(), nil, tap)
	require.NoError(t, err)
	defer func() { assert.NoError(t, ch.Close()) }()
	assert.Equal(t, map[string]int{core.MethodList: 1, core.MethodInvoke: 0, "answers": 2}, count(), "the handshake's answer and the list's")
	for range 5 {
		_, err := ch.Execute(t.Context(), call())
		require.NoError(t, err)
	}
	assert.Equal(t, map[string]int{core.MethodList: 1, core.MethodInvoke: 15, "answers": 17}, count())
	require.NoError(t, ext.AddInterceptor(ct.Validator("late", ct.Allow)))
	assert.Equal(t, map[string]int{core.MethodList: 2, core.MethodInvoke: 15, "answers": 18}, count(), "a change is listed")
	res, err := ch.Execute(t.Context(), call())
	require.NoError(t, err)
	assert.Len(t, res.Results, 4)
	assert.Equal(t, 19, count()[core.MethodInvoke])
}

// What is added and removed while messages flow holds for the next of them.
func TestLocalChainFollowsUnderLoad(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(ct.Mutator("m", ct.Append("m"))))
	ch := localChain(t, ext, nil)
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for !stop.Load() {
				res, err := ch.Execute(context.Background(), call())
				if err == nil {
					assert.Equal(t, `{"log":["m"],"name":"echo"}`, string(res.FinalPayload))
					continue
				}
				// Denied by a guard; or the guard was gone between plan and invoke.
				assert.Contains(t, []chain.Reason{chain.ReasonValidation, chain.ReasonError}, abortOf(t, err).Reason)
			}
		})
	}
	for n := range 200 {
		guard := fmt.Sprintf("guard-%d", n)
		require.NoError(t, ext.AddInterceptor(ct.Validator(guard, ct.Deny)))
		_, err := ch.Execute(t.Context(), call())
		require.Equal(t, guard, abortOf(t, err).Interceptor)
		require.True(t, ext.RemoveInterceptor(guard))
		_, err = ch.Execute(t.Context(), call())
		require.NoError(t, err)
	}
	stop.Store(true)
	busy.Wait()
	assert.Equal(t, []string{"m"}, entryNames(ch))
}

// Of changes at once none is lost, whichever is listed first.
func TestLocalChainFollowsChangesAtOnce(t *testing.T) {
	ext := mcpext.New(nil)
	ch := localChain(t, ext, nil)
	var busy sync.WaitGroup
	for n := range 50 {
		busy.Go(func() { assert.NoError(t, ext.AddInterceptor(ct.Validator(fmt.Sprint(n), ct.Allow))) })
	}
	busy.Wait()
	assert.Len(t, ch.Entries(), 50)
}

// A guard that is added while the chain is being made is in it.
func TestLocalChainMissesNothingAtTheStart(t *testing.T) {
	ext := mcpext.New(nil)
	direct, err := ext.Chain(nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, direct.Close()) }()
	var once sync.Once
	var busy sync.WaitGroup
	ch, err := ext.TappedLocalChain(t.Context(), nil, func(m jsonrpc.Message) {
		answer, ok := m.(*jsonrpc.Response)
		if !ok || !json.Valid(answer.Result) || !slices.Contains([]string{`{"interceptors":[]}`}, string(answer.Result)) {
			return
		}
		once.Do(func() { // the list is on its way and lacks it
			busy.Go(func() { assert.NoError(t, ext.AddInterceptor(ct.Validator("late", ct.Deny))) })
			for len(direct.Entries()) == 0 {
				runtime.Gosched()
			}
		})
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, ch.Close()) }()
	busy.Wait()
	_, err = ch.Execute(t.Context(), call())
	assert.Equal(t, "late", abortOf(t, err).Interceptor)
}

// The user's own middleware is not in the way (rows 96 and 97).
func TestLocalChainPassesNoMiddleware(t *testing.T) {
	ext, server := host(t, &mcpext.Options{
		Authorize:  func(context.Context, *mcp.ServerSession, string) error { return context.Canceled },
		MaxInvokes: 1, MaxPayload: 1,
	}, ct.Validator("x", ct.Allow))
	server.AddReceivingMiddleware(func(mcp.MethodHandler) mcp.MethodHandler {
		return func(_ context.Context, method string, _ mcp.Request) (mcp.Result, error) {
			t.Errorf("%s has come to the user's middleware", method)
			return nil, context.Canceled
		}
	})
	ch := localChain(t, ext, nil)
	_, err := ch.Execute(t.Context(), call())
	require.NoError(t, err)
}

func TestLocalChainClosesTwice(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(ct.Validator("x", ct.Allow)))
	ch, err := ext.LocalChain(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, ch.Close())
	require.NoError(t, ch.Close())
	_, err = ch.Execute(t.Context(), call())
	require.ErrorIs(t, err, chain.ErrClosed)
	require.NoError(t, ext.AddInterceptor(ct.Validator("y", ct.Allow)), "the extension stays usable")
	other := localChain(t, ext, nil)
	assert.Equal(t, []string{"x", "y"}, entryNames(other))
}

// Close ends what is under way, however deaf the handlers are.
func TestLocalChainClosesUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(ct.Validator("x", ct.Deaf(time.Hour))))
		ch, err := ext.LocalChain(t.Context(), &chain.Options{InvokeTimeout: time.Minute, Timeout: time.Minute})
		require.NoError(t, err)
		var busy sync.WaitGroup
		for range 10 {
			busy.Go(func() {
				_, err := ch.Execute(context.Background(), call())
				assert.Equal(t, chain.ReasonError, abortOf(t, err).Reason)
			})
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, ch.Close())
		busy.Wait()
		assert.Zero(t, time.Since(start))
	})
}

// Cancelled set-up leaves nothing behind.
func TestLocalChainThatIsNotMade(t *testing.T) {
	ext := mcpext.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ext.LocalChain(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = ext.LocalChain(t.Context(), &chain.Options{InvokeTimeout: time.Hour})
	require.Error(t, err)
	require.NoError(t, ext.AddInterceptor(ct.Validator("x", ct.Allow, func(m *core.Metadata) { m.ConfigSchema = json.RawMessage(`{"required":["k"]}`) })))
	_, err = ext.LocalChain(t.Context(), &chain.Options{Config: map[string]map[string]any{"x": {}}})
	require.ErrorIs(t, err, mcpext.ErrConfig)
}

// A handler is told of a principal what the chain was told, since nothing has
// come from elsewhere; a remote host has only our word for it.
func TestAssertedPrincipals(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(ct.Validator("x", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		return &core.ValidationResult{Valid: true, Info: map[string]any{"asserted": inv.Context.Principal.Asserted}}, nil
	})))
	direct, err := ext.Chain(nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, direct.Close()) }()
	for name, tt := range map[string]struct {
		chain *chain.Chain
		want  map[bool]bool
	}{
		"direct":     {direct, map[bool]bool{true: true, false: false}},
		"LocalChain": {localChain(t, ext, nil), map[bool]bool{true: true, false: false}},
		"session":    {over(t, nil, connect(t, modern, ext)), map[bool]bool{true: true, false: true}},
	} {
		for asserted, want := range tt.want {
			req := call()
			req.Context.Principal = &core.Principal{ID: "u", Asserted: asserted}
			res, err := tt.chain.Execute(t.Context(), req)
			require.NoError(t, err)
			assert.Equal(t, want, res.Results[0].Validation.Info["asserted"], "%s, %v", name, asserted)
		}
	}
	// Nobody else can say that a principal is not asserted.
	_, server := host(t, nil, ct.Validator("x", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		return &core.ValidationResult{Valid: inv.Context.Principal.Asserted}, nil
	}))
	p := dial(t, server, legacy)
	assert.Contains(t, p.invoke(`,"context":{"principal":{"id":"u"}},"_meta":{"io.github.headgate-mcp/asserted":false}`), `"valid":true`)
}

// Abandoned invokes are counted where operators look, and limited, as they are
// without a session in between.
func TestLocalChainCountsAbandonedInvokes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(ct.Validator("x", ct.Deaf(time.Hour))))
		ch := localChain(t, ext, &chain.Options{InvokeTimeout: time.Millisecond})
		for n := range chain.MaxAbandoned {
			_, err := ch.Execute(t.Context(), call())
			require.Equal(t, chain.ReasonTimeout, abortOf(t, err).Reason)
			require.Equal(t, n+1, ch.Entries()[0].Health.Abandoned)
		}
		_, err := ch.Execute(t.Context(), call())
		require.ErrorIs(t, err, chain.ErrTooManyAbandoned)
	})
}
