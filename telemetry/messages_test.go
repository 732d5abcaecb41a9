package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// pass sends a request through a middleware alone, as no client could.
func (w *world) pass(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	return middleware.Receiving(w.chain, nil)(next)(ctx, method, req)
}

func answer(context.Context, string, mcp.Request) (mcp.Result, error) { return text("ok"), nil }

func callRequest(name string, meta map[string]any) *mcp.CallToolRequest {
	return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: meta, Name: name}}
}

// raw sends lines to the server and reads as many answers as there are requests.
func (w *world) raw(t *testing.T, lines ...string) []string {
	t.Helper()
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	ss, err := w.server.Connect(context.Background(), &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, nil)
	require.NoError(t, err)
	w.close(t, func() { _ = clientOut.Close(); _ = clientIn.Close(); _ = ss.Close(); _ = ss.Wait() })
	answers := json.NewDecoder(clientIn)
	var out []string
	for _, line := range lines {
		_, err := io.WriteString(clientOut, line+"\n")
		require.NoError(t, err)
		if strings.Contains(line, `"id"`) {
			var raw json.RawMessage
			require.NoError(t, answers.Decode(&raw))
			out = append(out, string(raw))
		}
	}
	return out
}

// Lines that open a session of the older era.
const (
	lineInitialize = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + legacy +
		`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	lineInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// A request may have no params at all.
func TestMessageWithoutParams(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow, ct.On(core.PhaseRequest, "tools/list"))}})
	w.raw(t, lineInitialize, lineInitialized, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	spans := w.ended(t)
	want{attrs: map[string]string{outcome: "ok", "mcp.method.name": "tools/list", "gen_ai.operation.name": ""}}.check(t, spans.one(t, "tools/list"))
	spans.one(t, "interceptor/invoke guard")
}

// Params may be a nil pointer, or have one in them that panics when it is used.
func TestMessageWithNilParams(t *testing.T) {
	for name, req := range map[string]mcp.Request{
		"no params":  &mcp.ServerRequest[*mcp.CallToolParamsRaw]{},
		"no session": &mcp.ServerRequest[*mcp.CallToolParamsRaw]{Params: &mcp.CallToolParamsRaw{}},
		"no name":    callRequest("", nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow)}})
			_, err := w.pass(context.Background(), core.EventToolsCall, req, answer)
			require.NoError(t, err)
			spans := w.ended(t)
			want{attrs: map[string]string{outcome: "ok", "gen_ai.tool.name": ""}}.check(t, spans.one(t, "tools/call"))
			require.Len(t, spans.named("interceptor/invoke guard"), 2)
			require.Equal(t, map[string]float64{" _OTHER tools/call pipe": 1}, w.counts(t, semconv.MetricServerOperation))
		})
	}
}

// A notification has one phase and no answer. One that nothing is hooked on is
// a message all the same.
func TestNotification(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{
		ct.Validator("guard", ct.Deny, ct.On(core.PhaseRequest, "notifications/roots/list_changed")),
	}})
	w.raw(t, lineInitialize, lineInitialized, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	const name = "notifications/roots/list_changed"
	require.Eventually(t, func() bool { return len(spanList(w.spans.Ended()).named(name)) == 1 }, time.Minute, time.Millisecond)
	spans := w.ended(t)
	want{attrs: map[string]string{outcome: "denied", rpcCode: "-32602"}}.check(t, spans.one(t, name))
	require.Equal(t, spans.one(t, name).SpanContext(), spans.one(t, "intercept request").Parent())
	want{attrs: map[string]string{outcome: "ok"}}.check(t, spans.one(t, "notifications/initialized"))
	want{attrs: map[string]string{outcome: "ok"}}.check(t, spans.one(t, "ping"))
	require.Empty(t, spans.named("intercept response"))
}

type searchParams struct{ mcp.CallToolParams }

// A method of the server's own is _OTHER, unless a hook spells it out.
func TestCustomMethod(t *testing.T) {
	for hooked, name := range map[string]string{"acme/search": "acme/search", "*": "_OTHER"} {
		t.Run(hooked, func(t *testing.T) {
			w := newWorld(t, setup{
				interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow, ct.On(core.PhaseRequest, hooked))},
				server: func(s *mcp.Server) {
					require.NoError(t, mcp.AddReceivingCustomMethod(s, "acme/search",
						func(context.Context, *mcp.ServerSession, *searchParams) (*mcp.CallToolResult, error) {
							return text("ok"), nil
						}))
				},
			})
			w.raw(t, lineInitialize, lineInitialized, `{"jsonrpc":"2.0","id":1,"method":"acme/search","params":{}}`)
			spans := w.ended(t)
			want{attrs: map[string]string{outcome: "ok", "mcp.method.name": name}}.check(t, spans.one(t, name))
			require.Equal(t, name, attrs(spans.one(t, "intercept request"))[string(semconv.InterceptorEventKey)])
			require.Contains(t, w.counts(t, semconv.MetricServerOperation), "  "+name+" pipe")
			require.Contains(t, w.counts(t, semconv.MetricStage), name+"  handler")
		})
	}
}

// counts returns the values of all series of a metric.
func (w *world) counts(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for labels, s := range w.series(t, metric) {
		out[labels] = s.value
	}
	return out
}

// A handler that ends its goroutine is never going to be answered for; its
// spans end nevertheless.
func TestGoexitEndsSpans(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow)}, options: telemetry.Options{Tools: tools}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.pass(context.Background(), core.EventToolsCall, callRequest("echo", nil),
			func(context.Context, string, mcp.Request) (mcp.Result, error) { runtime.Goexit(); return nil, nil })
	}()
	<-done
	want{status: codes.Error, attrs: map[string]string{outcome: "panic", errorType: "panic"}}.check(t, w.ended(t).one(t, "tools/call echo"))
}

// An interceptor that ends its goroutine, or that answers with an error whose
// methods panic, is a failure with spans that end.
func TestNastyInterceptorEndsSpans(t *testing.T) {
	for name, handler := range map[string]ct.ValidatorFunc{
		"Goexit": func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			runtime.Goexit()
			return nil, nil
		},
		"nil error":  ct.Fail((*nilError)(nil)),
		"error type": ct.Fail(typedError{}),
		"nil result": func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{
				interceptors: []core.Interceptor{ct.Validator("guard", handler, hook)}, options: telemetry.Options{Tools: tools, Reasons: true},
			})
			_, err := call(w.client(t, legacy), "echo")
			require.Error(t, err)
			spans := w.ended(t)
			for _, name := range []string{"tools/call echo", "intercept request", "interceptor/invoke guard"} {
				s := spans.one(t, name)
				require.Equal(t, codes.Error, s.Status().Code, name)
				require.NotEmpty(t, attrs(s)[errorType], name)
			}
		})
	}
}

// A nilError panics when it is asked for its text.
type nilError struct{ inner error }

func (e *nilError) Error() string { return e.inner.Error() }

// A typedError panics when OpenTelemetry asks for its type.
type typedError struct{}

func (typedError) Error() string     { return "no" }
func (typedError) ErrorType() string { panic("boom") }

// Tools are in names of spans once the server is known to have them: it listed
// them, or answered a call. Until then a name is a client's word.
func TestNamesOfTargetsAreLearned(t *testing.T) {
	w := newWorld(t, setup{})
	cs := w.client(t, legacy)
	_, err := call(cs, "nonesuch")
	require.Error(t, err)
	_, err = call(cs, "echo")
	require.NoError(t, err)
	_, err = cs.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "hello"})
	require.NoError(t, err)
	_, err = cs.ListTools(context.Background(), nil)
	require.NoError(t, err)
	_, err = call(cs, "broken")
	require.Error(t, err)
	spans := w.ended(t)
	for name, keys := range map[string]map[string]string{
		"tools/call":        {"gen_ai.tool.name": "", "gen_ai.operation.name": "execute_tool"},
		"tools/call echo":   {"gen_ai.tool.name": "echo", "gen_ai.operation.name": "execute_tool"},
		"tools/call broken": {"gen_ai.tool.name": "broken", "gen_ai.operation.name": "execute_tool"},
		"prompts/get hello": {"gen_ai.prompt.name": "hello", "gen_ai.operation.name": ""},
	} {
		got := attrs(spans.one(t, name))
		for key, value := range keys {
			require.Equal(t, value, got[key], "%s of %s", key, name)
		}
	}
	require.Contains(t, w.counts(t, semconv.MetricServerOperation), " _OTHER tools/call pipe")
}

// O19: the span has the message's own id, the one that interceptors see. The
// request's id is not known here, and is left out rather than guessed: two
// sessions may use the same.
func TestMessageIDInsteadOfRequestID(t *testing.T) {
	seen := make(chan string, 2)
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		seen <- inv.MessageID
		return core.Allow(), nil
	}, hook)}})
	const line = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	w.raw(t, lineInitialize, lineInitialized, line)
	w.raw(t, lineInitialize, lineInitialized, line)
	ids := map[string]bool{<-seen: true, <-seen: true}
	require.Len(t, ids, 2)
	spans := w.ended(t)
	require.Len(t, spans.named("tools/call echo"), 2)
	for _, s := range spans.named("tools/call echo") {
		require.True(t, ids[attrs(s)[string(semconv.MessageIDKey)]])
		require.NotContains(t, attrs(s), "jsonrpc.request.id")
	}
	for labels := range w.counts(t, semconv.MetricServerOperation) {
		for id := range ids {
			require.NotContains(t, labels, id) // O18
		}
	}
}

// O15: what go-sdk refuses before it dispatches a message never comes to any
// middleware, so that no span and no metric tells of it. This pins what that is:
// unknown methods, params that are missing or of the wrong type, and whatever
// comes before the handshake.
func TestRefusedBeforeDispatchIsNotSeen(t *testing.T) {
	const unknown = "acme/none"
	w := newWorld(t, setup{})
	answers := w.raw(t, `{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{}}`, lineInitialize, lineInitialized,
		`{"jsonrpc":"2.0","id":1,"method":"`+unknown+`","params":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":7}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"nonesuch"}}`)
	require.Contains(t, answers[0], "error")
	for i, code := range []string{"-32601", "-32600", "-32602", "-32602"} {
		require.Contains(t, answers[i+2], code)
	}
	spans := w.ended(t)
	require.Equal(t, []string{"initialize", "notifications/initialized", "tools/call"}, spans.names(), "an unknown tool is seen, the rest is not")
	require.NotContains(t, strings.Join(spans.names(), " "), unknown)
}

// LocalChain's interceptors are at the other end of a session: the invoke is a
// client's span there.
func TestRemoteInvokeIsAClientSpan(t *testing.T) {
	w := newWorld(t, setup{local: true, interceptors: []core.Interceptor{
		ct.Validator("guard", ct.Allow, hook), ct.Validator("broken", ct.Fail(errors.New("no")), hook, ct.FailOpen),
		ct.Validator("panic", blow, hook, ct.FailOpen),
	}})
	_, err := call(w.client(t, legacy), "echo")
	require.NoError(t, err)
	spans := w.ended(t)
	allow := spans.one(t, "interceptor/invoke guard")
	require.Equal(t, trace.SpanKindClient, allow.SpanKind())
	want{attrs: map[string]string{verdict: "allow", "mcp.method.name": "interceptor/invoke"}}.check(t, allow)
	want{codes.Error, map[string]string{verdict: "error", action: "fail_open", reason: "error", errorType: "-32603", rpcCode: "-32603"}, 1}.
		check(t, spans.one(t, "interceptor/invoke broken"))
	panicked := spans.one(t, "interceptor/invoke panic")
	require.Equal(t, "panic", attrs(panicked)[errorType])
}

// A remote peer's chain, in a second process as it were, with spans of its own.
type remote struct {
	*world
	meta chan map[string]any         // what invokes carried
	ctx  chan core.InvocationContext // what handlers were given
}

// newRemote serves an interceptor whose handler begins a span.
func newRemote(t *testing.T, observed bool) *remote {
	r := &remote{meta: make(chan map[string]any, 8), ctx: make(chan core.InvocationContext, 8)}
	r.world = newWorld(t, setup{})
	ext := mcpext.New(&mcpext.Options{Propagator: r.tel})
	require.NoError(t, ext.AddInterceptor(ct.Validator("far", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		_, span := r.provider.Tracer("handler").Start(ctx, "handler's own")
		span.End()
		r.ctx <- inv.Context
		return core.Allow(), nil
	}, hook)))
	server := mcp.NewServer(&mcp.Implementation{Name: "remote", Version: "1"}, nil)
	require.NoError(t, ext.Install(server))
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == core.MethodInvoke {
				r.meta <- req.GetParams().GetMeta()
			}
			return next(ctx, method, req)
		}
	})
	if observed {
		server.AddReceivingMiddleware(middleware.Receiving(r.chain, nil))
	}
	r.server = server
	return r
}

// join makes the remote's interceptors part of a world's chain.
func (r *remote) join(t *testing.T, w *world) {
	ct, st := mcp.NewInMemoryTransports()
	ss, err := r.server.Connect(context.Background(), st, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	require.NoError(t, mcpext.RegisterSendingMethods(client))
	cs, err := client.Connect(context.Background(), ct, nil)
	require.NoError(t, err)
	r.close(t, func() { _ = cs.Close(); _ = ss.Wait() })
	require.NoError(t, mcpext.AddMCPServer(context.Background(), w.chain, cs))
}

// O04: spans of handlers elsewhere are not orphans. Trace context, tracestate
// and baggage travel in the invoke's _meta, and the ids that SEP-2624 has a
// place for are the invoke's.
func TestTraceGoesToOtherProcesses(t *testing.T) {
	for name, observed := range map[string]bool{"bare": false, "with telemetry": true} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t, setup{}), newRemote(t, observed)
			r.join(t, w)
			_, err := w.client(t, legacy).CallTool(context.Background(), &mcp.CallToolParams{
				Name: "echo", Meta: mcp.Meta{"traceparent": traceparent, "tracestate": "vendor=1", "baggage": "user=me"},
			})
			require.NoError(t, err)
			meta, ids := <-r.meta, <-r.ctx
			invoke := w.ended(t).one(t, "interceptor/invoke far")
			require.Equal(t, trace.SpanKindClient, invoke.SpanKind())
			sc := invoke.SpanContext()
			require.Equal(t, traceID, sc.TraceID().String())
			require.Equal(t, "00-"+traceID+"-"+sc.SpanID().String()+"-01", meta["traceparent"])
			require.Equal(t, "vendor=1", meta["tracestate"])
			require.Equal(t, "user=me", meta["baggage"])
			require.Equal(t, [2]string{traceID, sc.SpanID().String()}, [2]string{ids.TraceID, ids.SpanID})
			far := r.ended(t)
			parent := sc.SpanID()
			if observed {
				server := far.one(t, "interceptor/invoke")
				require.Equal(t, parent, server.Parent().SpanID())
				parent = server.SpanContext().SpanID()
			}
			own := far.one(t, "handler's own")
			require.Equal(t, traceID, own.SpanContext().TraceID().String())
			require.Equal(t, parent, own.Parent().SpanID())
		})
	}
}

// O04, over LocalChain's session in memory, and by direct dispatch.
func TestHandlersSpanIsAChildOfTheInvoke(t *testing.T) {
	for name, local := range map[string]bool{"direct": false, "local": true} {
		t.Run(name, func(t *testing.T) {
			var w *world
			w = newWorld(t, setup{local: local, interceptors: []core.Interceptor{
				ct.Validator("guard", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
					_, span := w.provider.Tracer("handler").Start(ctx, "handler's own")
					span.End()
					return core.Allow(), nil
				}, hook),
			}})
			_, err := call(w.client(t, legacy), "echo")
			require.NoError(t, err)
			spans := w.ended(t)
			require.Equal(t, spans.one(t, "interceptor/invoke guard").SpanContext().SpanID(), spans.one(t, "handler's own").Parent().SpanID())
		})
	}
}

// What is not sampled has no spans below the message's and no ids to pass on,
// but the decision itself travels.
func TestUnsampledMessage(t *testing.T) {
	w, r := newWorld(t, setup{sampler: sdk.NeverSample(), interceptors: []core.Interceptor{ct.Validator("guard", ct.Deny, hook, ct.Audit)}}), newRemote(t, false)
	r.join(t, w)
	_, err := call(w.client(t, legacy), "echo")
	require.NoError(t, err)
	meta, ids := <-r.meta, <-r.ctx
	require.Regexp(t, "-00$", meta["traceparent"])
	require.Empty(t, ids.TraceID+ids.SpanID)
	require.Empty(t, w.ended(t))
	require.Empty(t, r.ended(t))
	require.Equal(t, map[string]float64{"guard request validation": 1}, w.nonzero(t, semconv.MetricAuditDenials))
}

// A chain that is run without middleware has spans, which begin with the phase.
func TestChainWithoutMiddleware(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow)}})
	_, err := w.chain.Execute(context.Background(), &chain.Request{Event: "tools/call", Phase: core.PhaseRequest, Direction: core.Receiving})
	require.NoError(t, err)
	spans := w.ended(t)
	require.False(t, spans.one(t, "intercept request").Parent().IsValid())
	require.Equal(t, spans.one(t, "intercept request").SpanContext(), spans.one(t, "interceptor/invoke guard").Parent())
}
