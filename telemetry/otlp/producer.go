package otlp

import (
	"context"
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// NewProducer returns a producer of what the gatherer gathers.
//
// It is OpenTelemetry's bridge, and mends what that does to exemplars: the
// bridge (v0.72.0) hands on the hex text of trace and span ids as if it were the
// ids' bytes, and receivers refuse the whole export over it.
func NewProducer(g prometheus.Gatherer) metric.Producer {
	return producer{bridge.NewMetricProducer(bridge.WithGatherer(g))}
}

type producer struct{ bridged metric.Producer }

// Produce gathers and converts.
func (p producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	scopes, err := p.bridged.Produce(ctx)
	for _, scope := range scopes {
		for _, m := range scope.Metrics {
			mend(m.Data)
		}
	}
	return scopes, err
}

// mend corrects the exemplars in place: the bridge made the data for this call.
func mend(data metricdata.Aggregation) {
	switch data := data.(type) {
	case metricdata.Sum[float64]:
		for _, p := range data.DataPoints {
			mendAll(p.Exemplars)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			mendAll(p.Exemplars)
		}
	case metricdata.ExponentialHistogram[float64]:
		for _, p := range data.DataPoints {
			mendAll(p.Exemplars)
		}
	}
}

func mendAll(exemplars []metricdata.Exemplar[float64]) {
	for i := range exemplars {
		e := &exemplars[i]
		e.TraceID, e.SpanID = id(e.TraceID, 16), id(e.SpanID, 8)
	}
}

// id returns an id of size bytes: as it is, or read from its hex text. What is
// neither is left out, so that it spoils nothing else.
func id(raw []byte, size int) []byte {
	if len(raw) == size {
		return raw
	}
	out := make([]byte, hex.DecodedLen(len(raw)))
	if n, err := hex.Decode(out, raw); err != nil || n != size {
		return nil
	}
	return out
}
