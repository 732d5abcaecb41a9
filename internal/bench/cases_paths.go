package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// local is one invoke through MCP in memory, over our transport and the SDK's.
func local() Case {
	invoke := func(name string, connect func(*mcpext.Extension) *chain.Chain) Contender {
		return Contender{name, func() (func(), func()) {
			ext := mcpext.New(nil)
			check(ext.AddInterceptor(onRequest.validators(1)...))
			ch := connect(ext)
			req := chain.Request{
				Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving,
				Payload: text(KiB), Disposable: true, MessageID: "id",
			}
			ctx := context.Background()
			return func() { must(ch.Execute(ctx, &req)) }, func() { _ = ch.Close() }
		}}
	}
	return Case{
		Name: "an invoke through MCP in memory", Slow: true,
		Contenders: []Contender{
			invoke("LocalChain", func(e *mcpext.Extension) *chain.Chain { return must(e.LocalChain(context.Background(), nil)) }),
			invoke("NewInMemoryTransports", func(e *mcpext.Extension) *chain.Chain {
				server := mcp.NewServer(&mcp.Implementation{Name: "host", Version: "1"}, nil)
				check(e.Install(server))
				session, _ := dial(server, "2026-07-28")
				ch := must(chain.New(nil))
				check(mcpext.AddMCPServer(context.Background(), ch, session))
				return ch
			}),
			invoke("direct", func(e *mcpext.Extension) *chain.Chain { return must(e.Chain(nil)) }),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("LocalChain against NewInMemoryTransports: time", f[0].Ratio(f[1]), 0.5, Ratio),
				atMost("LocalChain against NewInMemoryTransports: bytes", f[0].Bytes/f[1].Bytes, 1.0/3, Ratio),
				quoted("LocalChain: time", nanos(f[0]), Nanoseconds),
				quoted("direct: time", nanos(f[2]), Nanoseconds),
			}
		},
	}
}

// A discard is a span processor that has the SDK make its spans, and keeps none.
type discard struct{}

func (discard) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (discard) OnEnd(sdk.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error             { return nil }
func (discard) ForceFlush(context.Context) error           { return nil }

func provider(sampled bool) trace.TracerProvider {
	sampler := sdk.NeverSample()
	if sampled {
		sampler = sdk.AlwaysSample()
	}
	return sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sampler)), sdk.WithSpanProcessor(discard{}))
}

// traced is a call that carries a trace context.
func traced(sampled bool) *mcp.CallToolRequest {
	flags := "00"
	if sampled {
		flags = "01"
	}
	return request(text(KiB), mcp.Meta{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-" + flags})
}

// watched is a phase that telemetry watches.
func watched(name string, sampled bool, interceptors ...core.Interceptor) Contender {
	return Contender{name, func() (func(), func()) {
		tel := must(telemetry.New(&telemetry.Options{Registerer: prometheus.NewRegistry(), TracerProvider: provider(sampled)}))
		op, done := phases("", &chain.Options{Observer: tel}, core.EventToolsCall, traced(sampled), answer("x"), interceptors...).Make()
		for range 3000 {
			op() // makes the series and, by and by, their native buckets
		}
		return op, done
	}}
}

// A carrier reads a trace context from _meta.
type carrier map[string]any

func (c carrier) Get(key string) string { s, _ := c[key].(string); return s }
func (c carrier) Set(key, value string) { c[key] = value }
func (c carrier) Keys() []string        { return nil }

// spans is the same phase without telemetry, in a server that extracts the
// context and starts one span, and as many below it as it is told, each with as
// many attributes.
func spans(name string, sampled bool, below, attributes int, interceptors ...core.Interceptor) Contender {
	return Contender{name, func() (func(), func()) {
		req := traced(sampled)
		op, done := phases("", nil, core.EventToolsCall, req, answer("x"), interceptors...).Make()
		tracer := provider(sampled).Tracer("bench")
		propagator, kind := propagation.TraceContext{}, trace.WithSpanKind(trace.SpanKindServer)
		ctx := context.Background()
		attrs := make([]attribute.KeyValue, attributes)
		for i := range attrs {
			attrs[i] = attribute.String(fmt.Sprint("key", i), "value")
		}
		return func() {
			ctx, span := tracer.Start(propagator.Extract(ctx, carrier(req.Params.Meta)), "tools/call act", kind)
			for range below {
				_, s := tracer.Start(ctx, "below")
				s.SetAttributes(attrs...)
				s.End()
			}
			op()
			span.End()
		}, done
	}}
}

func unsampled() Case {
	return Case{
		Name: "telemetry on, unsampled, against a server that starts one span",
		Contenders: []Contender{
			watched("nothing hooked", false), spans("one span, nothing hooked", false, 0, 0),
			watched("1 validator", false, onRequest.validators(1)...), spans("one span, 1 validator", false, 0, 0, onRequest.validators(1)...),
			watched("5 validators", false, onRequest.validators(5)...), spans("one span, 5 validators", false, 0, 0, onRequest.validators(5)...),
		},
		Judge: func(f []Figure) []Line {
			lines := make([]Line, 0, 6)
			for i := 0; i < len(f); i += 2 {
				lines = append(lines,
					// The mean has parts of allocations in it: ids are made by the dozen.
					atMost(f[i].Name+": allocations more", f[i].Allocs-f[i+1].Allocs, 1.05, Allocations),
					quoted(f[i].Name+": time more", nanos(f[i])-nanos(f[i+1]), Nanoseconds))
			}
			return lines
		},
	}
}

func sampled() Case {
	const invokes, below, attributes = 5, 6, 9
	set := onRequest.validators(invokes)
	return Case{
		Name: "telemetry on, sampled, five interceptors",
		Contenders: []Contender{
			watched("sampled", true, set...), calls("unwatched", text(KiB), set...),
			spans("as many SDK spans", true, below, attributes, set...),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				quoted("time", nanos(f[0]), Nanoseconds),
				quoted("of it telemetry", nanos(f[0])-nanos(f[1]), Nanoseconds),
				atMost("against seven SDK spans with as many attributes, by hand", (nanos(f[0])-nanos(f[1]))/(nanos(f[2])-nanos(f[1])), 1.5, Ratio),
			}
		},
	}
}

// flip is a change of one mode among 1,000 interceptors, while somebody reads.
func flip() Case {
	const n = 1000
	events := core.StandardMethods()
	list := make([]core.Interceptor, n)
	for i := range list {
		list[i] = core.Validator{Metadata: core.Metadata{
			Name:  fmt.Sprintf("v%04d", i),
			Hooks: []core.Hook{{Events: []string{events[i%len(events)], core.EventToolsCall}, Phase: core.PhaseBoth}},
		}, Handler: allow}
	}
	ch := newChain(nil, list...)
	var turned atomic.Int64
	change := func() {
		mode := core.ModeAudit
		if turned.Add(1)%2 == 0 {
			mode = core.ModeActive
		}
		check(ch.SetOverrides(map[string]chain.Overrides{"v0500": {Mode: mode}}))
	}
	return Case{
		Name: "flip of a mode, 1,000 interceptors", Slow: true,
		Contenders: []Contender{plain("flip", change), plain("read", func() { ch.Snapshot() })},
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("plans compiled in", nanos(f[0]), float64(10*time.Millisecond), Nanoseconds),
				quoted("reading the policy", nanos(f[1]), Nanoseconds),
				atMost("reading it while flips go on", readsDuring(ch, change), 1000, Nanoseconds),
			}
		},
	}
}

// readsDuring returns the median time of a read while another goroutine flips
// without end.
func readsDuring(ch *chain.Chain, change func()) float64 {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				change()
			}
		}
	}()
	times := make([]float64, 0, 2000)
	for range cap(times) {
		start := time.Now()
		ch.Snapshot()
		times = append(times, float64(time.Since(start)))
		time.Sleep(50 * time.Microsecond)
	}
	close(stop)
	<-done
	return median(times)
}
