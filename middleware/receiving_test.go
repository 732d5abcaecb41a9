package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const secret = "dial vault.internal: key k-77"

// What callers are told: codes and data of the SEP, and nothing from inside.
func TestAbortsOnTheWire(t *testing.T) {
	boom := errors.New(secret)
	hang := ct.Deaf(time.Hour)
	deny := func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return core.Deny(secret), nil }
	tests := map[string]struct {
		interceptors []core.Interceptor
		options      chain.Options
		code         int64
		message      string
		data         string
	}{
		"request denied": {
			[]core.Interceptor{ct.Validator("guard", deny, ct.On(core.PhaseRequest, "tools/call"))},
			chain.Options{},
			-32602,
			"request blocked by policy",
			`{"validationErrors":[{"interceptor":"guard","severity":"error","message":"blocked by policy"}]}`,
		},
		"row 44: response denied": {
			[]core.Interceptor{ct.Validator("guard", deny, ct.On(core.PhaseResponse, "tools/call"))},
			chain.Options{},
			-32602,
			"response blocked by policy",
			`{"validationErrors":[{"interceptor":"guard","severity":"error","message":"blocked by policy"}]}`,
		},
		"row 94: validator fails": {
			[]core.Interceptor{ct.Validator("guard", ct.Fail(boom))},
			chain.Options{},
			-32603,
			"interceptor failed", `{"interceptor":"guard","reason":"interceptor failed","phase":"request"}`,
		},
		"row 93: validator panics": {
			[]core.Interceptor{ct.Validator("guard", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(secret) })},
			chain.Options{},
			-32603,
			"interceptor failed", `{"interceptor":"guard","reason":"interceptor failed","phase":"request"}`,
		},
		"row 94: mutator fails": {
			[]core.Interceptor{ct.Mutator("mask", func(context.Context, *core.Invocation) (*core.MutationResult, error) { return nil, boom })},
			chain.Options{},
			-32603,
			"mutation failed", `{"failedInterceptor":"mask","reason":"mutation failed","phase":"request"}`,
		},
		"interceptor out of time": {
			[]core.Interceptor{ct.Validator("guard", hang)},
			chain.Options{InvokeTimeout: 1500 * time.Millisecond},
			-32000,
			"interceptor timeout", `{"interceptor":"guard","timeoutMs":1500,"phase":"request"}`,
		},
		"phase out of time": {
			[]core.Interceptor{ct.Validator("guard", hang)},
			chain.Options{Timeout: time.Second},
			-32000,
			"interceptor timeout", `{"timeoutMs":1000,"phase":"request"}`,
		},
	}
	for name, tt := range tests {
		for _, version := range []string{modern, legacy} {
			t.Run(name+" "+version, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					t.Cleanup(func() { time.Sleep(2 * time.Hour) })
					p := protect(t, setup{interceptors: tt.interceptors, chain: tt.options, server: echo})
					_, err := call(t, p.client(t, version), "echo", map[string]any{})
					wire := wireError(t, err, tt.code)
					assert.Equal(t, tt.message, wire.Message)
					assert.JSONEq(t, tt.data, string(wire.Data))
					assert.NotContains(t, err.Error()+string(wire.Data), "vault")
				})
			})
		}
	}
}

func TestRow44TheToolHasRunWhenItsResponseIsDenied(t *testing.T) {
	var ends []chain.MessageEnd
	ran := false
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("guard", ct.Deny, ct.On(core.PhaseResponse, "tools/call"))},
		chain:        chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) { ends = append(ends, *e) }}},
		server: func(s *mcp.Server) {
			rawTool(s, "act", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				ran = true
				return text("x"), nil
			})
		},
	})
	_, err := call(t, p.client(t, modern), "act", nil)
	wireError(t, err, -32602)
	assert.True(t, ran)
	last := ends[len(ends)-1]
	assert.Equal(t, chain.MessageDenied, last.Outcome)
	assert.Equal(t, core.PhaseResponse, last.Phase, "telemetry can tell that the side effect stays")
}

type endObserver struct {
	chain.NopObserver
	onStart func(ctx context.Context, m *chain.Message)
	onEnd   func(*chain.MessageEnd)
}

func (o endObserver) MessageStart(ctx context.Context, m *chain.Message) context.Context {
	if o.onStart != nil {
		o.onStart(ctx, m)
	}
	return ctx
}

func (o endObserver) MessageEnd(_ context.Context, end *chain.MessageEnd) {
	if o.onEnd != nil {
		o.onEnd(end)
	}
}

// A blocked request never reaches the tool; the session goes on.
func TestBlockedRequestDoesNotReachTheTool(t *testing.T) {
	called := 0
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("guard", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			if strings.Contains(string(inv.Payload), "bad") {
				return core.Deny("bad"), nil
			}
			return core.Allow(), nil
		}, ct.On(core.PhaseRequest, "*"))},
		server: func(s *mcp.Server) {
			rawTool(s, "t", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				called++
				return text("ok"), nil
			})
		},
	})
	cs := p.client(t, modern)
	_, err := call(t, cs, "t", map[string]any{"x": "bad"})
	wireError(t, err, -32602)
	assert.Zero(t, called)
	got, err := call(t, cs, "t", map[string]any{"x": "good"})
	require.NoError(t, err)
	assert.Equal(t, "ok", got)
	_, err = cs.ListTools(t.Context(), nil)
	require.NoError(t, err)
}

// Nobody recovers in go-sdk; without this the process would be gone.
func TestHandlersThatWouldTakeTheServerDown(t *testing.T) {
	handlers := map[string]mcp.ToolHandler{
		"panic":      func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic(secret) },
		"nil result": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil },
	}
	for name, handler := range handlers {
		for _, version := range []string{modern, legacy} {
			for hooked, interceptors := range map[string][]core.Interceptor{
				"nothing hooked": nil, "hooked": {ct.Validator("v", ct.Allow)},
			} {
				t.Run(name+", "+hooked+", "+version, func(t *testing.T) {
					p := protect(t, setup{interceptors: interceptors, server: func(s *mcp.Server) { rawTool(s, "bad", handler); echo(s) }})
					cs := p.client(t, version)
					_, err := call(t, cs, "bad", nil)
					wire := wireError(t, err, -32603)
					assert.Equal(t, "internal error", wire.Message)
					_, err = call(t, cs, "echo", nil)
					require.NoError(t, err, "the server is up")
					if name == "panic" {
						assert.Contains(t, p.log.String(), "receiving_test.go", "the stack is in the log")
					}
				})
			}
		}
	}
}

// A result that cannot be written is never answered by the SDK.
func TestResultThatCannotBeEncoded(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", ct.Allow, ct.On(core.PhaseResponse, "tools/call"))},
		server: func(s *mcp.Server) {
			rawTool(s, "bad", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"a":`)}, nil
			})
		},
	})
	_, err := call(t, p.client(t, modern), "bad", nil)
	wireError(t, err, -32603)
}

// Row 91 and 92: errors are observed, isError results pass the response phase.
func TestHandlerErrors(t *testing.T) {
	var mu sync.Mutex
	var phases []core.Phase
	var ends []chain.MessageEnd
	s := setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			mu.Lock()
			defer mu.Unlock()
			phases = append(phases, inv.Phase)
			return core.Allow(), nil
		})},
		chain: chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) {
			if e.Message.Method == "tools/call" {
				ends = append(ends, *e)
			}
		}}},
		server: func(s *mcp.Server) {
			rawTool(s, "jsonrpc", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, &jsonrpc.Error{Code: -32602, Message: secret, Data: json.RawMessage(`{"k":"vault"}`)}
			})
			rawTool(s, "plain", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, errors.New(secret)
			})
			mcp.AddTool(s, &mcp.Tool{Name: "typed"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, errors.New("tool failed")
			})
		},
	}
	cs := protect(t, s).client(t, modern)
	_, err := call(t, cs, "jsonrpc", nil)
	assert.Equal(t, secret, wireError(t, err, -32602).Message, "a handler's own error passes unless it is to be scrubbed")
	_, err = call(t, cs, "plain", nil)
	require.ErrorContains(t, err, secret)
	assert.Equal(t, []core.Phase{"request", "request"}, phases, "there is no response to show")
	assert.Equal(t, chain.MessageError, ends[0].Outcome)
	assert.EqualValues(t, -32602, ends[0].Code)
	require.ErrorContains(t, ends[1].Err, secret)

	got, err := call(t, cs, "typed", map[string]any{})
	require.NoError(t, err)
	assert.Equal(t, "tool failed", got)
	assert.Equal(t, core.PhaseResponse, phases[len(phases)-1])
	assert.Equal(t, chain.MessageToolError, ends[2].Outcome)

	s.options = middleware.Options{ScrubErrors: true}
	cs = protect(t, s).client(t, modern)
	_, err = call(t, cs, "jsonrpc", nil)
	wire := wireError(t, err, -32602)
	assert.Equal(t, "invalid params", wire.Message)
	assert.Empty(t, wire.Data)
	_, err = call(t, cs, "plain", nil)
	assert.Equal(t, "internal error", wireError(t, err, -32603).Message)
	_, err = call(t, cs, "unknown tool", nil)
	assert.Equal(t, "invalid params", wireError(t, err, -32602).Message)
}

// The error that a typed tool returned is still there for middleware inside,
// and after a mutation for middleware outside.
func TestToolErrorIsCarriedOver(t *testing.T) {
	var saw error
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(`{"isError":true,"content":[{"type":"text","text":"masked"}]}`), ct.On(core.PhaseResponse, "tools/call"))},
		server: func(s *mcp.Server) {
			mcp.AddTool(s, &mcp.Tool{Name: "typed"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, errors.New(secret)
			})
		},
	})
	p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if r, ok := res.(*mcp.CallToolResult); ok {
				saw = r.GetError()
			}
			return res, err
		}
	})
	got, err := call(t, p.client(t, modern), "typed", map[string]any{})
	require.NoError(t, err)
	assert.Equal(t, "masked", got)
	require.EqualError(t, saw, secret)
}

// Rows 38 and 109, B01: requests without params, or with null ones, are served.
func TestRequestsWithoutParams(t *testing.T) {
	var seen []string
	p := protect(t, setup{
		interceptors: []core.Interceptor{
			ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
				seen = append(seen, inv.Event+" "+string(inv.Payload))
				return core.Allow(), nil
			}, ct.On(core.PhaseRequest, "*", "ping")),
			ct.Mutator("m", func(context.Context, *core.Invocation) (*core.MutationResult, error) { return core.Unchanged(), nil }, ct.On(core.PhaseBoth, "*", "ping")),
		},
		chain:  chain.Options{Observer: endObserver{}},
		server: echo,
	})
	c := p.raw(t)
	c.handshake()
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), `"name":"echo"`)
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":null}`), `"name":"echo"`)
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":3,"method":"ping"}`), `"result":{}`)
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":4,"method":"interceptors/list"}`), `"interceptors":[`)
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":5,"method":"interceptors/list","params":null}`), `"interceptors":[`)
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":6,"method":"interceptor/invoke"}`), `-32602`)
	assert.Equal(t, []string{"tools/list {}", "tools/list {}", "ping {}"}, seen)
}

// A mutator may add params to a request that had none.
func TestMutatorAddsParams(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(`{"cursor":"bm9uc2Vuc2U"}`), ct.On(core.PhaseRequest, "tools/list"))},
		server:       echo,
	})
	c := p.raw(t)
	c.handshake()
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), `"code":-32602`, "the server saw the made-up cursor")
}

// Row 102: one message has one id in both phases; two in flight have two.
func TestMessageIDs(t *testing.T) {
	var mu sync.Mutex
	ids := map[string][]core.Phase{}
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			mu.Lock()
			defer mu.Unlock()
			ids[inv.MessageID] = append(ids[inv.MessageID], inv.Phase)
			return core.Allow(), nil
		})},
		server: echo,
	})
	cs := p.client(t, modern)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, err := call(t, cs, "echo", nil); assert.NoError(t, err) })
	}
	wg.Wait()
	assert.Len(t, ids, 20)
	for id, phases := range ids {
		assert.NotEmpty(t, id)
		assert.Equal(t, []core.Phase{"request", "response"}, phases)
	}
}

// Row 96: the extension's own methods do not recurse into the chain.
func TestOwnMethodsAreNotIntercepted(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, ct.On(core.PhaseBoth, "*", "interceptors/list", "interceptor/invoke", "initialize", "server/discover"))},
	})
	c := p.raw(t)
	c.handshake()
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":1,"method":"interceptors/list"}`), `"name":"v"`)
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":2,"method":"interceptor/invoke","params":{"name":"v","event":"tools/call","phase":"request","payload":{}}}`), `"valid":false`)
}

// Row 104: each page is an event of its own, cursors stay whole.
func TestPagesAreEvents(t *testing.T) {
	var pages []string
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			pages = append(pages, string(inv.Phase))
			return core.Allow(), nil
		}, ct.On(core.PhaseBoth, "tools/list"))},
	})
	server := mcp.NewServer(&mcp.Implementation{Name: "paged"}, &mcp.ServerOptions{PageSize: 2})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		rawTool(server, name, nil)
	}
	server.AddReceivingMiddleware(middleware.Receiving(p.chain, nil))
	p.server = server
	var names []string
	for tool, err := range p.client(t, modern).Tools(t.Context(), nil) {
		require.NoError(t, err)
		names = append(names, tool.Name)
	}
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, names)
	assert.Len(t, pages, 6)
}

// A handler that calls Goexit in an interceptor costs its message, not the
// server.
func TestGoexitInAnInterceptor(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			runtime.Goexit()
			return nil, nil
		})},
		server: echo,
	})
	_, err := call(t, p.client(t, modern), "echo", nil)
	wireError(t, err, -32603)
}

// A closed chain refuses what it guarded.
func TestClosedChainFailsClosed(t *testing.T) {
	p := protect(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Allow)}, server: echo})
	cs := p.client(t, modern)
	require.NoError(t, p.chain.Close())
	_, err := call(t, cs, "echo", nil)
	assert.Equal(t, "internal error", wireError(t, err, -32603).Message)
	_, err = cs.ListTools(t.Context(), nil)
	require.NoError(t, err)
}

// The caller's cancellation reaches interceptors and is nobody's denial.
func TestCallerGivesUp(t *testing.T) {
	began := make(chan struct{})
	ended := make(chan error, 1)
	outcomes := make(chan chain.MessageOutcome, 8)
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
			close(began)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})},
		chain: chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) {
			if e.Message.Method == "tools/call" {
				outcomes <- e.Outcome
			}
		}}},
		server: echo,
	})
	cs := p.client(t, modern)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, chain.MessageCancelled, <-outcomes)
}
