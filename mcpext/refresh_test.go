package mcpext_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onlyIfAsked are options of a host that does nothing by itself.
func onlyIfAsked() *mcpext.DialOptions {
	return &mcpext.DialOptions{DialTimeout: 10 * time.Second, MinBackoff: time.Hour, MaxBackoff: time.Hour, CheckEvery: -1}
}

// A stage is a host in memory that can go away.
type stage struct {
	away    atomic.Bool
	dials   atomic.Int64
	serving atomic.Pointer[mcp.ServerSession]
	server  *mcp.Server
}

func (s *stage) dial(ctx context.Context) (*mcp.ClientSession, error) {
	s.dials.Add(1)
	if s.away.Load() {
		return nil, errors.New("nobody there")
	}
	ce, se := mcp.NewInMemoryTransports()
	ss, err := s.server.Connect(context.Background(), se, nil)
	if err != nil {
		return nil, err
	}
	s.serving.Store(ss)
	return dialClient(ctx, ce)
}

func healthOf(t *testing.T, ch *chain.Chain) chain.HostHealth {
	t.Helper()
	list := ch.HostStatuses()
	require.Len(t, list, 1)
	require.True(t, list[0].Reports)
	require.True(t, list[0].Remote)
	require.Equal(t, "far", list[0].Name)
	return list[0].Health
}

// Whoever asks need not wait for a check, nor for a host's backoff.
func TestRefreshHost(t *testing.T) {
	ctx := context.Background()
	ext, server := host(t, nil, ct.Validator("first", ct.Allow))
	s := &stage{server: server}
	ch := dialled(t, s.dial, onlyIfAsked())
	require.ErrorIs(t, ch.RefreshHost(ctx, "near"), chain.ErrUnknownHost)

	require.NoError(t, ext.AddInterceptor(ct.Validator("second", ct.Allow)))
	require.Equal(t, []string{"first"}, entryNames(ch))
	require.NoError(t, ch.RefreshHost(ctx, "far"))
	require.Equal(t, []string{"first", "second"}, entryNames(ch), "what it has now")
	require.Equal(t, 2, ch.HostStatuses()[0].Interceptors)
	h := healthOf(t, ch)
	require.NoError(t, h.Err)
	require.Zero(t, h.Losses)
	require.False(t, h.Since.IsZero())

	s.away.Store(true)
	require.NoError(t, s.serving.Load().Close())
	require.Eventually(t, func() bool { return healthOf(t, ch).Err != nil }, 10*time.Second, time.Millisecond)
	h = healthOf(t, ch)
	require.ErrorIs(t, h.Err, mcpext.ErrHostDown)
	require.Equal(t, chain.FaultSession, h.Fault)
	require.EqualValues(t, 1, h.Losses)
	dials := s.dials.Load()
	require.ErrorContains(t, ch.RefreshHost(ctx, "far"), "nobody there", "it was tried")
	require.Equal(t, dials+1, s.dials.Load())
	require.EqualValues(t, 1, healthOf(t, ch).Losses, "it was lost once")
	require.Equal(t, chain.FaultUnreachable, healthOf(t, ch).Fault)

	s.away.Store(false)
	require.NoError(t, ch.RefreshHost(ctx, "far"))
	h = healthOf(t, ch)
	require.NoError(t, h.Err)
	require.Empty(t, h.Fault)
	require.ErrorContains(t, h.Last, "nobody there")
	_, err := ch.Execute(ctx, call())
	require.NoError(t, err)
}

// A refresh that finds the session gone dials at once.
func TestRefreshDialsAgain(t *testing.T) {
	_, server := host(t, nil, ct.Validator("v", ct.Allow))
	s := &stage{server: server}
	ch := dialled(t, s.dial, onlyIfAsked())
	for range 20 {
		require.NoError(t, s.serving.Load().Close())
		require.NoError(t, ch.RefreshHost(context.Background(), "far"))
		_, err := ch.Execute(context.Background(), call())
		require.NoError(t, err)
	}
	assert.EqualValues(t, 21, s.dials.Load())
	assert.EqualValues(t, 20, healthOf(t, ch).Losses)
}

// Many ask at once while a host dials: each is answered, and one dials at a time.
func TestRefreshOneAtATime(t *testing.T) {
	_, server := host(t, nil, ct.Validator("v", ct.Allow))
	s := &stage{server: server}
	var at, most atomic.Int64
	h, err := mcpext.DialHost(context.Background(), func(ctx context.Context) (*mcp.ClientSession, error) {
		n := at.Add(1)
		defer at.Add(-1)
		most.Store(max(most.Load(), n))
		return s.dial(ctx)
	}, onlyIfAsked())
	require.NoError(t, err)
	require.NoError(t, s.serving.Load().Close())
	r := h.(chain.Refresher)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { assert.NoError(t, r.Refresh(context.Background())) })
	}
	wg.Wait()
	assert.EqualValues(t, 1, most.Load())
	assert.EqualValues(t, 2, s.dials.Load())

	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	for range 50 { // either the host is there and answers, or the context is looked at
		if err := r.Refresh(gone); err != nil {
			require.ErrorContains(t, err, "enough")
		}
	}
	require.NoError(t, h.Close())
	require.ErrorIs(t, r.Refresh(context.Background()), mcpext.ErrHostDown, "a host that was closed is not dialled")
	assert.EqualValues(t, 2, s.dials.Load())
}

// A process that is stopped, and takes messages without an answer, is told from
// one that has gone.
func TestHostFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		signal syscall.Signal
		want   chain.HostFault
	}{
		"stopped": {syscall.SIGSTOP, chain.FaultUnresponsive},
		"killed":  {syscall.SIGKILL, chain.FaultSession},
	} {
		t.Run(name, func(t *testing.T) {
			var process atomic.Pointer[exec.Cmd]
			opts := onlyIfAsked()
			opts.DialTimeout, opts.CheckEvery = time.Second, 50*time.Millisecond
			ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				cmd := child(stdioHost, "sometimes")
				process.Store(cmd)
				return dialClient(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: 100 * time.Millisecond})
			}, opts)
			require.NoError(t, process.Load().Process.Signal(tt.signal))
			require.Eventually(t, func() bool { return healthOf(t, ch).Err != nil }, 20*time.Second, 5*time.Millisecond)
			assert.Equal(t, tt.want, healthOf(t, ch).Fault)
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		address, stop := startProcess(t, statelessHost)
		ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
			return dialClient(ctx, &mcp.StreamableClientTransport{Endpoint: "http://" + address + "/sometimes", MaxRetries: -1, DisableStandaloneSSE: true})
		}, onlyIfAsked())
		stop()
		_, err := ch.Execute(context.Background(), call())
		require.Error(t, err)
		require.Eventually(t, func() bool { return healthOf(t, ch).Err != nil }, 20*time.Second, 5*time.Millisecond)
		assert.Equal(t, chain.FaultUnreachable, healthOf(t, ch).Fault)
	})
	t.Run("not an interceptor server", func(t *testing.T) {
		plain := mcp.NewServer(&mcp.Implementation{Name: "plain", Version: "1"}, nil)
		_, server := host(t, nil, ct.Validator("v", ct.Allow))
		s := &stage{server: server}
		ch := dialled(t, s.dial, onlyIfAsked())
		s.server = plain
		require.NoError(t, s.serving.Load().Close())
		require.Error(t, ch.RefreshHost(context.Background(), "far"))
		assert.Equal(t, chain.FaultProtocol, healthOf(t, ch).Fault)
	})
}
