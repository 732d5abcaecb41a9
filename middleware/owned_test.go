package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nothing that encoders use again is ever seen by a handler: what handlers of
// both phases were given is the same when many other messages have come
// through. With the build tag headgatecheck the scratch is written over at once.
// Seen red with encode not cloning what encoding/json has written and, with the
// tag, with scratch.around returning its own buffer.
func TestScratchIsNeverSeen(t *testing.T) {
	type kept struct{ was, is []byte }
	var mu sync.Mutex
	var all []kept
	keep := func(inv *core.Invocation) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, kept{bytes.Clone(inv.Payload), inv.Payload})
	}
	look := func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		keep(inv)
		return core.Allow(), nil
	}
	change := func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		keep(inv)
		return core.Unchanged(), nil
	}
	validator := ct.Validator("v", look, ct.On(core.PhaseBoth, "*"))
	sets := [][]core.Interceptor{
		{validator}, // are shown the very bytes that the encoder made
		{
			validator, ct.Mutator("m", change, ct.On(core.PhaseBoth, "*")),
			ct.Mutator("n", ct.Keep, ct.On(core.PhaseBoth, "*")), // may be given bytes that are nobody's afterwards
		},
	}
	protecteds := []*protected{protect(t, setup{interceptors: sets[0]}), protect(t, setup{interceptors: sets[1]})}
	result := func(n int) mcp.Result {
		if n%2 == 0 { // by hand, and by encoding/json
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("answer ", n)}}}
		}
		return &mcp.CallToolResult{StructuredContent: map[string]any{"answer": n}}
	}
	var calls sync.WaitGroup
	for worker := range 4 {
		calls.Go(func() {
			for n := range 100 {
				handle := middleware.Receiving(protecteds[n/2%2].chain, nil)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return result(n), nil })
				arguments := json.RawMessage(fmt.Sprintf(`{"worker":%d,"n":%d}`, worker, n))
				if n%3 == 0 {
					arguments = json.RawMessage(fmt.Sprintf(`{"worker": %d, "n": %d}`, worker, n))
				}
				req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "act", Arguments: arguments}}
				_, err := handle(context.Background(), "tools/call", req)
				assert.NoError(t, err)
			}
		})
	}
	calls.Wait()
	require.Len(t, all, 4*50*2*(1+2))
	for _, k := range all {
		require.Equal(t, string(k.was), string(k.is))
		require.True(t, json.Valid(k.is))
	}
}

// What mutators do to the bytes that they are given stays theirs, whether these
// are a copy or the message's own: the handler sees what they answered, and
// nothing of what they write while, or after, they do. Nor do other
// interceptors. Seen red with canonical returning the mutator's own bytes, with
// unchanged comparing bytes that were given away, and with the message's own
// bytes given to a mutator although audit runs follow, or another mutator.
func TestBytesOfMutatorsAreTheirOwn(t *testing.T) {
	scribble := func(payload []byte) {
		for i := range payload {
			payload[i] = '7'
		}
	}
	var kept []byte
	edit := func(payload []byte) []byte { return bytes.Replace(payload, []byte("before"), []byte("behind"), 1) }
	handlers := map[string]struct {
		mutate ct.MutatorFunc
		want   string
	}{
		"leaves alone, and writes": {func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			scribble(inv.Payload)
			return core.Unchanged(), nil
		}, "before"},
		"changes in place": {func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			copy(inv.Payload, edit(inv.Payload))
			return core.Replace(inv.Payload), nil
		}, "behind"},
		"changes, and writes later": {func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			kept = edit(inv.Payload)
			return core.Replace(kept), nil
		}, "behind"},
		"fails open, and writes": {func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			scribble(inv.Payload)
			return nil, fmt.Errorf("x")
		}, "before"},
	}
	look := func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		assert.True(t, json.Valid(inv.Payload) && bytes.HasPrefix(inv.Payload, []byte(`{"name":"act"`)), "%s", inv.Payload)
		return core.Unchanged(), nil
	}
	beside := map[string][]core.Interceptor{
		"alone":               nil,
		"behind a validator":  {ct.Validator("v", ct.Allow, ct.On(core.PhaseRequest, "tools/call"))},
		"before a mutator":    {ct.Mutator("z", look, ct.On(core.PhaseRequest, "tools/call"))},
		"beside an audit one": {ct.Mutator("z", look, ct.Audit, ct.On(core.PhaseRequest, "tools/call"))},
	}
	for name, h := range handlers {
		for place, others := range beside {
			t.Run(name+", "+place, func(t *testing.T) {
				kept = nil
				p := protect(t, setup{interceptors: append([]core.Interceptor{
					ct.Mutator("m", h.mutate, ct.FailOpen, ct.On(core.PhaseRequest, "tools/call")),
				}, others...)})
				handle := middleware.Receiving(p.chain, nil)(func(_ context.Context, _ string, req mcp.Request) (mcp.Result, error) {
					scribble(kept)
					got := req.GetParams().(*mcp.CallToolParamsRaw)
					assert.Equal(t, "act", got.Name)
					assert.JSONEq(t, `{"text":"`+h.want+`"}`, string(got.Arguments))
					return text("x"), nil
				})
				own := json.RawMessage(`{"text":"before"}`)
				req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "act", Arguments: own}}
				_, err := handle(context.Background(), "tools/call", req)
				require.NoError(t, err)
				require.Equal(t, `{"text":"before"}`, string(own))
			})
		}
	}
}
