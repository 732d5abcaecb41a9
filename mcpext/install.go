package mcpext

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Install exposes the interceptors to the server's clients: it serves
// interceptors/list and interceptor/invoke and declares the capability in the
// results of initialize and server/discover. It may be called for any number
// of servers, for each before its first request.
func (e *Extension) Install(server *mcp.Server) error {
	if server == nil {
		return errors.New("mcpext: nil server")
	}
	if err := e.exposed.register(server); err != nil {
		return err
	}
	server.AddReceivingMiddleware(e.declare)
	return nil
}

// register adds the two methods to a server.
func (s *service) register(server *mcp.Server) error {
	if err := mcp.AddReceivingCustomMethod(server, core.MethodList, s.serveList); err != nil {
		return fmt.Errorf("mcpext: register %q: %w", core.MethodList, err)
	}
	if err := mcp.AddReceivingCustomMethod(server, core.MethodInvoke, s.serveInvoke); err != nil {
		return fmt.Errorf("mcpext: register %q: %w", core.MethodInvoke, err)
	}
	return nil
}

// declare adds the capability to the two handshakes. Both results carry
// capabilities of their own, so nothing shared is written to.
func (e *Extension) declare(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if err != nil {
			return res, err
		}
		switch r := res.(type) {
		case *mcp.InitializeResult:
			if r != nil && r.Capabilities != nil {
				r.Capabilities.AddExtension(core.ExtensionKey, e.capability())
			}
		case *mcp.DiscoverResult:
			if r != nil && r.Capabilities != nil {
				r.Capabilities.AddExtension(core.ExtensionKey, e.capability())
			}
		}
		return res, nil
	}
}

func (e *Extension) capability() map[string]any {
	return map[string]any{"supportedEvents": e.registry.Load().events()}
}
