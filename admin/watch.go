package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/chain"
)

// A watcher is the plane's observer of one chain: it counts what each interceptor
// does, which messages are under way under which policy, and keeps what was
// decided.
type watcher struct {
	chain.NopObserver

	// Fixed at creation.
	plane *Plane
	name  string
	chain *chain.Chain

	told map[string]chain.Overrides // last; the plane's write lock guards it

	// underWay counts messages by the number of their policy, modulo its length:
	// a message would have to last for as many flips to be counted wrongly.
	underWay [256]atomic.Int64
	// drained is when a message under an older policy last ended, in Unix
	// nanoseconds.
	drained atomic.Int64
}

var _ interface {
	chain.Observer
	chain.Preparer
	chain.PolicyObserver
} = (*watcher)(nil)

func (w *watcher) slot(policy uint64) *atomic.Int64 {
	return &w.underWay[policy%uint64(len(w.underWay))]
}

// draining counts the messages under way that run under a policy before since.
func (w *watcher) draining(since uint64) int64 {
	var n int64
	for i := range w.underWay {
		n += w.underWay[i].Load()
	}
	newest := w.chain.Snapshot().Number()
	for p := since; p <= newest && p < since+uint64(len(w.underWay)); p++ {
		n -= w.slot(p).Load()
	}
	return max(0, n)
}

// Prepare returns the counters of an entry.
func (w *watcher) Prepare(e *chain.Entry) any { return w.plane.stats.of(e.Name) }

// PolicyChanged has the plane look again at what interceptors there are, unless
// it is what changed the policy itself.
func (w *watcher) PolicyChanged(*chain.Chain, []*chain.Entry) { w.plane.poke() }

// MessageStart begins to keep what is decided on a message.
func (w *watcher) MessageStart(ctx context.Context, m *chain.Message) context.Context {
	w.slot(m.Policy).Add(1)
	t := &tally{watcher: w}
	t.decision = decision{
		ID: m.ID, Chain: w.name, Time: m.Start, Method: m.Method, Known: m.Offered, Target: m.Target, Policy: m.Policy,
	}
	return context.WithValue(ctx, tallyKey{w}, t)
}

// MessageEnd keeps the message if anything was decided on it.
func (w *watcher) MessageEnd(ctx context.Context, end *chain.MessageEnd) {
	w.slot(end.Message.Policy).Add(-1)
	if end.Message.Policy != w.chain.Snapshot().Number() {
		w.drained.Store(time.Now().UnixNano())
	}
	if t, ok := ctx.Value(tallyKey{w}).(*tally); ok {
		t.end(ctx, end)
	}
}

// InvokeEnd counts an outcome, and notes it for the message.
func (w *watcher) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	if s, ok := i.Handle.(*stat); ok {
		s.count(out)
	}
	if t, ok := ctx.Value(tallyKey{w}).(*tally); ok {
		t.note(ctx, i, out)
	}
}

// tallyKey finds a message's tally; watchers of several chains do not meet.
type tallyKey struct{ w *watcher }
