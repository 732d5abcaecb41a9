package middleware_test

//lint:file-ignore SA1019 Logging: It is deprecated and still has to be judged.

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newChain(t *testing.T, interceptors ...core.Interceptor) *chain.Chain {
	t.Helper()
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	ch, err := ext.Chain(nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	return ch
}

// pair connects a client and a server.
func pair(t *testing.T, client *mcp.Client, server *mcp.Server, version string) *mcp.ClientSession {
	t.Helper()
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), serverEnd, nil)
	require.NoError(t, err)
	cs, err := client.Connect(context.Background(), clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cs.Close(); _ = ss.Wait() })
	return cs
}

// The cross-boundary cycle of the SEP: four stages, each with its own order.
func TestCrossBoundaryCycle(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			var mu sync.Mutex
			var order []string
			step := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what)
			}
			side := func(name string) *chain.Chain {
				return newChain(t,
					ct.Validator(name+" validates", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
						step(name + " validates " + string(inv.Phase))
						return core.Allow(), nil
					}),
					ct.Mutator(name+" mutates", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
						step(name + " mutates " + string(inv.Phase))
						return core.Unchanged(), nil
					}))
			}
			server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
			rawTool(server, "act", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				step("tool")
				return text("x"), nil
			})
			client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
			middleware.Server(server, side("server"), nil)
			middleware.Client(client, side("client"), nil)
			_, err := call(t, pair(t, client, server, version), "act", nil)
			require.NoError(t, err)
			assert.Equal(t, []string{
				"client mutates request", "client validates request",
				"server validates request", "server mutates request",
				"tool",
				"server mutates response", "server validates response",
				"client validates response", "client mutates response",
			}, order)
		})
	}
}

// What a client sends is judged before it leaves, what it gets before it is
// handed on.
func TestClientIsProtected(t *testing.T) {
	const word = "secret-word"
	got := ""
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	rawTool(server, "echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		got = string(req.Params.Arguments)
		return text("reply " + word), nil
	})
	for _, version := range []string{legacy, modern} {
		connect := func(interceptors ...core.Interceptor) *mcp.ClientSession {
			client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
			middleware.Client(client, newChain(t, interceptors...), nil)
			got = ""
			return pair(t, client, server, version)
		}
		args := map[string]any{"n": 9007199254740993, "s": word}

		reply, err := call(t, connect(replacing("out", core.PhaseRequest, core.EventToolsCall, word, "***"), replacing("in", core.PhaseResponse, core.EventToolsCall, word, "+++")), "echo", args)
		require.NoError(t, err)
		assert.Equal(t, `{"n":9007199254740993,"s":"***"}`, got)
		assert.Equal(t, "reply +++", reply)

		_, err = call(t, connect(ct.Validator("guard", ct.Deny, ct.On(core.PhaseRequest, core.EventToolsCall))), "echo", args)
		assert.Contains(t, string(wireError(t, err, -32602).Data), "guard")
		assert.Empty(t, got, "a request that is denied is not sent")

		_, err = call(t, connect(ct.Validator("guard", ct.Deny, ct.On(core.PhaseResponse, core.EventToolsCall))), "echo", args)
		wireError(t, err, -32602)
		assert.NotEmpty(t, got)

		cs := connect(ct.Mutator("m", ct.Set(`{"cursor":"x"}`), ct.On(core.PhaseRequest, core.EventToolsList)), ct.Validator("v", ct.Allow, ct.On(core.PhaseBoth, "*", "ping")))
		_, err = cs.ListTools(t.Context(), nil)
		require.Error(t, err, "params that a client left out cannot always be made up")
	}
}

// B12: progress and log messages pass the gate too, and in order.
func TestServersNotifications(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	rawTool(server, "leak", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			assert.NoError(t, req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: float64(i), Message: "token=abc123"}))
		}
		assert.NoError(t, req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "token=abc123"}))
		return text("token=abc123"), nil
	})
	mask := func(event string, phase core.Phase) core.Interceptor {
		return replacing("mask "+event, phase, event, "abc123", "***")
	}
	middleware.Server(server, newChain(t,
		mask("notifications/progress", core.PhaseRequest), mask("notifications/message", core.PhaseRequest), mask(core.EventToolsCall, core.PhaseResponse),
		ct.Validator("drop", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			if strings.Contains(string(inv.Payload), `"progress":1`) {
				return core.Deny("no"), nil
			}
			return core.Allow(), nil
		}, ct.On(core.PhaseRequest, "notifications/progress")),
	), nil)
	seen := make(chan string, 16)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { seen <- req.Params.Message },
		LoggingMessageHandler:       func(_ context.Context, req *mcp.LoggingMessageRequest) { seen <- req.Params.Data.(string) },
	})
	cs := pair(t, client, server, legacy)
	require.NoError(t, cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}))
	got, err := call(t, cs, "leak", nil)
	require.NoError(t, err)
	assert.Equal(t, "token=***", got)
	for range 3 {
		assert.Equal(t, "token=***", <-seen, "two progress messages and the log message")
	}
	assert.Empty(t, seen, "the one that was denied is dropped")
}

// The client's own notifications, and those that it receives.
func TestClientsNotifications(t *testing.T) {
	progressed := make(chan float64, 4)
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, &mcp.ServerOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationServerRequest) { progressed <- req.Params.Progress },
	})
	rawTool(server, "log", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("x"), req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "token=abc123"})
	})
	logged := make(chan string, 4)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) { logged <- req.Params.Data.(string) },
	})
	middleware.Client(client, newChain(t,
		replacing("out", core.PhaseRequest, "notifications/progress", `"progress":1`, `"progress":2`),
		replacing("in", core.PhaseRequest, "notifications/message", "abc123", "***"),
	), nil)
	cs := pair(t, client, server, legacy)
	require.NoError(t, cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}))
	require.NoError(t, cs.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: 1}))
	assert.EqualValues(t, 2, <-progressed)
	_, err := call(t, cs, "log", nil)
	require.NoError(t, err)
	assert.Equal(t, "token=***", <-logged)
}
