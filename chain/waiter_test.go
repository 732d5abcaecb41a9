package chain_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/require"
)

// One timer serves all that a phase waits for: handlers with deadlines of
// different lengths are each given up at their own, whether they run at once or
// one after another. Seen red with a timer that is not set again once it fired,
// and with one that is set to the latest deadline.
func TestDeadlinesOfDifferentLengths(t *testing.T) {
	deafMutator := func(context.Context, *core.Invocation) (*core.MutationResult, error) {
		time.Sleep(time.Hour)
		return core.Unchanged(), nil
	}
	deaf := ct.Deaf(time.Hour)
	sets := map[string]struct {
		list []core.Interceptor
		took time.Duration
	}{
		"at once":           {[]core.Interceptor{ct.Validator("a", deaf), ct.Validator("b", deaf), ct.Validator("c", ct.Allow)}, 3 * time.Second},
		"one after another": {[]core.Interceptor{ct.Mutator("a", deafMutator, ct.FailOpen), ct.Mutator("b", deafMutator, ct.FailOpen)}, 4 * time.Second},
	}
	for name, tt := range sets {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ch := newChain(t, nil, tt.list...)
				require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"a": {Timeout: time.Second}, "b": {Timeout: 3 * time.Second}}))
				start := time.Now()
				res, _ := ch.Execute(t.Context(), request())
				require.Equal(t, tt.took, time.Since(start))
				require.Equal(t, time.Second, res.Results[0].Duration)
				require.Equal(t, 3*time.Second, res.Results[1].Duration)
				time.Sleep(time.Hour) // until the last has ended
			})
		})
	}
}
