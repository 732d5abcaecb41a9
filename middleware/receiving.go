package middleware

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Receiving returns a middleware that applies the chain to the messages that a
// server receives: to its requests in direction [core.Receiving], to its
// answers in direction [core.Sending]. It reports to the chain's observers.
// Panics of interceptors and of the server's handlers are contained: the
// caller is answered with an internal error.
func Receiving(ch *chain.Chain, opts *Options) mcp.Middleware {
	r := newReceiver(ch, opts)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			return r.receive(ctx, method, req, next)
		}
	}
}

// A receiver applies one chain. It keeps no state between messages but the
// queues of notifications.
type receiver struct {
	chain   *chain.Chain
	opts    Options
	logger  *slog.Logger
	scratch sync.Pool // of *bytes.Buffer: encoder scratch, which no handler ever sees
	notes   noteQueues
}

func newReceiver(ch *chain.Chain, opts *Options) *receiver {
	r := &receiver{chain: ch}
	if opts != nil {
		r.opts = *opts
	}
	r.logger = r.opts.Logger
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	r.notes.waiting = map[mcp.Session][]note{}
	return r
}

func (r *receiver) receive(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	snap := r.chain.Snapshot()
	request, response := snap.Hooked(method, core.PhaseRequest), snap.Hooked(method, core.PhaseResponse)
	note := core.IsNotification(method)
	if !request && !response && !snap.Observed() {
		return r.handle(ctx, method, req, next, note)
	}
	m := &message{receiver: r, snapshot: snap, method: method, req: req, next: next, note: note, request: request, response: response}
	if note && request {
		r.notes.add(ctx, m)
		return nil, nil
	}
	return m.run(ctx)
}

// handle calls the server's handler, contains its panics and refuses results
// that would take the server down when the SDK touches them.
func (r *receiver) handle(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler, note bool) (res mcp.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.logger.Error("handler panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
			res, err = nil, errPanicked
		}
	}()
	res, err = next(ctx, method, req)
	if err != nil {
		return nil, err
	}
	if note {
		return nil, nil
	}
	if isNil(res) {
		r.logger.Error("handler returned neither a result nor an error", "method", method)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textInternal}
	}
	return res, nil
}

// errPanicked is what the caller of a handler that panicked is told.
var errPanicked = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textInternal}
