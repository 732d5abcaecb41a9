//go:build headgatecheck

package chain_test

import (
	"context"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Row 41: validators share one buffer and must not write to it. This build
// names the one that does.
func TestWriterIsNamed(t *testing.T) {
	ch := newChain(t, nil, ct.Validator("reads", ct.Allow), ct.Validator("writes", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		inv.Payload[0] = '['
		return core.Allow(), nil
	}))
	_, err := ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrPayloadWritten)
	var abort *chain.AbortError
	require.ErrorAs(t, err, &abort)
	assert.Equal(t, "writes", abort.Interceptor)
}
