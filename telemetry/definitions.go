package telemetry

import (
	"time"

	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/prometheus/client_golang/prometheus"
)

// A definition is a metric as it is registered and documented.
type definition struct {
	name, kind, help string
	labels           []string
	buckets          []float64
}

const (
	kindHistogram = "histogram"
	kindCounter   = "counter"
	kindGauge     = "gauge"
)

// A catalog is the definitions of all metrics.
type catalog struct {
	serverOperation, clientOperation, invoke, stage, payload, aborts, auditDenials, auditFailures,
	failOpen, auditDropped, skipped, refused, inflight, abandoned, circuitState, circuitOpened, hostUp, hostLosses,
	info, overflow definition
}

func newCatalog() *catalog {
	c := &catalog{}
	c.histograms()
	c.counters()
	c.state()
	c.health()
	return c
}

func (c *catalog) histograms() {
	c.serverOperation = definition{
		semconv.MetricServerOperation, kindHistogram,
		"Duration of MCP requests and notifications that this peer received.",
		[]string{semconv.LabelMethod, semconv.LabelTool, semconv.LabelErrorType, semconv.LabelTransport},
		operationBuckets(),
	}
	c.clientOperation = definition{
		semconv.MetricClientOperation, kindHistogram,
		"Duration of MCP requests and notifications that this peer sent.",
		[]string{semconv.LabelMethod, semconv.LabelTool, semconv.LabelErrorType, semconv.LabelTransport},
		operationBuckets(),
	}
	c.invoke = definition{
		semconv.MetricInvoke, kindHistogram,
		"Duration of one call of an interceptor; validators of a phase run at once.",
		[]string{semconv.LabelInterceptor, semconv.LabelType, semconv.LabelMode, semconv.LabelPhase, semconv.LabelVerdict},
		invokeBuckets(),
	}
	c.stage = definition{
		semconv.MetricStage, kindHistogram,
		"Wall time of a stage of a message. All but audit add up to the message's duration.",
		[]string{semconv.LabelEvent, semconv.LabelPhase, semconv.LabelStage},
		stageBuckets(),
	}
	c.payload = definition{
		semconv.MetricPayload, kindHistogram,
		"Size of the payload that a phase works on.",
		[]string{semconv.LabelEvent, semconv.LabelPhase},
		sizeBuckets(),
	}
}

// counters exist at 0 from registration on, for all that configuration fixes.
func (c *catalog) counters() {
	c.aborts = definition{
		semconv.MetricAborts, kindCounter,
		"Messages that were stopped, by the interceptor that led; _CHAIN where a whole phase ran out of time.",
		[]string{semconv.LabelInterceptor, semconv.LabelPhase, semconv.LabelReason},
		nil,
	}
	c.auditDenials = definition{
		semconv.MetricAuditDenials, kindCounter,
		"Denials in audit mode: what would have been blocked.",
		[]string{semconv.LabelInterceptor, semconv.LabelPhase, semconv.LabelReason},
		nil,
	}
	c.auditFailures = definition{
		semconv.MetricAuditFailures, kindCounter,
		"Failures in audit mode, which stopped nothing.",
		[]string{semconv.LabelInterceptor, semconv.LabelPhase, semconv.LabelReason},
		nil,
	}
	c.failOpen = definition{
		semconv.MetricFailOpen, kindCounter,
		"Failures of active interceptors that let the message pass since their policy is to fail open.",
		[]string{semconv.LabelInterceptor, semconv.LabelPhase, semconv.LabelReason},
		nil,
	}
	c.auditDropped = definition{
		semconv.MetricAuditDropped, kindCounter,
		"Audit runs that never ran since the queue was full or the chain closed.",
		[]string{semconv.LabelInterceptor},
		nil,
	}
	c.skipped = definition{
		semconv.MetricSkipped, kindCounter,
		"Messages that an interceptor did not see since its compat excludes their protocol version.",
		[]string{semconv.LabelInterceptor, semconv.LabelPhase},
		nil,
	}
	c.refused = definition{
		semconv.MetricRefused, kindCounter,
		"Calls of an interceptor that were not begun since a limit was reached. Each is a failure, too.",
		[]string{semconv.LabelInterceptor, semconv.LabelLimit},
		nil,
	}
}

func (c *catalog) state() {
	c.inflight = definition{
		semconv.MetricInflight, kindGauge,
		"Calls of an interceptor that are being waited for.",
		[]string{semconv.LabelInterceptor},
		nil,
	}
	c.abandoned = definition{
		semconv.MetricAbandoned, kindGauge,
		"Calls that ignored their deadline and still run. At 64 further ones fail at once.",
		[]string{semconv.LabelInterceptor},
		nil,
	}
	c.info = definition{
		semconv.MetricInfo, kindGauge,
		"Always 1: an interceptor and the policy that holds for it.",
		[]string{
			semconv.LabelInterceptor, semconv.LabelType, semconv.LabelMode, semconv.LabelFailOpen, semconv.LabelVersion,
		},
		nil,
	}
	c.overflow = definition{
		semconv.MetricOverflow, kindCounter,
		"Values that a label was not given; they count as _OTHER.",
		[]string{semconv.LabelLabel},
		nil,
	}
}

// health is what hosts and circuit breakers say of themselves.
func (c *catalog) health() {
	c.circuitState = definition{
		semconv.MetricCircuitState, kindGauge,
		"The circuit of an interceptor, where the chain has a breaker: 0 closed, 1 half open, 2 open.",
		[]string{semconv.LabelInterceptor},
		nil,
	}
	c.circuitOpened = definition{
		semconv.MetricCircuitOpened, kindCounter,
		"How often the circuit of an interceptor opened.",
		[]string{semconv.LabelInterceptor},
		nil,
	}
	c.hostUp = definition{
		semconv.MetricHostUp, kindGauge,
		"Whether a host that is elsewhere can be reached.",
		[]string{semconv.LabelHost},
		nil,
	}
	c.hostLosses = definition{
		semconv.MetricHostLosses, kindCounter,
		"How often a host that was there was lost.",
		[]string{semconv.LabelHost},
		nil,
	}
}

// all returns the definitions in the order of the reference.
func (c *catalog) all() []*definition {
	return []*definition{
		&c.serverOperation, &c.clientOperation, &c.invoke, &c.stage, &c.payload,
		&c.aborts, &c.auditDenials, &c.auditFailures, &c.failOpen, &c.auditDropped, &c.skipped, &c.refused,
		&c.inflight, &c.abandoned, &c.circuitState, &c.circuitOpened, &c.hostUp, &c.hostLosses, &c.info, &c.overflow,
	}
}

// operationBuckets are those of the convention.
func operationBuckets() []float64 {
	return []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300}
}

// invokeBuckets begin where an interceptor in this process ends.
func invokeBuckets() []float64 {
	return []float64{
		5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .025, .05, .1, .25, 1, 5, 30,
	}
}

func stageBuckets() []float64 {
	return []float64{1e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, .01, .05, .25, 1, 5, 30}
}

func sizeBuckets() []float64 {
	return []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
}

// Native buckets beside the classic ones, with a cap: whoever scrapes them
// sees percentiles to within a tenth.
const (
	nativeFactor    = 1.1
	nativeMax       = 100
	nativeResetSpan = time.Hour
)

func (d *definition) histogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: d.name, Help: d.help, Buckets: d.buckets,
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeMax,
		NativeHistogramMinResetDuration: nativeResetSpan,
	}, d.labels)
}

func (d *definition) counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.name, Help: d.help}, d.labels)
}

func (d *definition) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.name, Help: d.help}, d.labels)
}

func (d *definition) desc() *prometheus.Desc {
	return prometheus.NewDesc(d.name, d.help, d.labels, nil)
}
