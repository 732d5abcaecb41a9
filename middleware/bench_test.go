package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// body returns arguments of about n bytes.
func body(n int) json.RawMessage {
	return json.RawMessage(`{"text":"` + strings.Repeat("x", n) + `"}`)
}

// aRequest returns a tools/call request of a real session, without _meta.
func aRequest(t testing.TB, arguments json.RawMessage) *mcp.CallToolRequest {
	t.Helper()
	var captured *mcp.CallToolRequest
	p := protect(t, setup{bare: true, server: func(s *mcp.Server) {
		rawTool(s, "act", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			captured = req
			return text("x"), nil
		})
	}})
	_, err := call(t, p.client(t, legacy), "act", arguments)
	require.NoError(t, err)
	captured.Params.Meta = nil
	return captured
}

// handler returns the middleware around a handler that does nothing.
func handler(t testing.TB, interceptors ...core.Interceptor) mcp.MethodHandler {
	t.Helper()
	p := protect(t, setup{interceptors: interceptors})
	res := text("x")
	return middleware.Receiving(p.chain, nil)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return res, nil })
}

func validators(n int, edits ...ct.Edit) []core.Interceptor {
	var list []core.Interceptor
	for i := range n {
		list = append(list, ct.Validator(fmt.Sprint("v", i), ct.Allow, append([]ct.Edit{ct.On(core.PhaseRequest, "tools/call")}, edits...)...))
	}
	return list
}

func mutators(n int) []core.Interceptor {
	var list []core.Interceptor
	for i := range n {
		list = append(list, ct.Mutator(fmt.Sprint("m", i), ct.Keep, ct.On(core.PhaseRequest, "tools/call")))
	}
	return list
}

// BenchmarkPhase is the middleware alone around a handler that does nothing.
func BenchmarkPhase(b *testing.B) {
	sets := map[string][]core.Interceptor{
		"none": nil, "validators=1": validators(1), "validators=5": validators(5), "validators=10": validators(10),
		"validators=1,inline": validators(1, ct.Inline), "validators=10,inline": validators(10, ct.Inline),
		"mutators=1": mutators(1), "mutators=5": mutators(5),
	}
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		for _, name := range []string{"none", "validators=1", "validators=5", "validators=10", "validators=1,inline", "validators=10,inline", "mutators=1", "mutators=5"} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, name), func(b *testing.B) {
				req := aRequest(b, body(size))
				handle := handler(b, sets[name]...)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := handle(context.Background(), "tools/call", req); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkCall is a whole tools/call between a go-sdk client and server in
// memory, bare and protected, in one run.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		setups := []struct {
			name string
			setup
		}{
			{"bare", setup{bare: true}},
			{"none hooked", setup{}},
			{"validators=1", setup{interceptors: validators(1)}},
			{"validators=10", setup{interceptors: validators(10)}},
			{"mutators=5", setup{interceptors: mutators(5)}},
		}
		for _, s := range setups {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, s.name), func(b *testing.B) {
				s.server = func(s *mcp.Server) {
					rawTool(s, "act", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
				}
				cs := protect(b, s.setup).client(b, modern)
				params := &mcp.CallToolParams{Name: "act", Arguments: body(size)}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := cs.CallTool(context.Background(), params); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
