package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The suite over the extension itself: no encoding, no pipe.
func TestBehaviourDirect(t *testing.T) {
	chaintest.Run(t, func(t *testing.T, opts *chain.Options, interceptors ...core.Interceptor) *chaintest.Rig {
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(interceptors...))
		ch, err := ext.Chain(opts)
		require.NoError(t, err)
		t.Cleanup(func() { _ = ch.Close() })
		return &chaintest.Rig{Chain: ch, Add: ext.AddInterceptor, Remove: ext.RemoveInterceptor}
	})
}

// The same suite over JSON-RPC, on both eras of the protocol.
func TestBehaviourSession(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			chaintest.Run(t, func(t *testing.T, opts *chain.Options, interceptors ...core.Interceptor) *chaintest.Rig {
				return sessionRig(t, version, opts, interceptors)
			})
		})
	}
}

func sessionRig(t *testing.T, version string, opts *chain.Options, interceptors []core.Interceptor) *chaintest.Rig {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	cs := connect(t, version, ext)
	ch, err := chain.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	require.NoError(t, ch.AddHost(t.Context(), "session", &sessionHost{cs}))
	refresh := func() { assert.NoError(t, ch.Refresh(context.Background())) }
	return &chaintest.Rig{
		Chain:  ch,
		Add:    func(i ...core.Interceptor) error { defer refresh(); return ext.AddInterceptor(i...) },
		Remove: func(name string) bool { defer refresh(); return ext.RemoveInterceptor(name) },
	}
}

// connect serves the extension on a server of its own and returns a client's
// session with it.
func connect(t *testing.T, version string, ext *mcpext.Extension) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	require.NoError(t, ext.Install(server))
	ct, st := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), st, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	require.NoError(t, mcpext.RegisterSendingMethods(client))
	cs, err := client.Connect(t.Context(), ct, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	require.Equal(t, version, cs.InitializeResult().ProtocolVersion)
	t.Cleanup(func() { _ = cs.Close(); _ = ss.Wait() })
	return cs
}

// A sessionHost is the plainest host over a session.
type sessionHost struct{ cs *mcp.ClientSession }

func (h *sessionHost) List(ctx context.Context) ([]core.Descriptor, error) {
	res, err := mcp.CallCustomMethod[*mcpext.ListParams, *mcpext.ListResult](ctx, h.cs, core.MethodList, &mcpext.ListParams{})
	if err != nil {
		return nil, err
	}
	out := make([]core.Descriptor, len(res.Interceptors))
	for i, raw := range res.Interceptors {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (h *sessionHost) Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error) {
	params := &mcpext.InvokeParams{InvokeRequest: core.InvokeRequest{Name: name, Timeout: core.MaxTimeout, Invocation: *inv}}
	res, err := mcp.CallCustomMethod[*mcpext.InvokeParams, *mcpext.InvokeResult](ctx, h.cs, core.MethodInvoke, params)
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code == -32000 {
		return core.Answer{}, fmt.Errorf("%w: %w", chain.ErrTimeout, err)
	}
	if err != nil {
		return core.Answer{}, err
	}
	return res.Answer, nil
}

func (h *sessionHost) Close() error { return nil }

// Row 27: a host whose transport is down is an interceptor that fails.
func TestRow27DeadSession(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(
		chaintest.Validator("closed", chaintest.Allow),
		chaintest.Validator("open", chaintest.Allow, chaintest.FailOpen, chaintest.On(core.PhaseRequest, core.EventToolsList)),
	))
	cs := connect(t, "2026-07-28", ext)
	ch, err := chain.New(nil)
	require.NoError(t, err)
	require.NoError(t, ch.AddHost(t.Context(), "session", &sessionHost{cs}))
	require.NoError(t, cs.Close())
	req := &chain.Request{Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving}
	_, err = ch.Execute(t.Context(), req)
	var abort *chain.AbortError
	require.ErrorAs(t, err, &abort)
	assert.Equal(t, "closed", abort.Interceptor)
	req.Event = core.EventToolsList
	res, err := ch.Execute(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, chain.ActionFailOpen, res.Results[0].Action)
	require.NoError(t, ch.Close())
}
