package telemetry

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	upstream "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// Options configures [New]. The zero value is ready to use: both spans and
// metrics, with the global provider, propagator and registry.
type Options struct {
	// Registerer takes the metrics. Nil means prometheus.DefaultRegisterer.
	Registerer prometheus.Registerer
	// NoMetrics leaves the metrics out.
	NoMetrics bool
	// TracerProvider makes the spans. Nil means OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// NoTracing leaves the spans out.
	NoTracing bool
	// Propagator reads and writes trace contexts. Nil means OpenTelemetry's
	// global one or, if none was set, W3C Trace Context and Baggage.
	Propagator propagation.TextMapPropagator
	// PublicEndpoint says that peers are strangers. A message then begins a
	// trace of its own, which is linked to the peer's: strangers neither decide
	// what is sampled nor pass baggage on.
	PublicEndpoint bool
	// NoServerSpan leaves out the span of the message, for servers whose
	// messages have spans already. [ContextWithServerSpan] does so by message.
	NoServerSpan bool

	// Tools are the tools that may be named in metrics and in names of spans.
	// Nil means those that the server is known to have: it listed them, or a
	// call succeeded.
	Tools []string
	// NoToolLabel leaves gen_ai_tool_name empty in metrics.
	NoToolLabel bool
	// MaxTools and MaxInterceptors bound the names in labels; what exceeds them
	// is _OTHER. Zero means 64 and 32.
	MaxTools, MaxInterceptors int

	// ResourceURI puts mcp.resource.uri on spans. URIs come from clients and
	// may be personal.
	ResourceURI bool
	// Reasons puts the words of validators and the texts of failures on spans,
	// cut off after 256 bytes. They may quote messages.
	Reasons bool
}

// ErrRegistered is wrapped by the error of [New] for a registerer that has such
// metrics already. Servers in one process share one Telemetry instead.
var ErrRegistered = errors.New("telemetry: metrics are registered already")

// Scope is the name of the tracer.
const Scope = "github.com/headgate-mcp/headgate/telemetry"

// Telemetry observes chains. One value may observe several, and be used from
// several goroutines at once. Make one with [New].
type Telemetry struct {
	// Fixed at creation.
	opts       Options
	tracer     trace.Tracer // nil without spans
	propagator propagation.TextMapPropagator
	fields     []string // of the propagator
	names      *names
	templates  *templates
	metrics    *metrics // nil without metrics
	started    time.Time

	closed atomic.Bool

	// Keys of contexts, told apart by their addresses, so that values do not
	// meet.
	messageKey, phaseKey, invokeKey scopeKey
}

var _ interface {
	chain.Observer
	chain.Preparer
	chain.PolicyObserver
	chain.Propagator
} = (*Telemetry)(nil)

// New returns a telemetry. A registerer that has its metrics already is an
// error that wraps [ErrRegistered].
func New(opts *Options) (*Telemetry, error) {
	t := &Telemetry{started: time.Now()}
	if opts != nil {
		t.opts = *opts
	}
	if t.opts.MaxTools < 0 || t.opts.MaxInterceptors < 0 {
		return nil, errors.New("telemetry: bounds must not be negative")
	}
	t.names = newNames(&t.opts)
	t.propagator = t.opts.Propagator
	if t.propagator == nil {
		t.propagator = globalPropagator()
	}
	t.fields = t.propagator.Fields()
	if !t.opts.NoTracing {
		t.templates = newTemplates(t.names)
		t.tracer = tracer(t.opts.TracerProvider)
	}
	if t.opts.NoMetrics {
		return t, nil
	}
	if t.opts.Registerer == nil {
		t.opts.Registerer = prometheus.DefaultRegisterer
	}
	t.metrics = newMetrics(t.names, t.started)
	if err := t.opts.Registerer.Register(t.metrics); err != nil {
		if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			return nil, ErrRegistered
		}
		return nil, fmt.Errorf("%w: %w", ErrRegistered, err)
	}
	return t, nil
}

// Close takes the metrics off their registerer. Chains that are still observed
// go on without effect.
func (t *Telemetry) Close() {
	if t.metrics != nil && !t.closed.Swap(true) { // or it would take another's off
		t.opts.Registerer.Unregister(t.metrics)
	}
}

func tracer(p trace.TracerProvider) trace.Tracer {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer(Scope, trace.WithSchemaURL(upstream.SchemaURL))
}

func globalPropagator() propagation.TextMapPropagator {
	if p := otel.GetTextMapPropagator(); len(p.Fields()) > 0 {
		return p
	}
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

// Handler serves the metrics of a gatherer. It offers the OpenMetrics format,
// which is the only text format that has exemplars.
func Handler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError})
}
