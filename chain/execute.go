package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// An execution is one run of a plan. One goroutine owns it.
type execution struct {
	snapshot *Snapshot
	plan     *plan
	req      *Request
	ctx      context.Context
	waiter   waiter
	limit    time.Time // of the phase; zero means none

	// payload is the message's: nobody but the chain has a reference to write
	// through. Handlers get copies of it.
	payload []byte
	mutated bool
	budget  time.Duration // what fail-open interceptors may still spend; negative means no end
	index   int
	shown   Execution // what the observers are shown
	// unreadable is why interceptors cannot be shown the payload; nil if they can.
	unreadable error
	abort      *AbortError
	inline     []*auditJob // audit runs to be made before Execute returns

	flights []*flight // of the validators
	first   flight    // spares executions of one flight another allocation
	more    []flight  // that nobody has had yet
	flown   bool      // first has been taken

	now  time.Time // the last reading of the clock: where one stage ends the next begins
	res  Result
	room [2]Outcome // spares most executions the slice of outcomes
	fits [2]*flight // and that of flights
}

// Execute runs one phase of a message under this policy. The error is non-nil
// whenever the message must not go on: an [*AbortError], or an error that
// wraps the context's when the caller gave up. The result then still holds all
// outcomes. A request that makes no sense is an error with a nil result.
func (s *Snapshot) Execute(ctx context.Context, req *Request) (*Result, error) {
	p, err := s.planFor(req)
	if err != nil {
		return nil, err
	}
	if s.closed && p != nil {
		return nil, ErrClosed
	}
	if p == nil {
		return &Result{
			Status: StatusSuccess, Event: req.Event, Phase: req.Phase, MessageID: req.MessageID, FinalPayload: req.Payload,
		}, nil
	}
	x := &execution{snapshot: s, plan: p, req: req}
	x.res = Result{Status: StatusSuccess, Event: req.Event, Phase: req.Phase, MessageID: req.MessageID}
	return x.execute(ctx)
}

// planFor checks the request and returns what is to run for it.
func (s *Snapshot) planFor(req *Request) (*plan, error) {
	switch {
	case req.Event == "":
		return nil, errors.New("chain: request without an event")
	case !req.Phase.Valid():
		return nil, fmt.Errorf("chain: unknown phase %q", req.Phase)
	case !req.Direction.Valid():
		return nil, fmt.Errorf("chain: unknown direction %q", req.Direction)
	case req.Timeout > core.MaxTimeout:
		return nil, fmt.Errorf("chain: timeout %v is over %v", req.Timeout, core.MaxTimeout)
	}
	for _, name := range req.Interceptors {
		if s.names[name] == nil {
			return nil, fmt.Errorf("chain: filter on %q: %w", name, ErrUnknownName)
		}
	}
	if len(req.Config) > 0 {
		if err := s.checkConfigs(req.Config); err != nil {
			return nil, err
		}
	}
	p := s.plan(req.Event, req.Phase)
	if p != nil && len(req.Interceptors) > 0 {
		if p = p.only(req.Interceptors); p.size() == 0 {
			return nil, nil
		}
	}
	return p, nil
}

// checkConfigs holds configurations that are for one run against the schemas.
func (s *Snapshot) checkConfigs(configs map[string]map[string]any) error {
	for _, name := range sortedKeys(configs) {
		st := s.names[name]
		if st == nil {
			return fmt.Errorf("chain: config of %q: %w", name, ErrUnknownName)
		}
		if st.checkConfig == nil {
			continue
		}
		if err := st.checkConfig(configs[name]); err != nil {
			return fmt.Errorf("chain: config of %q: %w", name, err)
		}
	}
	return nil
}

func (x *execution) execute(ctx context.Context) (*Result, error) {
	start := time.Now()
	x.now = start
	x.begin(start)
	if obs := x.snapshot.observers; len(obs) > 0 {
		x.shown = Execution{
			Event: x.req.Event, Phase: x.req.Phase, Direction: x.req.Direction, MessageID: x.res.MessageID,
			Interceptors: x.plan.size(), PayloadSize: len(x.payload), MarshalTime: x.req.MarshalTime,
		}
		ctx = obs.executeStart(ctx, &x.shown)
		x.lap() // watching is no part of a stage
	}
	x.ctx = ctx
	if x.req.Direction == core.Receiving {
		_ = x.validate() && x.mutate()
	} else {
		_ = x.mutate() && x.validate()
	}
	x.waiter.stop()
	x.runInlineAudits()
	err := x.finish()
	x.res.TotalDuration = x.now.Sub(start)
	if obs := x.snapshot.observers; len(obs) > 0 {
		obs.executeEnd(ctx, &x.res, err)
	}
	return &x.res, err
}

// begin sets up clocks and payload.
func (x *execution) begin(start time.Time) {
	opts := &x.snapshot.chain.opts
	timeout := orDefault(x.req.Timeout, opts.Timeout)
	x.budget = opts.FailOpenBudget
	if timeout > 0 {
		x.limit = start.Add(timeout)
		x.budget = orDefault(x.budget, timeout/2)
	} else if x.budget == 0 {
		x.budget = -1
	}
	if x.res.MessageID == "" {
		x.res.MessageID = x.snapshot.chain.NewMessageID()
	}
	x.res.Results, x.flights = x.room[:0], x.fits[:0]
	if n := x.plan.size(); n > len(x.room) {
		x.res.Results = make([]Outcome, 0, n)
	}
	if n := max(x.plan.active, x.plan.flights-x.plan.active); n > len(x.fits) {
		x.flights = make([]*flight, 0, n)
	}
	x.waiter.reserve(x.plan.active)
	x.payload, x.unreadable = x.req.Payload, x.req.Unreadable
	if most := opts.MaxPayload; x.unreadable == nil && most > 0 && len(x.payload) > most {
		x.unreadable = fmt.Errorf("%w: %d bytes, at most %d", ErrPayloadTooLarge, len(x.payload), most)
	}
	if absent(x.payload) {
		x.payload = []byte("{}") // so that interceptors always see an object
	} else if !x.req.Disposable && x.plan.copies {
		x.payload = bytes.Clone(x.payload)
	}
}

// absent reports whether a payload is none.
func absent(payload []byte) bool {
	return len(payload) == 0 || string(bytes.TrimSpace(payload)) == "null"
}

// finish settles status, payload and error.
func (x *execution) finish() error {
	if x.ctx.Err() != nil && x.abort == nil && x.plan.blocking {
		// Gone, perhaps while nothing was waited for: nobody wants the answer.
		x.abort = &AbortError{Phase: x.req.Phase, Reason: ReasonCancelled, Err: errCallerGone}
	}
	if x.abort == nil {
		x.res.FinalPayload, x.res.Mutated = x.req.Payload, x.mutated
		if x.mutated {
			x.res.FinalPayload = x.payload
		}
		return nil
	}
	a := x.abort
	if a.Reason == ReasonCancelled {
		x.res.Status = StatusCancelled
		return fmt.Errorf("chain: %s phase: %w (%w)", a.Phase, x.ctx.Err(), context.Cause(x.ctx))
	}
	info := &AbortInfo{Interceptor: a.Interceptor, Type: string(a.Type), Reason: a.Reason}
	switch {
	case a.Reason == ReasonTimeout:
		x.res.Status, info.Type = StatusTimeout, "timeout"
	case a.Type == core.TypeMutation:
		x.res.Status = StatusMutationFailed
	default:
		x.res.Status = StatusValidationFailed
	}
	x.res.AbortedAt = info
	return a
}

// overtime records that the whole phase ran out of time.
func (x *execution) overtime() {
	x.abort = &AbortError{
		Phase: x.req.Phase, Reason: ReasonTimeout, Err: ErrTimeout,
		Timeout: orDefault(x.req.Timeout, x.snapshot.chain.opts.Timeout),
	}
	for i := range x.res.Results {
		if out := &x.res.Results[i]; out.Abandoned && out.Mode != core.ModeAudit {
			x.abort.Unfinished = append(x.abort.Unfinished, out.Entry.Name)
		}
	}
}

// late reports whether the phase has run out of time, by the last reading.
func (x *execution) late() bool { return !x.limit.IsZero() && !x.now.Before(x.limit) }

// lap reads the clock and returns the time since it was last read.
func (x *execution) lap() time.Duration {
	before := x.now
	x.now = time.Now()
	return x.now.Sub(before)
}
