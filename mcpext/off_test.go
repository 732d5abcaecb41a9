package mcpext_test

import (
	"context"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What an operator turned off in all chains is not listed and not to be had;
// what is off in some is.
func TestOffIsHidden(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(ct.Validator("v", ct.Allow), ct.Validator("w", ct.Allow)))
	first, err := ext.Chain(nil)
	require.NoError(t, err)
	defer first.Close()
	second, err := ext.Chain(nil)
	require.NoError(t, err)
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	require.NoError(t, ext.Install(server))
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	require.NoError(t, mcpext.RegisterSendingMethods(client))
	ce, se := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), se, nil)
	require.NoError(t, err)
	cs, err := client.Connect(context.Background(), ce, nil)
	require.NoError(t, err)
	defer func() { _ = cs.Close(); _ = ss.Wait() }()

	listed := func() int {
		res, err := mcp.CallCustomMethod[*mcpext.ListParams, *mcpext.ListResult](context.Background(), cs, core.MethodList, &mcpext.ListParams{})
		require.NoError(t, err)
		return len(res.Interceptors)
	}
	invoke := func() error {
		_, err := mcp.CallCustomMethod[*mcpext.InvokeParams, *mcpext.InvokeResult](context.Background(), cs, core.MethodInvoke,
			&mcpext.InvokeParams{InvokeRequest: core.InvokeRequest{Name: "v", Invocation: core.Invocation{Event: core.EventToolsCall, Phase: core.PhaseRequest}}})
		return err
	}
	off := map[string]chain.Overrides{"v": {Off: true}}
	assert.Equal(t, 2, listed())
	require.NoError(t, first.SetOverrides(off))
	assert.Equal(t, 2, listed())
	require.NoError(t, invoke())
	require.NoError(t, second.SetOverrides(off))
	assert.Equal(t, 1, listed())
	assert.ErrorContains(t, invoke(), "unknown interceptor")
	require.NoError(t, second.SetOverrides(nil))
	require.NoError(t, invoke())
	require.NoError(t, second.Close())
}
