package telemetry

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	upstream "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// A scopeKey finds a scope by its address.
type scopeKey struct{ _ byte }

// A scope is a context with a span that a Start began and its End is to end.
// Other observers may have put spans of theirs on the context since, so the
// current one need not be it.
type scope struct {
	context.Context
	key  *scopeKey
	span trace.Span
	name string // of a message's span
	// shown is what the Start was shown of a phase, or of a call.
	shown shown
	// borrowed says that somebody else ends the span.
	borrowed bool
}

// shown is set on a span with all the rest, when it ends: each setting costs.
type shown struct {
	size, index int // of the payload; of the call, or how many there are
	marshal     time.Duration
	message     string
}

// Value returns the scope for its key.
func (s *scope) Value(key any) any {
	if key == any(s.key) {
		return s
	}
	return s.Context.Value(key)
}

// enter returns a context for the span.
func enter(ctx context.Context, key *scopeKey, span trace.Span) context.Context {
	if !span.IsRecording() {
		return pass(ctx, key)
	}
	return &scope{Context: ctx, key: key, span: span}
}

// pass returns a context without a span of ours. It needs no scope, unless one
// of an outer call would be taken for its own.
func pass(ctx context.Context, key *scopeKey) context.Context {
	if ctx.Value(key) == nil {
		return ctx
	}
	return &scope{Context: ctx, key: key, span: noop.Span{}}
}

// spanOf returns the scope that a Start made; nil if it made none.
func spanOf(ctx context.Context, key *scopeKey) *scope {
	s, _ := ctx.Value(key).(*scope)
	if s == nil || !s.span.IsRecording() {
		return nil
	}
	return s
}

// recorded reports whether a Start made a span. It may have ended since, as that
// of a phase has when its audit runs begin.
func recorded(ctx context.Context, key *scopeKey) bool {
	s, _ := ctx.Value(key).(*scope)
	return s != nil && s.span.SpanContext().IsValid()
}

func (s *scope) end(options ...trace.SpanEndOption) {
	if !s.borrowed {
		s.span.End(options...)
	}
}

// startMessage begins the span of a message.
func (t *Telemetry) startMessage(ctx context.Context, m *chain.Message) context.Context {
	if marked := markedSpan(ctx); marked != nil {
		return t.borrow(ctx, m, marked)
	}
	if t.opts.NoServerSpan {
		return pass(ctx, &t.messageKey)
	}
	tmpl := t.messageTemplate(m)
	options := tmpl.options
	p := t.parentOf(ctx, m)
	if len(p.links) > 0 {
		options = append(options[:len(options):len(options)], trace.WithLinks(p.links...))
	}
	ctx, span := t.tracer.Start(p.ctx, tmpl.name, options...)
	if span.IsRecording() {
		span.SetAttributes(t.messageAttributes(m)...)
	} else if m.Method == core.MethodInvoke {
		return &scope{Context: ctx, key: &t.messageKey, span: span} // tells Extract that it is there
	}
	ctx = enter(ctx, &t.messageKey, span)
	if own, ok := ctx.(*scope); ok {
		own.name = tmpl.name
	}
	return ctx
}

// borrow gives a span that somebody else made for the message what ours would
// have.
func (t *Telemetry) borrow(ctx context.Context, m *chain.Message, span trace.Span) context.Context {
	ctx = trace.ContextWithSpan(ctx, span)
	if span.IsRecording() {
		span.SetAttributes(t.messageTemplate(m).attrs...)
		span.SetAttributes(t.messageAttributes(m)...)
	}
	return &scope{Context: ctx, key: &t.messageKey, span: span, borrowed: true}
}

// messageTemplate returns the template for the method and, where the server
// has it, the target.
func (t *Telemetry) messageTemplate(m *chain.Message) *template {
	side := t.templates.servers
	if m.Direction == core.Sending {
		side = t.templates.clients
	}
	tmpl := side.find(m.Method, false)
	if tmpl.targets == nil || m.Target == "" {
		return tmpl.plain
	}
	return tmpl.targets.find(m.Target, t.names.offered(m))
}

// messageAttributes returns what only the message says.
func (t *Telemetry) messageAttributes(m *chain.Message) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		semconv.MessageIDKey.String(m.ID), upstream.NetworkTransportKey.String(m.Transport),
	}
	if m.ProtocolVersion != "" {
		attrs = append(attrs, upstream.McpProtocolVersion(clip(m.ProtocolVersion, maxName)))
	}
	if m.SessionID != "" && m.ProtocolVersion < firstModern {
		attrs = append(attrs, upstream.McpSessionID(clip(m.SessionID, maxName)))
	}
	if t.opts.ResourceURI && m.Target != "" && isResource(m.Method) {
		attrs = append(attrs, upstream.McpResourceURI(clip(m.Target, maxText)))
	}
	return attrs
}

// firstModern is the first MCP version without sessions.
const firstModern = "2026-07-28"

// maxText bounds texts on spans that an option asked for.
const maxText = 256

func isResource(method string) bool {
	switch method {
	case core.EventResourcesRead, core.EventResourcesSubscribe, "resources/unsubscribe":
		return true
	}
	return false
}

// endMessage ends the span of a message.
func (t *Telemetry) endMessage(s *scope, end *chain.MessageEnd, errorType int) {
	attrs := []attribute.KeyValue{semconv.MessageOutcomeKey.String(string(end.Outcome))}
	if end.Code != 0 {
		attrs = append(attrs, upstream.RPCResponseStatusCode(strconv.FormatInt(end.Code, 10)))
	}
	if tmpl := t.messageTemplate(end.Message); tmpl.name != s.name && !s.borrowed {
		// Only its success has shown that the server has such a target.
		s.span.SetName(tmpl.name)
		attrs = append(attrs, tmpl.attrs...)
	}
	if errorType != errorNone {
		name := errorTypes()[errorType]
		attrs = append(attrs, upstream.ErrorTypeKey.String(name))
		if isError(errorType, end.Message.Direction) {
			s.span.SetStatus(codes.Error, t.description(name, end.Err))
		}
	}
	s.span.SetAttributes(attrs...)
	s.end()
}

// description returns what a status may say: the error's type and, only where
// the embedder wants it, its text.
func (t *Telemetry) description(errorType string, err error) string {
	if t.opts.Reasons && err != nil {
		return cmp.Or(clip(textOf(err), maxText), errorType)
	}
	return errorType
}

// textOf returns an error's text; none where that panics, as it may for errors
// of interceptors' own.
func textOf(err error) (text string) {
	defer func() { _ = recover() }()
	return err.Error()
}

// startPhase begins the span of a phase. A message that is not recorded has
// none; a chain that is run without middleware has one of its own.
func (t *Telemetry) startPhase(ctx context.Context, x *chain.Execution) context.Context {
	outer := trace.SpanFromContext(ctx)
	if !outer.IsRecording() && outer.SpanContext().IsValid() {
		return pass(ctx, &t.phaseKey)
	}
	tmpl := t.templates.phases.find(x.Event, false)[phaseIndex(x.Phase)]
	ctx, span := t.tracer.Start(ctx, tmpl.name, tmpl.options...)
	if !span.IsRecording() {
		return pass(ctx, &t.phaseKey)
	}
	return &scope{Context: ctx, key: &t.phaseKey, span: span, shown: shown{
		size: x.PayloadSize, index: x.Interceptors, marshal: x.MarshalTime, message: x.MessageID,
	}}
}

// endPhase ends the span of a phase. A denial is no error.
func (t *Telemetry) endPhase(s *scope, res *chain.Result, err error) {
	sum := res.ValidationSummary
	attrs := make([]attribute.KeyValue, 0, 13)
	attrs = append(attrs,
		semconv.MessageIDKey.String(s.shown.message),
		semconv.ChainSizeKey.Int(s.shown.index), semconv.PayloadSizeKey.Int(s.shown.size),
		semconv.InterceptorActionKey.String(string(phaseAction(res, err))),
		semconv.FindingsErrorKey.Int(sum.Errors), semconv.FindingsWarnKey.Int(sum.Warnings), semconv.FindingsInfoKey.Int(sum.Infos),
	)
	if s.shown.marshal > 0 {
		attrs = append(attrs, semconv.MarshalDurationKey.Float64(s.shown.marshal.Seconds()))
	}
	if res.Times.Apply > 0 {
		attrs = append(attrs, semconv.UnmarshalDurationKey.Float64(res.Times.Apply.Seconds()))
	}
	if res.Mutated {
		attrs = append(attrs, semconv.ResultSizeKey.Int(len(res.FinalPayload)))
	}
	if abort := (*chain.AbortError)(nil); errors.As(err, &abort) {
		attrs = append(attrs, semconv.InterceptorReasonKey.String(string(abort.Reason)))
		if abort.Interceptor != "" {
			attrs = append(attrs, semconv.InterceptorNameKey.String(clip(abort.Interceptor, maxName)))
		}
		if abort.Reason != chain.ReasonValidation {
			attrs = append(attrs, upstream.ErrorTypeKey.String(string(abort.Reason)))
			s.span.SetStatus(codes.Error, t.description(string(abort.Reason), abort.Err))
		}
	}
	s.span.SetAttributes(attrs...)
	s.end()
}

func phaseAction(res *chain.Result, err error) chain.Action {
	switch {
	case err != nil:
		return chain.ActionBlock
	case res.Mutated:
		return chain.ActionModify
	}
	return chain.ActionProceed
}

// startInvoke begins the span of a call, if its phase has one.
func (t *Telemetry) startInvoke(ctx context.Context, i *chain.Invoke, h *handle) context.Context {
	if !recorded(ctx, &t.phaseKey) {
		return pass(ctx, &t.invokeKey)
	}
	tmpl := h.templates[phaseIndex(i.Phase)]
	ctx, span := t.tracer.Start(ctx, tmpl.name, tmpl.options...)
	if !span.IsRecording() {
		return pass(ctx, &t.invokeKey)
	}
	return &scope{Context: ctx, key: &t.invokeKey, span: span, shown: shown{size: i.PayloadSize, index: i.Index}}
}

// endInvoke ends the span of a call at the time when that ended, which may be a
// while ago.
func (t *Telemetry) endInvoke(s *scope, i *chain.Invoke, out *chain.Outcome) {
	at := out.Start.Add(out.Duration)
	defer s.end(trace.WithTimestamp(at))
	verdict := verdictName(out)
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs, semconv.InterceptorVerdictKey.String(verdict), semconv.InterceptorActionKey.String(string(out.Action)))
	if out.Reason != "" {
		attrs = append(attrs, semconv.InterceptorReasonKey.String(string(out.Reason)))
	}
	decision := len(attrs)
	attrs = append(attrs, semconv.ChainIndexKey.Int(s.shown.index), semconv.PayloadSizeKey.Int(s.shown.size))
	attrs = findings(attrs, out)
	if out.Verdict == chain.VerdictModify && out.Mutation != nil {
		attrs = append(attrs, semconv.ResultSizeKey.Int(len(out.Mutation.Payload)))
	}
	if failed(out) {
		if remote := remoteError(out.Err); remote != nil {
			attrs = append(attrs, upstream.RPCResponseStatusCode(strconv.FormatInt(remote.Code, 10)))
		}
		name := failureType(out)
		attrs = append(attrs, upstream.ErrorTypeKey.String(name))
		s.span.SetStatus(codes.Error, t.description(name, out.Err))
	}
	s.span.SetAttributes(attrs...)
	if out.Verdict != chain.VerdictAllow {
		s.span.AddEvent(semconv.EventDecision, trace.WithTimestamp(at), trace.WithAttributes(t.decision(attrs[:decision:decision], i, out)...))
	}
}

// decision returns the attributes of the event that each verdict but a plain
// allow leaves.
func (t *Telemetry) decision(attrs []attribute.KeyValue, i *chain.Invoke, out *chain.Outcome) []attribute.KeyValue {
	attrs = append(attrs,
		semconv.InterceptorNameKey.String(clip(i.Entry.Name, maxName)),
		semconv.InterceptorPhaseKey.String(string(out.Phase)),
		semconv.InterceptorModeKey.String(string(out.Mode)),
	)
	if v := out.Validation; t.opts.Reasons && v != nil && len(v.Messages) > 0 {
		attrs = append(attrs, semconv.ReasonTextKey.String(clip(v.Messages[0].Message, maxText)))
	}
	return attrs
}

// verdictName returns the verdict as spans have it.
func verdictName(out *chain.Outcome) string {
	if out.Reason == chain.ReasonCancelled {
		return semconv.VerdictCancelled
	}
	return string(out.Verdict)
}

// failed reports whether the call itself failed. A denial did not, nor did a
// call that was not made since it was not meant to be, nor one that nobody
// waited for in the end.
func failed(out *chain.Outcome) bool {
	switch out.Verdict {
	case chain.VerdictError, chain.VerdictTimeout:
		return out.Reason != chain.ReasonCancelled
	}
	return false
}

// findings counts a validator's findings by severity.
func findings(attrs []attribute.KeyValue, out *chain.Outcome) []attribute.KeyValue {
	if out.Validation == nil {
		return attrs
	}
	var sum chain.ValidationSummary
	sum.Add(out.Validation)
	return append(attrs,
		semconv.FindingsErrorKey.Int(sum.Errors), semconv.FindingsWarnKey.Int(sum.Warnings), semconv.FindingsInfoKey.Int(sum.Infos))
}
