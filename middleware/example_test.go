package middleware_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The example of the README: all that a server's author writes.
func Example() {
	guard := core.Validator{
		Metadata: core.Metadata{
			Name:  "acme/no-deletes",
			Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
		},
		Handler: func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			var call struct {
				Name string `json:"name"`
			}
			if err := inv.Decode(&call); err != nil {
				return nil, err // a failure blocks too, unless FailOpen is set
			}
			if call.Name == "delete_records" {
				return core.Deny("deletes are not allowed"), nil
			}
			return core.Allow(), nil
		},
	}

	server := newServer() // an *mcp.Server with tools of yours
	ext := mcpext.New(nil)
	if err := ext.AddInterceptor(guard); err != nil {
		log.Fatal(err)
	}
	if err := ext.Install(server); err != nil { // list and invoke over JSON-RPC
		log.Fatal(err)
	}
	tel, err := telemetry.New(nil) // spans and metrics, to the global provider and registry
	if err != nil {
		log.Fatal(err)
	}
	ch, err := ext.Chain(&chain.Options{Observer: tel})
	if err != nil {
		log.Fatal(err)
	}
	defer ch.Close()
	server.AddReceivingMiddleware(middleware.Receiving(ch, nil)) // last, so outermost

	fmt.Println(callTool(server, "list_records"))
	fmt.Println(callTool(server, "delete_records"))
	// Output:
	// ran list_records
	// calling "tools/call": request blocked by policy
}

func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "acme", Version: "1"}, nil)
	for _, name := range []string{"list_records", "delete_records"} {
		rawTool(server, name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text("ran " + name), nil
		})
	}
	return server
}

// callTool calls a tool with a client in memory and returns what it said.
func callTool(server *mcp.Server, name string) string {
	ctx := context.Background()
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(ctx, serverEnd, nil)
	if err != nil {
		return err.Error()
	}
	defer ss.Wait() //nolint:errcheck // the client closes first
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, clientEnd, nil)
	if err != nil {
		return err.Error()
	}
	defer cs.Close()
	res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name})
	if err != nil {
		return err.Error()
	}
	return res.Content[0].(*mcp.TextContent).Text
}
