package chain

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A callContext is what a handler gets: the values of its caller, and an end
// of its own. It stands in for context.WithTimeout, which would cost each call
// a timer and half a dozen allocations: whoever waits for the handler has a
// timer already and ends the context from there. Nothing is made until the
// handler asks for Done.
type callContext struct {
	parent   context.Context
	deadline time.Time
	timeout  time.Duration // what the invoke was given, without head-room
	// propagator writes the trace context for hosts that are elsewhere; nil if
	// nobody traces.
	propagator Propagator
	// selfEnding is set for handlers that run on their caller's goroutine:
	// nobody waits for these, so the context watches the clock itself.
	selfEnding bool

	mu     sync.Mutex
	doneCh chan struct{}
	err    error
	timer  *time.Timer
	unhook func() bool
}

var _ context.Context = (*callContext)(nil)

// Deadline returns the earlier of the call's own and the caller's deadline.
func (c *callContext) Deadline() (time.Time, bool) {
	d, ok := c.parent.Deadline()
	if !c.deadline.IsZero() && (!ok || c.deadline.Before(d)) {
		return c.deadline, true
	}
	return d, ok
}

// Value returns the caller's value.
func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.parent.Value(key)
}

// callKey finds the callContext that a context was made from.
type callKey struct{}

// InvokeTimeout returns how long the invoke that ctx was made for may take; zero
// or less means that there is no limit. It reports false for a context that
// no invoke has made. It is for hosts that pass the timeout on, since the
// context's deadline has head-room in it.
func InvokeTimeout(ctx context.Context) (time.Duration, bool) {
	c, ok := ctx.Value(callKey{}).(*callContext)
	if !ok {
		return 0, false
	}
	return c.timeout, true
}

// Done returns a channel that is closed when the call should end.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doneCh == nil {
		c.doneCh = make(chan struct{})
		switch {
		case c.err != nil:
			close(c.doneCh)
		case c.selfEnding:
			c.watch()
		}
	}
	return c.doneCh
}

// Err says why the call should end, once it should.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.selfEnding {
		if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
			c.end(context.DeadlineExceeded)
		} else if err := c.parent.Err(); err != nil {
			c.end(err)
		}
	}
	return c.err
}

// watch ends the context by itself. c.mu is held.
func (c *callContext) watch() {
	if !c.deadline.IsZero() {
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.cancel(errDeadline) })
	}
	c.unhook = context.AfterFunc(c.parent, func() { c.cancel(errCallerGone) })
}

// cancel ends the context for one of the chain's own causes.
func (c *callContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(cause, context.DeadlineExceeded) {
		c.end(context.DeadlineExceeded)
		return
	}
	c.end(context.Canceled)
}

// end sets the error once. c.mu is held.
func (c *callContext) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.doneCh != nil {
		close(c.doneCh)
	}
}

// ended returns the chain's own cause if err, which a handler returned, only
// passes on that this context had ended.
func (c *callContext) ended(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err == nil:
		return nil
	case errors.Is(c.err, context.DeadlineExceeded):
		return errDeadline
	}
	return errCallerGone
}

// release ends the context of a call that has returned, so that what the
// handler derived from it is freed.
func (c *callContext) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(context.Canceled)
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.unhook != nil {
		c.unhook()
	}
}
