package chain_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Row 17: an audit interceptor that never returns adds no time at all to the
// call, and its record says timeout.
func TestHangingAuditAddsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		l := newLedger("l")
		ch := newChain(t, &chain.Options{Observer: l}, ct.Validator("x", ct.Deaf(time.Hour), ct.Audit))
		start := time.Now()
		res, err := ch.Execute(t.Context(), request())
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
		assert.Zero(t, res.TotalDuration)
		time.Sleep(6 * time.Second)
		assert.Equal(t, []chain.Verdict{chain.VerdictTimeout}, l.verdicts("x"))
		assert.Equal(t, 1, ch.Entries()[0].Health.Abandoned)
	})
}

// Audit runs outlive their request: its end does not cancel them, and its
// values are still there.
func TestAuditOutlivesItsRequest(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var saw any
		done := make(chan struct{})
		ch := newChain(t, nil, ct.Validator("x", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			defer close(done)
			time.Sleep(300 * time.Millisecond)
			saw = ctx.Value(key{})
			return core.Allow(), ctx.Err()
		}, ct.Audit))
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		_, err := ch.Execute(ctx, request())
		require.NoError(t, err)
		cancel()
		<-done
		assert.Equal(t, "kept", saw)
	})
}

// The caller may reuse its buffer at once, though audit still reads.
func TestAuditHasItsOwnCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan string, 1)
		ch := newChain(t, nil, ct.Validator("x", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			time.Sleep(time.Second)
			seen <- string(inv.Payload)
			return core.Allow(), nil
		}, ct.Audit))
		req := request()
		_, err := ch.Execute(t.Context(), req)
		require.NoError(t, err)
		for i := range req.Payload {
			req.Payload[i] = 'x'
		}
		assert.Equal(t, `{"name":"echo"}`, <-seen)
	})
}

// What an audit interceptor sees is what an active one in its place would.
func TestAuditSeesItsPlace(t *testing.T) {
	for dir, want := range map[core.Direction]string{
		core.Receiving: `{}`, core.Sending: `{"log":["m"]}`,
	} {
		seen := make(chan string, 1)
		ch := newChain(t, nil, ct.Mutator("m", ct.Append("m")), ct.Validator("x", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			seen <- string(inv.Payload)
			return core.Allow(), nil
		}, ct.Audit))
		req := request()
		req.Payload, req.Direction = []byte(`{}`), dir
		_, err := ch.Execute(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, want, <-seen)
	}
}

func TestAuditQueueDropsAndCounts(t *testing.T) {
	tests := map[string]chain.Options{
		"entries": {AuditQueue: 3},
		"bytes":   {AuditBytes: 3 * len(`{"name":"echo"}`)},
	}
	for name, opts := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger("l")
				opts.Observer = l
				release := make(chan struct{})
				var ran atomic.Int64
				ch := newChain(t, &opts,
					ct.Validator("slow", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
						<-release
						ran.Add(1)
						return core.Allow(), nil
					}, ct.Audit),
					ct.Validator("quick", ct.Allow, ct.Audit))
				const messages = 20
				for range messages {
					_, err := ch.Execute(t.Context(), request())
					require.NoError(t, err)
					synctest.Wait()
				}
				health := ch.Entries()[0].Health
				assert.Equal(t, 3, health.AuditQueued)
				assert.EqualValues(t, messages-4-3, health.AuditDropped, "four run at once and three wait")
				assert.Zero(t, ch.Entries()[1].Health.AuditDropped, "one that hangs starves nobody else")
				close(release)
				synctest.Wait()
				assert.EqualValues(t, 7, ran.Load())
				l.balanced(t)
				assert.Len(t, l.verdicts("slow"), messages, "each hand-over has its record")
				assert.Len(t, l.verdicts("quick"), messages)
			})
		})
	}
}

func TestCloseDrainsAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		finished := 0
		ch := newChain(t, nil, ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			finished++
			return core.Allow(), nil
		}, ct.Audit))
		for range 12 {
			_, err := ch.Execute(t.Context(), request())
			require.NoError(t, err)
		}
		require.NoError(t, ch.Close())
		assert.Equal(t, 12, finished)
	})
}

func TestCloseEndsAuditThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		l := newLedger("l")
		ch := newChain(t, &chain.Options{AuditTimeout: time.Minute, Observer: l}, ct.Validator("x", ct.Deaf(time.Hour), ct.Audit))
		for range 10 {
			_, err := ch.Execute(t.Context(), request())
			require.NoError(t, err)
		}
		start := time.Now()
		require.ErrorContains(t, ch.Close(), "10 audit runs")
		assert.Equal(t, time.Second, time.Since(start))
		l.balanced(t)
		assert.Len(t, l.verdicts("x"), 10)
	})
}

// A limiter that looks at the mode spends no quota in audit.
func TestSideEffectsCanBeHeldBackInAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		left := 2
		ch := newChain(t, nil, ct.Validator("limiter", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if left == 0 {
				return core.Deny("over the limit"), nil
			}
			if inv.Mode == core.ModeActive {
				left--
			}
			return core.Allow(), nil
		}, ct.Audit))
		for range 5 {
			_, err := ch.Execute(t.Context(), request())
			require.NoError(t, err)
		}
		synctest.Wait()
		require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"limiter": {Mode: core.ModeActive}}))
		for i := range 3 {
			_, err := ch.Execute(t.Context(), request())
			require.Equal(t, i == 2, err != nil)
		}
	})
}
