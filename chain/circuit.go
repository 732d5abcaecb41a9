package chain

import "time"

// A CircuitBreaker is a [Gate] with a circuit for each interceptor that it was
// asked about, by name. Its type must be comparable.
type CircuitBreaker interface {
	Gate
	// Circuits returns the circuits. One that is not there is closed.
	Circuits() map[string]Circuit
	// Reset closes a circuit and forgets its failures. It reports false if
	// there is none.
	Reset(name string) bool
	// Watch has changed called after each change of a circuit, until stop is
	// called. It runs on the message's path and must neither block nor call
	// the breaker.
	Watch(changed func(name string, from, to CircuitState)) (stop func())
}

// A Circuit says how an interceptor's circuit stands.
type Circuit struct {
	State CircuitState
	// Since is when it became so; zero if it never was otherwise.
	Since time.Time
	// Opened counts how often it opened.
	Opened uint64
}

// A CircuitState is a state of a circuit. The set is closed.
type CircuitState string

// The states.
const (
	CircuitClosed   CircuitState = "closed"    // calls go through
	CircuitHalfOpen CircuitState = "half-open" // one call goes through and decides
	CircuitOpen     CircuitState = "open"      // calls fail at once
)

// Breaker returns Options.Gate if it is a circuit breaker, or nil.
func (c *Chain) Breaker() CircuitBreaker {
	b, _ := c.opts.Gate.(CircuitBreaker)
	return b
}
