package proof_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
)

// slowValidator takes a while for each message of an event.
func slowValidator(name, event string, takes time.Duration) core.Validator {
	return core.Validator{
		Metadata: core.Metadata{Name: name, Hooks: []core.Hook{{Events: []string{event}, Phase: core.PhaseRequest}}},
		Handler: func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			time.Sleep(takes)
			return core.Allow(), nil
		},
	}
}

// newGuarded puts interceptors in front of the subject, and connects a client.
func newGuarded(t testing.TB, opts *chain.Options, interceptors ...core.Interceptor) (*mcp.ClientSession, *stand) {
	s := &stand{t: t, registry: prometheus.NewRegistry(), stopped: map[int64]int{}}
	tel, err := telemetry.New(&telemetry.Options{Registerer: s.registry, TracerProvider: noop.NewTracerProvider()})
	require.NoError(t, err)
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	opts.Observer = tel
	s.chain, err = ext.Chain(opts)
	require.NoError(t, err)
	server := newSubject()
	server.AddReceivingMiddleware(middleware.Receiving(s.chain, nil))
	ce, se := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), se, nil)
	require.NoError(t, err)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(context.Background(), ce, nil)
	require.NoError(t, err)
	s.closers = append(s.closers, func() { _ = s.chain.Close() }, func() { _, _ = cs.Close(), ss.Wait() })
	return cs, s
}

// newHandler puts interceptors in front of a handler that does nothing. What a
// session can take is not the question here.
func newHandler(t testing.TB, opts *chain.Options, interceptors ...core.Interceptor) (call func() error, s *stand) {
	_, s = newGuarded(t, opts, interceptors...)
	session := &mcp.ServerSession{}
	handle := middleware.Receiving(s.chain, nil)(func(context.Context, string, mcp.Request) (mcp.Result, error) { return textResult("done"), nil })
	return func() error {
		_, err := handle(context.Background(), core.EventToolsCall, &mcp.CallToolRequest{Session: session, Params: &mcp.CallToolParamsRaw{Name: "empty"}})
		return err
	}, s
}

// Ten thousand requests at once against an interceptor that takes a second: as many
// run as may, the rest are refused at once and counted, memory and goroutines
// stay within bounds, and all is well again a second later.
func TestOverload(t *testing.T) {
	const requests, places = 10_000, 512
	send, s := newHandler(t, &chain.Options{MaxConcurrent: places}, slowValidator("slow", core.EventToolsCall, time.Second))
	defer s.close()
	idle, heap := runtime.NumGoroutine(), heapInUse()
	var passed, refused, other atomic.Int64
	call := func() {
		err := send()
		var wire *jsonrpc.Error
		switch {
		case err == nil:
			passed.Add(1)
		case errors.As(err, &wire) && wire.Code == -32603:
			refused.Add(1)
		default:
			other.Add(1)
		}
	}
	start := time.Now()
	var all sync.WaitGroup
	var under atomic.Int64
	for range requests {
		under.Add(1)
		all.Go(func() {
			call()
			under.Add(-1)
		})
	}
	time.Sleep(300 * time.Millisecond)
	waiting, running, high := int(under.Load()), runtime.NumGoroutine(), heapInUse()
	all.Wait()
	took := time.Since(start)
	t.Logf("in the middle of it: %d requests wait, %d goroutines, heap %d KiB", waiting, running, high>>10)
	require.LessOrEqual(t, running, idle+waiting+3*places, "who waits, and what runs for them")
	require.Less(t, high, heap+64<<20)
	t.Logf("%d requests in %v: %d passed, %d refused; heap %d KiB before, %d KiB after", requests, took.Round(time.Millisecond), passed.Load(), refused.Load(), heap>>10, heapInUse()>>10)
	require.Zero(t, other.Load())
	require.GreaterOrEqual(t, passed.Load(), int64(places))
	require.EqualValues(t, requests, passed.Load()+refused.Load())
	require.LessOrEqual(t, passed.Load(), places*(1+int64(took/time.Second)), "no more at once than may")
	require.EqualValues(t, refused.Load(), s.count(semconv.MetricAborts, semconv.LabelReason, string(chain.ReasonOverload)))

	back := time.Now()
	call()
	require.EqualValues(t, requests+1, passed.Load()+refused.Load())
	require.Zero(t, other.Load())
	require.Less(t, time.Since(back), 2*time.Second, "it takes what the interceptor takes, and no more")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= idle+8 }, 5*time.Second, 10*time.Millisecond)
	require.Less(t, heapInUse(), heap+32<<20)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// While ten thousand wait for a slow interceptor no more goroutines run in the
// chain than its limit allows, in the exact time of a test's own clock.
func TestOverloadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(
			slowValidator("a", core.EventToolsCall, time.Second), slowValidator("b", core.EventToolsCall, time.Second),
			slowValidator("quick", core.EventResourcesRead, 0)))
		ch, err := ext.Chain(&chain.Options{MaxConcurrent: 100, MaxInflight: 150})
		require.NoError(t, err)
		defer ch.Close()
		idle := runtime.NumGoroutine()
		execute := func(event string) error {
			_, err := ch.Execute(context.Background(), &chain.Request{Event: event, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: json.RawMessage(`{}`)})
			return err
		}
		var refused atomic.Int64
		var all sync.WaitGroup
		for range 10_000 {
			all.Go(func() {
				if execute(core.EventToolsCall) != nil {
					refused.Add(1)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		waiting := 10_000 - int(refused.Load())
		require.LessOrEqual(t, runtime.NumGoroutine()-idle, waiting+150+10, "those who wait, what runs for them, and a few of the test binary itself")
		require.LessOrEqual(t, waiting, 150)
		start := time.Now()
		for range 25 { // half a second of fifty in a second
			_ = execute(core.EventResourcesRead) // MaxInflight is all taken: refused at once, or passed at once
			time.Sleep(20 * time.Millisecond)
		}
		require.Equal(t, 25*20*time.Millisecond, time.Since(start), "nobody waits for a neighbour")
		all.Wait()
		require.NoError(t, execute(core.EventResourcesRead))
		require.NoError(t, execute(core.EventToolsCall), "it has recovered")
	})
}

// P06: an interceptor that hangs on its messages, fifty in a second, takes nothing
// from one on others.
func TestSlowInterceptorStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := core.Validator{
			Metadata: core.Metadata{Name: "hang", Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}}},
			Handler: func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
				time.Sleep(time.Minute) // whatever its context says
				return core.Allow(), nil
			},
		}
		cs, s := newGuarded(t, &chain.Options{}, hang, slowValidator("other", core.EventResourcesRead, 0))
		defer s.close()
		var all sync.WaitGroup
		for range 500 { // ten seconds
			all.Go(func() {
				_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "empty"})
				require.Error(t, err)
			})
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			_, err := cs.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "a://1"})
			require.NoError(t, err)
			require.Zero(t, time.Since(start))
		}
		all.Wait()
		time.Sleep(2 * time.Minute) // until the last has come back
	})
}

// P01: callers with payloads of megabytes do not hold up small ones.
func TestLargePayloadsDoNotHoldUpSmallOnes(t *testing.T) {
	large := json.RawMessage(`{"name":"echo","arguments":{"text":"` + strings.Repeat("x", 4<<20) + `"}}`)
	small := json.RawMessage(`{"name":"echo","arguments":{"text":"x"}}`)
	reads := core.Validator{
		Metadata: core.Metadata{Name: "reads", Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}}},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			return core.Allow(), readBytes(inv.Payload)
		},
	}
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(reads))
	ch, err := ext.Chain(nil)
	require.NoError(t, err)
	defer ch.Close()
	with := func(payload json.RawMessage) {
		_, err := ch.Execute(context.Background(), &chain.Request{Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: payload})
		require.NoError(t, err)
	}
	without := func(payload json.RawMessage) { require.NoError(t, readBytes(payload)) }
	bare, guarded := smallBesideLarge(without, large, small), smallBesideLarge(with, large, small)
	t.Logf("quantile 0.9 of small messages beside large ones: %v without, %v with", bare, guarded)
	require.Less(t, guarded, bare+50*time.Millisecond)
}

func readBytes(payload []byte) error {
	if bytes.Contains(payload, []byte(forbidden)) {
		return errors.New(forbidden)
	}
	return nil
}

// smallBesideLarge returns the upper quantile of what small ones take.
func smallBesideLarge(run func(json.RawMessage), large, small json.RawMessage) time.Duration {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					run(large)
				}
			}
		})
	}
	var took []time.Duration
	for range 200 {
		start := time.Now()
		run(small)
		took = append(took, time.Since(start))
	}
	close(stop)
	all.Wait()
	slices.Sort(took)
	return took[len(took)*9/10]
}

// P04: small JSON of an awkward shape costs bounded time, or is refused, and the
// chain's own work on it does not recurse.
func TestPathologicalJSON(t *testing.T) {
	shapes := map[string]string{
		"997 levels":         strings.Repeat("[", 997) + strings.Repeat("]", 997),
		"10,000 levels":      strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		"100,000 elements":   "[" + strings.Repeat("0,", 99_999) + "0]",
		"50,000 keys":        manyKeys(50_000),
		"1 MiB of backslash": `"` + strings.Repeat(`\\`, 1<<19) + `"`,
	}
	reads := core.Mutator{
		Metadata: core.Metadata{Name: "reads", Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}}},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			var v map[string]any
			if err := inv.Decode(&v); err != nil {
				return nil, err
			}
			v["seen"] = true
			payload, err := core.Encode(v)
			return core.Replace(payload), err
		},
	}
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(reads))
	ch, err := ext.Chain(nil)
	require.NoError(t, err)
	defer ch.Close()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := ch.Execute(context.Background(), &chain.Request{
				Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: json.RawMessage(`{"name":"echo","arguments":{"v":` + shape + `}}`),
			})
			t.Logf("%v, %v", time.Since(start).Round(time.Millisecond), err)
			require.Less(t, time.Since(start), chainTimeout)
			if strings.HasPrefix(name, "10,000") {
				require.Error(t, err, "go-sdk reads no more than 1,000 levels, and interceptors get no more than it does")
				return
			}
			require.NoError(t, err)
		})
	}
}

// chainTimeout is the default of what an invoke may take.
const chainTimeout = 5 * time.Second

func manyKeys(n int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"k`)
		for m := i; m > 0; m /= 10 {
			b.WriteByte(byte('0' + m%10))
		}
		b.WriteString(`x":0`)
	}
	b.WriteByte('}')
	return b.String()
}
