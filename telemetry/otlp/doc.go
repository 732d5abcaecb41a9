// Package otlp sends metrics that were registered with client_golang over OTLP.
//
// [NewProducer] reads a registry for OpenTelemetry's metric SDK. Put it on a
// periodic reader, beside any exporter:
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(otlp.NewProducer(registry)))
//
// Names and labels stay those of Prometheus. Histograms that have native buckets
// become exponential histograms, which carry no exemplars; counters keep theirs.
//
// This package is apart from telemetry since it needs OpenTelemetry's SDK.
package otlp
