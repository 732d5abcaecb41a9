package chain

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// MaxAbandoned is how many invokes of one interceptor may run on past their
// deadlines. Beyond it an invoke fails at once. Invokes that begin together are
// not counted against each other.
const MaxAbandoned = 64

// A Guard limits one interceptor, wherever it is called from: it counts the
// invokes that were abandoned at their deadline and still run. Its zero value
// is ready to use.
type Guard struct {
	abandoned atomic.Int64
	running   atomic.Int64 // for chains, in active mode
}

// Abandoned returns how many abandoned invokes still run.
func (g *Guard) Abandoned() int { return int(g.abandoned.Load()) }

// Full reports whether further invokes fail at once.
func (g *Guard) Full() bool { return g.abandoned.Load() >= MaxAbandoned }

// Do calls invoke with a context that ends after timeout, and returns at that
// time even if invoke ignores it. A panic, a Goexit and a passed deadline
// are errors. A timeout of zero or less means none, and then invoke runs on
// the caller's goroutine, as it does if inline is set; a Goexit cannot be
// contained there. The answer is checked to be one of an interceptor of type
// kind.
func (g *Guard) Do(ctx context.Context, kind core.Type, timeout time.Duration, inline bool, inv *core.Invocation,
	invoke func(context.Context, *core.Invocation) (core.Answer, error),
) (core.Answer, error) {
	return g.do(ctx, kind, invokeLimits{timeout: timeout, inline: inline}, inv, invoke)
}

// invokeLimits is how a guard runs one invoke.
type invokeLimits struct {
	timeout, headRoom time.Duration
	inline            bool
	propagator        Propagator
}

func (g *Guard) do(ctx context.Context, kind core.Type, limits invokeLimits, inv *core.Invocation,
	invoke func(context.Context, *core.Invocation) (core.Answer, error),
) (core.Answer, error) {
	f := &flight{guard: g, kind: kind, invoke: invoke, inv: *inv}
	f.propagator = limits.propagator
	f.prepare(ctx, limits.timeout, limits.headRoom, time.Time{})
	if limits.inline || limits.timeout <= 0 {
		f.runInline()
		return f.answer, f.err
	}
	if g.Full() {
		return core.Answer{}, ErrTooManyAbandoned
	}
	w := &waiter{}
	w.launch(f)
	w.wait(ctx, time.Time{})
	if f.settled != nil {
		return core.Answer{}, f.settled
	}
	return f.answer, f.err
}

// A flight is one call of a handler. The goroutine that runs it writes answer,
// err and took, and nobody reads them unless the flight has landed: an
// abandoned handler may still be writing.
type flight struct {
	callContext
	guard   *Guard
	total   *atomic.Int64 // of the chain; nil if the flight is not counted
	kind    core.Type
	invoke  func(context.Context, *core.Invocation) (core.Answer, error)
	inv     core.Invocation
	landing chan<- int // takes place when the flight has landed
	place   int        // among the flights of its waiter
	state   atomic.Int32

	// Written by the goroutine that runs the handler.
	returned bool
	answer   core.Answer
	err      error
	took     time.Duration

	// Owned by the goroutine that waits.
	began   time.Time
	settled error // errDeadline or errCallerGone, if it was abandoned
	done    bool
	slot    int
	step    *step
	call    Invoke          // what the observers are shown
	ctx     context.Context // what the observers made, for the end
	tell    func(*Outcome)  // the gate what came of it; nil for nobody
}

// States of a flight.
const (
	flying    int32 = iota
	landed          // it has ended, and is or was waited for
	orphaned        // its caller has gone; its deadline is still to come
	abandoned       // it runs on past its deadline
)

// prepare sets the flight's clock and context. The earlier of timeout, with its
// head-room, and limit is the deadline; zero values set none.
func (f *flight) prepare(parent context.Context, timeout, headRoom time.Duration, limit time.Time) {
	f.began = time.Now()
	f.parent = parent
	f.timeout = timeout
	if timeout > 0 {
		f.deadline = f.began.Add(timeout + headRoom)
	}
	if !limit.IsZero() && (f.deadline.IsZero() || limit.Before(f.deadline)) {
		f.deadline = limit
	}
}

// run calls the handler and lands.
func (f *flight) run() {
	defer func() {
		f.conclude(recover())
		switch {
		case f.state.CompareAndSwap(flying, landed):
			f.landing <- f.place
		case !f.state.CompareAndSwap(orphaned, landed):
			f.guard.abandoned.Add(-1)
		}
	}()
	f.serve()
}

// serve runs the handler and checks its answer, which may run code of the
// handler's too.
func (f *flight) serve() {
	f.answer, f.err = f.invoke(&f.callContext, &f.inv)
	if f.err == nil {
		f.answer, f.err = f.answer.Checked(f.kind)
	} else {
		// Its methods may panic, as those of a nil pointer do: here that is
		// contained.
		_ = reasonOf(f.kind, f.err)
	}
	f.returned = true
}

// runInline calls the handler on this goroutine.
func (f *flight) runInline() {
	f.selfEnding = true
	defer f.release()
	defer func() { f.conclude(recover()) }()
	f.serve()
}

// enter counts the flight among those that run, unless there are too many.
func (f *flight) enter(total *atomic.Int64, opts *Options) error {
	if n := total.Add(1); opts.MaxInflight > 0 && n > int64(opts.MaxInflight) {
		total.Add(-1)
		return errInflight
	}
	if n := f.guard.running.Add(1); opts.MaxConcurrent > 0 && n > int64(opts.MaxConcurrent) {
		f.guard.running.Add(-1)
		total.Add(-1)
		return errConcurrent
	}
	f.total = total
	return nil
}

// leave is called when the handler has come to its end, however late.
func (f *flight) leave() {
	if f.total != nil {
		f.total.Add(-1)
		f.guard.running.Add(-1)
	}
}

// conclude turns whatever ended the handler into answer and error.
func (f *flight) conclude(panicked any) {
	f.leave()
	f.took = time.Since(f.began)
	switch {
	case panicked != nil:
		f.answer, f.err = core.Answer{}, &PanicError{Value: panicked, Stack: debug.Stack()}
	case !f.returned:
		f.answer, f.err = core.Answer{}, ErrGoexit
	case f.err != nil:
		f.answer = core.Answer{}
		if ended := f.ended(f.err); ended != nil {
			f.err = ended
		}
	}
}

// abandon gives the flight up with a cause, unless it has landed. A handler is
// counted only once its deadline has passed: a caller that gives up early says
// nothing about the handler, and must not be able to use up the guard.
func (f *flight) abandon(cause error) bool {
	to := orphaned
	if cause == errDeadline {
		to = abandoned
		// Counted before the swap: the handler may end, and count down, at once.
		f.guard.abandoned.Add(1)
	}
	if !f.state.CompareAndSwap(flying, to) {
		if to == abandoned {
			f.guard.abandoned.Add(-1)
		}
		return false
	}
	if to == orphaned && !f.deadline.IsZero() {
		time.AfterFunc(time.Until(f.deadline), f.overdue)
	}
	f.settled = cause
	f.cancel(cause)
	return true
}

// overdue counts an orphan that has not ended by its deadline.
func (f *flight) overdue() {
	f.guard.abandoned.Add(1)
	if !f.state.CompareAndSwap(orphaned, abandoned) {
		f.guard.abandoned.Add(-1)
	}
}

// A waiter owns flights and waits for them on one goroutine. Its zero value is
// ready to use.
type waiter struct {
	landing chan int // of places in flights: a channel without pointers is one allocation
	flights []*flight
	timer   *time.Timer
	pending int
	room    [2]*flight // spares most waiters a slice
}

// reserve makes room for as many flights to land at once. Without it there is
// room for one.
func (w *waiter) reserve(most int) {
	if cap(w.landing) < most {
		w.landing = make(chan int, most)
	}
}

// launch starts the flight on a goroutine of its own.
func (w *waiter) launch(f *flight) {
	w.reserve(1)
	if w.flights == nil {
		w.flights = w.room[:0]
	}
	f.landing, f.place = w.landing, len(w.flights)
	w.flights = append(w.flights, f)
	w.pending++
	go f.run()
}

// wait returns when each flight has landed or been abandoned: at its own
// deadline, at limit, or when ctx ends.
func (w *waiter) wait(ctx context.Context, limit time.Time) {
	for w.pending > 0 {
		select {
		case place := <-w.landing:
			w.settle(w.flights[place])
		case <-w.alarm(limit):
			w.expire(time.Now(), limit)
		case <-ctx.Done():
			w.expireAll(errCallerGone)
		}
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	clear(w.flights)
	w.flights = w.flights[:0]
}

func (w *waiter) settle(f *flight) {
	f.done = true
	f.release()
	w.pending--
}

// alarm returns a channel that fires at the earliest deadline.
func (w *waiter) alarm(limit time.Time) <-chan time.Time {
	next := limit
	for _, f := range w.flights {
		if !f.done && !f.deadline.IsZero() && (next.IsZero() || f.deadline.Before(next)) {
			next = f.deadline
		}
	}
	switch {
	case next.IsZero():
		return nil
	case w.timer == nil:
		w.timer = time.NewTimer(time.Until(next))
	default:
		w.timer.Reset(time.Until(next))
	}
	return w.timer.C
}

// expire abandons the flights whose time is up.
func (w *waiter) expire(now, limit time.Time) {
	if !limit.IsZero() && !now.Before(limit) {
		w.expireAll(errDeadline)
		return
	}
	for _, f := range w.flights {
		if !f.done && !f.deadline.IsZero() && !now.Before(f.deadline) {
			w.give(f, errDeadline)
		}
	}
}

// expireAll abandons what still flies and takes in what has just landed.
func (w *waiter) expireAll(cause error) {
	for _, f := range w.flights {
		if !f.done {
			w.give(f, cause)
		}
	}
}

// give abandons one flight. If it has landed meanwhile its result counts and
// is about to arrive.
func (w *waiter) give(f *flight, cause error) {
	if f.abandon(cause) {
		f.done = true
		w.pending--
		return
	}
	w.settle(w.flights[<-w.landing])
}
