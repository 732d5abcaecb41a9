package telemetry

import (
	"maps"
	"strconv"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/prometheus/client_golang/prometheus"
)

// Describe sends the descriptions of all metrics, so that a registry can tell
// that it has them already.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, vec := range m.vecs {
		vec.Describe(ch)
	}
	for _, desc := range []*prometheus.Desc{
		m.abandonedDesc, m.infoDesc, m.overflowDesc, m.circuitStateDesc, m.circuitOpenedDesc, m.hostUpDesc, m.hostLossesDesc,
	} {
		ch <- desc
	}
}

// Collect sends the metrics. What is a state and no event is read at this
// moment.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, vec := range m.vecs {
		vec.Collect(ch)
	}
	for _, b := range m.names.counted() {
		ch <- prometheus.MustNewConstMetric(m.overflowDesc, prometheus.CounterValue, float64(b.overflowed.Load()), b.label)
	}
	m.collectHealth(ch, m.collectPolicies(ch))
}

// policyChanged takes in what a chain's interceptors are now.
func (m *metrics) policyChanged(ch *chain.Chain, entries []*chain.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if entries == nil {
		delete(m.policies, ch)
		return
	}
	m.policies[ch] = entries
}

// collectPolicies sends what is true of interceptors now, and returns the policies.
// Several chains may have the same interceptors.
func (m *metrics) collectPolicies(ch chan<- prometheus.Metric) map[*chain.Chain][]*chain.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[[5]string]bool{}
	abandoned := map[string]int{}
	guards := map[*chain.Guard]bool{}
	for _, entries := range m.policies {
		for _, e := range entries {
			name := m.interceptors.lookup(e.Name).name
			if _, ok := abandoned[name]; !ok {
				abandoned[name] = 0
			}
			if g := e.Guard(); g != nil && !guards[g] {
				guards[g] = true
				abandoned[name] += g.Abandoned()
			}
			if name != semconv.Other { // there, one line could not speak for all
				seen[infoLabels(name, e)] = true
			}
		}
	}
	for labels := range seen {
		ch <- prometheus.MustNewConstMetric(m.infoDesc, prometheus.GaugeValue, 1, labels[:]...)
	}
	for name, n := range abandoned {
		ch <- prometheus.MustNewConstMetric(m.abandonedDesc, prometheus.GaugeValue, float64(n), name)
	}
	return maps.Clone(m.policies)
}

// maxVersion bounds what an interceptor may call its version in a label.
const maxVersion = 32

func infoLabels(name string, e *chain.Entry) [5]string {
	mode := string(e.Effective.Mode)
	if e.Effective.Off {
		mode = semconv.ModeOff
	}
	return [5]string{name, string(typeAt(typeIndex(e.Type))), mode, strconv.FormatBool(e.Effective.FailOpen), clip(e.Version, maxVersion)}
}
