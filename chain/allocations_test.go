//go:build !race && !headgatecheck

package chain_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/require"
)

// bound is a host in this process.
type bound []core.Interceptor

func (b bound) List(context.Context) ([]core.Descriptor, error) { return nil, nil }

func (b bound) Invoke(context.Context, string, *core.Invocation) (core.Answer, error) {
	return core.Answer{}, nil
}

func (b bound) Close() error            { return nil }
func (b bound) Watch(func()) (f func()) { return func() {} }

func (b bound) Bindings() []chain.Binding {
	var out []chain.Binding
	for _, i := range b {
		out = append(out, chain.Binding{Descriptor: i.Describe(), Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
			return core.Call(ctx, i, inv)
		}})
	}
	return out
}

// Ceilings of the chain alone, the handlers' own answers among them: the
// execution; for a deadline a channel, a timer (two) and a goroutine; and an
// answer and a goroutine for each further validator.
func TestAllocations(t *testing.T) {
	tests := map[string]struct {
		validators int
		edits      []ct.Edit
		most       float64
	}{
		"nothing hooked":           {0, nil, 1}, // the result
		"one on the caller's time": {1, []ct.Edit{ct.Inline}, 3},
		"one under a deadline":     {1, nil, 7},
		"eleven":                   {11, nil, 7 + 10*3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var list []core.Interceptor
			for i := range tt.validators {
				list = append(list, ct.Validator(fmt.Sprint("v", i), ct.Allow, tt.edits...))
			}
			ch, err := chain.New(nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = ch.Close() })
			require.NoError(t, ch.AddHost(context.Background(), "bound", bound(list)))
			req := &chain.Request{
				Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving,
				Payload: []byte(`{"name":"act"}`), Disposable: true, MessageID: "id",
			}
			got := testing.AllocsPerRun(200, func() {
				if _, err := ch.Execute(context.Background(), req); err != nil {
					t.Fatal(err)
				}
			})
			t.Logf("%v allocations", got)
			require.LessOrEqual(t, got, tt.most)
		})
	}
}
