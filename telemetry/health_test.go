package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/chain/breaker"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// A patient is a host elsewhere whose health is said outright.
type patient struct {
	health chain.HostHealth
	list   []core.Descriptor
}

func (p *patient) List(context.Context) ([]core.Descriptor, error) { return p.list, nil }
func (p *patient) Invoke(context.Context, string, *core.Invocation) (core.Answer, error) {
	return core.Answer{}, errors.New("nobody there")
}
func (p *patient) Close() error            { return nil }
func (p *patient) HeadRoom() time.Duration { return 0 }
func (p *patient) Health() chain.HostHealth {
	return p.health
}

// chainOver returns a chain that a telemetry on the registry watches.
func chainOver(t *testing.T, tel *telemetry.Telemetry, hosts map[string]chain.Host, opts chain.Options) *chain.Chain {
	t.Helper()
	opts.Observer = tel
	ch, err := chain.New(&opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	for name, h := range hosts {
		require.NoError(t, ch.AddHost(context.Background(), name, h))
	}
	return ch
}

// Hosts are shown even while they have nothing, and those of one name as one: it
// is up if all are.
func TestHostMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	tel, err := telemetry.New(&telemetry.Options{Registerer: reg, NoTracing: true})
	require.NoError(t, err)
	defer tel.Close()
	w := &world{registry: reg}
	well := &patient{}
	ill := &patient{health: chain.HostHealth{Err: errors.New("away"), Losses: 3}}
	first := chainOver(t, tel, map[string]chain.Host{"far": well, "near": silent{}}, chain.Options{})
	require.Equal(t, map[string]float64{"far": 1}, w.counts(t, semconv.MetricHostUp), "a host that says nothing is not shown")
	require.Equal(t, map[string]float64{"far": 0}, w.counts(t, semconv.MetricHostLosses))
	second := chainOver(t, tel, map[string]chain.Host{"far": ill}, chain.Options{})
	require.Equal(t, map[string]float64{"far": 0}, w.counts(t, semconv.MetricHostUp))
	require.Equal(t, map[string]float64{"far": 3}, w.counts(t, semconv.MetricHostLosses))
	require.NoError(t, second.Close())
	require.Equal(t, map[string]float64{"far": 1}, w.counts(t, semconv.MetricHostUp))
	for i := range 40 {
		require.NoError(t, first.AddHost(context.Background(), "h"+string(rune('a'+i%26))+string(rune('a'+i/26)), &patient{}))
	}
	for range 2 {
		require.Len(t, w.counts(t, semconv.MetricHostUp), 33, "32 and _OTHER")
	}
	require.NoError(t, first.Close())
	require.Empty(t, w.counts(t, semconv.MetricHostUp))
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// silent is a host of nothing that does not know how it fares.
type silent struct{}

func (silent) List(context.Context) ([]core.Descriptor, error) { return nil, nil }
func (silent) Invoke(context.Context, string, *core.Invocation) (core.Answer, error) {
	return core.Answer{}, nil
}
func (silent) Close() error { return nil }

// A circuit is there from registration on, and what it refuses is counted.
func TestCircuitMetrics(t *testing.T) {
	gate := breaker.New(nil)
	fail := ct.Validator("v", ct.Fail(errors.New("ill")), hook)
	w := newWorld(t, setup{interceptors: []core.Interceptor{fail, ct.Validator("w", ct.Allow, hook)}, chain: chain.Options{Gate: gate}})
	require.Equal(t, map[string]float64{"v": 0, "w": 0}, w.counts(t, semconv.MetricCircuitState))
	other, err := w.ext.Chain(&chain.Options{Observer: w.tel, Gate: gate}) // one breaker: what it says counts once
	require.NoError(t, err)
	defer other.Close()
	session := w.client(t, legacy)
	for range 30 {
		_, err := call(session, "echo")
		require.Error(t, err)
	}
	require.Equal(t, map[string]float64{"v": 2, "w": 0}, w.counts(t, semconv.MetricCircuitState))
	require.Equal(t, map[string]float64{"v": 1, "w": 0}, w.counts(t, semconv.MetricCircuitOpened))
	require.Equal(t, map[string]float64{"v circuit": 10}, w.nonzero(t, semconv.MetricRefused))
	require.Equal(t, map[string]float64{"v request error": 20, "v request overload": 10}, w.nonzero(t, semconv.MetricAborts))
	require.True(t, gate.Reset("v"))
	require.Equal(t, map[string]float64{"v": 0, "w": 0}, w.counts(t, semconv.MetricCircuitState))
	require.Equal(t, map[string]float64{"v": 1, "w": 0}, w.counts(t, semconv.MetricCircuitOpened), "a counter")
	w.ended(t)
}

// Every limit is counted under its own name, and at 0 from registration on.
func TestRefusedMetrics(t *testing.T) {
	block := make(chan struct{})
	waits := func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		<-block
		return core.Allow(), nil
	}
	for limit, s := range map[chain.Limit]setup{
		chain.LimitPayload:     {chain: chain.Options{MaxPayload: 8}},
		chain.LimitConcurrency: {chain: chain.Options{MaxConcurrent: 1}},
		chain.LimitInflight:    {chain: chain.Options{MaxInflight: 1}},
		chain.LimitBudget:      {chain: chain.Options{FailOpenBudget: time.Nanosecond}},
	} {
		t.Run(string(limit), func(t *testing.T) {
			s.interceptors = []core.Interceptor{ct.Validator("v", waits, hook)}
			if limit == chain.LimitBudget {
				s.interceptors = []core.Interceptor{ct.Mutator("a", ct.Keep, hook, ct.FailOpen), ct.Mutator("v", ct.Keep, hook, ct.FailOpen)}
			}
			w := newWorld(t, s)
			zero := w.counts(t, semconv.MetricRefused)
			require.Len(t, zero, len(chain.Limits())*len(s.interceptors))
			session := w.client(t, legacy)
			if limit == chain.LimitConcurrency || limit == chain.LimitInflight {
				done := make(chan error, 1)
				go func() { _, err := call(session, "echo"); done <- err }()
				require.Eventually(t, func() bool { return w.nonzero(t, semconv.MetricInflight)["v"] == 1 }, 10*time.Second, time.Millisecond)
				_, err := call(session, "echo")
				require.Error(t, err)
				block <- struct{}{}
				require.NoError(t, <-done)
			} else {
				_, _ = call(session, "echo")
			}
			require.Equal(t, map[string]float64{"v " + string(limit): 1}, w.nonzero(t, semconv.MetricRefused))
			w.ended(t)
		})
	}
}

// What was abandoned too often is refused under that name.
func TestRefusedAsAbandoned(t *testing.T) {
	block := make(chan struct{})
	w := newWorld(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			<-block
			return core.Allow(), nil
		}, hook)}, chain: chain.Options{InvokeTimeout: time.Millisecond},
	})
	session := w.client(t, legacy)
	for range chain.MaxAbandoned + 5 {
		_, err := call(session, "echo")
		require.Error(t, err)
	}
	require.Equal(t, map[string]float64{"v abandoned": 5}, w.nonzero(t, semconv.MetricRefused))
	close(block)
	w.ended(t)
}
