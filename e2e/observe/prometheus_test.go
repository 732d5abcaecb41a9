//go:build e2e

package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A prometheus is a server that scrapes the demo each second.
type prometheus struct {
	*process
	url string
}

// job selects the demo.
const job = `{job="headgate"}`

// startPrometheus starts Debian's server, which scrapes the address.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	return runPrometheus(t, "prometheus", "prometheus.yml", "127.0.0.1:9464", target)
}

// startPrometheus3 starts the server that make has built, with the configuration
// that is shipped for it, so that this is seen to load.
func startPrometheus3(t *testing.T, target string) *prometheus {
	t.Helper()
	binary := os.Getenv("PROMETHEUS3")
	require.FileExists(t, binary, "make e2e builds it, and says where it is")
	return runPrometheus(t, binary, "../../dashboards/provisioning/prometheus/prometheus.yml", "host.docker.internal:9464", target)
}

// runPrometheus runs a server with a configuration that has another address put
// in, and with the rules that are shipped.
func runPrometheus(t *testing.T, binary, file, placeholder, target string) *prometheus {
	t.Helper()
	port := freePort(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), placeholder)
	filled := strings.NewReplacer(placeholder, target, "_interval: 5s", "_interval: 1s").Replace(string(text))
	require.NoError(t, os.WriteFile(config, []byte(filled), 0o600))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "rules"), os.DirFS("../../dashboards/rules")))
	p := &prometheus{url: "http://127.0.0.1:" + port}
	p.process = start(t, "Prometheus", nil, binary, "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:"+port,
		"--enable-feature=exemplar-storage", "--log.level=warn")
	p.await(t, "it is ready", func() error {
		_, _, err := get(t.Context(), p.url+"/-/ready", "")
		return err
	})
	return p
}

// A sample is one row of an answer.
type sample struct {
	labels map[string]string
	value  float64
}

// query evaluates an expression now.
func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	var rows []struct {
		Metric map[string]string
		Value  [2]any
		// Histogram stands in for Value where that is a whole native histogram.
		Histogram []json.RawMessage
	}
	if err := p.ask(ctx, "query", url.Values{"query": {expr}}, &struct{ Result any }{&rows}); err != nil {
		return nil, err
	}
	samples := make([]sample, len(rows))
	for i, row := range rows {
		text, _ := row.Value[1].(string)
		if len(row.Histogram) == 2 {
			var h struct{ Count string }
			if err := json.Unmarshal(row.Histogram[1], &h); err != nil {
				return nil, err
			}
			text = h.Count
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		samples[i] = sample{row.Metric, v}
	}
	return samples, nil
}

// An exemplar leads from a metric to a trace.
type exemplar struct {
	Labels struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	}
}

// exemplars returns what has been kept for an expression since a time.
func (p *prometheus) exemplars(ctx context.Context, expr string, since time.Time) ([]exemplar, error) {
	var series []struct{ Exemplars []exemplar }
	err := p.ask(ctx, "query_exemplars", url.Values{
		"query": {expr}, "start": {since.Format(time.RFC3339)}, "end": {time.Now().Add(time.Second).Format(time.RFC3339)},
	}, &series)
	var all []exemplar
	for _, s := range series {
		all = append(all, s.Exemplars...)
	}
	return all, err
}

// ask calls the API. Its answers, errors too, have one envelope.
func (p *prometheus) ask(ctx context.Context, what string, args url.Values, data any) error {
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := getJSON(ctx, p.url+"/api/v1/"+what+"?"+args.Encode(), &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s %v: %s", what, args, answer.Error)
	}
	return nil
}

// scrape waits for a scrape that has begun after the call.
func (p *prometheus) scrape(t *testing.T) {
	t.Helper()
	now := time.Now()
	p.await(t, "the demo is scraped", func() error {
		got, err := p.query(t.Context(), "timestamp(up"+job+") and up"+job+" == 1")
		if err != nil {
			return err
		}
		if len(got) != 1 || got[0].value*1e3 <= float64(now.UnixMilli()) {
			return fmt.Errorf("scraped: %v, now: %v", got, now)
		}
		return nil
	})
}

// rows maps the values of labels, joined by spaces, to the value of their
// sample. Zeros are left out: whatever is known beforehand has one.
func rows(samples []sample, labels ...string) map[string]int {
	out := map[string]int{}
	for _, s := range samples {
		values := make([]string, len(labels))
		for i, label := range labels {
			values[i] = s.labels[label]
		}
		if s.value != 0 {
			out[strings.Join(values, " ")] += int(s.value)
		}
	}
	return out
}
