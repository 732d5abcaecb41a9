package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A message is one request or notification on its way through. One goroutine
// owns it.
type message struct {
	*gate
	snapshot          *chain.Snapshot // one policy for both phases
	method            string
	req               mcp.Request
	next              mcp.MethodHandler
	note              bool
	request, response bool // phases that something is hooked on
	rounds            bool // results may carry requests that something is hooked on
	retry             bool // the request is sent once more, with answers

	info     chain.Message
	end      chain.MessageEnd
	ctx      context.Context // for interceptors and observers
	stale    bool            // the SDK's context has somebody else's values
	clean    valuesOf        // that context without them
	merged   both            // what the handler gets
	context  core.InvocationContext
	provided bool // context is made, with the first phase that runs

	unprovided error // why there is no context
	protocol   string

	chainReq chain.Request
	original json.RawMessage // the payload of the phase
	applied  mcp.Request     // the request with mutated params
	handled  mcp.Result      // what the handler returned
	result   mcp.Result      // the mutated result
}

// A paramsApplier and a resultApplier are a message in one of its phases.
type (
	paramsApplier message
	resultApplier message
)

// Apply makes the request that the mutated params belong to.
func (a *paramsApplier) Apply(payload json.RawMessage) (chain.Applied, error) {
	return (*message)(a).applyParams(payload)
}

// Apply makes the result that the mutated payload says.
func (a *resultApplier) Apply(payload json.RawMessage) (chain.Applied, error) {
	return (*message)(a).applyResult(payload)
}

// run takes the message through both phases and the handler between them.
func (m *message) run(ctx context.Context) (res mcp.Result, err error) {
	returned := false
	defer func() {
		v := recover()
		switch {
		case v != nil:
			m.logger.Error("interception panicked", "method", m.method, "panic", v, "stack", string(debug.Stack()))
			m.end.Outcome, res, err = chain.MessageFailed, nil, abortError(nil)
		case !returned:
			m.end.Outcome = chain.MessagePanic // runtime.Goexit: nobody is going to be answered
		}
		m.finish(err)
	}()
	m.begin(ctx)
	res, err = m.through(ctx)
	if call, ok := res.(*mcp.CallToolResult); ok && call != nil && call.IsError && m.end.Outcome == chain.MessageOK {
		m.end.Outcome = chain.MessageToolError
	}
	returned = true
	return res, err
}

func (m *message) through(ctx context.Context) (res mcp.Result, err error) {
	if m.rounds {
		if err := m.interceptAnswers(); err != nil {
			return nil, err
		}
	}
	if m.request {
		if err := m.interceptRequest(); err != nil {
			return nil, err
		}
	}
	if res, err = m.call(ctx); err != nil {
		return nil, err
	}
	if _, _, asking := asks(res); asking {
		if res, err = m.interceptRequests(res); err != nil {
			return nil, err
		}
		if onlyAsks(res) {
			return res, nil // not the method's result yet: that comes with a later round
		}
	}
	if m.response {
		return m.interceptResponse(res)
	}
	return res, nil
}

// begin tells the observers, and settles which context interceptors see.
func (m *message) begin(ctx context.Context) {
	start := time.Now()
	m.info = chain.Message{
		ID: m.chain.NewMessageID(), Method: m.method, Direction: m.direction(core.PhaseRequest), Transport: "pipe",
		Notification: m.note, SessionID: sessionID(m.req), Policy: m.snapshot.Number(), Start: start,
	}
	m.protocol = m.protocolVersion(m.req)
	m.info.ProtocolVersion = m.protocol
	if extra := m.req.GetExtra(); extra != nil {
		m.info.Transport = "tcp"
		if extra.Header != nil {
			m.info.Header = extra.Header.Get
		}
	}
	if params := m.req.GetParams(); !isNil(params) {
		m.info.Meta = metaOf(params)
		m.info.Target = target(params)
		m.info.Offered = m.offers.has(m.method, m.info.Target)
		responses, state := answers(params)
		m.retry = len(responses) > 0 || state != ""
		m.info.Retry = m.retry
	}
	m.end = chain.MessageEnd{Message: &m.info, Outcome: chain.MessageOK}
	if m.stale = stale(m.req); m.stale {
		m.clean = cleaned(ctx)
		ctx = &m.clean
	}
	m.ctx = m.snapshot.MessageStart(ctx, &m.info)
}

// finish tells the observers, if they were told of the beginning.
func (m *message) finish(err error) {
	if m.ctx == nil {
		return
	}
	m.end.Duration = time.Since(m.info.Start)
	if err != nil {
		m.end.Err, m.end.Code = err, codeOf(err)
	}
	m.snapshot.MessageEnd(m.ctx, &m.end)
}

// call runs the server's handler.
func (m *message) call(ctx context.Context) (mcp.Result, error) {
	handlerCtx := m.ctx
	if m.stale {
		m.merged = both{m.ctx, ctx}
		handlerCtx = &m.merged
	}
	res, err := m.handleTimed(handlerCtx)
	if err == nil && m.peer != nil {
		res, err = m.answer(handlerCtx, res)
	}
	switch {
	case err == error(errPanicked):
		m.end.Outcome = chain.MessagePanic
	case err != nil && m.ctx.Err() != nil:
		m.end.Outcome = chain.MessageCancelled
	case err != nil:
		m.end.Outcome = chain.MessageError
	}
	if err == nil && m.snapshot.Observed() {
		m.offers.learn(m.called(), res)
		m.info.Offered = m.info.Offered || m.offers.has(m.method, m.info.Target)
	}
	if err != nil && m.opts.ScrubErrors && !m.sending {
		m.logger.Warn("handler failed", "method", m.method, "message_id", m.info.ID, "err", err)
		err = scrubbed(err)
	}
	return res, err
}

// called returns the target that the handler was called with.
func (m *message) called() string {
	params := m.req.GetParams()
	if isNil(params) {
		return ""
	}
	return target(params)
}

// handleTimed calls the next handler and counts its time.
func (m *message) handleTimed(ctx context.Context) (mcp.Result, error) {
	start := time.Now()
	defer func() { m.end.Stages.Handler += time.Since(start) }()
	return m.handle(ctx, m.method, m.req, m.next, m.note)
}

func (m *message) interceptRequest() error {
	params := m.req.GetParams()
	res, err := m.execute(core.PhaseRequest, params, &m.end.Stages.Request, (*paramsApplier)(m))
	if err != nil {
		return err
	}
	if res.Mutated {
		m.req = m.applied
	}
	return nil
}

func (m *message) interceptResponse(handled mcp.Result) (mcp.Result, error) {
	m.handled = handled
	res, err := m.execute(core.PhaseResponse, handled, &m.end.Stages.Response, (*resultApplier)(m))
	if err != nil {
		return nil, err
	}
	if !res.Mutated {
		return handled, nil
	}
	return m.result, nil
}

// execute encodes a payload and runs one phase on it. Its error is what the
// caller is told.
func (m *message) execute(phase core.Phase, v any, times *chain.PhaseTimes,
	applier chain.Applier,
) (*chain.Result, error) {
	start := time.Now()
	payload, unreadable := m.encode(v, parsed(!m.sending && phase == core.PhaseRequest))
	if unreadable != nil {
		m.logger.Warn("payload cannot be encoded", "method", m.method, "phase", phase, "message_id", m.info.ID, "err", unreadable)
	}
	times.PayloadSize = len(payload)
	m.original = payload
	who, err := m.invocationContext()
	if err != nil && unreadable == nil {
		unreadable = err
	}
	took := time.Since(start) // for all that interceptors are given
	times.Marshal += took
	m.chainReq = chain.Request{
		Event: m.method, Phase: phase, Direction: m.direction(phase), Payload: payload, Unreadable: unreadable, Disposable: true, Outright: m.replaceable(phase),
		MarshalTime: took, MessageID: m.info.ID, Retry: m.retry, Protocol: m.protocol, Context: who, Applier: applier,
	}
	res, err := m.snapshot.Execute(m.ctx, &m.chainReq)
	addWalls(times, res)
	if err != nil {
		return nil, m.refused(m.method, phase, err)
	}
	return res, nil
}

// addWalls adds the chain's stages of a phase: a message goes through several
// where it carries others, or is sent more than once.
func addWalls(times *chain.PhaseTimes, res *chain.Result) {
	if res == nil {
		return
	}
	times.Validators += res.Times.Validators
	times.Unmarshal += res.Times.Apply
	times.Mutators += res.Times.Mutators - res.Times.Apply
}

// invocationContext returns what all phases share. Without it no active
// interceptor can judge, and audit must not notice more than that.
func (m *message) invocationContext() (core.InvocationContext, error) {
	if !m.provided {
		m.provided = true
		m.context, m.unprovided = m.provide(m.ctx, m.req, m.info.Start)
	}
	return m.context, m.unprovided
}

// refused records that the chain stopped the message and returns what the
// caller is told.
func (m *message) refused(event string, phase core.Phase, err error) error {
	m.end.Outcome, m.end.Phase = outcomeOf(err), phase
	level := slog.LevelWarn
	switch m.end.Outcome {
	case chain.MessageDenied:
		level = slog.LevelInfo
	case chain.MessageCancelled:
		level = slog.LevelDebug // any client can bring this about at will
	}
	if m.logger.Enabled(m.ctx, level) {
		m.logger.LogAttrs(m.ctx, level, "message stopped", m.stopAttrs(event, phase, err)...)
	}
	return abortError(err)
}

// stopAttrs says what an operator wants to search for.
func (m *message) stopAttrs(event string, phase core.Phase, err error) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", m.method), slog.String("event", event), slog.String("phase", string(phase)),
		slog.String("message_id", m.info.ID),
	}
	var abort *chain.AbortError
	if errors.As(err, &abort) {
		attrs = append(attrs, slog.String("interceptor", abort.Interceptor), slog.String("reason", string(abort.Reason)))
		if abort.Timeout > 0 {
			attrs = append(attrs, slog.Duration("timeout", abort.Timeout))
		}
	}
	return append(append(attrs, slog.Any("err", err)), stackOf(err)...)
}

// target returns what the params name: a tool, a prompt or a resource.
func target(params mcp.Params) string {
	switch p := params.(type) {
	case *mcp.CallToolParamsRaw:
		return p.Name
	case *mcp.CallToolParams:
		return p.Name
	case *mcp.GetPromptParams:
		return p.Name
	case *mcp.ReadResourceParams:
		return p.URI
	case *mcp.SubscribeParams:
		return p.URI
	case *mcp.UnsubscribeParams:
		return p.URI
	}
	return ""
}
