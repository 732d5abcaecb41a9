package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// direct returns a chain of the extension.
func direct(t testing.TB, ext *mcpext.Extension, opts *chain.Options) *chain.Chain {
	t.Helper()
	ch, err := ext.Chain(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ch.Close()) })
	return ch
}

func message(phase core.Phase) *chain.Request {
	return &chain.Request{Event: "tools/call", Phase: phase, Direction: core.Receiving, Payload: json.RawMessage(`{}`)}
}

var limits = schema(`{"type":"object","properties":{"max":{"type":"integer"}}}`)

func config(max any) *chain.Options {
	return &chain.Options{Config: map[string]map[string]any{"x": {"max": max}}}
}

func TestChainChecksConfigsWhenItIsMade(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(ct.Validator("x", ct.Allow, limits), named("other")))
	_, err := ext.Chain(config("three"))
	require.ErrorIs(t, err, mcpext.ErrConfig)
	require.ErrorContains(t, err, `"x"`)
	_, err = direct(t, ext, config(3)).Execute(t.Context(), message(core.PhaseRequest))
	require.NoError(t, err)
}

// One that comes late with a configuration that does not fit is present and
// failing: a guard must not be missing for a typing error.
func TestLateInterceptorWithABadConfig(t *testing.T) {
	ran := false
	handler := func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		ran = true
		return core.Allow(), nil
	}
	for name, edits := range map[string][]ct.Edit{"fail closed": {limits}, "fail open": {limits, ct.FailOpen}} {
		t.Run(name, func(t *testing.T) {
			ext := mcpext.New(nil)
			ch := direct(t, ext, config("three"))
			require.NoError(t, ext.AddInterceptor(ct.Validator("x", handler, edits...)))
			require.Len(t, ch.Entries(), 1)
			require.ErrorIs(t, ch.Entries()[0].Health.Err, mcpext.ErrConfig)
			res, err := ch.Execute(t.Context(), message(core.PhaseRequest))
			require.Len(t, res.Results, 1)
			require.ErrorIs(t, res.Results[0].Err, mcpext.ErrConfig)
			assert.Equal(t, name == "fail closed", err != nil)
			assert.False(t, ran)
		})
	}
}

// Row 80: the chain knows which versions the SDK speaks; its user may narrow them.
func TestChainProtocols(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(ct.Validator("new", ct.Deny, compat(core.Compat{MinProtocol: modern}))))
	_, err := ext.Chain(&chain.Options{Protocols: []string{legacy}})
	require.ErrorContains(t, err, `"new"`)
	ch := direct(t, ext, nil)
	req := message(core.PhaseRequest)
	req.Protocol = legacy
	_, err = ch.Execute(t.Context(), req)
	require.NoError(t, err, "skipped for what it does not understand")
	req.Protocol = modern
	_, err = ch.Execute(t.Context(), req)
	require.ErrorIs(t, err, chain.ErrDenied)
	alien := ct.Validator("alien", ct.Allow, compat(core.Compat{MinProtocol: "2999-01-01"})).Describe()
	require.ErrorContains(t, ch.AddHost(t.Context(), "other", &lister{list: []core.Descriptor{alien}}), `"alien"`)
}

// A lister is a host that only lists.
type lister struct {
	chain.Host
	list []core.Descriptor
}

func (l *lister) List(context.Context) ([]core.Descriptor, error) { return l.list, nil }

// Row 73, L10: what is registered later takes effect, in all chains.
func TestChainsFollow(t *testing.T) {
	ext := mcpext.New(nil)
	chains := []*chain.Chain{direct(t, ext, nil), direct(t, ext, nil)}
	verdicts := func() (errs []error) {
		for _, ch := range chains {
			_, err := ch.Execute(t.Context(), message(core.PhaseRequest))
			errs = append(errs, err)
		}
		return errs
	}
	assert.Equal(t, []error{nil, nil}, verdicts())
	require.NoError(t, ext.AddInterceptor(ct.Validator("late", ct.Deny)))
	for _, err := range verdicts() {
		require.ErrorIs(t, err, chain.ErrDenied)
	}
	before := chains[0].Snapshot()
	ext.RemoveInterceptor("late")
	assert.Equal(t, []error{nil, nil}, verdicts())
	_, err := before.Execute(t.Context(), message(core.PhaseResponse))
	require.ErrorIs(t, err, chain.ErrDenied, "a message under way keeps its policy")
}

// The extension outlives its chains, and a closed one hears no more of it.
func TestClosedChainDoesNotFollow(t *testing.T) {
	ext := mcpext.New(nil)
	ch, err := ext.Chain(nil)
	require.NoError(t, err)
	require.NoError(t, ch.Close())
	require.NoError(t, ext.AddInterceptor(named("late")))
	assert.Empty(t, ch.Entries())
	assert.Equal(t, []string{"late"}, names(t, ext))
}

// Row 110: nothing holds on to a chain that was closed.
func TestClosedChainIsForgotten(t *testing.T) {
	ext := mcpext.New(nil)
	gone := make(chan struct{})
	func() {
		ch, err := ext.Chain(nil)
		require.NoError(t, err)
		require.NoError(t, ch.Close())
		runtime.AddCleanup(ch, func(gone chan struct{}) { close(gone) }, gone)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(ext)
}

// L10: a thousand changes while eight clients list, invoke, shake hands and
// run the chain. Each message has one policy for both of its phases.
func TestChangesUnderTraffic(t *testing.T) {
	ext, server := host(t, nil, ct.Mutator("x", ct.Keep))
	ch := direct(t, ext, nil)
	done := make(chan struct{})
	var clients sync.WaitGroup
	for n := range 8 {
		version := []string{modern, legacy}[n%2]
		p := dial(t, server, version)
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					visit(t, p, server, ch)
				}
			}
		})
	}
	for range 1000 {
		assert.NoError(t, ext.AddInterceptor(ct.Validator("toggled", ct.Deny), ct.Mutator("also", ct.Append("m"))))
		assert.True(t, ext.RemoveInterceptor("toggled"))
		assert.True(t, ext.RemoveInterceptor("also"))
	}
	close(done)
	clients.Wait()
	assert.Equal(t, []string{"x"}, names(t, ext))
}

// visit does all that a client can, once.
func visit(t *testing.T, p *peer, server *mcp.Server, ch *chain.Chain) {
	t.Helper()
	list := p.list(`{}`)
	assert.Contains(t, [][]string{{"x"}, {"x", "also"}, {"x", "toggled", "also"}}, list, "one moment's list")
	assert.Contains(t, p.invoke(``), `"modified":false`)
	if p.calls%16 == 0 {
		assert.Contains(t, extensions(t, server, p.version), `"tools/call"`)
	}
	snap := ch.Snapshot()
	request, err := snap.Execute(t.Context(), message(core.PhaseRequest))
	assert.True(t, err == nil || errors.Is(err, chain.ErrDenied), err)
	response, errAfter := snap.Execute(t.Context(), message(core.PhaseResponse))
	assert.Equal(t, err == nil, errAfter == nil)
	assert.Len(t, response.Results, len(request.Results))
}
