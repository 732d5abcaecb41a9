package telemetry_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// Clients, flips of policy, comings and goings of interceptors, and scrapes, all
// at once: nothing is lost and no span stays open. It is for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{
		ct.Validator("v", ct.Deny, hook, ct.Audit), ct.Validator("p", blow, ct.FailOpen), ct.Mutator("m", ct.Keep),
	}})
	const clients, calls = 6, 60
	var denied, passed atomic.Int64
	var traffic, rest sync.WaitGroup
	for c := range clients {
		cs := w.client(t, []string{legacy, modern}[c%2])
		traffic.Go(func() {
			for i := range calls {
				_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: []string{"echo", fmt.Sprint("x", i)}[i%2]})
				switch {
				case err == nil:
					passed.Add(1)
				default:
					denied.Add(1) // or unknown
				}
			}
		})
	}
	done := make(chan struct{})
	for _, job := range w.disturbances(t) {
		rest.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					job(i)
				}
			}
		})
	}
	traffic.Wait()
	close(done)
	rest.Wait()
	w.ended(t)
	total := 0.0
	for labels, n := range w.counts(t, semconv.MetricServerOperation) {
		if name := "tools/call pipe"; len(labels) > len(name) && labels[len(labels)-len(name):] == name {
			total += n
		}
	}
	require.EqualValues(t, clients*calls, total)
	require.EqualValues(t, clients*calls, denied.Load()+passed.Load())
	w.idle(t)
	v := w.nonzero(t, semconv.MetricInvoke)
	require.EqualValues(t, clients*calls, v["v audit request validation deny"]+v["v active request validation deny"])
	require.Equal(t, v["v active request validation deny"], w.counts(t, semconv.MetricAborts)["v request validation"])
	require.Equal(t, v["v audit request validation deny"], w.counts(t, semconv.MetricAuditDenials)["v request validation"])
}

// disturbances are what goes on while messages pass.
func (w *world) disturbances(t *testing.T) []func(i int) {
	return []func(int){
		func(i int) {
			mode := []core.Mode{core.ModeActive, core.ModeAudit}[i%2]
			_ = w.chain.SetOverrides(map[string]chain.Overrides{"v": {Mode: mode}})
		},
		func(i int) {
			name := fmt.Sprint("n", i%50)
			made := core.Interceptor(ct.Validator(name, ct.Allow))
			if i%3 == 0 {
				made = ct.Mutator(name, ct.Keep)
			}
			if err := w.ext.AddInterceptor(made); err != nil {
				t.Error(err)
			}
			w.ext.RemoveInterceptor(name)
		},
		func(int) { w.scrape(t, openMetrics) },
		func(int) {
			remove := w.chain.AddObserver(chain.NopObserver{})
			remove()
		},
	}
}
