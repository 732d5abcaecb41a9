package admin

import (
	"net/http"
	"strconv"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the plane itself. Their labels are routes, roles of the
// code, and names of interceptors, up to a number.
type metrics struct {
	plane *Plane

	changes      *prometheus.CounterVec
	requests     *prometheus.CounterVec
	authFailures *prometheus.CounterVec
	expiring     prometheus.Counter

	mode, since, expiry, revision, applied, storeUp, synced, glass, overdue, historyFailures, historyFaults, listeners *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

// maxLabels bounds the interceptors that are told apart.
const maxLabels = 64

func newMetrics(p *Plane) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m := &metrics{
		plane:        p,
		changes:      counter("headgate_control_changes_total", "Attempts to change policy, by what became of them.", "action", "outcome", "surface"),
		requests:     counter("headgate_admin_requests_total", "Requests to the admin plane.", "route", "method", "code"),
		authFailures: counter("headgate_admin_auth_failures_total", "Requests that nobody could be made out for.", "reason"),
		expiring: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_control_expiry_warnings_total", Help: "Warnings that an override ends soon.",
		}),
		mode:            desc("headgate_interceptor_mode", "1 for the mode that an interceptor is in, 0 for the others.", "interceptor", "mode"),
		since:           desc("headgate_override_since_timestamp_seconds", "When an override was set; _ALL for break-glass.", "interceptor"),
		expiry:          desc("headgate_override_expiry_timestamp_seconds", "When an override ends; _ALL for break-glass.", "interceptor"),
		revision:        desc("headgate_control_revision", "The revision of the state in the store."),
		applied:         desc("headgate_control_applied_revision", "The revision that the chains run under."),
		storeUp:         desc("headgate_control_store_up", "Whether what is changed survives a restart.", "store"),
		synced:          desc("headgate_control_last_sync_timestamp_seconds", "When the plane last worked out what holds."),
		glass:           desc("headgate_break_glass", "Whether break-glass weakens everything."),
		overdue:         desc("headgate_override_overdue", "Overrides that hold although their time is over."),
		historyFailures: desc("headgate_admin_history_write_failures_total", "Records that could not be written to the history."),
		historyFaults:   desc("headgate_admin_history_faults", "What does not hold of the history's files: found at start, or changed by others since."),
		listeners:       desc("headgate_admin_event_streams", "Streams of events that are open."),
	}
	for _, reason := range []error{errNoToken, errBadHeader, errUnknownToken, errExpiredToken, errHook} {
		m.authFailures.WithLabelValues(reason.Error())
	}
	for _, r := range routes() {
		if r.action != "" {
			for _, outcome := range []history.Outcome{history.Applied, history.Noop, history.Rejected} {
				m.changes.WithLabelValues(r.action, string(outcome), "api")
			}
		}
	}
	return m
}

// request counts an answer. What no route fits is one route.
func (m *metrics) request(rt *route, method string, status int) {
	pattern := rt.pattern
	if pattern == "" {
		pattern = other
	}
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPost, http.MethodHead, http.MethodOptions, http.MethodPatch:
	default:
		method = other
	}
	m.requests.WithLabelValues(pattern, method, strconv.Itoa(status)).Inc()
}

func (m *metrics) failed(reason error) { m.authFailures.WithLabelValues(reason.Error()).Inc() }

func (m *metrics) changed(r *history.Record) {
	m.changes.WithLabelValues(r.Action, string(r.Outcome), r.Surface).Inc()
}

// Describe sends the descriptions of all metrics.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.changes, m.requests, m.authFailures, m.expiring} {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{
		m.mode, m.since, m.expiry, m.revision, m.applied, m.storeUp, m.synced, m.glass, m.overdue, m.historyFailures,
		m.historyFaults, m.listeners,
	} {
		ch <- d
	}
}

// Collect sends the metrics, as of one moment.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.changes, m.requests, m.authFailures, m.expiring} {
		c.Collect(ch)
	}
	p := m.plane
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := p.current()
	if s == nil {
		return // not begun
	}
	st := p.store.Status()
	gauge(m.storeUp, truth(st.Durable), st.Kind)
	gauge(m.revision, float64(s.revision))
	gauge(m.applied, float64(s.revision))
	gauge(m.synced, float64(s.at.Unix()))
	m.collectItems(s, gauge)
	failures, _ := p.history.Health()
	ch <- prometheus.MustNewConstMetric(m.historyFailures, prometheus.CounterValue, float64(failures))
	gauge(m.historyFaults, float64(p.history.Faults()))
	gauge(m.listeners, float64(p.hub.count()))
}

func (m *metrics) collectItems(s *state, gauge func(*prometheus.Desc, float64, ...string)) {
	overdue, glass := 0, s.breakGlass != nil && !s.breakGlass.Over(s.at)
	for i, name := range s.names {
		e := &s.items[name].effective
		if e.Overdue {
			overdue++
		}
		if i >= maxLabels {
			continue
		}
		for _, mode := range []control.Mode{control.Active, control.Audit, control.Off} {
			gauge(m.mode, truth(e.Mode == mode), name, string(mode))
		}
		o := s.items[name].layers.Override
		if o == nil || o.Over(s.at) {
			continue
		}
		gauge(m.since, float64(o.Since.Unix()), name)
		if o.ExpiresAt != nil {
			gauge(m.expiry, float64(o.ExpiresAt.Unix()), name)
		}
	}
	if glass {
		gauge(m.since, float64(s.breakGlass.Since.Unix()), "_ALL")
		gauge(m.expiry, float64(s.breakGlass.ExpiresAt.Unix()), "_ALL")
	}
	gauge(m.glass, truth(glass))
	gauge(m.overdue, float64(overdue))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
