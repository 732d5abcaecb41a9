// Package chain runs interceptors in the order that the trust boundary asks
// for, and decides what their answers mean for a message.
//
// Interceptors live in a [Host]. A [Chain] lists its hosts, compiles one
// immutable plan per event and phase, and runs a message's payload through it:
//
//	ch, err := chain.New(nil)
//	...
//	err = ch.AddHost(ctx, "local", host)
//	...
//	res, err := ch.Execute(ctx, &chain.Request{
//		Event: "tools/call", Phase: core.PhaseRequest, Direction: core.Receiving,
//		Payload: params,
//	})
//	if err != nil {
//		return err // the message must not go on
//	}
//	params = res.FinalPayload
//
// Package mcpext provides the hosts, package middleware applies a chain to the
// messages of a server. An [Observer] watches what happens; [Overrides] are
// the operator's word against what authors declared.
//
// # Modes
//
// An active interceptor's denial blocks and its mutation applies. An audit
// interceptor can do neither, whatever happens in it: it works on a copy, off
// the message's path, and is dropped and counted rather than waited for.
//
// # Concurrency
//
// All methods may be called from several goroutines at once. Executions read
// plans through one atomic pointer and never wait for a change of policy; a
// [Snapshot] keeps one policy for both phases of a message.
//
// # Errors
//
// Execute returns an error whenever the message must not go on: an
// [*AbortError], or the caller's own cancellation. Its text is for operators
// and must not be sent to a remote peer.
package chain
