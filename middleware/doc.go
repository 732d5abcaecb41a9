// Package middleware applies a chain to the messages of an MCP server.
//
//	server.AddReceivingMiddleware(middleware.Receiving(ch, nil))
//
// [Receiving] encodes a request's params once, runs the chain's request phase
// on them (validate, then mutate), calls the server's handler, encodes its
// result once and runs the response phase (mutate, then validate). Nothing is
// encoded in a phase that no interceptor is hooked on, and a result that was
// not mutated is passed on untouched. A mutated payload is decoded into a
// fresh value: what a mutator removed is gone, and nothing that the server or
// anybody else holds is written to.
//
// # Order
//
// In go-sdk the middleware added last is outermost. Add Receiving last, so
// that no other middleware changes what interceptors have seen.
//
// # Concurrency
//
// Requests run at once, each on its own goroutine. A notification that an
// interceptor names is handled off the session's read path, in the order of
// arrival.
//
// # Errors
//
// A message that must not go on is answered with a JSON-RPC error with the
// codes and data of SEP-2624. It names the interceptor, and nothing of what
// that found or failed with leaves the process.
package middleware
