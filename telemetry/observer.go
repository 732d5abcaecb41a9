package telemetry

import (
	"context"
	"errors"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"go.opentelemetry.io/otel/trace"
)

// methodListen is a request that lasts as long as its subscription.
const methodListen = "subscriptions/listen"

// A handle is what an entry's invokes carry.
type handle struct {
	templates *phaseTemplates // nil without spans
	series    *interceptorHandles
	typ, mode int
}

// Prepare makes the handle of an entry, and its counters at 0.
func (t *Telemetry) Prepare(e *chain.Entry) any {
	h := &handle{typ: typeIndex(e.Type), mode: modeIndex(e.Effective.Mode)}
	for _, hook := range e.Hooks {
		for _, event := range hook.Events {
			t.names.hooked(event)
		}
	}
	if t.tracer != nil {
		h.templates = newInvokeTemplates(e)
	}
	if t.metrics != nil {
		h.series = t.metrics.interceptors.get(e.Name, true)
		h.series.prepare(e)
	}
	return h
}

// PolicyChanged takes in what the interceptors of a chain are now.
func (t *Telemetry) PolicyChanged(ch *chain.Chain, entries []*chain.Entry) {
	if t.metrics != nil {
		t.metrics.policyChanged(ch, entries)
	}
}

// MessageStart begins the span of a message.
func (t *Telemetry) MessageStart(ctx context.Context, m *chain.Message) context.Context {
	if t.tracer == nil {
		return ctx
	}
	return t.startMessage(ctx, m)
}

// MessageEnd ends the span of a message and records what it took.
func (t *Telemetry) MessageEnd(ctx context.Context, end *chain.MessageEnd) {
	errorType := t.errorType(end)
	s := t.scopeOf(ctx, &t.messageKey)
	if t.metrics != nil && end.Message.Method != methodListen {
		t.recordMessage(end, errorType, s.context())
	}
	if s != nil {
		t.endMessage(s, end, errorType)
	}
}

func (t *Telemetry) recordMessage(end *chain.MessageEnd, errorType int, span trace.SpanContext) {
	m := end.Message
	side := t.metrics.servers
	if m.Direction == core.Sending {
		side = t.metrics.clients
	}
	h, now := side.get(m.Method, false), t.metrics.now(span)
	ops := &h.plain
	if h.tools != nil && !t.opts.NoToolLabel {
		ops = h.tools.get(m.Target, t.names.offered(m))
	}
	h.operation(ops, m.Transport, errorType).observe(end.Duration, span, now)
	if took := end.Stages.Handler; took > 0 {
		e := t.metrics.events.get(m.Method, false)
		e.stage(&e.handler, "", semconv.StageHandler).observe(took, span, now)
	}
}

// ExecuteStart begins the span of a phase.
func (t *Telemetry) ExecuteStart(ctx context.Context, x *chain.Execution) context.Context {
	if t.tracer != nil {
		ctx = t.startPhase(ctx, x)
	}
	if t.metrics != nil {
		e, p := t.metrics.events.get(x.Event, false), phaseIndex(x.Phase)
		h := &e.phases[p]
		h.size.get(t.metrics.size, func() []string { return []string{e.event, string(phaseAt(p))} }).
			observer.Observe(float64(x.PayloadSize))
		if x.MarshalTime > 0 {
			e.stage(&h.marshal, x.Phase, semconv.StageMarshal).observer.Observe(x.MarshalTime.Seconds())
		}
	}
	return ctx
}

// ExecuteEnd ends the span of a phase and records its stages.
func (t *Telemetry) ExecuteEnd(ctx context.Context, res *chain.Result, err error) {
	s := t.scopeOf(ctx, &t.phaseKey)
	if t.metrics != nil {
		t.recordPhase(res, s.context())
		if err != nil {
			t.recordAbort(err, s.context())
		}
	}
	if s != nil {
		t.endPhase(s, res, err)
	}
}

func (t *Telemetry) recordPhase(res *chain.Result, span trace.SpanContext) {
	e, now := t.metrics.events.get(res.Event, false), t.metrics.now(span)
	h := &e.phases[phaseIndex(res.Phase)]
	if took := res.Times.Validators; took > 0 {
		e.stage(&h.validators, res.Phase, semconv.StageValidators).observe(took, span, now)
	}
	if took := res.Times.Mutators - res.Times.Apply; took > 0 {
		e.stage(&h.mutators, res.Phase, semconv.StageMutators).observe(took, span, now)
	}
	if took := res.Times.Apply; took > 0 {
		e.stage(&h.unmarshal, res.Phase, semconv.StageUnmarshal).observe(took, span, now)
	}
}

// recordAbort counts a message once, whatever many interceptors were against it.
func (t *Telemetry) recordAbort(err error, span trace.SpanContext) {
	var abort *chain.AbortError
	if !errors.As(err, &abort) {
		return // the caller gave up
	}
	phase := phaseIndex(abort.Phase)
	at, ok := reasonIndex(abort.Reason)
	if abort.Interceptor == "" {
		t.metrics.overtime[phase].inc(span, t.metrics.now(span))
		return
	}
	c := t.metrics.interceptors.lookup(abort.Interceptor).phases[phase].aborts[at]
	if ok && c != nil {
		c.inc(span, t.metrics.now(span))
	}
}

// InvokeStart begins the span of a call.
func (t *Telemetry) InvokeStart(ctx context.Context, i *chain.Invoke) context.Context {
	h, ok := i.Handle.(*handle)
	if !ok {
		return ctx
	}
	if h.series != nil {
		h.series.inflight.Inc()
	}
	if h.templates != nil {
		return t.startInvoke(ctx, i, h)
	}
	return ctx
}

// InvokeEnd ends the span of a call and records what came of it.
func (t *Telemetry) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	h, ok := i.Handle.(*handle)
	if !ok {
		return
	}
	s := t.scopeOf(ctx, &t.invokeKey)
	if h.series != nil {
		h.series.inflight.Dec()
		t.recordInvoke(h, i, out, s.context())
	}
	if s != nil {
		t.endInvoke(s, i, out)
	}
}

func (t *Telemetry) recordInvoke(h *handle, i *chain.Invoke, out *chain.Outcome, span trace.SpanContext) {
	now, p := t.metrics.now(span), phaseIndex(out.Phase)
	if out.Ran {
		h.series.duration(h.typ, h.mode, p, verdictOf(out)).observe(out.Duration, span, now)
		if out.Mode == core.ModeAudit {
			e := t.metrics.events.get(i.Event, false)
			e.stage(&e.phases[p].audit, out.Phase, semconv.StageAudit).observe(out.Duration, span, now)
		}
	}
	if out.Verdict == chain.VerdictAllow || out.Verdict == chain.VerdictModify {
		return
	}
	if refused := h.series.refused[out.Limit()]; refused != nil {
		refused.Inc()
	}
	if c := h.series.phases[p].of(out); c != nil {
		c.inc(span, now)
		return
	}
	switch {
	case out.Verdict == chain.VerdictDropped:
		h.series.dropped.Inc()
	case out.Verdict == chain.VerdictSkipped && out.Action == chain.ActionProceed:
		if skipped := h.series.phases[p].skipped; skipped != nil {
			skipped.Inc()
		}
	}
}

// of returns the counter that an outcome belongs to; nil for none. Aborts are
// counted by message, elsewhere.
func (c *phaseCounters) of(out *chain.Outcome) *counter {
	at, known := reasonIndex(out.Reason)
	switch {
	case !known || out.Verdict == chain.VerdictDropped:
		return nil
	case out.Action == chain.ActionFailOpen:
		return c.failOpen[at]
	case out.Mode != core.ModeAudit:
		return nil
	case out.Verdict == chain.VerdictDeny:
		return c.auditDenials
	}
	return c.auditFailures[at]
}

// scopeOf returns the scope that a Start made, if that is recorded.
func (t *Telemetry) scopeOf(ctx context.Context, key *scopeKey) *scope {
	if t.tracer == nil {
		return nil
	}
	return spanOf(ctx, key)
}

// context returns the identity of the span; none for no scope.
func (s *scope) context() trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	return s.span.SpanContext()
}
