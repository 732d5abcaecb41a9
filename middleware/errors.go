package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// codeTimeout is SEP-2624's code for a phase or interceptor out of time. Its
// neighbours -32003 and -32004 would lose code and data in go-sdk's client.
const codeTimeout = -32000

// Texts that leave the process. They are fixed: what happened stays inside.
const (
	textBlockedRequest  = "request blocked by policy"
	textBlockedResponse = "response blocked by policy"
	textBlocked         = "blocked by policy"
	textTimeout         = "interceptor timeout"
	textMutation        = "mutation failed"
	textFailed          = "interceptor failed"
	textInternal        = "internal error"
	textCancelled       = "request cancelled"
)

// validationErrors is the data of a validation abort (SEP-2624, Error Handling).
type validationErrors struct {
	ValidationErrors []validationError `json:"validationErrors"`
}

type validationError struct {
	Interceptor string        `json:"interceptor"`
	Severity    core.Severity `json:"severity"`
	Message     string        `json:"message"`
}

// failure is the data of all other aborts; what does not apply is left out.
// SEP-2624 has two names for the interceptor, one for mutations.
type failure struct {
	Interceptor       string     `json:"interceptor,omitempty"`
	FailedInterceptor string     `json:"failedInterceptor,omitempty"`
	Reason            string     `json:"reason,omitempty"`
	TimeoutMs         float64    `json:"timeoutMs,omitempty"`
	Phase             core.Phase `json:"phase,omitempty"`
}

// abortError maps an error of the chain to what the caller is told. It is
// always a bare *jsonrpc.Error: the SDK would send a wrapped one without its
// data, and any other with its text.
func abortError(err error) *jsonrpc.Error {
	var a *chain.AbortError
	switch {
	case errors.As(err, &a):
		return aborted(a)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textCancelled}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textInternal}
}

func aborted(a *chain.AbortError) *jsonrpc.Error {
	switch {
	case a.Reason == chain.ReasonValidation:
		return denied(a)
	case a.Reason == chain.ReasonTimeout:
		return withData(codeTimeout, textTimeout, failure{
			Interceptor: a.Interceptor, Phase: a.Phase,
			TimeoutMs: float64(a.Timeout) / float64(time.Millisecond),
		})
	case a.Type == core.TypeMutation:
		return withData(jsonrpc.CodeInternalError, textMutation, failure{
			FailedInterceptor: a.Interceptor, Reason: textMutation, Phase: a.Phase,
		})
	}
	return withData(jsonrpc.CodeInternalError, textFailed, failure{
		Interceptor: a.Interceptor, Reason: textFailed, Phase: a.Phase,
	})
}

func denied(a *chain.AbortError) *jsonrpc.Error {
	text := textBlockedRequest
	if a.Phase == core.PhaseResponse {
		text = textBlockedResponse
	}
	data := validationErrors{ValidationErrors: []validationError{}}
	for _, d := range a.Denials {
		data.ValidationErrors = append(data.ValidationErrors, validationError{d.Interceptor, d.Severity, textBlocked})
	}
	return withData(jsonrpc.CodeInvalidParams, text, data)
}

func withData(code int64, text string, data any) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: code, Message: text}
	if raw, err := core.Encode(data); err == nil {
		e.Data = raw
	}
	return e
}

// scrubbed replaces the text of a handler's error and keeps its code.
func scrubbed(err error) error {
	code := codeOf(err)
	text := textInternal
	switch code {
	case 0:
		code = jsonrpc.CodeInternalError
	case jsonrpc.CodeInvalidParams:
		text = "invalid params"
	case jsonrpc.CodeInvalidRequest:
		text = "invalid request"
	case jsonrpc.CodeMethodNotFound:
		text = "method not found"
	case codeNotFound:
		text = "resource not found"
	}
	return &jsonrpc.Error{Code: code, Message: text}
}

// codeNotFound is MCP's code for an unknown resource.
const codeNotFound = -32002

// codeOf returns the JSON-RPC code that the caller will see; 0 where the error has none.
func codeOf(err error) int64 {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// outcomeOf names how a message ended that a chain stopped.
func outcomeOf(err error) chain.MessageOutcome {
	var a *chain.AbortError
	switch {
	case !errors.As(err, &a):
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return chain.MessageCancelled
		}
		return chain.MessageFailed
	case a.Reason == chain.ReasonValidation:
		return chain.MessageDenied
	case a.Reason == chain.ReasonTimeout:
		return chain.MessageTimeout
	}
	return chain.MessageFailed
}
