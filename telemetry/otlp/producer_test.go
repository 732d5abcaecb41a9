package otlp_test

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-mcp/headgate/telemetry/otlp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	pb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// registry has a counter and a classic histogram with exemplars of a trace, and
// one whose labels only look like ids.
func registry(t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewRegistry()
	ids := prometheus.Labels{"trace_id": traceID, "span_id": spanID}
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "aborts_total", Help: "h"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "duration_seconds", Help: "h", Buckets: []float64{1}})
	odd := prometheus.NewCounter(prometheus.CounterOpts{Name: "odd_total", Help: "h"})
	reg.MustRegister(counter, histogram, odd)
	counter.(prometheus.ExemplarAdder).AddWithExemplar(1, ids)
	histogram.(prometheus.ExemplarObserver).ObserveWithExemplar(.5, ids)
	odd.(prometheus.ExemplarAdder).AddWithExemplar(1, prometheus.Labels{"trace_id": "not hex", "span_id": "0"})
	return reg
}

// export sends what a producer makes over OTLP and returns what arrives, by
// name of metric.
func export(t *testing.T, p metric.Producer) map[string][]*pb.Exemplar {
	t.Helper()
	arrived := map[string][]*pb.Exemplar{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var req collector.ExportMetricsServiceRequest
		if proto.Unmarshal(body, &req) == nil {
			collect(&req, arrived)
		}
	}))
	defer server.Close()
	exporter, err := otlpmetrichttp.New(context.Background(),
		otlpmetrichttp.WithEndpointURL(server.URL+"/v1/metrics"), otlpmetrichttp.WithCompression(otlpmetrichttp.NoCompression))
	require.NoError(t, err)
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(p))))
	require.NoError(t, provider.Shutdown(context.Background())) // which flushes
	return arrived
}

func collect(req *collector.ExportMetricsServiceRequest, into map[string][]*pb.Exemplar) {
	for _, resource := range req.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				for _, p := range m.GetSum().GetDataPoints() {
					into[m.Name] = append(into[m.Name], p.Exemplars...)
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					into[m.Name] = append(into[m.Name], p.Exemplars...)
				}
			}
		}
	}
}

func TestExemplarsKeepTheirIDs(t *testing.T) {
	arrived := export(t, otlp.NewProducer(registry(t)))
	for _, name := range []string{"aborts_total", "duration_seconds"} {
		require.Len(t, arrived[name], 1, name)
		require.Equal(t, traceID, hex.EncodeToString(arrived[name][0].TraceId))
		require.Equal(t, spanID, hex.EncodeToString(arrived[name][0].SpanId))
	}
	require.Len(t, arrived["odd_total"], 1)
	require.Empty(t, arrived["odd_total"][0].TraceId)
	require.Empty(t, arrived["odd_total"][0].SpanId)
}

// The fault that NewProducer mends. When this fails, the bridge has been mended
// and NewProducer is a wrapper for nothing.
func TestBridgeStillSpoilsIDs(t *testing.T) {
	arrived := export(t, bridge.NewMetricProducer(bridge.WithGatherer(registry(t))))
	require.Len(t, arrived["aborts_total"], 1)
	require.Equal(t, traceID, string(arrived["aborts_total"][0].TraceId), "hex text in place of bytes")
}
