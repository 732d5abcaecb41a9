package chain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// Errors that callers branch on.
var (
	// ErrDenied is the cause of an abort by a validator's verdict.
	ErrDenied = errors.New("denied")
	// ErrTimeout is the cause of an abort at a deadline of the chain's making.
	// A [Host] that has deadlines of its own wraps it when one passes.
	ErrTimeout = errors.New("timed out")
	// ErrClosed is returned by a chain that has been closed.
	ErrClosed = errors.New("chain: closed")
	// ErrUnknownName is wrapped by errors about a name that no host lists.
	ErrUnknownName = errors.New("unknown interceptor")
	// ErrUnknownHost is wrapped by errors about a host that a chain does not have.
	ErrUnknownHost = errors.New("unknown host")
	// ErrWidens is wrapped by errors about an override with more hooks than
	// the interceptor declared.
	ErrWidens = errors.New("override widens the declared hooks")
	// ErrTooManyAbandoned is the failure of an invoke that was not begun since
	// too many earlier ones ignored their deadlines and still run.
	ErrTooManyAbandoned = errors.New("too many abandoned invokes")
	// ErrOverload is the failure of an invoke that was not begun since as many
	// run already as may.
	ErrOverload = errors.New("too many invokes at once")
	// ErrCircuitOpen is wrapped by failures of invokes that a [Gate] did not let
	// begin.
	ErrCircuitOpen = errors.New("circuit open")
	// ErrPayloadTooLarge is the failure of each interceptor on a payload that is
	// larger than Options.MaxPayload.
	ErrPayloadTooLarge = errors.New("payload too large")
	// ErrGoexit is the failure of a handler that ended its goroutine.
	ErrGoexit = errors.New("handler called runtime.Goexit")
	// ErrUnfit is wrapped by failures of a mutator whose payload cannot stand
	// in for the one that it was given.
	ErrUnfit = errors.New("mutated payload does not fit")
	// ErrPayloadWritten is the failure of a validator that wrote to its
	// payload. Only builds with the tag headgatecheck look for it.
	ErrPayloadWritten = errors.New("validator wrote to its payload")

	errConcurrent = fmt.Errorf("%w: of this interceptor", ErrOverload)
	errInflight   = fmt.Errorf("%w: of all interceptors", ErrOverload)

	errBudget  = errors.New("fail-open budget spent")
	errDropped = errors.New("audit queue full")
	errCompat  = errors.New("protocol version excluded by compat")
)

// A PanicError is the failure of a handler that panicked. Value and Stack are
// for logs; neither may leave the process.
type PanicError struct {
	Value any
	Stack []byte
}

// Error says that a handler panicked, and with what.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// A RemoteError is the failure of an invoke that a remote host answered with a
// JSON-RPC error. What the peer says stays inside Err.
type RemoteError struct {
	Code int64
	Err  error
}

// Error returns the peer's words. It is for operators.
func (e *RemoteError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RemoteError) Unwrap() error { return e.Err }

// A Reason names why a message was stopped or an interceptor failed. The set
// is closed, so it is fit for a metric's label.
type Reason string

// The reasons.
const (
	ReasonValidation Reason = "validation" // a validator's verdict
	ReasonMutation   Reason = "mutation"   // a mutator's error
	ReasonError      Reason = "error"      // a validator's error
	ReasonTimeout    Reason = "timeout"    // a deadline passed
	ReasonPanic      Reason = "panic"      // a panic or a Goexit
	ReasonProtocol   Reason = "protocol"   // an answer that breaks the rules
	ReasonOverload   Reason = "overload"   // too many abandoned invokes, a full queue, a spent budget
	ReasonCancelled  Reason = "cancelled"  // the caller gave up
)

// An AbortError says which interceptor stopped a message, and why.
type AbortError struct {
	// Interceptor is the name; empty if the whole phase ran out of time.
	Interceptor string
	// Type is the interceptor's type; empty if the whole phase ran out of time.
	Type core.Type
	// Phase is the half of the exchange that was stopped.
	Phase core.Phase
	// Reason is Err in one word.
	Reason Reason
	// Timeout is the deadline that passed, if one did.
	Timeout time.Duration
	// Unfinished are the interceptors that were still running when the whole
	// phase ran out of time.
	Unfinished []string
	// Denials are all active validators that denied, in the order of names.
	Denials []Denial
	// Err is ErrDenied, ErrTimeout, or what the interceptor failed with.
	Err error
}

// A Denial is one active validator's verdict against a message.
type Denial struct {
	Interceptor string
	Severity    core.Severity
}

// Error names the interceptor and the cause. It is for operators.
func (e *AbortError) Error() string {
	if len(e.Unfinished) > 0 {
		return fmt.Sprintf("chain: %s phase: %v after %v, waiting for %q", e.Phase, e.Err, e.Timeout, e.Unfinished)
	}
	if e.Interceptor == "" {
		return fmt.Sprintf("chain: %s phase: %v", e.Phase, e.Err)
	}
	return fmt.Sprintf("chain: %s phase: interceptor %q: %v", e.Phase, e.Interceptor, e.Err)
}

// Unwrap returns the cause.
func (e *AbortError) Unwrap() error { return e.Err }

// reasonOf puts a failure into one word.
func reasonOf(t core.Type, err error) Reason {
	var panicked *PanicError
	switch {
	case errors.Is(err, ErrTimeout):
		return ReasonTimeout
	case errors.Is(err, core.ErrMalformed), errors.Is(err, ErrUnfit), errors.Is(err, ErrPayloadWritten):
		return ReasonProtocol
	case errors.As(err, &panicked), errors.Is(err, ErrGoexit):
		return ReasonPanic
	case errors.Is(err, ErrOverload), errors.Is(err, ErrCircuitOpen), errors.Is(err, ErrPayloadTooLarge), errors.Is(err, ErrTooManyAbandoned), errors.Is(err, errBudget), errors.Is(err, errDropped):
		return ReasonOverload
	case errors.Is(err, errCallerGone):
		return ReasonCancelled
	case t == core.TypeMutation:
		return ReasonMutation
	}
	return ReasonError
}

// errDeadline and errCallerGone mark ends that the chain itself brought about.
// A handler that returns context.DeadlineExceeded of its own accord has simply
// failed, so its error must not look like these.
var (
	errDeadline   error = chainEnd{ErrTimeout, context.DeadlineExceeded}
	errCallerGone error = chainEnd{errors.New("caller gave up"), context.Canceled}
)

type chainEnd struct{ end, cause error }

func (e chainEnd) Error() string   { return e.end.Error() }
func (e chainEnd) Unwrap() []error { return []error{e.end, e.cause} }
