// Package semconv holds the names of Headgate's own telemetry: span attributes,
// span names, the event, metrics, their labels and the closed sets of label
// values. Where OpenTelemetry's conventions have a name, that one is used and
// is not here; a later move of ours to upstream names is a change of this
// package alone.
package semconv
