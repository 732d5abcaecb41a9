package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const callEcho = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`

// A guard with compat cannot be got rid of by a claim about the version.
func TestCompatIsNotTheClientsToChoose(t *testing.T) {
	guard := ct.Validator("guard", ct.Deny, func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2025-03-26"} })
	hello := func(version string) string {
		return `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"r","version":"1"}}}`
	}
	claim := func(version string) string {
		return strings.Replace(callEcho, `"name":"echo"`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"`+version+`"},"name":"echo"`, 1)
	}
	for name, lines := range map[string][2]string{
		"asked for a version that there is not": {hello("0"), callEcho},
		"an old version in _meta":               {hello(legacy), claim("2024-11-05")},
		"nonsense in _meta":                     {hello(legacy), claim("0")},
		"an honest client":                      {hello(legacy), callEcho},
	} {
		t.Run(name, func(t *testing.T) {
			c := protect(t, setup{interceptors: []core.Interceptor{guard}, server: echo}).raw(t)
			c.ask(lines[0])
			c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			assert.Contains(t, c.ask(lines[1]), "blocked by policy")
		})
	}
	t.Run("a version that is excluded and was agreed on", func(t *testing.T) {
		c := protect(t, setup{interceptors: []core.Interceptor{guard}, server: echo}).raw(t)
		c.ask(hello("2024-11-05"))
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		assert.Contains(t, c.ask(callEcho), `"result"`)
	})
}

// A client cannot use up a fail-open guard to get past it: neither by giving
// up its own calls nor by invoking the guard itself.
func TestGuardsCannotBeUsedUp(t *testing.T) {
	slow := ct.Validator("scan", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		time.Sleep(300 * time.Millisecond)
		if strings.Contains(string(inv.Payload), "evil") {
			return core.Deny("evil"), nil
		}
		return core.Allow(), nil
	}, ct.On(core.PhaseRequest, core.EventToolsCall), ct.FailOpen)
	attacks := map[string]func(c *rawClient){
		"by giving up": func(c *rawClient) {
			for i := range chain.MaxAbandoned {
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"h%d","method":"tools/call","params":{"name":"echo","arguments":{}}}`, i))
			}
			synctest.Wait()
			for i := range chain.MaxAbandoned {
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"h%d"}}`, i))
			}
		},
		"by invoking": func(c *rawClient) {
			for i := range chain.MaxAbandoned {
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"h%d","method":"interceptor/invoke","params":{"name":"scan","event":"tools/call","phase":"request","payload":{},"timeoutMs":0.001}}`, i))
			}
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Minute) })
				c := protect(t, setup{interceptors: []core.Interceptor{slow}, server: echo}).raw(t)
				c.handshake()
				attack(c)
				time.Sleep(100 * time.Millisecond)
				c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"a":"evil"}}}`)
				for line := c.read(); ; line = c.read() {
					if strings.Contains(line, `"id":2`) {
						assert.Contains(t, line, "blocked by policy")
						return
					}
				}
			})
		})
	}
}

// Types that JSON or the SDK cannot cope with, in custom methods.
type (
	oddParams struct {
		mcp.ParamsBase
		N    int
		Done chan struct{} // cannot be encoded
	}
	pointerParams struct {
		*mcp.ParamsBase // nil: asking for _meta panics
		N               int
	}
	panickyParams struct {
		mcp.ParamsBase
		N int
	}
	anyParams struct {
		mcp.ParamsBase
		Args map[string]any `json:"args"`
	}
	oddResult struct {
		mcp.ResultBase
		N int
	}
)

func (p *panickyParams) UnmarshalJSON(b []byte) error {
	var v struct{ N *int }
	_ = json.Unmarshal(b, &v)
	p.N = *v.N
	return nil
}

func custom[P interface {
	*T
	mcp.Params
}, T any](method string, n func(P) (int, error)) func(*mcp.Server) {
	return func(s *mcp.Server) {
		_ = mcp.AddReceivingCustomMethod(s, method, func(_ context.Context, _ *mcp.ServerSession, p P) (*oddResult, error) {
			v, err := n(p)
			return &oddResult{N: v}, err
		})
	}
}

// What only audits are hooked on is answered as the bare server answers.
func TestAuditOfOddMessages(t *testing.T) {
	audit := []core.Interceptor{
		ct.Validator("v", ct.Deny, ct.Audit, ct.On(core.PhaseBoth, "*")), ct.Mutator("m", ct.Set(`{}`), ct.Audit, ct.On(core.PhaseBoth, "*")),
	}
	late := func(s *mcp.Server) {
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				ctx, cancel := context.WithCancel(ctx)
				if method == core.EventToolsCall {
					cancel() // and yet the tool answers
				}
				defer cancel()
				return next(ctx, method, req)
			}
		})
		echo(s)
	}
	tests := map[string]struct {
		server func(*mcp.Server)
		line   string
	}{
		"params that cannot be encoded":    {custom("x/odd", func(p *oddParams) (int, error) { return p.N, nil }), `{"jsonrpc":"2.0","id":1,"method":"x/odd","params":{"N":7}}`},
		"params whose _meta cannot be had": {custom("x/ptr", func(p *pointerParams) (int, error) { return p.N, nil }), `{"jsonrpc":"2.0","id":1,"method":"x/ptr","params":{"N":7}}`},
		"a context that has ended":         {late, callEcho},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			answer := func(s setup) string {
				s.server = tt.server
				c := protect(t, s).raw(t)
				c.handshake()
				return c.ask(tt.line)
			}
			want := answer(setup{bare: true})
			assert.Equal(t, want, answer(setup{interceptors: audit}))
			if name != "a context that has ended" {
				assert.Contains(t, answer(setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, "*"))}}), "error")
			}
		})
	}
}

// A mutated payload that a type's own decoder panics on does not fit.
func TestDecodersThatPanic(t *testing.T) {
	server := custom("x/p", func(p *panickyParams) (int, error) { return p.N, nil })
	line := `{"jsonrpc":"2.0","id":1,"method":"x/p","params":{"N":7}}`
	for failOpen, edits := range map[bool][]ct.Edit{false: nil, true: {ct.FailOpen}} {
		m := ct.Mutator("m", ct.Set(`{"x":1}`), append(edits, ct.On(core.PhaseRequest, "x/p"))...)
		c := protect(t, setup{interceptors: []core.Interceptor{m}, server: server}).raw(t)
		c.handshake()
		answer := c.ask(line)
		if failOpen {
			assert.Contains(t, answer, `"N":7`)
		} else {
			assert.Contains(t, answer, `"failedInterceptor":"m"`)
		}
	}
}

// Types that are not the SDK's get numbers as the SDK would give them.
func TestCustomParamsKeepTheirTypes(t *testing.T) {
	server := custom("x/any", func(p *anyParams) (int, error) {
		n, ok := p.Args["n"].(float64)
		if !ok {
			return 0, fmt.Errorf("n is a %T", p.Args["n"])
		}
		return int(n), nil
	})
	m := ct.Mutator("m", ct.Set(`{"args":{"n":8,"region":"eu"}}`), ct.On(core.PhaseRequest, "x/any"))
	c := protect(t, setup{interceptors: []core.Interceptor{m}, server: server}).raw(t)
	c.handshake()
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":1,"method":"x/any","params":{"args":{"n":7}}}`), `"N":8`)
}

// A handler's nil pointer in an error would take the server down.
func TestNilErrorThatIsNotNil(t *testing.T) {
	p := protect(t, setup{server: func(s *mcp.Server) {
		rawTool(s, "bad", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var e *jsonrpc.Error
			return nil, e
		})
	}})
	_, err := call(t, p.client(t, modern), "bad", nil)
	wireError(t, err, -32603)
}

// A redactor of text leaves every number of a result alone, in _meta too.
func TestRedactionKeepsAllNumbers(t *testing.T) {
	meta := mcp.Meta{"order": int64(9007199254740993)}
	deep := json.RawMessage(strings.Repeat(`[`, 1100) + `"a@b.c"` + strings.Repeat(`]`, 1100))
	for name, structured := range map[string]any{"huge": json.RawMessage(`{"n":1e400,"m":9007199254740993}`), "deep": deep} {
		t.Run(name, func(t *testing.T) {
			server := func(s *mcp.Server) {
				rawTool(s, "x", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{Meta: meta, Content: []mcp.Content{&mcp.TextContent{Text: "a@b.c", Meta: meta}, &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "a://1", Text: "t"}, Meta: meta}}, StructuredContent: structured}, nil
				})
			}
			line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`
			bare := protect(t, setup{bare: true, server: server}).raw(t)
			bare.handshake()
			want := bare.ask(line)
			require.Contains(t, want, "740993")
			c := protect(t, setup{server: server, interceptors: []core.Interceptor{replacing("m", core.PhaseResponse, core.EventToolsCall, "a@b.c", "***")}}).raw(t)
			c.handshake()
			assert.Equal(t, strings.ReplaceAll(want, "a@b.c", "***"), c.ask(line))
		})
	}
}

// B10: what a completion is for cannot be changed behind the validators either.
func TestRetargetedCompletion(t *testing.T) {
	asked := ""
	p := protect(t, setup{
		serverOptions: &mcp.ServerOptions{CompletionHandler: func(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			asked = req.Params.Ref.Name
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
		}},
		interceptors: []core.Interceptor{replacing("m", core.PhaseRequest, "completion/complete", "open", "secret")},
	})
	c := p.raw(t)
	c.handshake()
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"open"},"argument":{"name":"a","value":"b"}}}`), `"failedInterceptor":"m"`)
	assert.Empty(t, asked)
}

// A handler that ends its goroutine takes neither the queue with it nor the
// record of its message.
func TestGoexitInHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		outcomes := make(chan chain.MessageOutcome, 8)
		p := protect(t, setup{
			interceptors: []core.Interceptor{ct.Validator("v", ct.Allow, ct.On(core.PhaseRequest, "notifications/progress"))},
			serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationServerRequest) {
				if handled.Add(1) == 1 {
					runtime.Goexit()
				}
			}},
			chain: chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) {
				if e.Message.Method == "notifications/progress" {
					outcomes <- e.Outcome
				}
			}}},
		})
		c := p.raw(t)
		c.handshake()
		for i := range 3 {
			c.send(progress(i))
		}
		synctest.Wait()
		assert.EqualValues(t, 3, handled.Load())
		assert.Equal(t, chain.MessagePanic, <-outcomes)
		assert.Equal(t, chain.MessageOK, <-outcomes)
	})
}

// What waits when the chain is closed is dropped: nobody is left to judge it.
func TestClosedChainDropsWaitingNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64
		p := protect(t, setup{
			interceptors:  []core.Interceptor{ct.Validator("v", ct.Sleep(time.Second, core.Allow()), ct.On(core.PhaseRequest, "notifications/progress"))},
			serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationServerRequest) { handled.Add(1) }},
		})
		c := p.raw(t)
		c.handshake()
		for i := range 5 {
			c.send(progress(i))
		}
		synctest.Wait()
		require.NoError(t, p.chain.Close())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.LessOrEqual(t, handled.Load(), int64(1), "the one that was under way")
	})
}

// A provider that panics is a failure of what is active, and nothing to audit.
func TestProviderPanics(t *testing.T) {
	provider := func(context.Context, mcp.Request) core.InvocationContext { panic("no idea") }
	for audit, edits := range map[bool][]ct.Edit{false: nil, true: {ct.Audit}} {
		s := setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Allow, edits...)}, server: echo}
		s.options.ContextProvider = provider
		p := protect(t, s)
		_, err := call(t, p.client(t, modern), "echo", nil)
		if audit {
			require.NoError(t, err)
		} else {
			wireError(t, err, -32603)
		}
		assert.Contains(t, p.log.String(), "context provider panicked")
	}
}
