package main

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// endpoint is the path that MCP is served at.
const endpoint = "/mcp"

// newWeb returns an HTTP server for MCP. It sets no read or write timeout: an
// answer may be a stream that lasts as long as its client wants it.
func newWeb(server *mcp.Server, logger *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	// Browsers send their users' requests anywhere; other sites' are refused.
	mux.Handle(endpoint, http.NewCrossOriginProtection().Handler(newHandler(server, logger)))
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// newHandler serves one server to all clients. Protocol version 2026-07-28
// comes over HTTP without sessions only; with the second option a client that
// goes away ends its call.
func newHandler(server *mcp.Server, logger *slog.Logger) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true, Logger: logger})
}

// reachable returns a host and port that a client on this machine can use.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	local := *tcp
	local.IP = net.IPv4(127, 0, 0, 1)
	return local.String()
}
