package telemetry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A rig is a protected handler that does nothing itself, so that a benchmark
// measures what stands before it.
type rig struct {
	handle mcp.MethodHandler
	chain  *chain.Chain
}

// watched says what watches a rig.
type watched struct {
	name    string
	options *telemetry.Options // nil for no telemetry
	sampler sdk.Sampler        // nil for no spans
	// plain puts in place of telemetry what a server does that only extracts
	// the context and starts one span.
	plain bool
}

func watches() []watched {
	never, always := sdk.ParentBased(sdk.NeverSample()), sdk.ParentBased(sdk.AlwaysSample())
	return []watched{
		{name: "bare"},
		{name: "metrics", options: &telemetry.Options{NoTracing: true}},
		{name: "one span, unsampled", plain: true, sampler: never},
		{name: "unsampled", options: &telemetry.Options{}, sampler: never},
		{name: "one span, sampled", plain: true, sampler: always},
		{name: "sampled", options: &telemetry.Options{}, sampler: always},
	}
}

func newRig(t testing.TB, w watched, interceptors ...core.Interceptor) *rig {
	t.Helper()
	var opts chain.Options
	var provider trace.TracerProvider
	if w.sampler != nil {
		provider = sdk.NewTracerProvider(sdk.WithSampler(w.sampler), sdk.WithSpanProcessor(discard{}))
	}
	if w.options != nil {
		o := *w.options
		o.Registerer, o.TracerProvider = prometheus.NewRegistry(), provider
		tel, err := telemetry.New(&o)
		require.NoError(t, err)
		opts.Observer = tel
	}
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	ch, err := ext.Chain(&opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	res := text("x")
	r := &rig{chain: ch, handle: middleware.Receiving(ch, nil)(
		func(context.Context, string, mcp.Request) (mcp.Result, error) { return res, nil })}
	if w.plain {
		r.handle = oneSpan(provider.Tracer("plain"), r.handle)
	}
	return r
}

// oneSpan is the least that a traced server does.
func oneSpan(tracer trace.Tracer, next mcp.MethodHandler) mcp.MethodHandler {
	propagator := propagation.TraceContext{}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ctx = propagator.Extract(ctx, carrier(req.GetParams().GetMeta()))
		ctx, span := tracer.Start(ctx, method, options...)
		defer span.End()
		return next(ctx, method, req)
	}
}

type carrier map[string]any

func (c carrier) Get(key string) string { s, _ := c[key].(string); return s }
func (c carrier) Set(key, value string) { c[key] = value }
func (c carrier) Keys() []string        { return nil }

// discard is a span processor that has the SDK make its spans, and keeps none.
type discard struct{}

func (discard) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (discard) OnEnd(sdk.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error             { return nil }
func (discard) ForceFlush(context.Context) error           { return nil }

// traced is a call of 1 KiB that carries a trace context, sampled or not.
func traced(sampled bool) *mcp.CallToolRequest {
	flags := "00"
	if sampled {
		flags = "01"
	}
	return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{
		Name: "act", Arguments: json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<10) + `"}`),
		Meta: mcp.Meta{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags},
	}}
}

func validators(n int) []core.Interceptor {
	var list []core.Interceptor
	for i := range n {
		list = append(list, ct.Validator(fmt.Sprint("v", i), ct.Allow, ct.On(core.PhaseRequest, core.EventToolsCall)))
	}
	return list
}

// call makes one call.
func (r *rig) call(t testing.TB, req mcp.Request) {
	if _, err := r.handle(context.Background(), core.EventToolsCall, req); err != nil {
		t.Fatal(err)
	}
}

// Ceilings: metrics cost no allocation, and a message that is not sampled at
// most one more than in a server that only extracts the context and starts one
// span. Both hold however many interceptors run.
func TestAllocations(t *testing.T) {
	for _, n := range []int{0, 1, 5} {
		allocations := map[string]float64{}
		for _, w := range watches() {
			r, req := newRig(t, w, validators(n)...), traced(strings.HasSuffix(w.name, ", sampled") || w.name == "sampled")
			for range 2000 { // makes the series and, by and by, their native buckets
				r.call(t, req)
			}
			allocations[w.name] = testing.AllocsPerRun(200, func() { r.call(t, req) })
		}
		t.Logf("%d validators: %v", n, allocations)
		if n == 0 { // watching means that the middleware has to look at the message
			require.LessOrEqual(t, allocations["unsampled"], allocations["one span, unsampled"]+2+raceSlack)
		} else {
			require.LessOrEqual(t, allocations["metrics"], allocations["bare"]+raceSlack, "%d validators", n)
			require.LessOrEqual(t, allocations["unsampled"], allocations["one span, unsampled"]+1+raceSlack, "%d validators", n)
		}
	}
}

// BenchmarkWatched is one call through the middleware around a handler that
// does nothing, in pairs: with telemetry and without.
func BenchmarkWatched(b *testing.B) {
	for _, n := range []int{0, 1, 5} {
		for _, w := range watches() {
			b.Run(fmt.Sprintf("validators=%d/%s", n, w.name), func(b *testing.B) {
				r, req := newRig(b, w, validators(n)...), traced(strings.HasSuffix(w.name, ", sampled") || w.name == "sampled")
				b.ReportAllocs()
				for b.Loop() {
					r.call(b, req)
				}
			})
		}
	}
}
