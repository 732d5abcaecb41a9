package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// O11: a second telemetry on a registry is an error and leaves the first as it
// is. Closing the first makes room.
func TestSecondTelemetryOnARegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	first, err := telemetry.New(&telemetry.Options{Registerer: reg})
	require.NoError(t, err)
	before, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	_, err = telemetry.New(&telemetry.Options{Registerer: reg})
	require.ErrorIs(t, err, telemetry.ErrRegistered)
	after, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	require.Equal(t, before, after)
	first.Close()
	none, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	require.Zero(t, none)
	second, err := telemetry.New(&telemetry.Options{Registerer: reg})
	require.NoError(t, err)
	first.Close() // once more, as a deferred call would
	after, err = testutil.GatherAndCount(reg)
	require.NoError(t, err)
	require.Equal(t, before, after, "the second's metrics are its own")
	second.Close()
}

// O11: an older version's metric with other labels is an error, not a panic,
// and nothing is half registered.
func TestConflictWithAnOlderMetric(t *testing.T) {
	for _, name := range []string{semconv.MetricAborts, semconv.MetricOverflow, semconv.MetricServerOperation} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			old := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "Old."}, []string{"other"})
			reg.MustRegister(old)
			_, err := telemetry.New(&telemetry.Options{Registerer: reg})
			require.ErrorIs(t, err, telemetry.ErrRegistered)
			require.ErrorContains(t, err, name)
			old.WithLabelValues("x").Inc()
			n, err := testutil.GatherAndCount(reg)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

// Without options there are the global registry, provider and propagator.
func TestZeroOptions(t *testing.T) {
	tel, err := telemetry.New(nil)
	require.NoError(t, err)
	defer tel.Close()
	n, err := testutil.GatherAndCount(prometheus.DefaultGatherer, semconv.MetricAborts)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = telemetry.New(&telemetry.Options{MaxTools: -1, Registerer: prometheus.NewRegistry()})
	require.Error(t, err)
	_, err = telemetry.New(&telemetry.Options{MaxInterceptors: -1, Registerer: prometheus.NewRegistry()})
	require.Error(t, err)
}

// A registerer may put labels of its own on all metrics, so that two
// telemetries fit on one registry.
func TestWrappedRegisterers(t *testing.T) {
	reg := prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		tel, err := telemetry.New(&telemetry.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"server": name}, reg)})
		require.NoError(t, err)
		defer tel.Close()
	}
	n, err := testutil.GatherAndCount(reg, semconv.MetricAborts)
	require.NoError(t, err)
	require.Equal(t, 4, n)
}

// O11: servers in one process share a telemetry. Their numbers add up, and what
// is true of either's interceptors is told once.
func TestTwoServersShareATelemetry(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, hook)}})
	other, err := w.ext.Chain(&chain.Options{Observer: w.tel})
	require.NoError(t, err)
	second := mcp.NewServer(&mcp.Implementation{Name: "second", Version: "1"}, nil)
	addTools(second)
	second.AddReceivingMiddleware(middleware.Receiving(other, nil))
	_, err = call(w.client(t, legacy), "echo")
	require.Error(t, err)
	w.server = second
	_, err = call(w.client(t, legacy), "echo")
	require.Error(t, err)
	require.Equal(t, map[string]float64{"v request validation": 2}, w.nonzero(t, semconv.MetricAborts))
	require.Len(t, w.counts(t, semconv.MetricInfo), 1)
	require.NoError(t, other.SetOverrides(map[string]chain.Overrides{"v": {Mode: core.ModeAudit}}))
	require.Len(t, w.counts(t, semconv.MetricInfo), 2, "each chain has a policy of its own")
	require.NoError(t, other.Close())
	require.Len(t, w.counts(t, semconv.MetricInfo), 1)
	w.ended(t)
}

// scrape reads what a handler says to who accepts a format.
func (w *world) scrape(t testing.TB, accept string) string {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", accept)
	rec := httptest.NewRecorder()
	telemetry.Handler(w.registry).ServeHTTP(rec, req)
	require.Equal(t, http.StatusOK, rec.Code)
	return rec.Body.String()
}

const openMetrics = "application/openmetrics-text; version=1.0.0"

var (
	// Ids and nothing else, in any order.
	exemplarLine = regexp.MustCompile(`(?m)^(\w+)\{.*\} \S+ # \{(?:(?:span_id="[0-9a-f]{16}"|trace_id="[0-9a-f]{32}"),?){2}\} \S+ \S+$`)
	exemplarID   = regexp.MustCompile(`# \{.*(span|trace)_id="([0-9a-f]+)".*(span|trace)_id="([0-9a-f]+)"`)
)

// O16: exemplars are scraped where the format has them, and lead to spans that
// exist. The plain format is as it was.
func TestExemplarsAreScraped(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, hook), ct.Validator("a", ct.Deny, hook, ct.Audit)}})
	_, err := call(w.client(t, legacy), "echo")
	require.Error(t, err)
	spans := w.ended(t)
	known := map[string]string{}
	for _, s := range spans {
		known[s.SpanContext().SpanID().String()] = s.SpanContext().TraceID().String()
	}
	body := w.scrape(t, openMetrics)
	require.True(t, strings.HasSuffix(body, "# EOF\n"))
	with := map[string]bool{}
	for _, m := range exemplarLine.FindAllStringSubmatch(body, -1) {
		with[m[1]] = true
		id := exemplarID.FindStringSubmatch(m[0])
		ids := map[string]string{id[1]: id[2], id[3]: id[4]}
		require.Equal(t, known[ids["span"]], ids["trace"])
	}
	for _, name := range []string{
		semconv.MetricServerOperation + "_bucket", semconv.MetricInvoke + "_bucket", semconv.MetricStage + "_bucket",
		semconv.MetricAborts, semconv.MetricAuditDenials,
	} {
		require.True(t, with[name], "%s among %v", name, with)
	}
	require.Equal(t, strings.Count(body, " # {"), len(exemplarLine.FindAllString(body, -1)), "each has ids and nothing else")
	require.NotContains(t, w.scrape(t, "text/plain"), " # {")
	s := httptest.NewServer(telemetry.Handler(w.registry))
	defer s.Close()
	require.NoError(t, testutil.ScrapeAndCompare(s.URL, strings.NewReader(`
# HELP headgate_interceptor_audit_denials_total Denials in audit mode: what would have been blocked.
# TYPE headgate_interceptor_audit_denials_total counter
headgate_interceptor_audit_denials_total{interceptor="a",phase="request",reason="validation"} 1
headgate_interceptor_audit_denials_total{interceptor="v",phase="request",reason="validation"} 0
`), semconv.MetricAuditDenials))
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// A message that is not sampled has no span that an exemplar could lead to.
func TestUnsampledHasNoExemplar(t *testing.T) {
	for name, sampler := range map[string]sdk.Sampler{"dropped": sdk.NeverSample(), "recorded only": recordOnly{sdk.NeverSample()}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{sampler: sampler, interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, hook)}})
			_, err := call(w.client(t, legacy), "echo")
			require.Error(t, err)
			require.NotContains(t, w.scrape(t, openMetrics), " # {")
			w.ended(t)
		})
	}
}

// recordOnly has spans recorded that nobody is going to see.
type recordOnly struct{ sdk.Sampler }

func (recordOnly) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	return sdk.SamplingResult{Decision: sdk.RecordOnly}
}

// An exemplar costs more than the observation: a series gets one a second.
func TestExemplarsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		operations := func() int {
			n := 0
			for _, m := range exemplarLine.FindAllStringSubmatch(w.scrape(t, openMetrics), -1) {
				if m[1] == semconv.MetricServerOperation+"_bucket" {
					n++
				}
			}
			return n
		}
		// Each falls into a bucket of its own, where it would be seen.
		for i, wait := range []time.Duration{0, 10 * time.Millisecond, 900 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			time.Sleep(wait)
			m := message("ping", "")
			ctx := w.tel.MessageStart(context.Background(), m)
			w.tel.MessageEnd(ctx, &chain.MessageEnd{Message: m, Outcome: chain.MessageOK, Duration: 7 * time.Millisecond << i})
			require.Equal(t, []int{1, 1, 1, 2, 3}[i], operations(), "after %d", i)
		}
		require.EqualValues(t, 5, w.counts(t, semconv.MetricServerOperation)["  ping pipe"])
		w.ended(t)
	})
}

// O09: no name can make an exemplar too long, which would be a panic.
func TestLongNamesAndExemplars(t *testing.T) {
	for _, n := range []int{100, 128} {
		name := strings.Repeat("é", n/2)
		w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator(name, ct.Deny, hook)}})
		_, err := call(w.client(t, legacy), "echo")
		require.Error(t, err)
		w.ended(t).one(t, "interceptor/invoke "+name)
		require.Equal(t, map[string]float64{name + " request validation": 1}, w.nonzero(t, semconv.MetricAborts))
		require.Contains(t, w.scrape(t, openMetrics), name)
		require.Equal(t, map[string]float64{name + " active request validation deny": 1}, w.nonzero(t, semconv.MetricInvoke))
	}
}
