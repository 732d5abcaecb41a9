// Command headgate shows Headgate at work.
//
//	headgate demo                        # a protected MCP server, with traffic
//	headgate demo --traffic 0            # the same, for a client of your own
//	headgate demo --host URL             # with the interceptors of another process
//	headgate version
//
// The demo is an MCP server over streamable HTTP with a few tools, a resource
// template and a prompt, behind four interceptors. wiring.go is how any server
// is protected; each interceptor is a value in a file of its own:
//
//   - block-destructive (destructive.go) denies deletes without a condition,
//   - redact-pii (redact.go) masks e-mail addresses and card numbers,
//   - stamp-response (stamp.go) leaves an audit trail in the answer,
//   - injection-scan (injection.go) looks for prompt injections, in audit mode:
//     it says what it would have blocked and blocks nothing.
//
// Hosts of further interceptors (remote.go) are MCP servers of any make, such as
// cmd/examples/remote: a command that speaks stdio, or an address.
//
// What is blocked and changed is printed by an observer (report.go), never with
// the text of a message.
package main
