package mcpext_test

import (
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/require"
)

// The suite over MCP in memory.
func TestBehaviourLocalChain(t *testing.T) {
	chaintest.Run(t, func(t *testing.T, opts *chain.Options, interceptors ...core.Interceptor) *chaintest.Rig {
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(interceptors...))
		ch, err := ext.LocalChain(t.Context(), opts)
		require.NoError(t, err)
		t.Cleanup(func() { _ = ch.Close() })
		return &chaintest.Rig{Chain: ch, Add: ext.AddInterceptor, Remove: ext.RemoveInterceptor}
	})
}
