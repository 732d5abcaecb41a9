package breaker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/sony/gobreaker/v2"
)

// Options configures [New]. The zero value is ready to use.
type Options struct {
	// Window is how far back failures count. Zero means 10 s.
	Window time.Duration
	// MinCalls is how many calls in the window it takes to judge; zero means 20.
	// Rate is the share of failures that opens the circuit; zero means 0.5.
	MinCalls int
	Rate     float64
	// OpenFor is how long a circuit stays open before a call is let through.
	// Zero means 5 s.
	OpenFor time.Duration
	// Logger takes changes of state. Nil logs nothing.
	Logger *slog.Logger
}

// A Breaker has a circuit for each interceptor of its chains, by name. Its methods
// may be called from several goroutines at once. Make one with [New].
type Breaker struct {
	// Fixed at creation.
	opts Options

	circuits sync.Map // of *circuit, by name
}

var _ chain.Gate = (*Breaker)(nil)

// A circuit can be replaced, which closes it.
type circuit struct {
	mu      sync.RWMutex
	breaker *gobreaker.TwoStepCircuitBreaker[any]
}

// New returns a breaker whose circuits are all closed.
func New(opts *Options) *Breaker {
	b := &Breaker{}
	if opts != nil {
		b.opts = *opts
	}
	set := func(d *time.Duration, fallback time.Duration) {
		if *d <= 0 {
			*d = fallback
		}
	}
	set(&b.opts.Window, 10*time.Second)
	set(&b.opts.OpenFor, 5*time.Second)
	if b.opts.MinCalls <= 0 {
		b.opts.MinCalls = 20
	}
	if b.opts.Rate <= 0 {
		b.opts.Rate = 0.5
	}
	if b.opts.Logger == nil {
		b.opts.Logger = slog.New(slog.DiscardHandler)
	}
	return b
}

func (b *Breaker) make(name string) *gobreaker.TwoStepCircuitBreaker[any] {
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name: name, MaxRequests: 1, Interval: b.opts.Window, BucketPeriod: b.opts.Window / 10, Timeout: b.opts.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= uint32(b.opts.MinCalls) && float64(c.TotalFailures) >= b.opts.Rate*float64(c.Requests)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNobodys) },
		OnStateChange: func(name string, from, to gobreaker.State) {
			b.opts.Logger.Warn("circuit changed", "interceptor", name, "from", from.String(), "to", to.String())
		},
	})
}

// Errors that outcomes are told as.
var (
	errFailed  = errors.New("failed")
	errNobodys = errors.New("the caller gave up, or it was not called")
)

// Enter lets a call begin, unless its interceptor's circuit is open.
func (b *Breaker) Enter(e *chain.Entry) (func(*chain.Outcome), error) {
	found, ok := b.circuits.Load(e.Name)
	if !ok {
		found, _ = b.circuits.LoadOrStore(e.Name, &circuit{breaker: b.make(e.Name)})
	}
	c := found.(*circuit)
	c.mu.RLock()
	two := c.breaker
	c.mu.RUnlock()
	done, err := two.Allow()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", chain.ErrCircuitOpen, err)
	}
	return func(out *chain.Outcome) { done(failure(out)) }, nil
}

// failure says whether an outcome is one.
func failure(out *chain.Outcome) error {
	switch {
	case out.Reason == chain.ReasonCancelled || !out.Ran:
		return errNobodys
	case out.Verdict == chain.VerdictError, out.Verdict == chain.VerdictTimeout:
		return errFailed
	}
	return nil
}

// States returns the state of each circuit that was asked for: closed, open or
// half-open.
func (b *Breaker) States() map[string]string {
	out := map[string]string{}
	b.circuits.Range(func(name, found any) bool {
		c := found.(*circuit)
		c.mu.RLock()
		defer c.mu.RUnlock()
		out[name.(string)] = c.breaker.State().String()
		return true
	})
	return out
}

// Reset closes an interceptor's circuit and forgets its failures. It reports
// false if there is none.
func (b *Breaker) Reset(name string) bool {
	found, ok := b.circuits.Load(name)
	if !ok {
		return false
	}
	c := found.(*circuit)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaker = b.make(name)
	b.opts.Logger.Warn("circuit reset", "interceptor", name)
	return true
}
