package mcpext

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Errors that callers branch on.
var (
	// ErrNotFound is wrapped by errors about a name that is not registered.
	ErrNotFound = errors.New("interceptor not found")
	// ErrNameTaken is wrapped by errors about a name that is registered already.
	ErrNameTaken = errors.New("name is taken")
	// ErrConfig is wrapped by errors about a configuration that does not match
	// the interceptor's configSchema.
	ErrConfig = errors.New("config does not match configSchema")
)

// codeTimeout is SEP-2624's code for an interceptor that ran out of time.
const codeTimeout = -32000

// A fault is a refusal of interceptor/invoke or interceptors/list. Message and
// Data go to the caller; err, the cause, goes to the log.
type fault struct {
	code    int64
	message string
	data    any
	err     error
}

// wire returns the fault as go-sdk passes it on unchanged: a bare
// *jsonrpc.Error, whose data must be valid JSON or the session would die.
func (f *fault) wire() *jsonrpc.Error {
	e := &jsonrpc.Error{Code: f.code, Message: f.message}
	if f.data != nil {
		if raw, err := core.Encode(f.data); err == nil {
			e.Data = json.RawMessage(raw)
		}
	}
	return e
}

// errorData is the data object of all refusals; what does not apply is left out.
type errorData struct {
	Interceptor string     `json:"interceptor,omitempty"`
	Event       string     `json:"event,omitempty"`
	Phase       core.Phase `json:"phase,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	TimeoutMs   float64    `json:"timeoutMs,omitempty"`
}

func invalid(message string, data *errorData, cause error) *fault {
	f := &fault{code: jsonrpc.CodeInvalidParams, message: message, err: cause}
	if data != nil {
		f.data = data
	}
	return f
}

// failed maps what an invoke failed with (SEP-2624, Error Handling). The
// reason is one word: the error's own text stays here.
func failed(name string, phase core.Phase, timeout time.Duration, err error) *fault {
	data := &errorData{Interceptor: name, Phase: phase}
	if errors.Is(err, chain.ErrTimeout) {
		data.TimeoutMs = float64(timeout) / float64(time.Millisecond)
		return &fault{code: codeTimeout, message: "interceptor timeout", data: data, err: err}
	}
	data.Reason = reasonFailed
	var panicked *chain.PanicError
	switch {
	case errors.As(err, &panicked), errors.Is(err, chain.ErrGoexit):
		data.Reason = reasonCrash
	case errors.Is(err, core.ErrMalformed):
		data.Reason = reasonMalformed
	case errors.Is(err, errUnsendable):
		data.Reason = reasonTooLarge
	case errors.Is(err, chain.ErrTooManyAbandoned), errors.Is(err, errBusy):
		data.Reason = reasonOverload
	}
	return &fault{code: jsonrpc.CodeInternalError, message: "interceptor execution failed", data: data, err: err}
}

// The reasons of failed invokes. A session host reads them again, so that an
// interceptor fails for the same reason wherever it runs.
const (
	reasonFailed    = "execution failed"
	reasonCrash     = "crashed"
	reasonMalformed = "malformed result"
	reasonTooLarge  = "result too large"
	reasonOverload  = "overloaded"
)

var (
	errBusy       = errors.New("too many concurrent invokes")
	errUnsendable = errors.New("result is too large or nests too deep to be sent")
)
