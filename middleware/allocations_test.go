//go:build !race && !headgatecheck

package middleware_test

import (
	"context"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/require"
)

// Ceilings: allocations do not depend on how busy the machine is. They are
// those of a whole phase, the handlers' own answers among them. doc/PERFORMANCE.md
// says what each is for. The race detector has pools drop what they hold, and
// so has a test that writes over it.
func TestAllocations(t *testing.T) {
	other := []core.Interceptor{ct.Validator("v", ct.Allow, ct.On(core.PhaseBoth, "prompts/get", "resources/*"))}
	tests := map[string]struct {
		interceptors []core.Interceptor
		size         int
		most         float64
	}{
		"no interceptors":                       {nil, 1 << 10, 0},
		"nothing hooked on this event":          {other, 1 << 10, 0},
		"nothing hooked, 1 MiB":                 {other, 1 << 20, 0},
		"one validator on the caller's time":    {validators(1, ct.Inline), 1 << 10, 6},
		"one validator under a deadline":        {validators(1), 1 << 10, 10},
		"each further validator costs three":    {validators(11), 1 << 10, 10 + 10*3},
		"as many for 1 MiB":                     {validators(11), 1 << 20, 10 + 10*3},
		"five mutators that change nothing":     {mutators(5), 1 << 10, 10 + 4*4},
		"one mutator, given the bytes outright": {mutators(1), 1 << 10, 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			handle, req := handler(t, tt.interceptors...), aRequest(t, body(tt.size))
			got := testing.AllocsPerRun(200, func() {
				if _, err := handle(context.Background(), "tools/call", req); err != nil {
					t.Fatal(err)
				}
			})
			t.Logf("%v allocations", got)
			require.LessOrEqual(t, got, tt.most)
		})
	}
}
