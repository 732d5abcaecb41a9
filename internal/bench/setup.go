package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// KiB is the unit of payload sizes.
const KiB = 1 << 10

// must ends the run: what is measured here does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// text is arguments, or the like, that are one string of about n bytes: the
// content of a file, say.
func text(n int) json.RawMessage {
	return json.RawMessage(`{"text":"` + strings.Repeat("x", max(0, n-11)) + `"}`)
}

// records is an object of about n bytes that holds many small members.
func records(n int) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"rows":[`)
	for i := 0; b.Len() < n-20; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"name":"row number %d","amount":%d.25,"open":true,"tags":["a","b"]}`, i, i, i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// request is a call as go-sdk hands it to middleware.
func request(arguments json.RawMessage, meta mcp.Meta) *mcp.CallToolRequest {
	return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "act", Arguments: arguments, Meta: meta}}
}

// modernMeta is the _meta that a client of 2026-07-28 sends with each request.
func modernMeta() mcp.Meta {
	return mcp.Meta{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientInfo":      map[string]any{"name": "client", "version": "1.0.0"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{
			"roots": map[string]any{"listChanged": true}, "sampling": map[string]any{}, "elicitation": map[string]any{},
		},
		"progressToken": "7",
	}
}

// A hook says where an interceptor of a case runs.
type hook struct {
	event  string
	phase  core.Phase
	inline bool
}

var onRequest = hook{event: core.EventToolsCall, phase: core.PhaseRequest}

func (h hook) metadata(name string) core.Metadata {
	return core.Metadata{Name: name, Inline: h.inline, Hooks: []core.Hook{{Events: []string{h.event}, Phase: h.phase}}}
}

// validators returns n that allow everything.
func (h hook) validators(n int) []core.Interceptor {
	list := make([]core.Interceptor, n)
	for i := range list {
		list[i] = core.Validator{Metadata: h.metadata(fmt.Sprintf("v%05d", i)), Handler: allow}
	}
	return list
}

// mutators returns n with the handler.
func (h hook) mutators(n int, handler mutator) []core.Interceptor {
	list := make([]core.Interceptor, n)
	for i := range list {
		list[i] = core.Mutator{Metadata: h.metadata(fmt.Sprintf("m%05d", i)), Handler: handler}
	}
	return list
}

type mutator = func(context.Context, *core.Invocation) (*core.MutationResult, error)

func allow(context.Context, *core.Invocation) (*core.ValidationResult, error) {
	return core.Allow(), nil
}

func keep(context.Context, *core.Invocation) (*core.MutationResult, error) {
	return core.Unchanged(), nil
}

// stamp changes one field as most authors would: decode, set, encode.
func stamp(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
	var params map[string]any
	if err := inv.Decode(&params); err != nil {
		return nil, err
	}
	arguments, _ := params["arguments"].(map[string]any)
	arguments["stamp"] = "seen"
	out, err := core.Encode(params)
	return core.Replace(out), err
}

// newChain returns a chain over the interceptors, by direct dispatch.
func newChain(opts *chain.Options, interceptors ...core.Interceptor) *chain.Chain {
	ext := mcpext.New(nil)
	check(ext.AddInterceptor(interceptors...))
	return must(ext.Chain(opts))
}

// phases is a contender that takes a request through the middleware around a
// handler that does nothing, so that the middleware is all that is measured.
func phases(name string, opts *chain.Options, method string, req mcp.Request, res mcp.Result, interceptors ...core.Interceptor) Contender {
	return Contender{name, func() (func(), func()) {
		ch := newChain(opts, interceptors...)
		handle := middleware.Receiving(ch, nil)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return res, nil })
		ctx := context.Background()
		return func() {
			if _, err := handle(ctx, method, req); err != nil {
				panic(err)
			}
		}, func() { _ = ch.Close() }
	}}
}

// calls is phases for tools/call.
func calls(name string, arguments json.RawMessage, interceptors ...core.Interceptor) Contender {
	return phases(name, nil, core.EventToolsCall, request(arguments, nil), answer("x"), interceptors...)
}

func answer(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// plain is a contender without preparation.
func plain(name string, op func()) Contender {
	return Contender{name, func() (func(), func()) { return op, func() {} }}
}

// inMemory is a contender that makes whole calls between a go-sdk client and
// server in memory. A nil list of interceptors means a server without Headgate.
func inMemory(name string, arguments json.RawMessage, interceptors []core.Interceptor) Contender {
	return Contender{name, func() (func(), func()) {
		server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "act", InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return answer("x"), nil })
		end := func() {}
		if interceptors != nil {
			ch := newChain(nil, interceptors...)
			server.AddReceivingMiddleware(middleware.Receiving(ch, nil))
			end = func() { _ = ch.Close() }
		}
		session, hangUp := dial(server, "2026-07-28")
		ctx, params := context.Background(), &mcp.CallToolParams{Name: "act", Arguments: arguments}
		return func() { must(session.CallTool(ctx, params)) }, func() { hangUp(); end() }
	}}
}

// dial connects a client in memory.
func dial(server *mcp.Server, version string) (*mcp.ClientSession, func()) {
	ctx := context.Background()
	ct, st := mcp.NewInMemoryTransports()
	ss := must(server.Connect(ctx, st, nil))
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	check(mcpext.RegisterSendingMethods(client))
	cs := must(client.Connect(ctx, ct, &mcp.ClientSessionOptions{ProtocolVersion: version}))
	return cs, func() { _ = cs.Close(); _ = ss.Wait() }
}
