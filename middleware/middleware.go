package middleware

import (
	"github.com/headgate-mcp/headgate/chain"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Receiving returns a middleware that applies the chain to the messages that a
// server or client receives: to its requests in direction [core.Receiving], to
// its answers in direction [core.Sending]. It reports to the chain's
// observers. Panics of interceptors and of the handlers behind it are
// contained: the peer is answered with an internal error.
func Receiving(ch *chain.Chain, opts *Options) mcp.Middleware {
	return newGate(ch, opts, false).middleware
}

// Sending returns a middleware that applies the chain to the messages that a
// server or client sends: to its requests in direction [core.Sending], to the
// answers that it gets in direction [core.Receiving]. A request that is
// stopped is not sent, and its caller gets the error that a peer would have
// answered. A notification that is stopped is dropped.
func Sending(ch *chain.Chain, opts *Options) mcp.Middleware {
	return newGate(ch, opts, true).middleware
}

// Server protects both sides of a server: what it receives, and what it sends
// on its own account (sampling, elicitation and roots requests of sessions
// before 2026-07-28, and notifications). Call it once, after all other
// middleware has been added, and not beside [Receiving], which it includes:
// each interceptor would run twice.
func Server(server *mcp.Server, ch *chain.Chain, opts *Options) {
	server.AddReceivingMiddleware(Receiving(ch, opts))
	server.AddSendingMiddleware(Sending(ch, opts))
}

// Client protects both sides of a client. Call it once, after all other
// middleware has been added.
//
// Since 2026-07-28 a server asks its client for something by way of a result.
// go-sdk's client answers such requests by itself, behind all middleware. So
// that they pass the chain, make the client with
//
//	mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}}
//
// and Client answers them in its place, through the client's own handlers.
func Client(client *mcp.Client, ch *chain.Chain, opts *Options) {
	receiving, sending := newGate(ch, opts, false), newGate(ch, opts, true)
	sending.peer = &handlerBox{}
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		sending.peer.handler = receiving.middleware(next)
		return sending.peer.handler
	})
	client.AddSendingMiddleware(sending.middleware)
}

// A handlerBox holds the handler that a client's received requests go to.
type handlerBox struct{ handler mcp.MethodHandler }
