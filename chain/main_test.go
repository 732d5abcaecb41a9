package chain_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeHost is a host of plain interceptors, listed once and invoked by name,
// as a remote one is.
type fakeHost struct {
	mu      sync.Mutex
	list    []core.Interceptor
	listErr error
	closed  int
}

func (h *fakeHost) set(list ...core.Interceptor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = list
}

func (h *fakeHost) List(context.Context) ([]core.Descriptor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []core.Descriptor
	for _, i := range h.list {
		out = append(out, i.Describe())
	}
	return out, h.listErr
}

func (h *fakeHost) Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error) {
	h.mu.Lock()
	list := h.list
	h.mu.Unlock()
	for _, i := range list {
		if i.Describe().Name == name {
			return core.Call(ctx, i, inv)
		}
	}
	return core.Answer{}, fmt.Errorf("%q is gone", name)
}

func (h *fakeHost) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed++
	return nil
}

// newChain returns a chain over one fake host.
func newChain(t testing.TB, opts *chain.Options, list ...core.Interceptor) *chain.Chain {
	t.Helper()
	ch, err := chain.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	require.NoError(t, ch.AddHost(context.Background(), "fake", &fakeHost{list: list}))
	return ch
}

func request() *chain.Request {
	return &chain.Request{
		Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving,
		Payload: []byte(`{"name":"echo"}`),
	}
}
