// Package telemetry makes what a chain and its middleware do visible: a span
// for each message, phase and invoke, histograms of what each costs, and
// counters of what was blocked, would have been blocked, or was let pass.
//
// [New] returns a value that is plugged in as the chain's observer:
//
//	tel, err := telemetry.New(&telemetry.Options{Registerer: registry})
//	ch, err := ext.Chain(&chain.Options{Observer: tel})
//
// Spans follow OpenTelemetry's conventions for MCP, and trace contexts travel
// in params._meta (SEP-414). A denial is visible and is not an error. Only the
// API of OpenTelemetry is used: which SDK and exporters stand behind it is the
// embedder's business.
//
// Metrics are client_golang's, on any registerer. Their labels are bounded:
// values come from what is registered, and whatever comes over the wire passes
// one function that turns the unknown into _OTHER and counts it. Payloads,
// arguments, results, header values and the words of interceptors are in no
// span, label or exemplar unless an option that says so is on.
//
// A message that is not sampled has no spans but its own and costs no
// allocation in metrics.
package telemetry
