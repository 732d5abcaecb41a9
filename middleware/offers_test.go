package middleware_test

import (
	"context"
	"errors"
	"fmt"
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

// offered calls each target in turn and returns which of them were known to be
// on offer when the message began and when it ended.
func offered(t *testing.T, list bool, targets ...string) (begin, end map[string]bool) {
	t.Helper()
	begin, end = map[string]bool{}, map[string]bool{}
	p := protect(t, setup{
		chain: chain.Options{Observer: endObserver{
			onStart: func(_ context.Context, m *chain.Message) { begin[m.Target] = m.Offered },
			onEnd:   func(e *chain.MessageEnd) { end[e.Message.Target] = e.Message.Offered },
		}},
		interceptors: []core.Interceptor{ct.Validator("guard", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			if strings.Contains(string(inv.Payload), "denied") {
				return core.Deny("no"), nil
			}
			return core.Allow(), nil
		})},
		server: func(s *mcp.Server) {
			echo(s)
			rawTool(s, "denied", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
			rawTool(s, "fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, errors.New("no") })
		},
	})
	cs := p.client(t, modern)
	if list {
		_, err := cs.ListTools(context.Background(), nil)
		require.NoError(t, err)
	}
	for _, target := range targets {
		_, _ = cs.CallTool(context.Background(), &mcp.CallToolParams{Name: target})
	}
	return begin, end
}

// A tool is known to be there once it was listed, or once a call succeeded;
// whatever else a client names is not.
func TestOffers(t *testing.T) {
	begin, end := offered(t, false, "echo", "denied", "nonsense", "")
	assert.False(t, begin["echo"])
	assert.True(t, end["echo"], "its success shows it")
	for _, name := range []string{"denied", "nonsense", ""} {
		assert.False(t, end[name], name)
	}
	begin, _ = offered(t, true, "echo", "denied", "fails", "nonsense")
	for name, want := range map[string]bool{"echo": true, "denied": true, "fails": true, "nonsense": false} {
		assert.Equal(t, want, begin[name], name)
	}
}

// What the embedder names is known before anybody asks.
func TestOffersThatAreNamed(t *testing.T) {
	known := false
	p := protect(t, setup{
		options: middleware.Options{Tools: []string{"guarded"}},
		chain: chain.Options{Observer: endObserver{onStart: func(_ context.Context, m *chain.Message) {
			known = known || m.Target == "guarded" && m.Offered
		}}},
	})
	_, _ = p.client(t, modern).CallTool(context.Background(), &mcp.CallToolParams{Name: "guarded"})
	assert.True(t, known)
}

// Behind a proxy that answers any call the names are a client's: only so many
// are remembered, and none that is long.
func TestOffersAreBounded(t *testing.T) {
	known := 0
	p := protect(t, setup{chain: chain.Options{Observer: endObserver{onEnd: func(e *chain.MessageEnd) {
		if e.Message.Offered {
			known++
		}
	}}}})
	handle := middleware.Receiving(p.chain, nil)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return text("x"), nil })
	for i := range 3000 {
		_, err := handle(context.Background(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: fmt.Sprint(i)}})
		require.NoError(t, err)
	}
	_, err := handle(context.Background(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: strings.Repeat("x", 129)}})
	require.NoError(t, err)
	assert.Equal(t, 1024, known)
}

// What an outer middleware sets for one message is seen, whatever else the
// context of a session holds is not.
func TestValuesOfOneMessage(t *testing.T) {
	type stale struct{}
	const own = chain.MessageKey("own")
	var mine, others any
	p := protect(t, setup{chain: chain.Options{Observer: endObserver{onStart: func(ctx context.Context, m *chain.Message) {
		if m.Method == core.EventToolsCall {
			mine, others = ctx.Value(own), ctx.Value(stale{})
		}
	}}}, server: echo})
	p.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			return next(context.WithValue(context.WithValue(ctx, own, 1), stale{}, 1), method, req)
		}
	})
	_, err := call(t, p.client(t, legacy), "echo", map[string]any{})
	require.NoError(t, err)
	assert.Equal(t, 1, mine)
	assert.Nil(t, others)
}
