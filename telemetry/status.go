package telemetry

import (
	"errors"
	"strconv"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	upstream "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// JSON-RPC codes (JSON-RPC 2.0, 5.1) and MCP's for an unknown resource.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeNotFound       = -32002
)

// errorTypes are the values of error.type of operations, on spans and metrics
// alike. The first is that of no error; the rest are in the order of the
// constants below. Codes of handlers' own are _OTHER; spans have the exact one.
func errorTypes() []string {
	return []string{
		"", semconv.ErrorTool, semconv.ErrorTimeout, semconv.ErrorCancelled, semconv.ErrorPanic, semconv.Other,
		strconv.Itoa(codeInternal), strconv.Itoa(codeParse), strconv.Itoa(codeInvalidRequest),
		strconv.Itoa(codeNoMethod), strconv.Itoa(codeInvalidParams), strconv.Itoa(codeNotFound),
	}
}

const (
	errorNone = iota
	errorTool
	errorTimeout
	errorCancelled
	errorPanic
	errorOther
	errorCodes // the first of the codes
)

// errorType returns the index of an operation's error.type. The rules are those
// of the conventions for MCP: to who receives a message, the codes that say that
// the caller is at fault are no errors, to who sends one all codes are. A
// denial by policy is no error to either.
func (t *Telemetry) errorType(end *chain.MessageEnd) int {
	switch end.Outcome {
	case chain.MessageOK, chain.MessageDenied:
		return errorNone
	case chain.MessageToolError:
		return errorTool
	case chain.MessageTimeout:
		return errorTimeout
	case chain.MessageCancelled:
		return errorCancelled
	case chain.MessagePanic:
		return errorPanic
	}
	if end.Code == 0 {
		return errorOther
	}
	if end.Message.Direction == core.Receiving && callersFault(end.Code) {
		return errorNone
	}
	return t.codeType(end.Code)
}

func (t *Telemetry) codeType(code int64) int {
	name := t.names.errors.clamp(strconv.FormatInt(code, 10), false)
	for i, known := range errorTypes() {
		if i >= errorOther && known == name {
			return i
		}
	}
	return errorOther
}

func callersFault(code int64) bool {
	switch code {
	case codeParse, codeInvalidRequest, codeNoMethod, codeInvalidParams, codeNotFound:
		return true
	}
	return false
}

// isError reports whether an operation's span has the status Error. A caller
// that gave up is its own business on the receiving side.
func isError(errorType int, dir core.Direction) bool {
	return errorType != errorNone && (errorType != errorCancelled || dir == core.Sending)
}

// failureType returns the error.type of an invoke that failed.
func failureType(out *chain.Outcome) (name string) {
	if out.Reason != chain.ReasonMutation && out.Reason != chain.ReasonError {
		return string(out.Reason)
	}
	if remote := remoteError(out.Err); remote != nil {
		return strconv.FormatInt(remote.Code, 10)
	}
	defer func() {
		if recover() != nil { // an error of the interceptor's own was asked
			name = semconv.Other
		}
	}()
	return clip(upstream.ErrorType(out.Err).Value.AsString(), maxName)
}

// remoteError returns what a remote host answered, if an invoke failed of that.
func remoteError(err error) (remote *chain.RemoteError) {
	defer func() { _ = recover() }()
	errors.As(err, &remote)
	return remote
}
