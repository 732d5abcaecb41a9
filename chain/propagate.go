package chain

import (
	"context"

	"github.com/headgate-mcp/headgate/core"
)

// A Propagator carries trace contexts over connections, in _meta (SEP-414). Its
// methods are called from several goroutines at once.
type Propagator interface {
	// Inject writes the trace context of ctx into what an invoke carries.
	Inject(ctx context.Context, meta map[string]any)
	// Extract returns ctx with the trace context that an invoke carried. What
	// cannot be read counts as absent.
	Extract(ctx context.Context, meta map[string]any) context.Context
	// IDs returns the trace and span ids of ctx in hex, for the members of the
	// same names in SEP-2624's context. They are empty where no span is
	// recorded: most messages are not traced, and pay nothing then.
	IDs(ctx context.Context) (traceID, spanID string)
}

// TraceMeta returns what a host sends in the _meta of an invoke so that the
// peer's spans join the trace; nil if there is nothing. ctx is the one that the
// host's Invoke was given.
func TraceMeta(ctx context.Context) map[string]any {
	c, ok := ctx.Value(callKey{}).(*callContext)
	if !ok || c.propagator == nil {
		return nil
	}
	meta := map[string]any{}
	contain(func() { c.propagator.Inject(ctx, meta) })
	if len(meta) == 0 {
		return nil
	}
	return meta
}

// Extract returns ctx with the trace context in meta, by the propagator of this
// moment. Without one it returns ctx. It is for hosts that serve a chain in
// its own process through messages.
func (c *Chain) Extract(ctx context.Context, meta map[string]any) context.Context {
	p := c.snapshot.Load().propagator
	if p == nil || len(meta) == 0 {
		return ctx
	}
	return started(ctx, func(ctx context.Context) context.Context { return p.Extract(ctx, meta) })
}

// TraceID returns the id of the trace that ctx is part of, in hex; empty if none
// is recorded, or nobody here knows.
func (c *Chain) TraceID(ctx context.Context) (id string) {
	if p := c.snapshot.Load().propagator; p != nil {
		contain(func() { id, _ = p.IDs(ctx) })
	}
	return id
}

// propagator returns the options' propagator, or the first observer that is one.
func (c *Chain) propagator(obs observers) Propagator {
	if c.opts.Propagator != nil {
		return c.opts.Propagator
	}
	for _, o := range obs {
		if p, ok := o.(Propagator); ok {
			return p
		}
	}
	return nil
}

// identify fills the ids of the span in ctx in, unless the embedder has said
// which ones to use.
func (s *Snapshot) identify(ctx context.Context, inv *core.Invocation) {
	if s.propagator == nil || inv.Context.TraceID != "" {
		return
	}
	contain(func() { inv.Context.TraceID, inv.Context.SpanID = s.propagator.IDs(ctx) })
}

// A MessageKey is the type of context keys whose values belong to one message.
// Middleware hides the other values of go-sdk's contexts where they may be
// those of the request that opened the session.
type MessageKey string
