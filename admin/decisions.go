package admin

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A decision is what was decided on one message: which interceptors ran in which
// phase, and what they and the chain made of it. It holds nothing of what the
// message said.
type decision struct {
	// ID is the message's, as on spans and in logs.
	ID      string    `json:"id"`
	TraceID string    `json:"traceId,omitempty"`
	Chain   string    `json:"chain"`
	Time    time.Time `json:"time"`
	Method  string    `json:"method"`
	// Target is the tool or prompt, if the server has it; else it is a client's
	// own words.
	Target string `json:"target,omitempty"`
	Known  bool   `json:"-"`
	// Policy counts the policies of the chain.
	Policy  uint64               `json:"policy"`
	Outcome chain.MessageOutcome `json:"outcome,omitempty"`
	// Phase is the one that the message was stopped in, if it was.
	Phase      core.Phase `json:"phase,omitempty"`
	DurationMs float64    `json:"durationMs"`
	Steps      []stepView `json:"steps"`
	// Truncated says that there were more steps than are kept.
	Truncated bool `json:"truncated,omitempty"`
	// SameTrace are the ids of other messages with the trace that was asked for.
	SameTrace []string `json:"sameTrace,omitempty"`
}

// A stepView is one interceptor's part in a message.
type stepView struct {
	Interceptor string        `json:"interceptor"`
	Type        core.Type     `json:"type"`
	Event       string        `json:"event,omitempty"` // if it is not the method
	Phase       core.Phase    `json:"phase"`
	Mode        core.Mode     `json:"mode"`
	Verdict     chain.Verdict `json:"verdict"`
	Action      chain.Action  `json:"action"`
	Reason      chain.Reason  `json:"reason,omitempty"`
	Severity    core.Severity `json:"severity,omitempty"`
	DurationMs  float64       `json:"durationMs"`
}

// maxSteps bounds the steps that are kept of one message.
const maxSteps = 64

// A tally collects the decision on one message. Audit runs add to it after the
// message has ended.
type tally struct {
	watcher *watcher

	mu       sync.Mutex
	decision decision
	decided  bool // something other than a plain pass
	ended    bool
	kept     bool
	serious  bool // something was denied, failed or stopped
	shelved  bool // and it was kept as that
	order    uint64
	room     [4]stepView
}

// note adds a step.
func (t *tally) note(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	step := stepView{
		Interceptor: i.Entry.Name, Type: i.Entry.Type, Phase: out.Phase, Mode: out.Mode,
		Verdict: out.Verdict, Action: out.Action, Reason: out.Reason, DurationMs: ms(out.Duration),
	}
	if out.Validation != nil && out.Verdict == chain.VerdictDeny {
		step.Severity = out.Validation.Verdict().Severity
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &t.decision
	if i.Event != d.Method {
		step.Event = i.Event
	}
	if d.Steps == nil {
		d.Steps = t.room[:0]
	}
	if len(d.Steps) >= maxSteps {
		d.Truncated = true
	} else {
		d.Steps = append(d.Steps, step)
	}
	t.decided = t.decided || out.Verdict != chain.VerdictAllow
	switch out.Verdict {
	case chain.VerdictDeny, chain.VerdictError, chain.VerdictTimeout:
		t.serious = true
	}
	t.settle(ctx)
}

// end notes how the message ended.
func (t *tally) end(ctx context.Context, end *chain.MessageEnd) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &t.decision
	d.Outcome, d.Phase, d.DurationMs = end.Outcome, end.Phase, ms(end.Duration)
	d.Known = d.Known || end.Message.Offered
	t.ended = true
	t.serious = t.serious || end.Phase != ""
	t.decided = t.decided || t.serious
	t.settle(ctx)
}

// settle keeps the decision once there is one. t.mu is held.
func (t *tally) settle(ctx context.Context) {
	if !t.decided || !t.ended || t.kept && t.serious == t.shelved {
		return
	}
	t.kept, t.shelved = true, t.serious
	t.decision.TraceID = t.watcher.chain.TraceID(ctx)
	p := t.watcher.plane
	p.decisions.keep(t)
	if p.listening.Load() > 0 {
		select {
		case p.decided <- t:
		default: // a sample is enough
		}
	}
}

func (t *tally) isSerious() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.serious
}

// view returns a copy that is fit to be shown.
func (t *tally) view() decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.decision
	d.Steps = append([]stepView{}, d.Steps...)
	if !d.Known {
		d.Target = ""
	}
	if !known(d.Method) {
		d.Method = other
	}
	return d
}

// other stands for a client's own words.
const other = "_OTHER"

// known reports whether a method is one of MCP's.
func known(method string) bool {
	for _, m := range core.StandardMethods() {
		if m == method {
			return true
		}
	}
	return false
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A ring keeps the last decisions: those with which something was denied, failed
// or stopped apart from the others, so that plain changes do not drive them out.
type ring struct {
	mu    sync.Mutex
	kept  [2][]*tally // the serious ones second
	next  [2]int
	order uint64
}

func newRing(size int) *ring {
	return &ring{kept: [2][]*tally{make([]*tally, size), make([]*tally, size)}}
}

// keep takes in a tally, whose lock is held.
func (r *ring) keep(t *tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shelf := 0
	if t.serious {
		shelf = 1
	}
	r.order++
	t.order = r.order
	r.kept[shelf][r.next[shelf]] = t
	r.next[shelf] = (r.next[shelf] + 1) % len(r.kept[shelf])
}

// all returns what is kept, the newest first.
func (r *ring) all() []*tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*tally
	for _, shelf := range r.kept {
		for _, t := range shelf {
			if t != nil {
				list = append(list, t)
			}
		}
	}
	slices.SortFunc(list, func(a, b *tally) int { return cmp.Compare(b.order, a.order) })
	return slices.Compact(list) // one that an audit run made serious stands on both
}

// newest calls f for the decisions, the newest first, until it returns false.
func (r *ring) newest(f func(decision) bool) {
	for _, t := range r.all() {
		if !f(t.view()) {
			return
		}
	}
}

// find returns the decision of a message. For the id of a trace, which clients
// choose and may use more than once, it is the newest serious one, or the newest;
// the ids of the others stand beside it.
func (r *ring) find(id string) (found decision, ok bool) {
	var same []*tally
	for _, t := range r.all() {
		d := t.view()
		if d.ID == id {
			return d, true
		}
		if d.TraceID == id {
			same = append(same, t)
		}
	}
	if len(same) == 0 {
		return decision{}, false
	}
	first := max(0, slices.IndexFunc(same, (*tally).isSerious))
	found = same[first].view()
	for i, t := range same {
		if i != first && len(found.SameTrace) < maxSame {
			found.SameTrace = append(found.SameTrace, t.view().ID)
		}
	}
	return found, true
}

// maxSame bounds the ids that stand beside a decision.
const maxSame = 100
