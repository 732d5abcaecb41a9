// Command validator is an MCP server over stdio whose validator asks who acts:
// only an editor may write notes. Standard output is the protocol's; whatever
// else there is to say goes to standard error.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	user := flag.String("user", "guest", "`name` of whoever starts the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := serve(ctx, *user, logger); err != nil && ctx.Err() == nil {
		logger.Error("server ended", "err", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, user string, logger *slog.Logger) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "0.1.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read_note", Description: "Reads the note"}, answer("buy milk"))
	mcp.AddTool(server, &mcp.Tool{Name: "write_note", Description: "Writes the note"}, answer("written"))

	ext := mcpext.New(&mcpext.Options{Logger: logger})
	if err := ext.AddInterceptor(editorsOnly()); err != nil {
		return err
	}
	if err := ext.Install(server); err != nil {
		return err
	}
	ch, err := ext.Chain(nil)
	if err != nil {
		return err
	}
	defer ch.Close()
	server.AddReceivingMiddleware(middleware.Receiving(ch, &middleware.Options{
		ContextProvider: whoActs(user), Logger: logger,
	}))
	return server.Run(ctx, &mcp.StdioTransport{})
}

// whoActs says on whose behalf a request travels. Over HTTP that is the user of
// the request's token, and never what its _meta claims; over stdio, where there
// is no token, the client is whoever started this process.
func whoActs(user string) func(context.Context, mcp.Request) core.InvocationContext {
	return func(_ context.Context, req mcp.Request) core.InvocationContext {
		id := user
		if extra := req.GetExtra(); extra != nil {
			id = ""
			if extra.TokenInfo != nil {
				id = extra.TokenInfo.UserID
			}
		}
		return core.InvocationContext{Principal: &core.Principal{Type: "user", ID: id}}
	}
}

func editorsOnly() core.Validator {
	return core.Validator{
		Metadata: core.Metadata{
			Name:  "example/editors-only",
			Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			var call struct {
				Name string `json:"name"`
			}
			if err := inv.Decode(&call); err != nil {
				return nil, err // a failure, which blocks
			}
			// An asserted principal is a caller's own word, in interceptor/invoke.
			who := inv.Context.Principal
			if call.Name != "write_note" || (who != nil && who.ID == "editor" && !who.Asserted) {
				return core.Allow(), nil
			}
			return core.Deny("only the editor may write"), nil
		},
	}
}

func answer(text string) mcp.ToolHandlerFor[struct{}, any] {
	return func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
}
