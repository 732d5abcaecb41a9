// Package mcpext puts interceptors on MCP servers: it holds the registry of
// interceptors that live in this process, serves interceptors/list and
// interceptor/invoke (SEP-2624) on any number of servers, and declares the
// capability in both handshakes.
//
//	ext := mcpext.New(nil)
//	if err := ext.AddInterceptor(guard, redactor); err != nil {
//		return err
//	}
//	if err := ext.Install(server); err != nil { // expose them to the server's clients
//		return err
//	}
//	ch, err := ext.Chain(nil) // run them on the server's own traffic
//	...
//	server.AddReceivingMiddleware(middleware.Receiving(ch, nil))
//
// Exposing and running are two things: a chain works without Install.
//
// # Concurrency
//
// All methods of [Extension] may be called from several goroutines at once.
// Interceptors that are added or removed later take effect with the next
// message. [Extension.Install] must come before the server's first request,
// since go-sdk reads its table of methods without a lock.
//
// # Errors
//
// Errors of the two methods carry the codes and data of SEP-2624. The text of
// a handler's own error never leaves the process; it goes to Options.Logger.
package mcpext
