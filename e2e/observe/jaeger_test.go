//go:build e2e

package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A jaeger is a server that takes spans over OTLP and keeps them in memory.
type jaeger struct {
	*process
	otlp, url string
}

// service is what the demo calls itself.
const service = "headgate-demo"

// startJaeger starts the server that JAEGER names.
func startJaeger(t *testing.T) *jaeger {
	t.Helper()
	binary := os.Getenv("JAEGER")
	require.NotEmpty(t, binary, "JAEGER is the path of Jaeger's binary; make e2e builds it and sets that")
	config, err := filepath.Abs("jaeger.yaml")
	require.NoError(t, err)
	query, grpc, otlp := freePort(t), freePort(t), freePort(t)
	j := &jaeger{otlp: "http://127.0.0.1:" + otlp, url: "http://127.0.0.1:" + query}
	j.process = start(t, "Jaeger", []string{
		"JAEGER_QUERY_PORT=" + query, "JAEGER_GRPC_PORT=" + grpc, "JAEGER_OTLP_PORT=" + otlp,
		"OTEL_TRACES_SAMPLER=always_off", // it would trace itself, and send that to a fixed port
	}, binary, "--config", "file:"+config)
	j.await(t, "it answers", func() error {
		_, _, err := get(t.Context(), j.url+"/api/services", "")
		return err
	})
	return j
}

// A span is a span as Jaeger's API has it.
type span struct {
	TraceID, SpanID, OperationName string
	References                     []struct{ RefType, TraceID, SpanID string }
	Tags                           []struct {
		Key   string
		Value any
	}
}

// tag returns the value of an attribute as text; empty if the span has none.
func (s *span) tag(key string) string {
	for _, tag := range s.Tags {
		if tag.Key == key {
			return fmt.Sprint(tag.Value)
		}
	}
	return ""
}

// parent returns the id of the span that this one is a child of.
func (s *span) parent() string {
	for _, ref := range s.References {
		if ref.RefType == "CHILD_OF" {
			return ref.SpanID
		}
	}
	return ""
}

// A jaegerTrace is the spans of one trace.
type jaegerTrace struct{ Spans []span }

// named returns the only span of that name.
func (tr *jaegerTrace) named(name string) (*span, error) {
	var found *span
	for i := range tr.Spans {
		switch {
		case tr.Spans[i].OperationName != name:
		case found != nil:
			return nil, fmt.Errorf("more than one span %q", name)
		default:
			found = &tr.Spans[i]
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no span %q", name)
	}
	return found, nil
}

// trace returns the trace of that id.
func (j *jaeger) trace(ctx context.Context, id string) (*jaegerTrace, error) {
	traces, err := j.traces(ctx, "/"+id)
	if err != nil {
		return nil, err
	}
	if len(traces) != 1 {
		return nil, fmt.Errorf("%d traces of id %s", len(traces), id)
	}
	return &traces[0], nil
}

// search returns the ids of all traces with a span that has these attributes.
func (j *jaeger) search(ctx context.Context, tags map[string]string) ([]string, error) {
	text, err := json.Marshal(tags)
	if err != nil {
		return nil, err
	}
	args := url.Values{"service": {service}, "tags": {string(text)}, "limit": {"1000"}, "lookback": {"1h"}}
	traces, err := j.traces(ctx, "?"+args.Encode())
	ids := make([]string, 0, len(traces))
	for _, tr := range traces {
		ids = append(ids, tr.Spans[0].TraceID)
	}
	return ids, err
}

func (j *jaeger) traces(ctx context.Context, what string) ([]jaegerTrace, error) {
	var answer struct{ Data []jaegerTrace }
	err := getJSON(ctx, j.url+"/api/traces"+what, &answer)
	return answer.Data, err
}
