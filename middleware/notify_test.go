package middleware_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func progress(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":%d}}`, n)
}

// T09: a slow interceptor on a notification holds up nothing behind it; the
// notifications themselves stay in order.
func TestNotificationsAreHandledOffTheReadPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var handled []float64
		p := protect(t, setup{
			interceptors: []core.Interceptor{ct.Validator("v", ct.Sleep(800*time.Millisecond, core.Allow()), ct.On(core.PhaseRequest, "notifications/progress"))},
			serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationServerRequest) {
				mu.Lock()
				defer mu.Unlock()
				handled = append(handled, req.Params.Progress)
			}},
			server: echo,
		})
		c := p.raw(t)
		c.handshake()
		start := time.Now()
		for i := range 3 {
			c.send(progress(i))
		}
		c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		assert.Zero(t, time.Since(start), "the next request is not delayed")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []float64{0, 1, 2}, handled)
	})
}

// Row 95: a blocked notification is dropped and reported; row 56: patterns do
// not match notifications at all.
func TestNotificationsThatAreBlocked(t *testing.T) {
	for hook, blocked := range map[string]bool{"notifications/progress": true, "*": false, "notifications/*": false} {
		t.Run(hook, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				handled := 0
				var ends []chain.MessageOutcome
				p := protect(t, setup{
					interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, hook))},
					chain: chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) {
						if strings.HasSuffix(e.Message.Method, "progress") {
							mu.Lock()
							defer mu.Unlock()
							ends = append(ends, e.Outcome)
						}
					}}},
					serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationServerRequest) {
						mu.Lock()
						defer mu.Unlock()
						handled++
					}},
				})
				c := p.raw(t)
				c.handshake()
				c.send(progress(1))
				synctest.Wait()
				c.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				mu.Lock()
				defer mu.Unlock()
				if blocked {
					assert.Zero(t, handled)
					assert.Equal(t, []chain.MessageOutcome{chain.MessageDenied}, ends)
					assert.Contains(t, p.log.String(), "message stopped")
					return
				}
				assert.Equal(t, 1, handled)
				assert.Equal(t, []chain.MessageOutcome{chain.MessageOK}, ends)
			})
		})
	}
}

// What only audits look at stays where it is without them: on the read path, in
// order with all else, and with no queue to be dropped from.
func TestAuditLeavesNotificationsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		handle := func(context.Context, *mcp.ProgressNotificationServerRequest) {
			time.Sleep(time.Millisecond) // long enough for a queue to fall behind
			handled.Add(1)
		}
		deaf := ct.Validator("v", ct.Sleep(time.Minute, core.Allow()), ct.On(core.PhaseRequest, "notifications/progress"))
		deaf.Mode = core.ModeAudit
		p := protect(t, setup{
			interceptors:  []core.Interceptor{deaf},
			serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: handle},
			server:        echo,
		})
		c := p.raw(t)
		c.handshake()
		for i := range 200 {
			c.send(progress(i))
		}
		c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		assert.EqualValues(t, 200, handled.Load(), "none is dropped, and none overtaken by the next request")
	})
}

// Notifications that come after a policy has turned to audit do not overtake
// those that wait.
func TestNotificationsStayInOrderThroughAFlip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var handled []float64
		p := protect(t, setup{
			interceptors: []core.Interceptor{ct.Validator("v", ct.Sleep(time.Second, core.Allow()), ct.On(core.PhaseRequest, "notifications/progress"))},
			serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationServerRequest) {
				mu.Lock()
				defer mu.Unlock()
				handled = append(handled, req.Params.Progress)
			}},
			server: echo,
		})
		c := p.raw(t)
		c.handshake()
		c.send(progress(0))
		c.send(progress(1))
		synctest.Wait()
		require.NoError(t, p.chain.SetOverrides(map[string]chain.Overrides{"v": {Mode: core.ModeAudit}}))
		c.send(progress(2))
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []float64{0, 1, 2}, handled)
	})
}

// More notifications than the queue holds are dropped, not piled up.
func TestNotificationQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		outcomes := map[chain.MessageOutcome]int{}
		release := make(chan struct{})
		p := protect(t, setup{
			interceptors: []core.Interceptor{ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
				<-release
				return core.Allow(), nil
			}, ct.On(core.PhaseRequest, "notifications/progress"))},
			chain: chain.Options{InvokeTimeout: time.Hour / 10, Timeout: time.Hour / 10, Observer: endObserver{onEnd: func(e *chain.MessageEnd) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[e.Outcome]++
			}}},
		})
		c := p.raw(t)
		c.handshake()
		for i := range 400 {
			c.send(progress(i))
		}
		c.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		synctest.Wait()
		mu.Lock()
		dropped := outcomes[chain.MessageFailed]
		mu.Unlock()
		assert.InDelta(t, 400-64, dropped, 2)
		close(release)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 400+3, outcomes[chain.MessageOK]+outcomes[chain.MessageFailed], "each is reported once; initialize, initialized and ping are the others")
	})
}

// Observers see every message, intercepted or not.
func TestObserversSeeEveryMessage(t *testing.T) {
	var methods []string
	var last chain.Message
	p := protect(t, setup{
		chain: chain.Options{Observer: endObserver{
			onStart: func(_ context.Context, m *chain.Message) { methods = append(methods, m.Method); last = *m },
			onEnd: func(e *chain.MessageEnd) {
				assert.GreaterOrEqual(t, e.Duration, e.Stages.Handler)
				assert.Positive(t, e.Stages.Handler)
			},
		}},
		server: echo,
	})
	c := p.raw(t)
	c.handshake()
	c.ask(`{"jsonrpc":"2.0","id":1,"method":"interceptors/list"}`)
	c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"traceparent":"x"}}}`)
	assert.Equal(t, []string{"initialize", "notifications/initialized", "interceptors/list", "tools/call"}, methods)
	assert.Equal(t, "echo", last.Target)
	assert.Equal(t, "x", last.Meta["traceparent"])
	assert.Equal(t, legacy, last.ProtocolVersion)
	assert.Equal(t, "pipe", last.Transport)
	assert.Equal(t, core.Receiving, last.Direction)
	require.Nil(t, last.Header)
}

// The stages of a message's path agree with its own pair of clock readings.
func TestStagesAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var end chain.MessageEnd
		slow := func(context.Context, *core.Invocation) (*core.MutationResult, error) {
			time.Sleep(20 * time.Millisecond)
			return core.Unchanged(), nil
		}
		p := protect(t, setup{
			interceptors: []core.Interceptor{ct.Validator("v", ct.Sleep(10*time.Millisecond, core.Allow())), ct.Mutator("m", slow)},
			chain:        chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) { end = *e }}},
			server: func(s *mcp.Server) {
				rawTool(s, "slow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					time.Sleep(40 * time.Millisecond)
					return text("x"), nil
				})
			},
		})
		_, err := call(t, p.client(t, modern), "slow", nil)
		require.NoError(t, err)
		const ms = time.Millisecond
		assert.Equal(t, 100*ms, end.Duration)
		assert.Equal(t, 40*ms, end.Stages.Handler)
		for _, phase := range []chain.PhaseTimes{end.Stages.Request, end.Stages.Response} {
			assert.Equal(t, 10*ms, phase.Validators)
			assert.Equal(t, 20*ms, phase.Mutators)
			assert.Positive(t, phase.PayloadSize)
		}
	})
}
