package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds of what is kept.
const (
	keptTraces = 100
	keptSpans  = 500 // of one trace: a client can put any number of messages into one
)

// tracesPath is where one trace is served.
const tracesPath = "/traces/"

// A traceStore keeps the spans of the last traces. It is a span processor.
type traceStore struct {
	most int

	mu    sync.Mutex
	spans map[trace.TraceID][]keptSpan
	order []trace.TraceID // the oldest first
}

var _ sdk.SpanProcessor = (*traceStore)(nil)

func newTraceStore(most int) *traceStore {
	return &traceStore{most: most, spans: map[trace.TraceID][]keptSpan{}}
}

// A keptSpan is a span as headgate trace reads it.
type keptSpan struct {
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	ID         string            `json:"spanId"`
	Parent     string            `json:"parentSpanId,omitempty"`
	Start      time.Time         `json:"start"`
	End        time.Time         `json:"end"`
	Error      string            `json:"error,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// OnStart does nothing.
func (*traceStore) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd keeps the span, and lets go of the oldest trace if there are too many.
func (s *traceStore) OnEnd(span sdk.ReadOnlySpan) {
	id := span.SpanContext().TraceID()
	kept := keep(span)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.spans[id]; !ok {
		s.order = append(s.order, id)
		if len(s.order) > s.most {
			delete(s.spans, s.order[0])
			s.order = s.order[1:]
		}
	}
	if len(s.spans[id]) < keptSpans {
		s.spans[id] = append(s.spans[id], kept)
	}
}

func keep(span sdk.ReadOnlySpan) keptSpan {
	k := keptSpan{
		Name: span.Name(), Kind: span.SpanKind().String(), ID: span.SpanContext().SpanID().String(),
		Start: span.StartTime(), End: span.EndTime(), Error: span.Status().Description, Attributes: map[string]string{},
	}
	if span.Parent().SpanID().IsValid() {
		k.Parent = span.Parent().SpanID().String()
	}
	for _, kv := range span.Attributes() {
		k.Attributes[string(kv.Key)] = kv.Value.String()
	}
	return k
}

// Shutdown does nothing: what is kept can still be read.
func (*traceStore) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing.
func (*traceStore) ForceFlush(context.Context) error { return nil }

// get returns the spans of a trace; none if it is not kept.
func (s *traceStore) get(id trace.TraceID) []keptSpan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]keptSpan(nil), s.spans[id]...)
}

// serve answers with the spans of one trace.
func (s *traceStore) serve(w http.ResponseWriter, r *http.Request) {
	id, err := trace.TraceIDFromHex(r.PathValue("id"))
	if err != nil {
		http.Error(w, "not a trace id: 32 hex digits are", http.StatusBadRequest)
		return
	}
	spans := s.get(id)
	if len(spans) == 0 {
		http.Error(w, "no such trace among the last ones", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(spans)
}
