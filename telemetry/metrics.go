package telemetry

import (
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// metrics are the collectors, and the handles on their series.
type metrics struct {
	// Fixed at creation.
	names   *names
	started time.Time
	vecs    []prometheus.Collector

	invoke, stage, size                           *prometheus.HistogramVec
	aborts, auditDenials, auditFailures, failOpen *prometheus.CounterVec
	auditDropped, skipped, refused                *prometheus.CounterVec
	inflight                                      *prometheus.GaugeVec
	abandonedDesc, infoDesc, overflowDesc         *prometheus.Desc
	circuitStateDesc, circuitOpenedDesc           *prometheus.Desc
	hostUpDesc, hostLossesDesc                    *prometheus.Desc

	interceptors     *table[interceptorHandles]
	events           *table[eventHandles]
	servers, clients *table[methodHandles]
	overtime         [phases]*counter // aborts of whole phases

	mu       sync.Mutex
	policies map[*chain.Chain][]*chain.Entry
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(n *names, started time.Time) *metrics {
	c := newCatalog()
	m := &metrics{
		names: n, started: started, policies: map[*chain.Chain][]*chain.Entry{},
		invoke: c.invoke.histogram(), stage: c.stage.histogram(), size: c.payload.histogram(),
		aborts: c.aborts.counter(), auditDenials: c.auditDenials.counter(),
		auditFailures: c.auditFailures.counter(), failOpen: c.failOpen.counter(),
		auditDropped: c.auditDropped.counter(), skipped: c.skipped.counter(),
		refused: c.refused.counter(), inflight: c.inflight.gauge(),
		abandonedDesc: c.abandoned.desc(), infoDesc: c.info.desc(), overflowDesc: c.overflow.desc(),
		circuitStateDesc: c.circuitState.desc(), circuitOpenedDesc: c.circuitOpened.desc(),
		hostUpDesc: c.hostUp.desc(), hostLossesDesc: c.hostLosses.desc(),
	}
	server, client := c.serverOperation.histogram(), c.clientOperation.histogram()
	m.vecs = []prometheus.Collector{
		server, client, m.invoke, m.stage, m.size, m.aborts, m.auditDenials, m.auditFailures,
		m.failOpen, m.auditDropped, m.skipped, m.refused, m.inflight,
	}
	m.interceptors = newTable(n.interceptors, m.newInterceptor)
	m.events = newTable(n.events, m.newEvent)
	m.servers = newTable(n.methods, func(method string) *methodHandles { return newMethod(server, n, method) })
	m.clients = newTable(n.methods, func(method string) *methodHandles { return newMethod(client, n, method) })
	for i := range phases {
		m.overtime[i] = &counter{Counter: m.aborts.WithLabelValues(
			semconv.Chain, string(phaseAt(i)), string(chain.ReasonTimeout))}
	}
	return m
}

// now is the time since the start, for exemplars alone.
func (m *metrics) now(span trace.SpanContext) time.Duration {
	if !span.IsSampled() {
		return 0
	}
	return time.Since(m.started)
}

// An interceptorHandles has the series of one interceptor.
type interceptorHandles struct {
	metrics  *metrics
	name     string
	inflight prometheus.Gauge
	dropped  prometheus.Counter
	refused  map[chain.Limit]prometheus.Counter // not changed once made

	durations [types][modes][phases][verdicts]series

	mu      sync.Mutex // serialises prepare
	phases  [phases]phaseCounters
	ensured [phases][types]bool
}

// phaseCounters are the counters of an interceptor in a phase; nil where no
// interceptor of the name is hooked on the phase, or its type cannot have one.
type phaseCounters struct {
	aborts, failOpen, auditFailures [reasons]*counter
	auditDenials                    *counter
	skipped                         prometheus.Counter
}

func (m *metrics) newInterceptor(name string) *interceptorHandles {
	return &interceptorHandles{metrics: m, name: name}
}

// prepare makes the counters of an entry, at 0. Only then may it be invoked.
func (h *interceptorHandles) prepare(e *chain.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inflight == nil {
		h.inflight = h.metrics.inflight.WithLabelValues(h.name)
		h.dropped = h.metrics.auditDropped.WithLabelValues(h.name)
		h.refused = map[chain.Limit]prometheus.Counter{}
		for _, limit := range chain.Limits() {
			h.refused[limit] = h.metrics.refused.WithLabelValues(h.name, string(limit))
		}
	}
	for _, hook := range core.ExpandHooks(e.Hooks) {
		i := phaseIndex(hook.Phase)
		if t := typeIndex(e.Type); !h.ensured[i][t] {
			h.ensured[i][t] = true
			h.ensure(i, e.Type)
		}
	}
}

// ensure makes what is not there yet: entries of the same name may be in use.
func (h *interceptorHandles) ensure(i int, t core.Type) {
	m, p := h.metrics, &h.phases[i]
	for _, reason := range failureReasons(t) {
		at, _ := reasonIndex(reason)
		h.counter(&p.aborts[at], m.aborts, i, reason)
		h.counter(&p.failOpen[at], m.failOpen, i, reason)
		h.counter(&p.auditFailures[at], m.auditFailures, i, reason)
	}
	if t == core.TypeValidation {
		at, _ := reasonIndex(chain.ReasonValidation)
		h.counter(&p.aborts[at], m.aborts, i, chain.ReasonValidation)
		h.counter(&p.auditDenials, m.auditDenials, i, chain.ReasonValidation)
	}
	if p.skipped == nil {
		p.skipped = m.skipped.WithLabelValues(h.name, string(phaseAt(i)))
	}
}

func (h *interceptorHandles) counter(c **counter, vec *prometheus.CounterVec, phase int, reason chain.Reason) {
	if *c == nil {
		*c = &counter{Counter: vec.WithLabelValues(h.name, string(phaseAt(phase)), string(reason))}
	}
}

// duration returns the series of an outcome.
func (h *interceptorHandles) duration(t, mode, phase, verdict int) *histogram {
	return h.durations[t][mode][phase][verdict].get(h.metrics.invoke, func() []string {
		return []string{
			h.name, string(typeAt(t)), string(modeAt(mode)), string(phaseAt(phase)), verdictNames()[verdict],
		}
	})
}

// An eventHandles has the series of one event.
type eventHandles struct {
	metrics *metrics
	event   string
	handler series
	phases  [phases]struct {
		marshal, validators, mutators, unmarshal, audit, size series
	}
}

func (m *metrics) newEvent(event string) *eventHandles {
	return &eventHandles{metrics: m, event: event}
}

// stage returns the series of a stage of a phase.
func (h *eventHandles) stage(s *series, phase core.Phase, stage string) *histogram {
	return s.get(h.metrics.stage, func() []string { return []string{h.event, string(phase), stage} })
}

// A methodHandles has the operations of one method.
type methodHandles struct {
	vec    *prometheus.HistogramVec
	method string
	plain  operations
	tools  *table[operations] // nil for methods that call no tool
}

// operations are the series of one method and tool, by transport and error.
type operations struct {
	tool   string
	series [2][]series
}

func newMethod(vec *prometheus.HistogramVec, n *names, method string) *methodHandles {
	h := &methodHandles{vec: vec, method: method, plain: newOperations("")}
	if method == core.EventToolsCall {
		h.tools = newTable(n.tools, func(tool string) *operations {
			o := newOperations(tool)
			return &o
		})
	}
	return h
}

func newOperations(tool string) operations {
	o := operations{tool: tool}
	for i := range o.series {
		o.series[i] = make([]series, len(errorTypes()))
	}
	return o
}

// operation returns the series of a message's end.
func (h *methodHandles) operation(o *operations, transport string, errorType int) *histogram {
	at := 0
	if transport == transportTCP {
		at = 1
	}
	return o.series[at][errorType].get(h.vec, func() []string {
		return []string{h.method, o.tool, errorTypes()[errorType], [...]string{transportPipe, transportTCP}[at]}
	})
}

// The transports, as chain.Message has them.
const (
	transportTCP  = "tcp"
	transportPipe = "pipe"
)
