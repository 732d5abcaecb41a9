package mcpext

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeRejected is what go-sdk gives a message that its transport could not
// deliver: it looks like a peer's answer, and is none.
const codeRejected = -32005

// undelivered reports whether a call's error says that nobody got it: nobody
// listens there, or what does is a gateway with nothing behind it.
func undelivered(err error) bool {
	var op *net.OpError
	var wire *jsonrpc.Error
	return errors.As(err, &op) || errors.As(err, &wire) && wire.Code == codeRejected
}

// faultOf puts the loss of a host into one word.
func faultOf(err error) chain.HostFault {
	var netErr net.Error
	var remote *chain.RemoteError
	var wire *jsonrpc.Error
	switch {
	case errors.Is(err, mcp.ErrSessionMissing), errors.Is(err, mcp.ErrConnectionClosed):
		return chain.FaultSession
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return chain.FaultUnresponsive
	case undelivered(err): // before EOF, which a refused request ends in too
		return chain.FaultUnreachable
	case errors.Is(err, io.EOF):
		return chain.FaultSession
	case errors.As(err, &remote), errors.As(err, &wire), errors.Is(err, core.ErrMalformed):
		return chain.FaultProtocol
	}
	return chain.FaultUnreachable
}

// doubtful reports whether an invoke's failure puts the session in doubt. What
// the peer has answered, or what was not sent, does not.
func doubtful(err error) bool {
	var remote *chain.RemoteError
	var wire *jsonrpc.Error
	var panicked *chain.PanicError // of a handler over there, as its host has answered
	switch {
	case errors.As(err, &panicked):
		return false
	case undelivered(err), errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, mcp.ErrSessionMissing), errors.Is(err, io.EOF):
		return true
	case errors.As(err, &remote), errors.As(err, &wire), errors.Is(err, core.ErrMalformed), errors.Is(err, chain.ErrTimeout),
		errors.Is(err, ErrPayloadTooLarge), errors.Is(err, ErrNotFound):
		return false
	}
	return true
}
