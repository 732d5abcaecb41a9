package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	modern = "2026-07-28" // server/discover, no session
	legacy = "2025-11-25" // initialize
)

// A world is a protected server that is observed, and what the observation came
// to.
type world struct {
	sessions []func() // end them and wait for their last messages

	server   *mcp.Server
	ext      *mcpext.Extension
	chain    *chain.Chain
	tel      *telemetry.Telemetry
	registry *prometheus.Registry
	spans    *tracetest.SpanRecorder
	provider *sdk.TracerProvider
	strict   *strictProvider
}

// A strictProvider counts how often its spans are ended. The SDK shows the
// first time only.
type strictProvider struct {
	trace.TracerProvider

	mu   sync.Mutex
	ends map[trace.SpanID]int
}

type strictTracer struct {
	trace.Tracer
	provider *strictProvider
}

type strictSpan struct {
	trace.Span
	provider *strictProvider
}

func (p *strictProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return &strictTracer{p.TracerProvider.Tracer(name, options...), p}
}

func (t *strictTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	_, span := t.Tracer.Start(ctx, name, options...)
	span = &strictSpan{span, t.provider}
	return trace.ContextWithSpan(ctx, span), span
}

func (s *strictSpan) End(options ...trace.SpanEndOption) {
	s.provider.mu.Lock()
	s.provider.ends[s.SpanContext().SpanID()]++
	s.provider.mu.Unlock()
	s.Span.End(options...)
}

// A setup says what a world is made of.
type setup struct {
	interceptors []core.Interceptor
	options      telemetry.Options
	chain        chain.Options
	middleware   middleware.Options
	sampler      sdk.Sampler
	local        bool // the chain goes through MCP in memory
	server       func(*mcp.Server)
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{registry: prometheus.NewRegistry(), spans: tracetest.NewSpanRecorder(), ext: mcpext.New(nil)}
	if s.sampler == nil {
		s.sampler = sdk.ParentBased(sdk.AlwaysSample())
	}
	w.strict = &strictProvider{ends: map[trace.SpanID]int{}}
	w.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(w.spans), sdk.WithSampler(s.sampler))
	if s.options.Registerer == nil {
		s.options.Registerer = w.registry
	}
	if s.options.TracerProvider == nil {
		w.strict.TracerProvider = w.provider
		s.options.TracerProvider = w.strict
	}
	var err error
	w.tel, err = telemetry.New(&s.options)
	require.NoError(t, err)
	s.chain.Observer = w.tel
	require.NoError(t, w.ext.AddInterceptor(s.interceptors...))
	if s.local {
		w.chain, err = w.ext.LocalChain(context.Background(), &s.chain)
	} else {
		w.chain, err = w.ext.Chain(&s.chain)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.chain.Close() })
	w.server = mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	addTools(w.server)
	if s.server != nil {
		s.server(w.server)
	}
	if s.middleware.Logger == nil {
		s.middleware.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	w.server.AddReceivingMiddleware(middleware.Receiving(w.chain, &s.middleware))
	return w
}

func addTools(s *mcp.Server) {
	tool := func(name string, handler mcp.ToolHandler) { addTool(s, name, handler) }
	tool("echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(req.Params.Arguments)), nil
	})
	tool("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := text("no")
		res.IsError = true
		return res, nil
	})
	tool("broken", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("secret-of-the-handler")
	})
	tool("panic", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("secret") })
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
	})
}

func addTool(s *mcp.Server, name string, handler mcp.ToolHandler) {
	s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, handler)
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// client connects a go-sdk client in memory.
func (w *world) client(t testing.TB, version string) *mcp.ClientSession {
	t.Helper()
	ct, st := mcp.NewInMemoryTransports()
	ss, err := w.server.Connect(context.Background(), st, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	cs, err := client.Connect(context.Background(), ct, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	w.close(t, func() { _ = cs.Close(); _ = ss.Wait() })
	return cs
}

// close has a session ended when all spans are wanted, or with the test.
func (w *world) close(t testing.TB, end func()) {
	end = sync.OnceFunc(end)
	w.sessions = append(w.sessions, end)
	t.Cleanup(end)
}

// call calls a tool.
func call(cs *mcp.ClientSession, name string) (*mcp.CallToolResult, error) {
	return cs.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"a": 1}})
}

// ended ends the sessions, so that messages have ended, and closes the chain, so
// that audit runs have, and returns all spans. Each must have been ended once.
func (w *world) ended(t testing.TB) spanList {
	t.Helper()
	for _, end := range w.sessions {
		end()
	}
	require.NoError(t, w.chain.Close())
	started := map[trace.SpanID]int{}
	for _, s := range w.spans.Started() {
		started[s.SpanContext().SpanID()]++
	}
	var list spanList
	for _, s := range w.spans.Ended() {
		id := s.SpanContext().SpanID()
		require.Equal(t, 1, started[id], "%s was ended twice or never begun", s.Name())
		delete(started, id)
		list = append(list, s)
	}
	require.Empty(t, started, "spans that never ended")
	w.strict.mu.Lock()
	defer w.strict.mu.Unlock()
	for id, n := range w.strict.ends {
		require.Equal(t, 1, n, "span %s", id)
	}
	return list
}

// A spanList is what a test saw.
type spanList []sdk.ReadOnlySpan

// named returns the spans of a name.
func (l spanList) named(name string) spanList {
	var out spanList
	for _, s := range l {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

// one returns the only span of a name.
func (l spanList) one(t testing.TB, name string) sdk.ReadOnlySpan {
	t.Helper()
	found := l.named(name)
	require.Len(t, found, 1, "spans named %q among %q", name, l.names())
	return found[0]
}

func (l spanList) names() []string {
	var out []string
	for _, s := range l {
		out = append(out, s.Name())
	}
	return out
}

// attrs returns a span's attributes as text.
func attrs(s sdk.ReadOnlySpan) map[string]string { return plain(s.Attributes()) }

func plain(list []attribute.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		out[string(kv.Key)] = kv.Value.String()
	}
	return out
}

// A sample is one series: of a histogram, how many observations it has and what
// they come to.
type sample struct{ value, sum float64 }

// series returns the series of a metric, by the values of their labels in the
// order of the labels' names, joined by blanks.
func (w *world) series(t testing.TB, metric string) map[string]sample {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	out := map[string]sample{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetValue())
			}
			s := sample{value: m.GetCounter().GetValue() + m.GetGauge().GetValue()}
			if h := m.GetHistogram(); h != nil {
				s = sample{float64(h.GetSampleCount()), h.GetSampleSum()}
			}
			out[strings.Join(values, " ")] = s
		}
	}
	return out
}

// nonzero returns the values of the series that are not 0.
func (w *world) nonzero(t testing.TB, metric string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for labels, s := range w.series(t, metric) {
		if s.value != 0 {
			out[labels] = s.value
		}
	}
	return out
}

// idle wants no call to be under way (O01).
func (w *world) idle(t testing.TB) {
	t.Helper()
	require.Empty(t, w.nonzero(t, semconv.MetricInflight))
}
