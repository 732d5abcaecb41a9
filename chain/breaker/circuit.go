package breaker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/sony/gobreaker/v2"
)

// A circuit is that of one interceptor. It can be replaced, which closes it.
type circuit struct {
	// Fixed at creation.
	breaker *Breaker
	name    string

	current atomic.Pointer[gobreaker.TwoStepCircuitBreaker[any]]
	opened  atomic.Uint64
	since   atomic.Int64 // in nanoseconds of Unix; 0 for never
}

func newCircuit(b *Breaker, name string) *circuit {
	c := &circuit{breaker: b, name: name}
	c.current.Store(c.make())
	return c
}

func (c *circuit) make() *gobreaker.TwoStepCircuitBreaker[any] {
	opts := &c.breaker.opts
	var mine *gobreaker.TwoStepCircuitBreaker[any]
	mine = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: c.name, MaxRequests: 1, Interval: opts.Window, BucketPeriod: opts.Window / 10, Timeout: opts.OpenFor,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return n.Requests >= uint32(opts.MinCalls) && float64(n.TotalFailures) >= opts.Rate*float64(n.Requests)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNobodys) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if c.current.Load() == mine { // and not one that calls of before a reset end on
				c.changed(stateOf(from), stateOf(to))
			}
		},
	})
	return mine
}

// changed notes a change. The circuit's own lock is held.
func (c *circuit) changed(from, to chain.CircuitState) {
	c.since.Store(time.Now().UnixNano())
	if to == chain.CircuitOpen {
		c.opened.Add(1)
	}
	c.breaker.tell(c.name, from, to)
}

func (c *circuit) allow() (func(error), error) { return c.current.Load().Allow() }

// reset replaces the circuit by a closed one.
func (c *circuit) reset() {
	before := c.current.Load()
	from := stateOf(before.State())
	if c.current.CompareAndSwap(before, c.make()) && from != chain.CircuitClosed {
		c.changed(from, chain.CircuitClosed)
	}
}

func (c *circuit) status() chain.Circuit {
	out := chain.Circuit{State: stateOf(c.current.Load().State()), Opened: c.opened.Load()}
	if at := c.since.Load(); at != 0 {
		out.Since = time.Unix(0, at)
	}
	return out
}

func stateOf(s gobreaker.State) chain.CircuitState {
	switch s {
	case gobreaker.StateOpen:
		return chain.CircuitOpen
	case gobreaker.StateHalfOpen:
		return chain.CircuitHalfOpen
	}
	return chain.CircuitClosed
}
