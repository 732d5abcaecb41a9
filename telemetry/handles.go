package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Indexes of the small closed sets, so that handles lie in arrays.
const (
	phases   = 2
	types    = 2
	modes    = 2
	verdicts = 6
	reasons  = 7
)

func phaseIndex(p core.Phase) int {
	if p == core.PhaseResponse {
		return 1
	}
	return 0
}

func phaseAt(i int) core.Phase { return [phases]core.Phase{core.PhaseRequest, core.PhaseResponse}[i] }

func typeIndex(t core.Type) int {
	if t == core.TypeMutation {
		return 1
	}
	return 0
}

func typeAt(i int) core.Type { return [types]core.Type{core.TypeValidation, core.TypeMutation}[i] }

func modeIndex(m core.Mode) int {
	if m == core.ModeAudit {
		return 1
	}
	return 0
}

func modeAt(i int) core.Mode { return [modes]core.Mode{core.ModeActive, core.ModeAudit}[i] }

func verdictNames() [verdicts]string {
	return [verdicts]string{
		string(chain.VerdictAllow), string(chain.VerdictDeny), string(chain.VerdictModify),
		string(chain.VerdictError), string(chain.VerdictTimeout), semconv.VerdictCancelled,
	}
}

// verdictOf returns the index of an outcome's verdict.
func verdictOf(out *chain.Outcome) int {
	switch {
	case out.Reason == chain.ReasonCancelled:
		return 5
	case out.Verdict == chain.VerdictAllow:
		return 0
	case out.Verdict == chain.VerdictDeny:
		return 1
	case out.Verdict == chain.VerdictModify:
		return 2
	case out.Verdict == chain.VerdictTimeout:
		return 4
	}
	return 3
}

func reasonNames() [reasons]chain.Reason {
	return [reasons]chain.Reason{
		chain.ReasonValidation, chain.ReasonMutation, chain.ReasonError, chain.ReasonTimeout,
		chain.ReasonPanic, chain.ReasonProtocol, chain.ReasonOverload,
	}
}

// reasonIndex returns the index of a reason; false for a caller that gave up,
// which is nobody's failure.
func reasonIndex(r chain.Reason) (int, bool) {
	for i, known := range reasonNames() {
		if r == known {
			return i, true
		}
	}
	return 0, false
}

// failureReasons are the reasons for which an interceptor of a type can fail.
func failureReasons(t core.Type) []chain.Reason {
	own := chain.ReasonError
	if t == core.TypeMutation {
		own = chain.ReasonMutation
	}
	return []chain.Reason{own, chain.ReasonTimeout, chain.ReasonPanic, chain.ReasonProtocol, chain.ReasonOverload}
}

// A histogram is one series, with what is needed to give it exemplars.
type histogram struct {
	observer prometheus.Observer
	exemplar exemplar
}

func (h *histogram) observe(d time.Duration, span trace.SpanContext, now time.Duration) {
	if span.IsSampled() && h.exemplar.due(now) {
		if e, ok := h.observer.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(d.Seconds(), exemplarLabels(span))
			return
		}
	}
	h.observer.Observe(d.Seconds())
}

// A series is a histogram that comes into being with its first observation: of
// all that could be, few are.
type series struct{ made atomic.Pointer[histogram] }

func (s *series) get(vec *prometheus.HistogramVec, labels func() []string) *histogram {
	if h := s.made.Load(); h != nil {
		return h
	}
	h := &histogram{observer: vec.WithLabelValues(labels()...)}
	if !s.made.CompareAndSwap(nil, h) {
		return s.made.Load()
	}
	return h
}

// A counter is one series of a counter.
type counter struct {
	prometheus.Counter
	exemplar exemplar
}

func (c *counter) inc(span trace.SpanContext, now time.Duration) {
	if span.IsSampled() && c.exemplar.due(now) {
		if e, ok := c.Counter.(prometheus.ExemplarAdder); ok {
			e.AddWithExemplar(1, exemplarLabels(span))
			return
		}
	}
	c.Inc()
}

// An exemplar decides when a series is due for one: they cost more than the
// observation itself, and a backend keeps the last one only.
type exemplar struct{ last atomic.Int64 }

// exemplarEvery is how often a series gets one at most.
const exemplarEvery = time.Second

// due reports whether the time has come; now counts from the start.
func (e *exemplar) due(now time.Duration) bool {
	last := e.last.Load()
	if last != 0 && now < time.Duration(last)+exemplarEvery {
		return false
	}
	return e.last.CompareAndSwap(last, max(int64(now), 1))
}

// exemplarLabels are ids and nothing else: beyond 128 runes, or with a text
// that is not UTF-8, an observation would panic.
func exemplarLabels(span trace.SpanContext) prometheus.Labels {
	return prometheus.Labels{"trace_id": span.TraceID().String(), "span_id": span.SpanID().String()}
}
