package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A peer's trace context.
const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	spanID      = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + spanID + "-01"

	otherTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	otherParent = "00-" + otherTrace + "-00f067aa0ba902b7-01"
)

// A header is put on each request of a client.
type header map[string]string

func (h header) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for k, v := range h {
		req.Header.Set(k, v)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// site serves a world over streamable HTTP and connects a client that sends
// the headers.
func (w *world) site(t *testing.T, stateless bool, h header, wrap func(http.Handler) http.Handler) *mcp.ClientSession {
	t.Helper()
	var handler http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return w.server },
		&mcp.StreamableHTTPOptions{Stateless: stateless})
	if wrap != nil {
		handler = wrap(handler)
	}
	s := httptest.NewServer(handler)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	cs, err := client.Connect(context.Background(),
		&mcp.StreamableClientTransport{Endpoint: s.URL, HTTPClient: &http.Client{Transport: h}}, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	require.NoError(t, err)
	w.close(t, func() {
		_ = cs.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		s.Close()
	})
	return cs
}

// spanned is what an HTTP instrumentation does: each request has a span.
func (w *world) spanned(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, span := w.provider.Tracer("http").Start(r.Context(), "HTTP "+r.Method)
		defer span.End()
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

// root wants a span that nothing is known of before it.
func root(t testing.TB, s sdk.ReadOnlySpan) {
	t.Helper()
	assert.False(t, s.Parent().IsValid(), "%s has a parent", s.Name())
	assert.Empty(t, s.Links(), s.Name())
}

// under wants a span whose parent is the peer's.
func under(t testing.TB, s sdk.ReadOnlySpan, traceID string) {
	t.Helper()
	assert.Equal(t, traceID, s.SpanContext().TraceID().String())
	assert.Equal(t, traceID, s.Parent().TraceID().String())
	assert.True(t, s.Parent().IsRemote())
	assert.Empty(t, s.Links(), s.Name())
}

// The parent is what _meta says (SEP-414), in both eras.
func TestParentComesFromMeta(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, setup{})
			cs := w.client(t, version)
			_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Meta: mcp.Meta{"traceparent": traceparent}})
			require.NoError(t, err)
			_, err = cs.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "hello"})
			require.NoError(t, err)
			spans := w.ended(t)
			under(t, spans.one(t, "tools/call echo"), traceID)
			require.Equal(t, spanID, spans.one(t, "tools/call echo").Parent().SpanID().String())
			require.Equal(t, version, attrs(spans.one(t, "tools/call echo"))["mcp.protocol.version"])
			root(t, spans.one(t, "prompts/get hello"))
		})
	}
}

// A message without _meta's context has that of its own HTTP request.
func TestParentComesFromHeader(t *testing.T) {
	for name, stateless := range map[string]bool{"stateless": true, "stateful": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{})
			h := header{"Traceparent": traceparent}
			cs := w.site(t, stateless, h, nil)
			_, err := call(cs, "echo")
			require.NoError(t, err)
			_, err = cs.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "hello", Meta: mcp.Meta{"traceparent": otherParent}})
			require.NoError(t, err)
			spans := w.ended(t)
			under(t, spans.one(t, "tools/call echo"), traceID)
			under(t, spans.one(t, "prompts/get hello"), otherTrace)
			require.Equal(t, "tcp", attrs(spans.one(t, "tools/call echo"))["network.transport"])
		})
	}
}

// garbage is what may stand under the reserved keys.
func garbage() map[string]any {
	long := strings.Repeat("a", 10<<20)
	return map[string]any{
		"number": 7, "null": nil, "list": []any{traceparent}, "object": map[string]any{}, "empty": "", "10 MB": long,
		"10 MB that begin well": traceparent + "-" + long, "invalid UTF-8": "00-\xff\xfe", "cut off": traceparent[:40],
		"all zeros": "00-00000000000000000000000000000000-0000000000000000-01", "upper case": strings.ToUpper(traceparent),
	}
}

// What cannot be read counts as absent.
func TestGarbageForAParentIsNone(t *testing.T) {
	for name, value := range garbage() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{})
			meta := map[string]any{"traceparent": value, "tracestate": value, "baggage": value}
			_, err := w.pass(context.Background(), core.EventToolsCall, callRequest("echo", meta), answer)
			require.NoError(t, err)
			root(t, w.ended(t).one(t, "tools/call echo"))
		})
	}
}

// A good parent is not lost over garbage beside it.
func TestGarbageBesideAParent(t *testing.T) {
	for name, value := range garbage() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{})
			meta := map[string]any{"traceparent": traceparent, "tracestate": value, "baggage": value}
			_, err := w.pass(context.Background(), core.EventToolsCall, callRequest("echo", meta), answer)
			require.NoError(t, err)
			under(t, w.ended(t).one(t, "tools/call echo"), traceID)
		})
	}
}

// On a session, go-sdk's contexts have for ever the values of the request that
// opened it. Later messages have nothing to do with that one's span.
func TestSessionsFirstSpanIsNoParent(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow)}})
	cs := w.site(t, false, nil, w.spanned)
	for range 3 {
		_, err := call(cs, "echo")
		require.NoError(t, err)
	}
	spans := w.ended(t)
	require.Len(t, spans.named("tools/call echo"), 3)
	traces := map[trace.TraceID]bool{}
	for _, s := range append(spans.named("tools/call echo"), spans.one(t, "initialize")) {
		root(t, s)
		traces[s.SpanContext().TraceID()] = true
	}
	for _, s := range spans.named("HTTP POST") {
		require.False(t, traces[s.SpanContext().TraceID()])
	}
	require.Len(t, traces, 4)
}

// Without sessions, the span in the context is that of the HTTP request that
// carried the message. It is linked; the parent is what _meta or header says.
func TestAmbientSpanIsLinked(t *testing.T) {
	for name, h := range map[string]header{"no parent": nil, "parent": {"Traceparent": traceparent}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{})
			_, err := call(w.site(t, true, h, w.spanned), "echo")
			require.NoError(t, err)
			spans := w.ended(t)
			s := spans.one(t, "tools/call echo")
			require.Len(t, s.Links(), 1)
			var ambient bool
			for _, http := range spans.named("HTTP POST") {
				ambient = ambient || http.SpanContext().Equal(s.Links()[0].SpanContext)
				require.NotEqual(t, http.SpanContext().TraceID(), s.SpanContext().TraceID())
			}
			require.True(t, ambient)
			require.Equal(t, h != nil, s.Parent().IsValid())
		})
	}
}

// Nobody can tell whose an ambient span is on a session or a pipe.
func TestAmbientSpanOfASessionIsNotUsed(t *testing.T) {
	for name, m := range map[string]*chain.Message{
		"pipe":    {Method: "ping", Transport: "pipe", Direction: core.Receiving},
		"session": {Method: "ping", Transport: "tcp", SessionID: "s-1", Direction: core.Receiving},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{})
			ctx, span := w.provider.Tracer("ambient").Start(context.Background(), "ambient")
			w.tel.MessageEnd(w.tel.MessageStart(ctx, m), &chain.MessageEnd{Message: m, Outcome: chain.MessageOK})
			span.End()
			root(t, w.ended(t).one(t, "ping"))
		})
	}
}

// Whoever sends a message does so under a span of its own.
func TestSentMessageIsUnderTheCurrentSpan(t *testing.T) {
	w := newWorld(t, setup{})
	ctx, span := w.provider.Tracer("app").Start(context.Background(), "app")
	_, err := w.sender(t).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
	require.NoError(t, err)
	span.End()
	for _, s := range w.ended(t).named("tools/call echo") {
		require.Equal(t, s.SpanKind() == trace.SpanKindClient, s.Parent().Equal(span.SpanContext()))
	}
}

// Strangers neither decide what is sampled nor pass baggage on: their context
// is linked only.
func TestPublicEndpointOnlyLinks(t *testing.T) {
	var seen baggage.Baggage
	for name, public := range map[string]bool{"public": true, "trusted": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{
				options: telemetry.Options{PublicEndpoint: public},
				interceptors: []core.Interceptor{ct.Validator("guard", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
					seen = baggage.FromContext(ctx)
					return core.Allow(), nil
				}, hook)},
			})
			_, err := w.client(t, legacy).CallTool(context.Background(), &mcp.CallToolParams{
				Name: "echo", Meta: mcp.Meta{"traceparent": traceparent[:53] + "00", "tracestate": "vendor=1", "baggage": "user=me"},
			})
			require.NoError(t, err)
			spans := w.ended(t)
			if !public {
				require.Equal(t, "me", seen.Member("user").Value())
				require.Empty(t, spans.named("tools/call echo"), "the peer says that it is not sampled")
				return
			}
			s := spans.one(t, "tools/call echo")
			require.Zero(t, seen.Len())
			require.False(t, s.Parent().IsValid())
			require.NotEqual(t, traceID, s.SpanContext().TraceID().String())
			require.Empty(t, s.SpanContext().TraceState().String())
			require.Len(t, s.Links(), 1)
			require.Equal(t, spanID, s.Links()[0].SpanContext.SpanID().String())
		})
	}
}

// Headers are as much a stranger's as _meta is.
func TestPublicEndpointLinksHeaders(t *testing.T) {
	w := newWorld(t, setup{options: telemetry.Options{PublicEndpoint: true}})
	_, err := call(w.site(t, true, header{"Traceparent": traceparent}, w.spanned), "echo")
	require.NoError(t, err)
	s := w.ended(t).one(t, "tools/call echo")
	require.False(t, s.Parent().IsValid())
	require.Len(t, s.Links(), 2)
	require.Equal(t, spanID, s.Links()[1].SpanContext.SpanID().String())
}

// Baggage that came over the HTTP layer's instrumentation is a stranger's too.
func TestPublicEndpointDropsAmbientBaggage(t *testing.T) {
	w := newWorld(t, setup{options: telemetry.Options{PublicEndpoint: true}})
	member, err := baggage.NewMember("user", "me")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	ctx := w.tel.MessageStart(baggage.ContextWithBaggage(context.Background(), bag), message("tools/call", "echo"))
	require.Zero(t, baggage.FromContext(ctx).Len())
}

// message returns a message that nothing is special about.
func message(method, target string) *chain.Message {
	return &chain.Message{ID: "m-1", Method: method, Target: target, Transport: "pipe", Direction: core.Receiving}
}

// A context of any type may come from middleware outside.
func TestContextOfAnUncomparableType(t *testing.T) {
	w := newWorld(t, setup{})
	m := message("ping", "")
	ctx := w.tel.MessageStart(uncomparable{context.Background(), []int{1}}, m)
	w.tel.MessageEnd(ctx, &chain.MessageEnd{Message: m, Outcome: chain.MessageOK})
	root(t, w.ended(t).one(t, "ping"))
}

type uncomparable struct {
	context.Context
	_ []int
}

// outer is what somebody else's instrumentation does in a middleware of its own.
func (w *world) outer(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ctx, span := w.provider.Tracer("outer").Start(ctx, "outer "+method)
		defer span.End()
		res, err := next(telemetry.ContextWithServerSpan(ctx), method, req)
		if !span.IsRecording() {
			return nil, errors.New("the span was ended")
		}
		return res, err
	}
}

// A message that has a span gets no second one: the first is given what ours
// would have, and whoever began it ends it.
func TestMarkedSpanIsUsed(t *testing.T) {
	connect := map[string]func(*testing.T, *world) *mcp.ClientSession{
		"in memory": func(t *testing.T, w *world) *mcp.ClientSession { return w.client(t, legacy) },
		"stateful":  func(t *testing.T, w *world) *mcp.ClientSession { return w.site(t, false, nil, w.spanned) },
		"stateless": func(t *testing.T, w *world) *mcp.ClientSession { return w.site(t, true, nil, w.spanned) },
	}
	for name, connect := range connect {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Deny, hook)}})
			w.server.AddReceivingMiddleware(w.outer)
			cs := connect(t, w)
			for range 2 {
				_, err := call(cs, "echo")
				require.ErrorContains(t, err, "blocked")
			}
			spans := w.ended(t)
			require.Empty(t, spans.named("tools/call"))
			require.Len(t, spans.named("outer tools/call"), 2)
			require.Len(t, spans.named("intercept request"), 2)
			for i, s := range spans.named("outer tools/call") {
				want{attrs: map[string]string{outcome: "denied", rpcCode: "-32602", "mcp.method.name": "tools/call"}}.check(t, s)
				require.Equal(t, s.SpanContext(), spans.named("intercept request")[i].Parent())
			}
		})
	}
}

// A mark that outlived its message's span is no reason to go without.
func TestMarkedSpanThatHasEnded(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow, hook)}})
	ctx, span := w.provider.Tracer("outer").Start(context.Background(), "of another message")
	ctx = telemetry.ContextWithServerSpan(ctx)
	span.End()
	_, err := w.pass(ctx, core.EventToolsCall, callRequest("echo", nil), answer)
	require.NoError(t, err)
	spans := w.ended(t)
	root(t, spans.one(t, "tools/call echo"))
	require.Equal(t, spans.one(t, "tools/call echo").SpanContext(), spans.one(t, "intercept request").Parent())
}

// Without spans of messages, phases are under whatever span is current.
func TestNoServerSpan(t *testing.T) {
	w := newWorld(t, setup{options: telemetry.Options{NoServerSpan: true}, interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow, hook)}})
	_, err := call(w.site(t, true, nil, w.spanned), "echo")
	require.NoError(t, err)
	spans := w.ended(t)
	for _, name := range spans.names() {
		require.NotContains(t, name, "tools/call")
	}
	phase := spans.one(t, "intercept request")
	var ambient bool
	for _, s := range spans.named("HTTP POST") {
		ambient = ambient || s.SpanContext().Equal(phase.Parent())
	}
	require.True(t, ambient)
	require.Equal(t, phase.SpanContext(), spans.one(t, "interceptor/invoke guard").Parent())
	require.NotEmpty(t, w.counts(t, "mcp_server_operation_duration_seconds"))
}

// Without tracing there are metrics, and the other way round.
func TestHalves(t *testing.T) {
	for name, o := range map[string]telemetry.Options{"no tracing": {NoTracing: true}, "no metrics": {NoMetrics: true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{options: o, interceptors: []core.Interceptor{ct.Validator("guard", ct.Allow), ct.Validator("audit", ct.Deny, ct.Audit)}})
			_, err := call(w.client(t, legacy), "echo")
			require.NoError(t, err)
			require.Equal(t, o.NoTracing, len(w.ended(t)) == 0)
			families, err := w.registry.Gather()
			require.NoError(t, err)
			require.Equal(t, o.NoMetrics, len(families) == 0)
			w.tel.Close()
		})
	}
}

// A session's id is on spans where MCP has sessions, and nowhere else (O18).
func TestSessionID(t *testing.T) {
	w := newWorld(t, setup{})
	cs := w.site(t, false, nil, nil)
	_, err := call(cs, "echo")
	require.NoError(t, err)
	require.NotEmpty(t, cs.ID())
	id := cs.ID()
	m := message("ping", "")
	m.SessionID, m.ProtocolVersion = id, modern
	w.tel.MessageEnd(w.tel.MessageStart(context.Background(), m), &chain.MessageEnd{Message: m, Outcome: chain.MessageOK})
	spans := w.ended(t)
	require.Equal(t, id, attrs(spans.one(t, "tools/call echo"))["mcp.session.id"])
	require.NotContains(t, attrs(spans.one(t, "ping")), "mcp.session.id")
	families, err := w.registry.Gather()
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(families), id)
}
