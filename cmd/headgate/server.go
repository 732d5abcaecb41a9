package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Names of what the demo serves.
const (
	toolEcho        = "echo"
	toolGetCustomer = "get_customer"
	toolDelete      = "delete_records"
	toolSlow        = "slow"
	promptSummarize = "summarize"
	customerURI     = "customer://"
)

func demoTools() []string { return []string{toolEcho, toolGetCustomer, toolDelete, toolSlow} }

// served reports whether name is a tool or prompt of the demo. Other names are
// a client's own words.
func served(name string) bool {
	return name == promptSummarize || slices.Contains(demoTools(), name)
}

// newServer returns an MCP server that knows nothing of interceptors. Its slow
// calls end when work does.
func newServer(work context.Context) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "headgate-demo", Title: "Headgate demo", Version: "0.1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: toolEcho, Description: "Says what it is told"}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: toolGetCustomer, Description: "Looks up a customer"}, getCustomer)
	mcp.AddTool(s, &mcp.Tool{Name: toolDelete, Description: "Deletes the records that a condition matches"}, deleteRecords)
	mcp.AddTool(s, &mcp.Tool{Name: toolSlow, Description: "Takes its time"}, slow(work))
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "customer", Description: "A customer", URITemplate: customerURI + "{id}", MIMEType: "application/json",
	}, readCustomer)
	s.AddPrompt(&mcp.Prompt{
		Name: promptSummarize, Description: "Asks for a summary",
		Arguments: []*mcp.PromptArgument{{Name: "text", Description: "What to summarize", Required: true}},
	}, summarize)
	return s
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

type echoInput struct {
	Text string `json:"text" jsonschema:"what to say"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
	return text("%s", in.Text), nil, nil
}

type customerInput struct {
	ID string `json:"id" jsonschema:"the customer's id"`
}

func getCustomer(_ context.Context, _ *mcp.CallToolRequest, in customerInput) (*mcp.CallToolResult, customer, error) {
	c := newCustomer(in.ID)
	return text("%s <%s>, card %s", c.Name, c.Email, c.Card), c, nil
}

type deleteInput struct {
	Table string `json:"table" jsonschema:"where to delete"`
	Where string `json:"where,omitempty" jsonschema:"what to delete"`
}

// deleteRecords only says what it would do. It takes an empty condition for
// all records, as such tools do.
func deleteRecords(_ context.Context, _ *mcp.CallToolRequest, in deleteInput) (*mcp.CallToolResult, any, error) {
	if in.Where == "" {
		return text("deleted all records of %s (not really)", in.Table), nil, nil
	}
	return text("deleted the records of %s where %s (not really)", in.Table, in.Where), nil, nil
}

type slowInput struct {
	MS int `json:"ms" jsonschema:"how long to take, in milliseconds, at most a minute"`
}

const maxSlow = time.Minute

// slow returns a tool that waits. Beside the call's own end, work ends it: not
// every protocol version tells a call that its client has gone.
func slow(work context.Context) mcp.ToolHandlerFor[slowInput, any] {
	return func(ctx context.Context, _ *mcp.CallToolRequest, in slowInput) (*mcp.CallToolResult, any, error) {
		if in.MS < 0 || in.MS > int(maxSlow/time.Millisecond) {
			return nil, nil, fmt.Errorf("ms must be between 0 and %d", maxSlow/time.Millisecond)
		}
		timer := time.NewTimer(time.Duration(in.MS) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return text("took %d ms", in.MS), nil, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-work.Done():
			return nil, nil, work.Err()
		}
	}
}

func readCustomer(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id, ok := strings.CutPrefix(req.Params.URI, customerURI)
	if !ok || id == "" {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	data, err := json.Marshal(newCustomer(id))
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: req.Params.URI, MIMEType: "application/json", Text: string(data)},
	}}, nil
}

func summarize(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	ask := "Summarize the following text in one sentence:\n\n" + req.Params.Arguments["text"]
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: ask}}}}, nil
}
