package mcpext

import (
	"context"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// TappedLocalChain is [Extension.LocalChain] with the tap shown each message.
func (e *Extension) TappedLocalChain(ctx context.Context, opts *chain.Options, tap func(jsonrpc.Message)) (*chain.Chain, error) {
	return e.localChain(ctx, opts, tap)
}
