// Command remote is a server of interceptors alone: it has no tools, and other
// processes run what it lists on their own messages. It speaks MCP over stdio,
// or over streamable HTTP with --http. Try it with the demo:
//
//	headgate demo --host "stdio:go run ./cmd/examples/remote"
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	addr := flag.String("http", "", "`address` to serve at; empty for stdio")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)) // stdout is the protocol's
	if err := serve(ctx, *addr, logger); err != nil && ctx.Err() == nil {
		logger.Error("server ended", "err", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr string, logger *slog.Logger) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "remote-guards", Version: "0.1.0"}, nil)
	ext := mcpext.New(&mcpext.Options{Logger: logger})
	if err := ext.AddInterceptor(noPrivateKeys(), trimText()); err != nil {
		return err
	}
	if err := ext.Install(server); err != nil {
		return err
	}
	if addr == "" {
		return server.Run(ctx, &mcp.StdioTransport{})
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	logger.Info("serving", "url", "http://"+ln.Addr().String())
	// Whoever reaches the address may invoke: see mcpext.Options.Authorize.
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true, Logger: logger})
	web := &http.Server{
		Handler:           http.NewCrossOriginProtection().Handler(handler),
		ReadHeaderTimeout: 10 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func metadata(name, description string) core.Metadata {
	return core.Metadata{
		Name: name, Description: description,
		Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
	}
}

// noPrivateKeys denies calls that carry a private key in PEM form.
func noPrivateKeys() core.Validator {
	return core.Validator{
		Metadata: metadata("remote/no-private-keys", "Denies calls that carry a private key"),
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			var params any
			if err := inv.Decode(&params); err != nil {
				return nil, err // a failure, which blocks
			}
			plain, err := core.Encode(params) // any letter may have come as an escape
			if err != nil {
				return nil, err
			}
			if bytes.Contains(plain, []byte("PRIVATE KEY-----")) {
				return core.Deny("the call carries a private key"), nil
			}
			return core.Allow(), nil
		},
	}
}

// trimText takes the white space from both ends of a call's text.
func trimText() core.Mutator {
	return core.Mutator{
		Metadata: metadata("remote/trim-text", "Trims arguments.text"),
		Handler: func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			var params map[string]any // all members, so that none is lost
			if err := inv.Decode(&params); err != nil {
				return nil, err
			}
			args, _ := params["arguments"].(map[string]any)
			text, _ := args["text"].(string)
			trimmed := strings.TrimSpace(text)
			if trimmed == text {
				return core.Unchanged(), nil
			}
			args["text"] = trimmed
			payload, err := core.Encode(params)
			return core.Replace(payload), err
		},
	}
}
