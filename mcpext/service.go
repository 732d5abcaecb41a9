package mcpext

import (
	"bytes"
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A service answers the extension's two methods, within limits of its own.
type service struct {
	extension  *Extension
	authorize  func(ctx context.Context, session *mcp.ServerSession, method string) error // nil lets everybody in
	maxPayload int
	maxInvokes int64
	// private says that the only caller is this process: its word is taken,
	// and what it is sent cannot end the session.
	private bool

	// extract puts the trace context that _meta carries on the context; nil
	// if nobody traces. It is set before the first invoke.
	extract func(ctx context.Context, meta map[string]any) context.Context

	invokes atomic.Int64 // under way
}

// serveList answers interceptors/list. Params may be missing.
func (s *service) serveList(ctx context.Context, ss *mcp.ServerSession, params *ListParams) (*ListResult, error) {
	if err := s.admit(ctx, ss, core.MethodList); err != nil {
		return nil, err
	}
	event := ""
	if params != nil {
		event = params.Event
	}
	res, off := &ListResult{Interceptors: []json.RawMessage{}}, s.off()
	for _, r := range s.extension.registry.Load().list {
		if off[r.Name] || event != "" && !sees(&r.Metadata, event) {
			continue
		}
		entry, err := r.MarshalJSON() // json.Marshal would escape what people are to read
		if err != nil {
			return nil, s.refuse(core.MethodList, failed(r.Name, "", 0, err))
		}
		res.Interceptors = append(res.Interceptors, entry)
	}
	return res, nil
}

// off returns the interceptors that an operator has turned off. The chain behind
// a private service knows by itself.
func (s *service) off() map[string]bool {
	if s.private {
		return nil
	}
	return s.extension.off()
}

// sees reports whether an interceptor is hooked on the event in any phase. A
// pattern is an event too: whoever sees all that it stands for sees it.
func sees(m *core.Metadata, event string) bool {
	if m.Matches(event, core.PhaseRequest) || m.Matches(event, core.PhaseResponse) {
		return true
	}
	for _, h := range m.Hooks {
		for _, own := range h.Events {
			if own == event { // declared, if only to no avail
				return true
			}
		}
	}
	return false
}

// serveInvoke answers interceptor/invoke.
func (s *service) serveInvoke(ctx context.Context, ss *mcp.ServerSession, params *InvokeParams) (*InvokeResult, error) {
	if err := s.admit(ctx, ss, core.MethodInvoke); err != nil {
		return nil, err
	}
	r, f := s.lookup(params)
	if f != nil {
		return nil, s.refuse(core.MethodInvoke, f)
	}
	if s.invokes.Add(1) > int64(s.maxInvokes) {
		s.invokes.Add(-1)
		return nil, s.refuse(core.MethodInvoke, failed(r.Name, params.Phase, 0, errBusy))
	}
	defer s.invokes.Add(-1)
	if who := params.Context.Principal; s.private && who != nil {
		who.Asserted = params.Meta[metaAsserted] == true
	}
	if s.extract != nil && len(params.Meta) > 0 {
		ctx = s.extract(ctx, params.Meta)
	}
	res, f := s.invoke(ctx, r, &params.InvokeRequest)
	if f != nil {
		return nil, s.refuse(core.MethodInvoke, f)
	}
	return res, nil
}

// lookup checks the params and finds the interceptor that they are for.
func (s *service) lookup(params *InvokeParams) (*registered, *fault) {
	if params == nil {
		return nil, invalid("missing params", nil, nil)
	}
	if params.fault != nil {
		return nil, invalid("invalid params", nil, params.fault)
	}
	r := s.extension.registry.Load().byName[params.Name]
	if r == nil || s.off()[r.Name] {
		data := &errorData{}
		if core.CheckName(params.Name) == nil {
			data.Interceptor = params.Name
		}
		return nil, invalid("unknown interceptor", data, nil)
	}
	data := &errorData{Interceptor: r.Name, Event: params.Event, Phase: params.Phase}
	switch {
	case len(params.Event) > maxEvent || !r.Matches(params.Event, params.Phase):
		if len(params.Event) > maxEvent {
			data.Event = ""
		}
		return nil, invalid("interceptor is not hooked on this event and phase", data, nil)
	case len(params.Payload) > s.maxPayload:
		data.Reason = "payload too large"
		return nil, invalid("payload too large", data, nil)
	}
	if err := r.checkConfig(params.Config); err != nil {
		data.Reason = "config does not match configSchema"
		return nil, invalid("invalid config", data, err)
	}
	return r, nil
}

// maxEvent bounds what an error quotes of the caller's words.
const maxEvent = 256

// invoke runs the interceptor under its deadline and stamps its answer.
func (s *service) invoke(ctx context.Context, r *registered, req *core.InvokeRequest) (*InvokeResult, *fault) {
	inv := req.Invocation
	if inv.Mode == "" {
		inv.Mode = r.Mode
	}
	if len(inv.Payload) == 0 || string(bytes.TrimSpace(inv.Payload)) == "null" {
		inv.Payload = json.RawMessage("{}")
	}
	if r.Type == core.TypeMutation {
		inv.Payload = bytes.Clone(inv.Payload) // the original goes back if it stays unchanged
	}
	timeout := req.Timeout
	if timeout == 0 {
		timeout = s.extension.opts.InvokeTimeout
	}
	guard := &r.wireGuard
	if s.private {
		guard = &r.guard // it is a chain that calls
	}
	start := time.Now()
	answer, err := guard.Do(ctx, r.Type, timeout, r.Inline, &inv, r.invoke)
	if err != nil {
		return nil, failed(r.Name, inv.Phase, timeout, err)
	}
	if m := answer.Mutation; m != nil && !m.Modified {
		// SEP-2624: the payload is always there; what a mutator left alone is
		// the original, whatever else it put into its answer.
		answer.Mutation = &core.MutationResult{Payload: req.Payload, Info: m.Info}
	}
	res := &InvokeResult{}
	res.InvokeResult = core.InvokeResult{
		Interceptor: r.Name, Type: r.Type, Phase: inv.Phase, Duration: time.Since(start), Answer: answer,
	}
	if id := inv.MessageID; id != "" && len(id) <= maxMessageID {
		res.Meta = mcp.Meta{metaMessage: id}
	}
	if res.body, err = s.write(&res.InvokeResult); err != nil {
		return nil, failed(r.Name, inv.Phase, timeout, err)
	}
	return res, nil
}

// maxMessageID bounds what a result repeats of the caller's words.
const maxMessageID = 128

// resultRoom is what a result may have beside a payload.
const resultRoom = 1 << 20

// write writes a result if it can be sent without harm to the session: the
// SDK's client ends it over a frame that is too deep or too large for it, and
// its server never answers with what cannot be written.
func (s *service) write(res *core.InvokeResult) ([]byte, error) {
	if m := res.Mutation; !s.private && m != nil && len(m.Payload) > s.maxPayload+resultRoom {
		return nil, errUnsendable // not worth writing
	}
	body, err := res.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if !s.private && (len(body) > s.maxPayload+resultRoom || core.Depth(body) > maxDepth) {
		return nil, errUnsendable
	}
	return body, nil
}

// admit asks Options.Authorize. A refusal looks the same for all reasons.
func (s *service) admit(ctx context.Context, ss *mcp.ServerSession, method string) (err error) {
	if s.authorize == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			s.extension.logger.Error("authorize panicked", "method", method, "panic", v)
			err = forbidden()
		}
	}()
	if cause := s.authorize(ctx, ss, method); cause != nil {
		s.extension.logger.Warn("not authorized", "method", method, "session", ss.ID(), "err", cause)
		return forbidden()
	}
	return nil
}

// forbidden is an invalid request: JSON-RPC has no code for access, and some
// of those that look free lose their text in the SDK's client.
func forbidden() error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "not authorized"}
}

// refuse logs the cause of a fault and returns what the caller is told.
func (s *service) refuse(method string, f *fault) error {
	s.extension.logger.Warn("refused", "method", method, "code", f.code, "text", f.message, "data", f.data, "err", f.err)
	return f.wire()
}
