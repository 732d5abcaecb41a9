package chain_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/require"
)

// A stuck host hangs when it is asked to look again, until it is told to go on.
type stuck struct {
	goOn      chan struct{}
	refreshed int
}

func (*stuck) List(context.Context) ([]core.Descriptor, error) { return nil, nil }
func (*stuck) Invoke(context.Context, string, *core.Invocation) (core.Answer, error) {
	return core.Answer{}, errors.New("stuck")
}
func (*stuck) Close() error { return nil }
func (h *stuck) Refresh(ctx context.Context) error {
	select {
	case <-h.goOn:
		h.refreshed++
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A host that hangs keeps nobody from refreshing another, and from itself no
// longer than whoever asks has time.
func TestRefreshOfAStuckHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch, err := chain.New(nil)
		require.NoError(t, err)
		defer ch.Close()
		bad, good := &stuck{goOn: make(chan struct{})}, &stuck{goOn: make(chan struct{})}
		close(good.goOn)
		ctx := context.Background()
		require.NoError(t, ch.AddHost(ctx, "bad", bad))
		require.NoError(t, ch.AddHost(ctx, "good", good))
		hung := make(chan error, 1)
		go func() { hung <- ch.RefreshHost(ctx, "bad") }()
		synctest.Wait()
		require.NoError(t, ch.RefreshHost(ctx, "good"))
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, ch.RefreshHost(short, "bad"), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, ch.Refresh(short), context.DeadlineExceeded, "all of them")
		require.Equal(t, []string{"bad", "good"}, ch.Hosts(), "both are there, whatever comes of it")
		bad.goOn <- struct{}{}
		require.NoError(t, <-hung)
		require.Equal(t, 1, bad.refreshed)
		require.ErrorIs(t, ch.RefreshHost(ctx, "nobody"), chain.ErrUnknownHost)
		require.NoError(t, ch.Close())
		require.ErrorIs(t, ch.RefreshHost(ctx, "good"), chain.ErrClosed)
		statuses := ch.HostStatuses()
		require.Equal(t, []string{"bad", "good"}, []string{statuses[0].Name, statuses[1].Name})
		require.False(t, statuses[0].Reports)
	})
}
