package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDifferencesOfSessions pins what a session makes different from direct
// dispatch. DESIGN.md lists it; what is not here is the same.
func TestDifferencesOfSessions(t *testing.T) {
	boom := errors.New("boom")
	sees := func(got *core.Invocation) core.Interceptor {
		return ct.Validator("x", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			*got = *inv
			return core.Allow(), nil
		})
	}
	t.Run("space between tokens does not cross", func(t *testing.T) {
		var got core.Invocation
		direct, session := both(t, sees(&got))
		req := call()
		req.Payload = json.RawMessage(`{ "a" : 1 }`)
		_, err := direct.Execute(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, `{ "a" : 1 }`, string(got.Payload))
		res, err := session.Execute(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, `{"a":1}`, string(got.Payload))
		assert.Equal(t, `{ "a" : 1 }`, string(res.FinalPayload), "the message keeps it")
	})
	t.Run("Go types of a request's own config and claims do not cross", func(t *testing.T) {
		var got core.Invocation
		direct, session := both(t, sees(&got))
		req := call()
		req.Config = map[string]map[string]any{"x": {"n": 1}}
		req.Context.Principal = &core.Principal{Claims: map[string]any{"n": 1}}
		for ch, want := range map[*chain.Chain]any{direct: 1, session: 1.0} {
			_, err := ch.Execute(t.Context(), req)
			require.NoError(t, err)
			assert.Equal(t, want, got.Config["n"])
			assert.Equal(t, want, got.Context.Principal.Claims["n"])
		}
	})
	t.Run("an error's identity does not cross", func(t *testing.T) {
		direct, session := both(t, ct.Validator("x", ct.Fail(boom)))
		_, err := direct.Execute(t.Context(), call())
		require.ErrorIs(t, err, boom)
		_, err = session.Execute(t.Context(), call())
		require.NotErrorIs(t, err, boom)
		assert.NotContains(t, err.Error(), "boom")
	})
	t.Run("a policy that is kept does not keep what is removed", func(t *testing.T) {
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(ct.Validator("x", ct.Deny)))
		direct, err := ext.Chain(nil)
		require.NoError(t, err)
		defer func() { assert.NoError(t, direct.Close()) }()
		kept, keptSession := direct.Snapshot(), localChain(t, ext, nil).Snapshot()
		require.True(t, ext.RemoveInterceptor("x"))
		_, err = kept.Execute(t.Context(), call())
		assert.Equal(t, chain.ReasonValidation, abortOf(t, err).Reason)
		_, err = keptSession.Execute(t.Context(), call())
		assert.Equal(t, chain.ReasonError, abortOf(t, err).Reason, "it fails closed")
	})
	t.Run("an invoke is abandoned where it runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(2 * time.Hour) })
			direct, session := both(t, ct.Validator("x", ct.Deaf(time.Hour)))
			for ch, want := range map[*chain.Chain]bool{direct: true, session: false} {
				res, err := ch.Execute(t.Context(), call())
				require.ErrorIs(t, err, chain.ErrTimeout)
				assert.Equal(t, want, res.Results[0].Abandoned)
			}
		})
	})
	t.Run("an inline handler that breaks its promise is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			direct, session := both(t, ct.Validator("x", ct.Deaf(20*time.Second), ct.Inline))
			for ch, want := range map[*chain.Chain]time.Duration{direct: 20 * time.Second, session: 5500 * time.Millisecond} {
				start := time.Now()
				_, _ = ch.Execute(t.Context(), call())
				assert.Equal(t, want, time.Since(start))
			}
		})
	})
}

// both returns a direct chain and one over a session, with one interceptor.
func both(t *testing.T, i core.Interceptor) (direct, session *chain.Chain) {
	t.Helper()
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(i))
	direct, err := ext.Chain(nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, direct.Close()) })
	return direct, localChain(t, ext, nil)
}
