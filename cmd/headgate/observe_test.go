package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
)

// A traced demo: the port that it serves metrics on, and what it printed.
func startWatched(t *testing.T, args ...string) (metrics string, out *lockedBuffer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out = &lockedBuffer{}
	var stderr lockedBuffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"demo", "--mcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...), out, &stderr)
	}()
	stop = func() {
		cancel()
		require.Equal(t, exitOK, <-code, stderr.String())
	}
	at := regexp.MustCompile(`Metrics at (http://\S+)/metrics`)
	require.Eventually(t, func() bool { return at.MatchString(out.String()) }, patience, 10*time.Millisecond, "%s", &stderr)
	return at.FindStringSubmatch(out.String())[1], out, stop
}

func fetch(t *testing.T, url, accept string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

// The demo prints the trace of a blocked call, and headgate trace draws it.
func TestDemoTraces(t *testing.T) {
	metrics, out, stop := startWatched(t, "--traffic", "50")
	defer stop()
	blocked := regexp.MustCompile(`blocked .* trace ([0-9a-f]{32})`)
	require.Eventually(t, func() bool { return blocked.MatchString(out.String()) }, patience, 10*time.Millisecond)
	id := blocked.FindStringSubmatch(out.String())[1]
	var tree, stderr bytes.Buffer
	require.Eventually(t, func() bool { // audit runs may end later
		tree.Reset()
		return run(t.Context(), []string{"trace", "--from", metrics, id}, &tree, &stderr) == exitOK &&
			strings.Contains(tree.String(), "injection-scan")
	}, patience, 10*time.Millisecond, "%s", &stderr)
	assert.Regexp(t, `(?m)^ +\S+ +\S+ tools/call delete_records  \[denied\]\n`+
		` +\S+ +\S+ └─ intercept request\n`+
		` +\S+ +\S+ +├─ interceptor/invoke block-destructive  \[deny, block\]\n`+
		` +\S+ +\S+ +└─ interceptor/invoke injection-scan  \[(allow|deny), audit\]\n`, tree.String())
	assert.Equal(t, exitFailure, run(t.Context(), []string{"trace", "--from", metrics, strings.Repeat("a", 32)}, io.Discard, &stderr))
	assert.Equal(t, exitFailure, run(t.Context(), []string{"trace", "--from", metrics, "../metrics"}, io.Discard, &stderr))
}

func TestDemoMetrics(t *testing.T) {
	metrics, out, stop := startWatched(t, "--traffic", "50")
	defer stop()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "blocked ") }, patience, 10*time.Millisecond)
	status, text := fetch(t, metrics+"/metrics", "text/plain")
	assert.Equal(t, http.StatusOK, status)
	assert.Regexp(t, `headgate_interceptor_aborts_total\{interceptor="block-destructive",phase="request",reason="validation"\} [1-9]`, text)
	assert.Contains(t, text, `mcp_server_operation_duration_seconds_count{error_type="",gen_ai_tool_name="echo",mcp_method_name="tools/call",network_transport="tcp"}`)
	assert.Contains(t, text, "go_goroutines")
	_, text = fetch(t, metrics+"/metrics", "application/openmetrics-text")
	assert.Regexp(t, `# \{[^}]*trace_id="[0-9a-f]{32}"`, text)
	assert.NotContains(t, text, "_OTHER\"} 1", "the demo's own traffic is all known")
	status, _ = fetch(t, metrics+"/traces/nonsense", "*/*")
	assert.Equal(t, http.StatusBadRequest, status)
}

// Without a metrics port the demo runs all the same.
func TestDemoWithoutMetrics(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"demo", "--mcp", "127.0.0.1:0", "--metrics", "", "--admin", "", "--traffic", "0", "--for", "1ms"}, &stdout, &stderr)
	assert.Equal(t, exitOK, code, stderr.String())
	assert.NotContains(t, stdout.String(), "Metrics at")
}

// Spans and, if asked for, metrics go to the collector that the standard
// variables name; what is left is sent at the end.
func TestDemoExports(t *testing.T) {
	var traces, series atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/traces":
			traces.Add(1)
		case "/v1/metrics":
			series.Add(1)
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	var stdout, stderr bytes.Buffer
	args := []string{"demo", "--mcp", "127.0.0.1:0", "--metrics", "", "--admin", "", "--traffic", "100", "--for", "300ms"}
	require.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), stderr.String())
	assert.Positive(t, traces.Load())
	assert.Positive(t, series.Load())

	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	assert.Equal(t, exitFailure, run(t.Context(), args, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "grpc")
}

// The store keeps the last traces and lets go of older ones.
func TestTraceStore(t *testing.T) {
	store := newTraceStore(2)
	provider, err := (&observatory{traces: store}).tracerProvider(t.Context(), resource.Empty(), func(string) string { return "" })
	require.NoError(t, err)
	var ids []trace.TraceID
	for range 3 {
		_, span := provider.Tracer("t").Start(t.Context(), "s")
		ids = append(ids, span.SpanContext().TraceID())
		span.End()
	}
	assert.Empty(t, store.get(ids[0]))
	assert.Len(t, store.get(ids[1]), 1)
	assert.Len(t, store.get(ids[2]), 1)
	ctx, root := provider.Tracer("t").Start(t.Context(), "root")
	for range 2 * keptSpans {
		_, span := provider.Tracer("t").Start(ctx, "s")
		span.End()
	}
	root.End()
	assert.Len(t, store.get(root.SpanContext().TraceID()), keptSpans)
}
