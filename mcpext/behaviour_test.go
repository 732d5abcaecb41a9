package mcpext_test

import (
	"context"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBehaviour runs the suite over everything that interceptors can be behind,
// and wants each case to come to the same wherever they are: outcomes, abort
// errors, final payloads.
func TestBehaviour(t *testing.T) {
	kinds := []chaintest.Kind{
		{Name: "direct", New: directRig},
		{Name: "LocalChain", New: localRig},
		{Name: "session in memory " + modern, New: memoryRig(modern)},
		{Name: "session in memory " + legacy, New: memoryRig(legacy)},
		{Name: "stdio " + modern, RealTime: true, New: stdioRig(modern)},
		{Name: "stdio " + legacy, RealTime: true, New: stdioRig(legacy)},
		{Name: "HTTP " + modern, RealTime: true, New: httpRig(startWeb(t, statelessHost), modern)},
		{Name: "HTTP " + legacy, RealTime: true, New: httpRig(startWeb(t, statefulHost), legacy)},
	}
	var busy sync.WaitGroup // at once, since processes mostly sleep
	got := make([]map[string]string, len(kinds))
	for i, k := range kinds {
		busy.Go(func() {
			t.Run(k.Name, func(t *testing.T) { got[i] = chaintest.Run(t, k) })
		})
	}
	busy.Wait()
	want := got[0]
	if want == nil {
		return // left out by a flag
	}
	require.Greater(t, len(want), 150, "cases have names of their own")
	for i, k := range kinds[1:] {
		assert.Equal(t, want, got[i+1], k.Name)
	}
}

// directRig has no encoding and no pipe.
func directRig(t *testing.T, c *chaintest.Case) *chaintest.Rig {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(c.Interceptors...))
	ch, err := ext.Chain(&c.Options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	return &chaintest.Rig{Chain: ch, Add: ext.AddInterceptor, Remove: ext.RemoveInterceptor}
}

// localRig is MCP in memory, by one's own hand.
func localRig(t *testing.T, c *chaintest.Case) *chaintest.Rig {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(c.Interceptors...))
	ch, err := ext.LocalChain(t.Context(), &c.Options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	return &chaintest.Rig{Chain: ch, Add: ext.AddInterceptor, Remove: ext.RemoveInterceptor}
}

// memoryRig is a session over the SDK's own transport in memory.
func memoryRig(version string) func(*testing.T, *chaintest.Case) *chaintest.Rig {
	return func(t *testing.T, c *chaintest.Case) *chaintest.Rig {
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(c.Interceptors...))
		ch := over(t, &c.Options, connect(t, version, ext))
		refresh := func() { assert.NoError(t, ch.Refresh(context.Background())) }
		return &chaintest.Rig{
			Chain:  ch,
			Add:    func(i ...core.Interceptor) error { defer refresh(); return ext.AddInterceptor(i...) },
			Remove: func(name string) bool { defer refresh(); return ext.RemoveInterceptor(name) },
		}
	}
}

// over returns a chain over a session.
func over(t testing.TB, opts *chain.Options, session *mcp.ClientSession) *chain.Chain {
	t.Helper()
	ch, err := chain.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	require.NoError(t, mcpext.AddMCPServer(context.Background(), ch, session))
	return ch
}

// connect serves the extension on a server of its own and returns a client's
// session with it.
func connect(t testing.TB, version string, ext *mcpext.Extension) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	require.NoError(t, ext.Install(server))
	cs, _ := connectTo(t, version, server)
	return cs
}

// connectTo returns both ends of a session with the server.
func connectTo(t testing.TB, version string, server *mcp.Server) (*mcp.ClientSession, *mcp.ServerSession) {
	t.Helper()
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), serverEnd, nil)
	require.NoError(t, err)
	cs := connectOver(t, clientEnd, version)
	t.Cleanup(func() { _ = cs.Close(); _ = ss.Wait() })
	return cs, ss
}

// connectOver returns a client's session over a transport.
func connectOver(t testing.TB, transport mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	cs, err := newClient(t).Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cs.Close() })
	require.Equal(t, version, cs.InitializeResult().ProtocolVersion)
	return cs
}

func newClient(t testing.TB) *mcp.Client {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	require.NoError(t, mcpext.RegisterSendingMethods(client))
	require.NoError(t, mcp.AddSendingCustomMethod[*mcpext.ListParams, *mcpext.ListResult](client, methodAdd))
	require.NoError(t, mcp.AddSendingCustomMethod[*mcpext.ListParams, *mcpext.ListResult](client, methodRemove))
	return client
}
