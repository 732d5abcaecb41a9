// Command mutator is an MCP server over stdio whose mutator caps what a caller
// asks for. Standard output is the protocol's; whatever else there is to say
// goes to standard error.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := serve(ctx, logger); err != nil && ctx.Err() == nil {
		logger.Error("server ended", "err", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, logger *slog.Logger) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "stars", Version: "0.1.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "stars", Description: "Shows that many stars"}, stars)

	ext := mcpext.New(&mcpext.Options{Logger: logger})
	if err := ext.AddInterceptor(capCount()); err != nil {
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
	server.AddReceivingMiddleware(middleware.Receiving(ch, &middleware.Options{Logger: logger}))
	return server.Run(ctx, &mcp.StdioTransport{})
}

type starsInput struct {
	Count int `json:"count" jsonschema:"how many"`
}

func stars(_ context.Context, _ *mcp.CallToolRequest, in starsInput) (*mcp.CallToolResult, any, error) {
	text := strings.Repeat("*", max(in.Count, 0))
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

const maxCount = 10

// capCount lowers the count of stars to maxCount.
func capCount() core.Mutator {
	return core.Mutator{
		Metadata: core.Metadata{
			Name:  "example/cap-count",
			Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			var params map[string]any // all members, so that none is lost
			if err := inv.Decode(&params); err != nil {
				return nil, err // a failure, which blocks
			}
			args, _ := params["arguments"].(map[string]any)
			count, ok := args["count"].(json.Number)
			if !ok {
				return core.Unchanged(), nil // the tool's schema will say what is wrong
			}
			if n, err := count.Float64(); err == nil && n <= maxCount {
				return core.Unchanged(), nil
			}
			args["count"] = maxCount
			payload, err := core.Encode(params)
			if err != nil {
				return nil, err
			}
			return core.Replace(payload), nil
		},
	}
}
