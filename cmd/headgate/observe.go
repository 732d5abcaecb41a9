package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/otlp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// An observatory is all that watches the demo: metrics on a port of their own,
// and traces in memory and, where the standard variables name a collector, over
// OTLP.
type observatory struct {
	telemetry *telemetry.Telemetry
	registry  *prometheus.Registry
	traces    *traceStore

	ends []func(context.Context) error // in reverse order
}

// newObservatory reads the OTEL_* variables by getenv. What it opens is closed
// by close, also after an error.
func newObservatory(ctx context.Context, getenv func(string) string) (o *observatory, err error) {
	o = &observatory{registry: prometheus.NewRegistry(), traces: newTraceStore(keptTraces)}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("headgate-demo")),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return o, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider, err := o.tracerProvider(ctx, about, getenv)
	if err != nil {
		return o, err
	}
	if err := o.exportMetrics(ctx, about, getenv); err != nil {
		return o, err
	}
	o.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.telemetry, err = telemetry.New(&telemetry.Options{
		Registerer: o.registry, TracerProvider: provider,
	})
	return o, err
}

// tracerProvider keeps spans in memory, and sends them where a collector is named.
func (o *observatory) tracerProvider(ctx context.Context, about *resource.Resource, getenv func(string) string) (*sdk.TracerProvider, error) {
	options := []sdk.TracerProviderOption{sdk.WithResource(about), sdk.WithSpanProcessor(o.traces)}
	if wants(getenv, "TRACES", true) {
		if err := onlyHTTP(getenv, "TRACES"); err != nil {
			return nil, err
		}
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, err
		}
		options = append(options, sdk.WithBatcher(exporter))
	}
	provider := sdk.NewTracerProvider(options...)
	o.ends = append(o.ends, provider.Shutdown)
	return provider, nil
}

// exportMetrics sends the registry over OTLP, if OTEL_METRICS_EXPORTER asks for
// that: where only an endpoint is named, it may well be one for traces alone.
func (o *observatory) exportMetrics(ctx context.Context, about *resource.Resource, getenv func(string) string) error {
	if !wants(getenv, "METRICS", false) {
		return nil
	}
	if err := onlyHTTP(getenv, "METRICS"); err != nil {
		return err
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return err
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(otlp.NewProducer(o.registry)))
	provider := metric.NewMeterProvider(metric.WithResource(about), metric.WithReader(reader))
	o.ends = append(o.ends, provider.Shutdown)
	return nil
}

// wants reports whether a signal goes out over OTLP: its exporter says so or,
// if unset and that is the default, an endpoint is named.
func wants(getenv func(string) string, signal string, byEndpoint bool) bool {
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	switch getenv("OTEL_" + signal + "_EXPORTER") {
	case "otlp":
		return true
	case "":
		return byEndpoint && (getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != "")
	}
	return false
}

// onlyHTTP refuses a protocol that this binary does not speak: sending anyway
// would lose everything without a word.
func onlyHTTP(getenv func(string) string, signal string) error {
	protocol := getenv("OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return fmt.Errorf("OTLP over %q is not spoken here, only http/protobuf", protocol)
	}
	return nil
}

// serve serves metrics and traces until the returned function is called. An
// empty address serves nothing.
func (o *observatory) serve(ctx context.Context, addr string, logger *slog.Logger) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(ctx), "tcp", addr)
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", telemetry.Handler(o.registry))
	mux.HandleFunc("GET "+tracesPath+"{id}", o.traces.serve)
	web := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics are not served any more", "err", err)
		}
	}()
	return "http://" + reachable(ln.Addr()), func() { _ = web.Close(); <-done }, nil
}

// flush is what exporters get to send what is left.
const flush = 2 * time.Second

// close sends what is left and ends the exporters.
func (o *observatory) close() {
	ctx, cancel := context.WithTimeout(context.Background(), flush)
	defer cancel()
	for _, end := range o.ends {
		if err := end(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "headgate demo: telemetry:", err)
		}
	}
}
