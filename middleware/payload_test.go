package middleware_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// request sends one tools/call through the mutator, over the older era, and
// returns what the tool got as arguments and the line that the client got.
func through(t *testing.T, opts middleware.Options, m core.Interceptor, arguments string) (got, reply string) {
	t.Helper()
	got = "not called"
	p := protect(t, setup{interceptors: []core.Interceptor{m}, options: opts, server: func(s *mcp.Server) {
		tool := func(name string) {
			rawTool(s, name, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				got = name + " " + string(req.Params.Arguments)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "iban NO93"}}, StructuredContent: json.RawMessage(`{"z":1,"a":9007199254740993}`)}, nil
			})
		}
		tool("echo")
		tool("drop_table")
	}})
	c := p.raw(t)
	c.handshake()
	reply = c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + arguments + `}}`)
	return got, reply
}

func TestMutatedRequests(t *testing.T) {
	on := ct.On(core.PhaseRequest, "tools/call")
	blocked := func(t *testing.T, got, reply string) {
		t.Helper()
		assert.Equal(t, "not called", got)
		assert.Contains(t, reply, `"code":-32603`)
		assert.Contains(t, reply, `"failedInterceptor":"m"`)
	}
	gets := func(want string) func(*testing.T, string, string) {
		return func(t *testing.T, got, reply string) {
			t.Helper()
			assert.Equal(t, want, got, reply)
		}
	}
	tests := map[string]struct {
		replace string
		check   func(t *testing.T, got, reply string)
	}{
		"row 30: a removed key is gone":              {`{"name":"echo"}`, gets("echo ")},
		"numbers survive digit for digit":            {`{"name":"echo","arguments":{"entry":9007199254740993,"seq":18446744073709551615,"fee":0.10}}`, gets(`echo {"entry":9007199254740993,"seq":18446744073709551615,"fee":0.10}`)},
		"text is not escaped":                        {`{"name":"echo","arguments":{"e":"a<b && c>d"}}`, gets(`echo {"e":"a<b && c>d"}`)},
		"row 37: wrong type for a member":            {`{"name":7}`, blocked},
		"row 36: null":                               {`null`, blocked},
		"row 37: an array":                           {`[]`, blocked},
		"a key that differs in case changes nothing": {`{"name":"echo","Name":"drop_table"}`, blocked},
		"a key twice":                                {`{"name":"echo","name":"drop_table"}`, blocked},
		"a key twice, spelled differently":           {`{"name":"echo","\u006eame":"drop_table"}`, blocked},
		"a member that has no place":                 {`{"name":"echo","vendor/tier":"gold"}`, blocked},
		"row 43: another tool":                       {`{"name":"drop_table","arguments":{}}`, blocked},
		"row 43: no tool":                            {`{"arguments":{}}`, blocked},
		"a _meta that is not an object":              {`{"name":"echo","_meta":"x"}`, blocked},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, reply := through(t, middleware.Options{}, ct.Mutator("m", ct.Set(tt.replace), on), `{"text":"hi","badge":"B-1029"}`)
			tt.check(t, got, reply)
		})
		t.Run(name+", fail open", func(t *testing.T) {
			got, reply := through(t, middleware.Options{}, ct.Mutator("m", ct.Set(tt.replace), on, ct.FailOpen), `{"a":1}`)
			if strings.Contains(reply, "error") {
				t.Fatal(reply)
			}
			assert.NotContains(t, got, "drop_table")
		})
	}
	t.Run("an unfit change that fails open is left out alone", func(t *testing.T) {
		p := protect(t, setup{
			interceptors: []core.Interceptor{
				ct.Mutator("a", ct.Set(`{"name":"echo","arguments":{"a":1}}`), on),
				ct.Mutator("b", ct.Set(`{"name":"drop_table"}`), on, ct.FailOpen),
			}, server: echo,
		})
		got, err := call(t, p.client(t, legacy), "echo", map[string]any{})
		require.NoError(t, err)
		assert.Equal(t, `{"a":1}`, got)
	})
	t.Run("the first unfit change of several is blamed", func(t *testing.T) {
		p := protect(t, setup{
			interceptors: []core.Interceptor{
				ct.Mutator("a", ct.Set(`{"name":"echo","arguments":{"a":1}}`), on),
				ct.Mutator("b", ct.Set(`{"name":"drop_table","arguments":{"a":1}}`), on),
				ct.Mutator("c", ct.Append("c"), on),
			}, server: echo,
		})
		_, err := call(t, p.client(t, legacy), "echo", map[string]any{})
		assert.Contains(t, string(wireError(t, err, -32603).Data), `"failedInterceptor":"b"`)
	})
}

// B10: with AllowRetarget the validators judge the new target.
func TestRetargeting(t *testing.T) {
	rename := ct.Mutator("m", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		return core.Replace(json.RawMessage(strings.ReplaceAll(string(inv.Payload), "echo", "drop_table"))), nil
	}, ct.On(core.PhaseRequest, "tools/call"))
	got, reply := through(t, middleware.Options{AllowRetarget: true}, rename, `{}`)
	assert.Equal(t, "drop_table {}", got, reply)

	p := protect(t, setup{
		options: middleware.Options{AllowRetarget: true},
		interceptors: []core.Interceptor{rename, ct.Validator("only-echo", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			if !strings.Contains(string(inv.Payload), `"echo"`) {
				return core.Deny("not echo"), nil
			}
			return core.Allow(), nil
		}, ct.On(core.PhaseRequest, "tools/call"))},
		server: echo,
	})
	_, err := call(t, p.client(t, modern), "echo", nil)
	assert.Contains(t, string(wireError(t, err, -32602).Data), "only-echo")

	for method, params := range map[string]mcp.Params{"resources/read": &mcp.ReadResourceParams{URI: "a://1"}, "prompts/get": &mcp.GetPromptParams{Name: "p"}} {
		p := protect(t, setup{
			interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(`{"uri":"a://2","name":"q"}`), ct.On(core.PhaseRequest, method))},
			server: func(s *mcp.Server) {
				s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "a://{id}", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
					panic("must not run")
				})
			},
		})
		cs := p.client(t, modern)
		var err error
		switch params := params.(type) {
		case *mcp.ReadResourceParams:
			_, err = cs.ReadResource(t.Context(), params)
		case *mcp.GetPromptParams:
			_, err = cs.GetPrompt(t.Context(), params)
		}
		wireError(t, err, -32603)
	}
}

func TestMutatedResults(t *testing.T) {
	on := ct.On(core.PhaseResponse, "tools/call")
	blocked := func(t *testing.T, reply string) {
		t.Helper()
		assert.Contains(t, reply, `"code":-32603`)
		assert.Contains(t, reply, `"failedInterceptor":"m"`)
		assert.NotContains(t, reply, "NO93", "the original never goes out as if mutated")
	}
	is := func(want string) func(*testing.T, string) {
		return func(t *testing.T, reply string) {
			t.Helper()
			assert.Equal(t, `{"jsonrpc":"2.0","id":1,"result":`+want+`}`, reply)
		}
	}
	tests := map[string]struct {
		replace string
		check   func(t *testing.T, reply string)
	}{
		"row 32: members that are left out are gone":   {`{"content":[{"type":"text","text":"masked"}]}`, is(`{"content":[{"type":"text","text":"masked"}]}`)},
		"structured content keeps digits and order":    {`{"content":[],"structuredContent":{"z":1,"a":9007199254740993,"f":0.10}}`, is(`{"content":[],"structuredContent":{"z":1,"a":9007199254740993,"f":0.10}}`)},
		"_meta of its own":                             {`{"content":[],"_meta":{"mine":1}}`, is(`{"_meta":{"mine":1},"content":[]}`)},
		"an unknown content type":                      {`{"content":[{"type":"x-masked"}]}`, blocked},
		"a vendor member at the top":                   {`{"content":[],"vendor/score":7}`, blocked},
		"a vendor member in a content block":           {`{"content":[{"type":"text","text":"x","lang":"no"}]}`, blocked},
		"a member that its content type does not have": {`{"content":[{"type":"text","text":"x","mimeType":"a/b"}]}`, blocked},
		"wrong type":        {`{"content":"masked"}`, blocked},
		"wrong case":        {`{"Content":[{"type":"text","text":"x"}]}`, blocked},
		"a key twice, deep": {`{"content":[{"type":"text","text":"a","text":"b"}]}`, blocked},
		"not JSON":          {`{"content":[`, blocked},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, reply := through(t, middleware.Options{}, ct.Mutator("m", ct.Set(tt.replace), on), `{}`)
			tt.check(t, reply)
		})
	}
}

// Row 31 and F02: what a dropped element had is not inherited, and the
// server's registry is untouched.
func TestDroppedTool(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Mutator("hide", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			var v struct {
				Tools []json.RawMessage `json:"tools"`
			}
			if err := inv.Decode(&v); err != nil {
				return nil, err
			}
			out, err := core.Encode(map[string]any{"tools": v.Tools[1:]})
			return core.Replace(out), err
		}, ct.On(core.PhaseResponse, "tools/list"))},
		server: func(s *mcp.Server) {
			s.AddTool(&mcp.Tool{
				Name: "alpha", Description: "payroll export", Annotations: &mcp.ToolAnnotations{Title: "secret"},
				InputSchema: json.RawMessage(`{"type":"object","properties":{"x":{"maximum":9007199254740993}}}`),
			}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return text("alpha ran"), nil
			})
			rawTool(s, "beta", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("beta ran"), nil })
			rawTool(s, "gamma", nil)
		},
	})
	for range 2 {
		cs := p.client(t, legacy)
		res, err := cs.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, res.Tools, 2)
		assert.Equal(t, "beta", res.Tools[0].Name)
		assert.Empty(t, res.Tools[0].Description)
		assert.Nil(t, res.Tools[0].Annotations)
		assert.Equal(t, "gamma", res.Tools[1].Name)
		got, err := call(t, cs, "alpha", nil)
		require.NoError(t, err, "B14: a hidden tool can still be called; a list filter is no access control")
		assert.Equal(t, "alpha ran", got)
	}
}

// Row 33: policy must not break the protocol.
func TestReservedMembersAreRestored(t *testing.T) {
	var meta mcp.Meta
	p := protect(t, setup{
		interceptors: []core.Interceptor{
			ct.Mutator("request", ct.Set(`{"name":"act","_meta":{"mine":1}}`), ct.On(core.PhaseRequest, "tools/call")),
			ct.Mutator("list", ct.Set(`{"tools":[]}`), ct.On(core.PhaseResponse, "tools/list")),
		},
		server: func(s *mcp.Server) {
			rawTool(s, "act", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				meta = req.Params.Meta
				assert.EqualValues(t, 5, req.Params.GetProgressToken())
				return text("x"), nil
			})
		},
	})
	c := p.raw(t)
	triple := `"io.modelcontextprotocol/protocolVersion":"` + modern + `","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
	reply := c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"act","_meta":{"vendor":1,"progressToken":5,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` + triple + `}}}`)
	require.Contains(t, reply, `"text":"x"`)
	assert.Contains(t, reply, `"resultType":"complete"`)
	assert.Equal(t, modern, meta["io.modelcontextprotocol/protocolVersion"])
	assert.Equal(t, 1.0, meta["mine"])
	assert.Contains(t, meta, "traceparent")
	assert.NotContains(t, meta, "vendor", "every other key is the mutator's to remove")

	reply = c.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{` + triple + `}}}`)
	assert.Contains(t, reply, `"tools":[]`)
	for _, member := range []string{`"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"public"`} {
		assert.Contains(t, reply, member)
	}
}

// Every method that a client can send survives a mutator that rewrites its
// payload without changing what it says.
func TestEveryMethodSurvivesARewrite(t *testing.T) {
	rewrite := func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		var v map[string]any
		if err := inv.Decode(&v); err != nil {
			return nil, err
		}
		out, err := core.Encode(v) // sorted keys
		return core.Replace(out), err
	}
	requests := map[string]string{
		"tools/list": `{}`, "prompts/list": `{}`, "resources/list": `{}`, "resources/templates/list": `{}`,
		"tools/call":            `{"name":"act","arguments":{"b":1,"a":9007199254740993}}`,
		"prompts/get":           `{"name":"p","arguments":{"b":"1","a":"2"}}`,
		"resources/read":        `{"uri":"a://1"}`,
		"resources/subscribe":   `{"uri":"a://1"}`,
		"resources/unsubscribe": `{"uri":"a://1"}`,
		"completion/complete":   `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}}`,
		"logging/setLevel":      `{"level":"info"}`,
		"ping":                  `{}`,
	}
	opts := &mcp.ServerOptions{
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"v1", "v2"}, Total: 2}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	}
	bare := protect(t, setup{bare: true, server: everything, serverOptions: opts})
	rewritten := protect(t, setup{server: everything, serverOptions: opts, interceptors: []core.Interceptor{
		ct.Mutator("m", rewrite, ct.On(core.PhaseBoth, "*", "ping")),
	}})
	want, got := bare.raw(t), rewritten.raw(t)
	want.handshake()
	got.handshake()
	for method, params := range requests {
		line := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
		w, g := want.ask(line), got.ask(line)
		require.Contains(t, w, `"result"`, method)
		assert.JSONEq(t, w, g, method)
	}
}

// everything adds one of each feature.
func everything(s *mcp.Server) {
	rawTool(s, "act", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		size := int64(7)
		return &mcp.CallToolResult{
			Content: []mcp.Content{
				&mcp.TextContent{Text: "<b> & é", Meta: mcp.Meta{"k": 1}, Annotations: &mcp.Annotations{Priority: 0.5, Audience: []mcp.Role{"user"}}},
				&mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"},
				&mcp.ResourceLink{URI: "a://1", Name: "n", Title: "t", Size: &size},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "a://1", Text: "t", MIMEType: "text/plain"}},
			},
			StructuredContent: req.Params.Arguments,
		}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "p", Title: "P", Arguments: []*mcp.PromptArgument{{Name: "a", Required: true}}}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
	})
	s.AddResource(&mcp.Resource{URI: "a://1", Name: "one"}, readResource)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "b://{id}", Name: "b"}, readResource)
}

func readResource(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: "text"}, {URI: req.Params.URI, Blob: []byte("blob")}}}, nil
}

// F15: a list that is rewritten does not grow.
func TestRewrittenPromptHasOneMessage(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Mutator("m", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			return core.Replace(json.RawMessage(strings.ReplaceAll(string(inv.Payload), "hello", "hei"))), nil
		}, ct.On(core.PhaseResponse, "prompts/get"))},
		server: everything,
	})
	res, err := p.client(t, modern).GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "p", Arguments: map[string]string{"a": "b"}})
	require.NoError(t, err)
	require.Len(t, res.Messages, 1)
	assert.Equal(t, "hei", res.Messages[0].Content.(*mcp.TextContent).Text)
}

// A result with no members has nothing to change.
func TestEmptyResultCannotBeChanged(t *testing.T) {
	p := protect(t, setup{interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(`{"_meta":{"x":1}}`), ct.On(core.PhaseResponse, "ping"))}})
	c := p.raw(t)
	c.handshake()
	assert.Contains(t, c.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), `"code":-32603`)
}

// F05: a result that nobody changed is the handler's own value, not a copy.
func TestUnchangedResultIsPassedOn(t *testing.T) {
	own := text("x")
	var passed mcp.Result
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", ct.Allow), ct.Mutator("m", ct.Keep)},
		server: func(s *mcp.Server) {
			rawTool(s, "act", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return own, nil })
		},
	})
	p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method == "tools/call" {
				passed = res
			}
			return res, err
		}
	})
	_, err := call(t, p.client(t, legacy), "act", nil)
	require.NoError(t, err)
	assert.Same(t, own, passed)
}

// The request that others hold keeps its params.
func TestOldRequestIsUntouched(t *testing.T) {
	var before, after string
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(`{"name":"echo","arguments":{"changed":1}}`), ct.On(core.PhaseRequest, "tools/call"))},
		server:       echo,
	})
	p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			params, ok := req.GetParams().(*mcp.CallToolParamsRaw)
			if ok {
				before = string(params.Arguments)
			}
			res, err := next(ctx, method, req)
			if ok {
				after = string(req.GetParams().(*mcp.CallToolParamsRaw).Arguments)
			}
			return res, err
		}
	})
	got, err := call(t, p.client(t, modern), "echo", map[string]any{"a": 1})
	require.NoError(t, err)
	assert.Equal(t, `{"changed":1}`, got)
	assert.Equal(t, `{"a":1}`, before)
	assert.Equal(t, before, after)
}

// L02: a payload as deep as the SDK lets in harms nothing but its own call.
func TestDeepPayloads(t *testing.T) {
	p := protect(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			var v any
			return core.Allow(), inv.Decode(&v)
		}), ct.Mutator("m", ct.Append("x"), ct.On(core.PhaseRequest, "tools/call"), ct.Audit)},
		chain:  chain.Options{},
		server: echo,
	})
	c := p.raw(t)
	c.handshake()
	for _, depth := range []int{900, 996} {
		deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		reply := c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"d":` + deep + `}}}`)
		assert.Contains(t, reply, `"result"`)
		reply = c.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}`)
		assert.Contains(t, reply, `"result"`)
	}
}
