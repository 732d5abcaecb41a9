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
	f.parent, f.timeout, f.headRoom = ctx, limits.timeout, limits.headRoom
	f.prepare(time.Now(), time.Time{})
	if limits.inline || limits.timeout <= 0 {
		f.runInline()
		return f.answer, f.err
	}
	if g.Full() {
		return core.Answer{}, ErrTooManyAbandoned
	}
	w := &waiter{}
	w.expect(1)
	w.launch(f)
	w.wait(ctx, time.Time{})
	w.stop()
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
	guard  *Guard
	total  *atomic.Int64 // of the chain; nil if the flight is not counted
	kind   core.Type
	invoke func(context.Context, *core.Invocation) (core.Answer, error)
	inv    core.Invocation
	waiter *waiter // is told of the landing
	state  atomic.Int32

	// Written by the goroutine that runs the handler.
	returned bool
	answer   core.Answer
	err      error
	took     time.Duration

	// Owned by the goroutine that waits.
	headRoom time.Duration
	began    time.Time
	settled  error         // errDeadline or errCallerGone, if it was abandoned
	lasted   time.Duration // until it was
	slot     int
	step     *step
	call     Invoke          // what the observers are shown
	ctx      context.Context // what the observers made, for the end
	tell     func(*Outcome)  // the gate what came of it; nil for nobody
}

// States of a flight.
const (
	flying    int32 = iota
	landed          // it has ended, and is or was waited for
	orphaned        // its caller has gone; its deadline is still to come
	abandoned       // it runs on past its deadline
)

// prepare sets the flight's clock: its time begins now. The earlier of timeout,
// with its head-room, and limit is the deadline; zero values set none.
func (f *flight) prepare(now, limit time.Time) {
	f.began = now
	if f.timeout > 0 {
		f.deadline = now.Add(f.timeout + f.headRoom)
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
			f.release()
			f.waiter.landed()
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
	if f.state.Load() != flying {
		return false
	}
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
	f.settled, f.lasted = cause, time.Since(f.began)
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

// A waiter waits for flights on one goroutine. The last of them to land wakes
// it: with one channel and one timer it costs the same for many as for one. Its
// zero value is ready to use.
type waiter struct {
	landing chan struct{} // is sent to by the last flight that lands
	left    atomic.Int32  // flights that have neither landed nor been abandoned
	flights []*flight
	timer   *time.Timer
	armed   time.Time  // when the timer fires; zero if it does not
	room    [2]*flight // spares most waiters a slice
}

// reserve makes room for as many flights at once.
func (w *waiter) reserve(most int) {
	if most > len(w.room) && most > cap(w.flights) {
		w.flights = make([]*flight, 0, most)
	}
}

// launch starts the flight on a goroutine of its own. Each launch is followed
// by a wait before there is another, but for flights that begin together: these
// are announced with expect.
func (w *waiter) launch(f *flight) {
	f.waiter = w
	if w.flights == nil {
		w.flights = w.room[:0]
	}
	w.flights = append(w.flights, f)
	go f.run()
}

// expect counts flights that are about to be launched. Until they all are, none
// can be the last to land.
func (w *waiter) expect(n int) {
	if w.landing == nil {
		w.landing = make(chan struct{}, 1)
	}
	w.left.Add(int32(n))
}

// landed is called by each flight that has landed.
func (w *waiter) landed() {
	if w.left.Add(-1) == 0 {
		w.landing <- struct{}{}
	}
}

// wait returns when each flight has landed or been abandoned: at its own
// deadline, at limit, or when ctx ends.
func (w *waiter) wait(ctx context.Context, limit time.Time) {
	for waiting := len(w.flights) > 0; waiting; {
		select {
		case <-w.landing:
			waiting = false
		case <-w.alarm(limit):
			w.armed = time.Time{}
			waiting = w.expire(time.Now(), limit)
		case <-ctx.Done():
			waiting = w.expireAll(errCallerGone)
		}
	}
	clear(w.flights)
	w.flights = w.flights[:0]
}

// stop is called when there is nothing more to wait for.
func (w *waiter) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// alarm returns a channel that fires at the earliest deadline, or before: the
// timer is left alone as long as it fires in time.
func (w *waiter) alarm(limit time.Time) <-chan time.Time {
	next := limit
	for _, f := range w.flights {
		if f.state.Load() == flying && !f.deadline.IsZero() && (next.IsZero() || f.deadline.Before(next)) {
			next = f.deadline
		}
	}
	switch {
	case next.IsZero():
		return nil
	case w.timer == nil:
		w.timer = time.NewTimer(time.Until(next))
	case !w.armed.IsZero() && !next.Before(w.armed):
		return w.timer.C
	default:
		w.timer.Reset(time.Until(next))
	}
	w.armed = next
	return w.timer.C
}

// expire abandons the flights whose time is up and reports whether there are
// others to wait for.
func (w *waiter) expire(now, limit time.Time) (waiting bool) {
	if !limit.IsZero() && !now.Before(limit) {
		return w.expireAll(errDeadline)
	}
	waiting = true
	for _, f := range w.flights {
		if !f.deadline.IsZero() && !now.Before(f.deadline) && f.abandon(errDeadline) {
			waiting = w.left.Add(-1) > 0
		}
	}
	return waiting
}

// expireAll abandons all that still fly. What has landed meanwhile counts, and
// the last of it is about to tell.
func (w *waiter) expireAll(cause error) (waiting bool) {
	waiting = true
	for _, f := range w.flights {
		if f.abandon(cause) {
			waiting = w.left.Add(-1) > 0
		}
	}
	return waiting
}
