package telemetry

import (
	"context"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// serverSpanKey marks contexts in which the message has a span already.
const serverSpanKey = chain.MessageKey("headgate telemetry server span")

// ContextWithServerSpan marks the current span of ctx as that of the MCP message
// that ctx is for. The message then gets no span of its own; the marked one is
// given its attributes, and whoever began it ends it. Call it in an MCP
// middleware that runs before Headgate's, for each message: in an HTTP handler,
// which a session's later messages do not come through, it has no place.
func ContextWithServerSpan(ctx context.Context) context.Context {
	return context.WithValue(ctx, serverSpanKey, trace.SpanFromContext(ctx))
}

// markedSpan returns the span that ContextWithServerSpan marked; nil for none.
// One that has ended is another message's.
func markedSpan(ctx context.Context) trace.Span {
	span, _ := ctx.Value(serverSpanKey).(trace.Span)
	if span == nil || span.SpanContext().IsSampled() && !span.IsRecording() {
		return nil
	}
	return span
}

// maxHeader bounds each value that is read as part of a trace context. It is
// W3C's bound for baggage, the largest.
const maxHeader = 8192

// metaCarrier reads and writes trace contexts in _meta under the keys that
// SEP-414 reserves.
type metaCarrier map[string]any

var _ propagation.TextMapCarrier = metaCarrier(nil)

// Get returns a value that is a string of fair length, or else nothing.
func (c metaCarrier) Get(key string) string {
	s, _ := c[key].(string)
	if len(s) > maxHeader {
		return ""
	}
	return s
}

// Set writes a value.
func (c metaCarrier) Set(key, value string) { c[key] = value }

// Keys returns all keys.
func (c metaCarrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}

// headerCarrier reads trace contexts from a request's headers.
type headerCarrier func(name string) string

var _ propagation.TextMapCarrier = headerCarrier(nil)

// Get returns a value of fair length.
func (c headerCarrier) Get(key string) string {
	s := c(key)
	if len(s) > maxHeader {
		return ""
	}
	return s
}

// Set does nothing: headers are only read.
func (c headerCarrier) Set(string, string) {}

// Keys returns nothing: not all propagators ask, and headers are not listed.
func (c headerCarrier) Keys() []string { return nil }

// Inject writes the trace context of ctx for a host that is elsewhere.
func (t *Telemetry) Inject(ctx context.Context, meta map[string]any) {
	if t.tracer != nil {
		t.propagator.Inject(ctx, metaCarrier(meta))
	}
}

// Extract returns ctx with the trace context that an invoke carried, unless a
// span of this process that came of it is there already.
func (t *Telemetry) Extract(ctx context.Context, meta map[string]any) context.Context {
	if t.tracer == nil || ctx.Value(&t.messageKey) != nil {
		return ctx
	}
	return t.propagator.Extract(ctx, metaCarrier(meta))
}

// IDs returns the ids of a span that is recorded.
func (t *Telemetry) IDs(ctx context.Context) (traceID, spanID string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return "", ""
	}
	sc := span.SpanContext()
	return sc.TraceID().String(), sc.SpanID().String()
}

// A parent is what a message's span begins under.
type parent struct {
	ctx   context.Context
	links []trace.Link
}

// parentOf finds the parent of a received message: the trace context in _meta,
// or else that in the headers of the HTTP request that carried it, or else
// none. A span in ctx is at most linked, and only where it is known to be this
// message's: on a session it is that of the request that opened it.
func (t *Telemetry) parentOf(ctx context.Context, m *chain.Message) parent {
	if m.Direction == core.Sending {
		return parent{ctx: ctx} // whatever sends the message
	}
	p := parent{ctx: ctx}
	if ambient := trace.SpanContextFromContext(ctx); ambient.IsValid() {
		p.ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
		if m.Transport == transportTCP && m.SessionID == "" {
			p.links = append(p.links, trace.Link{SpanContext: ambient})
		}
	}
	remote := t.remote(p.ctx, m)
	if !t.opts.PublicEndpoint {
		p.ctx = remote
		return p
	}
	if baggage.FromContext(p.ctx).Len() > 0 { // it came with the HTTP request
		p.ctx = baggage.ContextWithoutBaggage(p.ctx)
	}
	if sc := trace.SpanContextFromContext(remote); sc.IsValid() {
		p.links = append(p.links, trace.Link{SpanContext: sc})
	}
	return p
}

// inHeaders reports whether a request's headers hold anything for the
// propagator: nearly none do, and reading them costs.
func (t *Telemetry) inHeaders(get func(string) string) bool {
	for _, field := range t.fields {
		if get(field) != "" {
			return true
		}
	}
	return false
}

// remote returns ctx with the context that the peer sent; ctx itself for none.
func (t *Telemetry) remote(ctx context.Context, m *chain.Message) context.Context {
	if len(m.Meta) > 0 {
		if out := t.propagator.Extract(ctx, metaCarrier(m.Meta)); trace.SpanContextFromContext(out).IsValid() {
			return out
		} else if baggage.FromContext(out).Len() > 0 {
			ctx = out // it may come without a parent
		}
	}
	if m.Header != nil && t.inHeaders(m.Header) {
		return t.propagator.Extract(ctx, headerCarrier(m.Header))
	}
	return ctx
}
