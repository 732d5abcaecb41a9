package admin

import (
	"net/http"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A circuitView is an interceptor's circuit on the wire.
type circuitView struct {
	State chain.CircuitState `json:"state"`
	// Since is when it became so; absent if it never was otherwise.
	Since  *time.Time `json:"since,omitempty"`
	Opened uint64     `json:"opened"`
}

// breakers returns the breakers of an interceptor's chains, each once.
func (p *Plane) breakers(it *item) []chain.CircuitBreaker {
	var out []chain.CircuitBreaker
	seen := map[chain.CircuitBreaker]bool{}
	for _, name := range it.chains {
		if b := p.opts.Chains[name].Breaker(); b != nil && !seen[b] {
			seen[b] = true
			out = append(out, b)
		}
	}
	return out
}

// circuit returns an interceptor's circuit, the worst if it has several; nil if
// its chains have no breaker.
func (p *Plane) circuit(name string, it *item) *circuitView {
	rank := map[chain.CircuitState]int{chain.CircuitHalfOpen: 1, chain.CircuitOpen: 2}
	var out *circuitView
	for _, b := range p.breakers(it) {
		if out == nil {
			out = &circuitView{State: chain.CircuitClosed}
		}
		c, ok := b.Circuits()[name]
		if !ok {
			continue
		}
		out.Opened += c.Opened
		if rank[c.State] > rank[out.State] || out.Since == nil {
			out.State, out.Since = c.State, nil
			if !c.Since.IsZero() {
				at := c.Since.UTC()
				out.Since = &at
			}
		}
	}
	return out
}

// resetBreaker closes an interceptor's circuit, for somebody who knows that it is
// well again.
func (p *Plane) resetBreaker(w http.ResponseWriter, c *call) error {
	name, it, err := p.itemOf(c)
	if err != nil {
		return err
	}
	if _, err := c.query(); err != nil {
		return err
	}
	ch := &change{record: p.newRecord(c)}
	if err := p.reasonOf(c, ch); err != nil {
		return err
	}
	before := p.circuit(name, it)
	if before == nil {
		return newProblem("incompatible", "no chain of the interceptor has a circuit breaker")
	}
	outcome := history.Noop
	for _, b := range p.breakers(it) {
		if b.Reset(name) {
			outcome = history.Applied // what it had counted is forgotten, too
		}
	}
	ch.record.Before, ch.record.After = string(before.State), string(chain.CircuitClosed)
	r := p.writeDown(&ch.record, outcome)
	return reply(w, http.StatusOK, map[string]any{"name": name, "circuit": p.circuit(name, it), "change": viewRecord(&r)})
}

// watchBreakers has changes of circuits told as events.
func (p *Plane) watchBreakers() {
	seen := map[chain.CircuitBreaker]bool{}
	for _, ch := range p.opts.Chains {
		b := ch.Breaker()
		if b == nil || seen[b] {
			continue
		}
		seen[b] = true
		p.unwatch = append(p.unwatch, b.Watch(p.circuitChanged))
	}
}

// circuitChanged runs on a message's path.
func (p *Plane) circuitChanged(name string, from, to chain.CircuitState) {
	raw, err := core.Encode(struct {
		Interceptor string             `json:"interceptor"`
		Time        time.Time          `json:"time"`
		From        chain.CircuitState `json:"from"`
		To          chain.CircuitState `json:"to"`
	}{name, time.Now().UTC(), from, to})
	if err == nil {
		p.hub.publish(event{Type: eventBreaker, Interceptor: name, Data: raw})
	}
}
