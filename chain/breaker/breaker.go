package breaker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
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

	mu       sync.Mutex
	watchers map[*watcher]bool
}

var _ chain.CircuitBreaker = (*Breaker)(nil)

type watcher struct {
	changed func(name string, from, to chain.CircuitState)
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

// Errors that outcomes are told as.
var (
	errFailed  = errors.New("failed")
	errNobodys = errors.New("the caller gave up, or it was not called")
)

// Enter lets a call begin, unless its interceptor's circuit is open.
func (b *Breaker) Enter(e *chain.Entry) (func(*chain.Outcome), error) {
	done, err := b.circuit(e.Name).allow()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", chain.ErrCircuitOpen, err)
	}
	return func(out *chain.Outcome) { done(failure(out)) }, nil
}

// circuit returns the circuit of a name.
func (b *Breaker) circuit(name string) *circuit {
	if found, ok := b.circuits.Load(name); ok {
		return found.(*circuit)
	}
	found, _ := b.circuits.LoadOrStore(name, newCircuit(b, name))
	return found.(*circuit)
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

// Circuits returns the circuits of all interceptors that were to be called.
func (b *Breaker) Circuits() map[string]chain.Circuit {
	out := map[string]chain.Circuit{}
	b.circuits.Range(func(name, found any) bool {
		out[name.(string)] = found.(*circuit).status()
		return true
	})
	return out
}

// Reset closes an interceptor's circuit and forgets its failures. It reports
// false if there is none.
func (b *Breaker) Reset(name string) bool {
	found, ok := b.circuits.Load(name)
	if ok {
		found.(*circuit).reset()
	}
	return ok
}

// Watch has changed called after each change of a circuit, until stop is called.
// It must neither block nor call the breaker.
func (b *Breaker) Watch(changed func(name string, from, to chain.CircuitState)) (stop func()) {
	w := &watcher{changed}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == nil {
		b.watchers = map[*watcher]bool{}
	}
	b.watchers[w] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, w)
	}
}

// tell tells a change to whoever wants to know.
func (b *Breaker) tell(name string, from, to chain.CircuitState) {
	b.opts.Logger.Warn("circuit changed", "interceptor", name, "from", string(from), "to", string(to))
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watchers {
		w.changed(name, from, to)
	}
}
