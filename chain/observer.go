package chain

import (
	"context"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// An Observer watches messages, executions and invokes; it cannot change them.
//
// Each Start is followed by exactly one End with the context that Start
// returned, in every outcome: panics, timeouts, drops and skips included. The
// ends of audit invokes may come after their message's end. Methods run on the
// message's path, from several goroutines at once: they must not block, nor
// keep or change their arguments. A panic in one is contained.
//
// Embed [NopObserver] to stay compatible when methods are added.
type Observer interface {
	// MessageStart begins a message: one request with its response, or one
	// notification. The context goes to the server's handler too.
	MessageStart(ctx context.Context, m *Message) context.Context
	// MessageEnd says how the message ended, with MessageStart's context.
	MessageEnd(ctx context.Context, end *MessageEnd)
	// ExecuteStart begins a phase of a message in which something is hooked.
	ExecuteStart(ctx context.Context, x *Execution) context.Context
	// ExecuteEnd says how the phase ended; err is what stopped the message.
	ExecuteEnd(ctx context.Context, res *Result, err error)
	// InvokeStart begins the call of one interceptor in a phase. The context
	// goes to its handler.
	InvokeStart(ctx context.Context, i *Invoke) context.Context
	// InvokeEnd says what came of the call. Mutators end together, once their
	// payload has been judged; out says when each began and how long it took.
	InvokeEnd(ctx context.Context, i *Invoke, out *Outcome)
}

// A Preparer is an [Observer] that wants a value of its own for each entry,
// made when a plan is made, so that nothing is looked up per message.
type Preparer interface {
	// Prepare returns the value that the entry's invokes carry as Handle. It
	// must not call the chain, which is being changed.
	Prepare(e *Entry) any
}

// A PolicyObserver is an [Observer] that is told of the interceptors of a chain
// each time these or their policy change.
type PolicyObserver interface {
	// PolicyChanged is called in the order of the changes, and with no entries
	// when the chain has been closed or the observer was removed. The entries
	// never change and may be kept. It must not call the chain, which is being
	// changed.
	PolicyChanged(ch *Chain, entries []*Entry)
}

// NopObserver does nothing. Its zero value is ready to use.
type NopObserver struct{}

var _ Observer = NopObserver{}

// MessageStart returns ctx.
func (NopObserver) MessageStart(ctx context.Context, _ *Message) context.Context { return ctx }

// MessageEnd does nothing.
func (NopObserver) MessageEnd(context.Context, *MessageEnd) {}

// ExecuteStart returns ctx.
func (NopObserver) ExecuteStart(ctx context.Context, _ *Execution) context.Context { return ctx }

// ExecuteEnd does nothing.
func (NopObserver) ExecuteEnd(context.Context, *Result, error) {}

// InvokeStart returns ctx.
func (NopObserver) InvokeStart(ctx context.Context, _ *Invoke) context.Context { return ctx }

// InvokeEnd does nothing.
func (NopObserver) InvokeEnd(context.Context, *Invoke, *Outcome) {}

// A Message is what an observer may know of a message, in plain values.
type Message struct {
	// ID is the message's own id, the same as the invocations' MessageID.
	ID string
	// Method is the JSON-RPC method; it may come from a client unchecked.
	Method string
	// Target is the tool, prompt or resource that the message names, if any.
	// It comes from the client unchecked.
	Target string
	// Offered says that the server is known to have a tool or prompt of that
	// name, so that there are not more such names than the server gave. It may
	// only be known when the message ends.
	Offered bool
	// Meta is the params' _meta as received; nil if there is none. It is
	// shared with the message and must not be changed or kept.
	Meta map[string]any
	// Header returns a header of the HTTP request that carried this message;
	// nil where there is none.
	Header func(name string) string
	// SessionID is the MCP session; empty where there is none.
	SessionID string
	// ProtocolVersion is the MCP version that the message speaks, if known.
	ProtocolVersion string
	// Transport is "tcp" for HTTP and "pipe" for anything else.
	Transport string
	// Direction says whether this peer received or sent the message.
	Direction core.Direction
	// Policy is the number of the snapshot that the message runs under.
	Policy uint64
	// Retry says that a request is sent once more, with answers to what its
	// first result asked for. It is not another operation.
	Retry bool
	// Notification says that nobody waits for an answer.
	Notification bool
	// Start is when the message was taken up.
	Start time.Time
}

// A MessageOutcome says how a message ended.
type MessageOutcome string

// The ways in which a message ends.
const (
	MessageOK        MessageOutcome = "ok"         // answered with a result
	MessageToolError MessageOutcome = "tool_error" // answered with an isError result
	MessageError     MessageOutcome = "error"      // the handler answered an error
	MessageDenied    MessageOutcome = "denied"     // a validator denied it
	MessageFailed    MessageOutcome = "failed"     // an interceptor failed closed
	MessageTimeout   MessageOutcome = "timeout"    // an interceptor or a phase ran out of time
	MessageCancelled MessageOutcome = "cancelled"  // the caller gave up
	MessagePanic     MessageOutcome = "panic"      // the handler panicked
)

// A MessageEnd says how a message ended and where its time went.
type MessageEnd struct {
	Message *Message
	Outcome MessageOutcome
	// Phase is the phase that a chain stopped the message in, if one did. In
	// the response phase, and where a request in a result was stopped, the
	// handler had already done its work.
	Phase core.Phase
	// Err is what the caller was answered, if it was an error.
	Err error
	// Code is Err's JSON-RPC code; 0 if there is none.
	Code int64
	// Duration is the message's own pair of clock readings.
	Duration time.Duration
	// Stages are the parts of the path that Duration covers.
	Stages StageTimes
}

// StageTimes says where the time of a message went. The chain's own stages
// are in the [Result] of each phase.
type StageTimes struct {
	Request, Response PhaseTimes
	// Handler is the time in the server's handler.
	Handler time.Duration
}

// PhaseTimes says where the time of one phase went.
type PhaseTimes struct {
	// Marshal is the encoding of the payload.
	Marshal time.Duration
	// Validators and Mutators are wall time, not the sum of their invokes.
	Validators, Mutators time.Duration
	// Unmarshal is the application of a mutated payload.
	Unmarshal time.Duration
	// PayloadSize is the payload's length in bytes; 0 if none was encoded.
	PayloadSize int
}

// An Execution is the run of one phase of a message.
type Execution struct {
	Event     string
	Phase     core.Phase
	Direction core.Direction
	MessageID string
	// Interceptors counts those that are going to run, audit ones included.
	Interceptors int
	// PayloadSize is the payload's length in bytes.
	PayloadSize int
	// MarshalTime is what the caller took to make the payload.
	MarshalTime time.Duration
}

// An Invoke is one call of one interceptor.
type Invoke struct {
	Entry     *Entry
	Event     string
	Phase     core.Phase
	MessageID string
	// Handle is what the observer's Prepare returned for the entry; nil if it
	// has none.
	Handle any
	// PayloadSize is the length of what the interceptor is handed, in bytes.
	PayloadSize int
	// Index is the interceptor's place in the phase, from 0.
	Index int
}

// observers calls several observers: starts in order, ends in reverse.
type observers []Observer

func (os observers) messageStart(ctx context.Context, m *Message) context.Context {
	for _, o := range os {
		ctx = started(ctx, func(ctx context.Context) context.Context { return o.MessageStart(ctx, m) })
	}
	return ctx
}

func (os observers) messageEnd(ctx context.Context, end *MessageEnd) {
	for i := len(os) - 1; i >= 0; i-- {
		contain(func() { os[i].MessageEnd(ctx, end) })
	}
}

func (os observers) executeStart(ctx context.Context, x *Execution) context.Context {
	for _, o := range os {
		ctx = started(ctx, func(ctx context.Context) context.Context { return o.ExecuteStart(ctx, x) })
	}
	return ctx
}

func (os observers) executeEnd(ctx context.Context, res *Result, err error) {
	for i := len(os) - 1; i >= 0; i-- {
		contain(func() { os[i].ExecuteEnd(ctx, res, err) })
	}
}

// invokeStart calls the observers with the handles that they prepared.
func (os observers) invokeStart(ctx context.Context, i *Invoke, handles []any) context.Context {
	for n, o := range os {
		i.Handle = handles[n]
		ctx = started(ctx, func(ctx context.Context) context.Context { return o.InvokeStart(ctx, i) })
	}
	return ctx
}

func (os observers) invokeEnd(ctx context.Context, i *Invoke, handles []any, out *Outcome) {
	for n := len(os) - 1; n >= 0; n-- {
		i.Handle = handles[n]
		contain(func() { os[n].InvokeEnd(ctx, i, out) })
	}
}

func (os observers) policyChanged(ch *Chain, entries []*Entry) {
	for _, o := range os {
		if p, ok := o.(PolicyObserver); ok {
			contain(func() { p.PolicyChanged(ch, entries) })
		}
	}
}

// prepare asks each observer for its handle of the entry.
func (os observers) prepare(e *Entry) []any {
	if len(os) == 0 {
		return nil
	}
	handles := make([]any, len(os))
	for n, o := range os {
		if p, ok := o.(Preparer); ok {
			contain(func() { handles[n] = p.Prepare(e) })
		}
	}
	return handles
}

// started calls f and keeps the old context if f panics or returns none.
func started(ctx context.Context, f func(context.Context) context.Context) (out context.Context) {
	out = ctx
	contain(func() {
		if next := f(ctx); next != nil {
			out = next
		}
	})
	return out
}

// contain keeps a panic of an observer off the message's path: watching must
// never be what takes a server down.
func contain(f func()) {
	defer func() { _ = recover() }()
	f()
}
