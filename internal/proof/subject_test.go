package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newSubject returns the server that is looked at with and without Headgate. It
// has something of everything that MCP knows, and answers the same to the same.
func newSubject() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "subject", Version: "1"}, &mcp.ServerOptions{
		PageSize: 4, Instructions: "<none> & nothing",
		CompletionHandler: complete,
		SubscribeHandler: func(_ context.Context, req *mcp.SubscribeRequest) error {
			if strings.HasPrefix(req.Params.URI, "c:") {
				return errors.New("not to be subscribed to")
			}
			return nil
		},
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		// What a notification brings about shows, and so does when.
		ProgressNotificationHandler: func(ctx context.Context, req *mcp.ProgressNotificationServerRequest) {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: "echo", Progress: req.Params.Progress, Message: req.Params.Message,
			})
		},
	})
	addTools(s)
	addFailingTools(s)
	addPrompts(s)
	addResources(s)
	addCustomMethods(s)
	return s
}

func addTool(s *mcp.Server, name string, handler mcp.ToolHandler) {
	s.AddTool(&mcp.Tool{Name: name, Title: strings.ToUpper(name), InputSchema: json.RawMessage(`{"type":"object"}`)}, handler)
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func addTools(s *mcp.Server) {
	addTool(s, "echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return textResult(string(req.Params.Arguments)), nil
	})
	addTool(s, "act", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		size := int64(1 << 60)
		return &mcp.CallToolResult{
			Meta: mcp.Meta{"k": "v", "n": 9007199254740993},
			Content: []mcp.Content{
				&mcp.TextContent{Text: "<b> & é \u2028", Meta: mcp.Meta{"k": 1}, Annotations: &mcp.Annotations{Priority: 0.5, Audience: []mcp.Role{"user"}}},
				&mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"},
				&mcp.AudioContent{Data: []byte{0, 255}, MIMEType: "audio/wav"},
				&mcp.ResourceLink{URI: "a://1", Name: "n", Title: "t", Size: &size},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "a://1", Blob: []byte("blob"), MIMEType: "text/plain"}},
			},
			StructuredContent: req.Params.Arguments,
		}, nil
	})
	addTool(s, "empty", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
	large := strings.Repeat("0123456789abcdef<>&\"\\é", 512)
	addTool(s, "large", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return textResult(large), nil
	})
	addTool(s, "noisy", noisy)
	addTool(s, "asks", asks)
	type input struct {
		N    float64 `json:"n,omitempty"`
		Text string  `json:"text,omitempty" jsonschema:"some <text>"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "typed", Description: "takes & gives types"},
		func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, input, error) {
			return nil, in, nil
		})
}

// noisy reports and logs before it answers: the order of a stream's messages is
// part of what a client sees.
func noisy(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for i := range 3 {
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i), Message: "<step>"})
		}
		//lint:ignore SA1019 what servers of today send
		_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Logger: "noisy", Data: map[string]any{"i": i, "args": req.Params.Arguments}})
	}
	return textResult("done"), nil
}

// asks wants something from the client before it answers.
func asks(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if answer, ok := req.Params.InputResponses["q"]; ok {
		raw, err := json.Marshal(answer)
		return textResult(string(raw)), err
	}
	return &mcp.CallToolResult{
		RequestState: "state",
		InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{
			Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}}}`),
		}},
	}, nil
}

func addFailingTools(s *mcp.Server) {
	addTool(s, "fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("plain <error>")
	})
	addTool(s, "wire error", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: 4711, Message: "wire", Data: json.RawMessage(`{"b":1,"a":9007199254740993}`)}
	})
	addTool(s, "is error", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"z":1,"a":1e400}`)}
		r.SetError(errors.New("tool"))
		return r, nil
	})
}

func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	if req.Params.Argument.Value == "fail" {
		return nil, errors.New("nothing to complete")
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"a<b", req.Params.Argument.Value}, Total: 2}}, nil
}

func addPrompts(s *mcp.Server) {
	for i := range 6 {
		s.AddPrompt(&mcp.Prompt{Name: fmt.Sprint("p", i), Title: "P <i>", Arguments: []*mcp.PromptArgument{{Name: "a", Required: i == 0}}},
			func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				if req.Params.Arguments["a"] == "fail" {
					return nil, errors.New("no prompt")
				}
				return &mcp.GetPromptResult{Description: "d", Messages: []*mcp.PromptMessage{
					{Role: "user", Content: &mcp.TextContent{Text: "hello " + req.Params.Arguments["a"]}},
					{Role: "assistant", Content: &mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"}},
				}}, nil
			})
	}
}

func addResources(s *mcp.Server) {
	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(req.Params.URI, "missing") {
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
			{URI: req.Params.URI, Text: "<text>", MIMEType: "text/plain", Meta: mcp.Meta{"k": []any{1, nil}}}, {URI: req.Params.URI, Blob: []byte{0, 1, 2}},
		}}, nil
	}
	for i := range 6 {
		s.AddResource(&mcp.Resource{URI: fmt.Sprintf("a://%d", i), Name: fmt.Sprint("r", i), Description: "a & b"}, read)
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "b://{id}", Name: "b"}, read)
}

// customParams and customResult are of a method that MCP does not know.
type customParams struct {
	mcp.ParamsBase
	Value json.RawMessage `json:"value,omitempty"`
	Fail  bool            `json:"fail,omitempty"`
}

type customResult struct {
	Value json.RawMessage `json:"value,omitempty"`
	mcp.ResultBase
}

func addCustomMethods(s *mcp.Server) {
	err := mcp.AddReceivingCustomMethod(s, "vendor/echo", func(_ context.Context, _ *mcp.ServerSession, p *customParams) (*customResult, error) {
		switch {
		case p == nil:
			return &customResult{}, nil
		case p.Fail:
			return nil, errors.New("vendor")
		}
		return &customResult{Value: p.Value}, nil
	})
	if err != nil {
		panic(err) // the name is free
	}
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second
