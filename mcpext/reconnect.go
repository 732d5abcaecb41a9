package mcpext

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// ErrHostDown is wrapped by failures of invokes while a host cannot be reached.
var ErrHostDown = errors.New("the interceptor host is down")

// A dialedHost keeps a session with an interceptor server, and opens another
// when that has gone. One goroutine dials; invokes never wait for it.
type dialedHost struct {
	// Fixed at creation.
	dial   Dialer
	opts   DialOptions
	logger *slog.Logger
	life   context.Context // ended by Close
	end    context.CancelFunc
	done   chan struct{}     // closed when the loop has ended
	doubt  chan struct{}     // an invoke has failed in a way that puts the session in doubt
	asked  chan chan<- error // for a look at once, and where to say what came of it

	mu       sync.Mutex
	session  *sessionHost // nil while there is none
	list     []core.Descriptor
	bindings []chain.Binding
	health   chain.HostHealth
	changed  func()
}

var _ interface {
	chain.Binder
	chain.RemoteHost
	chain.HealthReporter
	chain.Refresher
} = (*dialedHost)(nil)

// DialHost returns a host that dials by itself: once before it returns, and again
// whenever the session has gone. Meanwhile its interceptors stay in their chains,
// and each invoke fails at once with [ErrHostDown], so that failOpen decides;
// those under way at the moment of loss fail once. What the host lists after it
// has come back, or at a check, takes effect with the next message.
//
// A host that cannot be dialled and listed at first is an error: nobody could
// know which guards are missing.
func DialHost(ctx context.Context, dial Dialer, opts *DialOptions) (chain.Host, error) {
	h := &dialedHost{
		dial: dial, opts: opts.withDefaults(), done: make(chan struct{}), doubt: make(chan struct{}, 1), asked: make(chan chan<- error),
	}
	h.logger = h.opts.Logger
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	h.life, h.end = context.WithCancel(context.Background())
	if err := h.connect(ctx); err != nil {
		h.end()
		return nil, fmt.Errorf("mcpext: %w", err)
	}
	go h.loop()
	return h, nil
}

// connect opens a session and takes over what it lists.
func (h *dialedHost) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.opts.DialTimeout)
	defer cancel()
	session, err := h.dial(ctx)
	if err != nil {
		return err
	}
	s := newSessionHost(session, &h.opts.SessionOptions)
	list, whole, err := s.list(ctx)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	h.take(s, list, whole)
	return nil
}

// take makes a session the current one.
func (h *dialedHost) take(s *sessionHost, list []core.Descriptor, whole bool) {
	h.mu.Lock()
	h.session, h.health.Err, h.health.Fault, h.health.Since = s, nil, "", time.Now()
	changed := h.adopt(list, whole)
	h.mu.Unlock()
	changed()
}

// adopt takes over a list and returns what tells the chain. From one that is not
// whole nobody can tell what is gone: what was listed before stays, and its
// invokes say whether it is there. h.mu is held.
func (h *dialedHost) adopt(list []core.Descriptor, whole bool) (changed func()) {
	if !whole {
		list = withMissing(list, h.list)
	}
	if h.bindings != nil && reflect.DeepEqual(h.list, list) {
		return func() {}
	}
	h.list = list
	h.bindings = make([]chain.Binding, len(list))
	for i, d := range list {
		h.bindings[i] = chain.Binding{
			Descriptor: d, HeadRoom: headRoom, Remote: true,
			Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
				return h.Invoke(ctx, d.Name, inv)
			},
		}
	}
	if h.changed == nil {
		return func() {}
	}
	return h.changed
}

// withMissing returns the list with what only the one before has.
func withMissing(list, before []core.Descriptor) []core.Descriptor {
	for _, d := range before {
		same := func(other core.Descriptor) bool { return other.Name == d.Name }
		if !slices.ContainsFunc(list, same) {
			list = append(list, d)
		}
	}
	return list
}

// loop keeps a session until the host is closed.
func (h *dialedHost) loop() {
	defer close(h.done)
	backoff := h.opts.MinBackoff
	for h.life.Err() == nil {
		var asked chan<- error
		if s := h.current(); s != nil {
			backoff = h.opts.MinBackoff
			asked = h.watch(s)
		}
		if asked == nil { // or else somebody waits
			asked = h.sleep(jitter(backoff))
		}
		if h.life.Err() != nil {
			return
		}
		err := h.connect(h.life)
		if err != nil {
			h.lost(nil, err, faultOf(err))
			backoff = min(2*backoff, h.opts.MaxBackoff)
		} else {
			h.logger.Warn("interceptor host is back")
		}
		if asked != nil { // who asked finds it in the health, too
			asked <- err
		}
	}
}

// jitter spreads a wait, so that many do not come at once.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// sleep returns after d, or when the host is closed, or somebody asks for a look.
func (h *dialedHost) sleep(d time.Duration) (asked chan<- error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.life.Done():
	case asked = <-h.asked:
	}
	return asked
}

// watch returns when the session has gone, or the host is closed. If somebody
// asked and that came out, it returns where to say what comes of dialling.
func (h *dialedHost) watch(s *sessionHost) (asked chan<- error) {
	gone := make(chan error, 1)
	go func() { gone <- s.session.Wait() }()
	var checks <-chan time.Time
	if h.opts.CheckEvery > 0 {
		ticker := time.NewTicker(h.opts.CheckEvery)
		defer ticker.Stop()
		checks = ticker.C
	}
	for {
		asked = nil
		select {
		case <-h.life.Done():
			return nil
		case err := <-gone:
			h.lost(s, orEOF(err), chain.FaultSession)
			return nil
		case <-checks:
		case <-h.doubt:
		case asked = <-h.asked:
		}
		if err := h.check(s); err != nil {
			h.lost(s, err, faultOf(err))
			return asked
		}
		if asked != nil {
			asked <- nil
		}
	}
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// check lists the host again, which shows that it is there.
func (h *dialedHost) check(s *sessionHost) error {
	ctx, cancel := context.WithTimeout(h.life, h.opts.DialTimeout)
	defer cancel()
	list, whole, err := s.list(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	changed := h.adopt(list, whole)
	h.mu.Unlock()
	changed()
	return nil
}

// lost notes that there is no session, and why.
func (h *dialedHost) lost(s *sessionHost, err error, fault chain.HostFault) {
	if h.life.Err() != nil {
		return
	}
	h.mu.Lock()
	first := h.health.Err == nil
	if first {
		h.health.Losses++
		h.health.Since = time.Now()
	}
	h.session, h.health.Err, h.health.Last, h.health.Fault = nil, fmt.Errorf("%w: %w", ErrHostDown, err), err, fault
	h.mu.Unlock()
	if first {
		h.logger.Error("interceptor host is lost", "fault", string(fault), "err", err)
	}
	if s != nil {
		_ = s.Close() // the process of a stdio host, too
	}
}

func (h *dialedHost) current() *sessionHost {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// Invoke sends interceptor/invoke over the session of this moment.
func (h *dialedHost) Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error) {
	h.mu.Lock()
	s, down := h.session, h.health.Err
	h.mu.Unlock()
	if s == nil {
		return core.Answer{}, down
	}
	answer, err := s.Invoke(ctx, name, inv)
	if err != nil && ctx.Err() == nil && doubtful(err) {
		select {
		case h.doubt <- struct{}{}:
		default: // somebody has said so already
		}
		err = fmt.Errorf("%w: %w", ErrHostDown, err)
	}
	return answer, err
}

// List returns what was listed last.
func (h *dialedHost) List(context.Context) ([]core.Descriptor, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list, nil
}

// Bindings returns what was listed last. While the host is down they stay, and
// fail.
func (h *dialedHost) Bindings() []chain.Binding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bindings
}

// Watch has changed called when the list is another.
func (h *dialedHost) Watch(changed func()) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = changed
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed = nil
	}
}

// HeadRoom is what the chain waits beyond the timeout that the peer is told.
func (h *dialedHost) HeadRoom() time.Duration { return headRoom }

// Health says how the host fares. Its Err wraps [ErrHostDown].
func (h *dialedHost) Health() chain.HostHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.health
}

// Refresh lists the host again, and dials at once if it cannot be reached.
func (h *dialedHost) Refresh(ctx context.Context) error {
	answer := make(chan error, 1) // nobody may be there any more to take it
	select {
	case h.asked <- answer:
	case <-h.done:
		return ErrHostDown
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-h.done:
		return ErrHostDown
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the session and gives up dialling.
func (h *dialedHost) Close() error {
	h.end()
	s := h.current()
	var err error
	if s != nil {
		err = s.Close()
	}
	<-h.done
	return err
}
