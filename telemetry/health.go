package telemetry

import (
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/prometheus/client_golang/prometheus"
)

// A gathering adds up what chains say of a name, of which they may have several:
// the worst state counts, and all events.
type gathering map[string]*struct{ worst, events float64 }

func (g gathering) add(name string, state, events float64) {
	if g[name] == nil {
		g[name] = &struct{ worst, events float64 }{}
	}
	g[name].worst = max(g[name].worst, state)
	g[name].events += events
}

// A circuitKey is one circuit: several chains may have the same.
type circuitKey struct {
	breaker chain.CircuitBreaker
	name    string
}

// collectHealth sends how hosts and circuits fare. m.mu is not held: it is taken
// under locks that are taken here.
func (m *metrics) collectHealth(ch chan<- prometheus.Metric, policies map[*chain.Chain][]*chain.Entry) {
	circuits, hosts := gathering{}, gathering{}
	counted := map[circuitKey]bool{}
	for c, entries := range policies {
		for _, h := range c.HostStatuses() {
			if !h.Reports {
				continue
			}
			down := 0.0
			if h.Health.Err != nil {
				down = 1
			}
			hosts.add(m.hostName(h.Name), down, float64(h.Health.Losses))
		}
		b := c.Breaker()
		if b == nil {
			continue
		}
		states := b.Circuits()
		for _, e := range entries {
			circuit, key, opened := states[e.Name], circuitKey{b, e.Name}, 0.0
			if !counted[key] {
				opened = float64(circuit.Opened)
			}
			counted[key] = true
			circuits.add(m.interceptors.lookup(e.Name).name, circuitValue(circuit.State), opened)
		}
	}
	for name, g := range circuits {
		ch <- prometheus.MustNewConstMetric(m.circuitStateDesc, prometheus.GaugeValue, g.worst, name)
		ch <- prometheus.MustNewConstMetric(m.circuitOpenedDesc, prometheus.CounterValue, g.events, name)
	}
	for name, g := range hosts {
		ch <- prometheus.MustNewConstMetric(m.hostUpDesc, prometheus.GaugeValue, 1-g.worst, name)
		ch <- prometheus.MustNewConstMetric(m.hostLossesDesc, prometheus.CounterValue, g.events, name)
	}
}

// hostName returns a host's name as a label. A count of those without one would
// rise with each scrape, so that there is none.
func (m *metrics) hostName(name string) string {
	if m.names.hosts.takes(name, true) {
		return name
	}
	return semconv.Other
}

func circuitValue(s chain.CircuitState) float64 {
	switch s {
	case chain.CircuitOpen:
		return 2
	case chain.CircuitHalfOpen:
		return 1
	}
	return 0
}
