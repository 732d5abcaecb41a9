package chain

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// validate runs the validators at once and reports whether the message may go
// on. All finish or run out of time; one that denies does not cut off others.
func (x *execution) validate() bool {
	if len(x.plan.validators) == 0 {
		return true
	}
	first := len(x.res.Results)
	if x.plan.active > 0 {
		x.launchValidators()
	} else {
		for _, st := range x.plan.validators {
			x.handOver(st)
		}
	}
	x.res.Times.Validators += x.lap()
	return x.judgeValidators(x.res.Results[first:])
}

// launchValidators starts all active validators on one shared copy, hands the
// audit ones over, and waits.
func (x *execution) launchValidators() {
	shared := x.payload
	if x.plan.copies || !x.req.Disposable {
		shared = bytes.Clone(x.payload)
	}
	x.flights = x.flights[:0]
	apart := 0 // that run on goroutines of their own
	for _, st := range x.plan.validators {
		if st.audit {
			x.handOver(st)
			continue
		}
		f := x.newFlight(st, shared)
		if f == nil {
			continue
		}
		x.flights = append(x.flights, f)
		if !st.inline {
			apart++
		}
	}
	x.fly(apart)
	var spent time.Duration
	for _, f := range x.flights {
		out := x.land(f, shared)
		if f.step.failOpen {
			spent = max(spent, out.Duration)
		}
	}
	x.spend(spent)
}

// fly runs the flights, those of inline interceptors one after another while
// the others are under way.
func (x *execution) fly(apart int) {
	now := time.Now()
	if apart > 0 {
		x.waiter.expect(apart)
		for _, f := range x.flights {
			if !f.step.inline {
				f.prepare(now, x.limit)
				x.waiter.launch(f)
			}
		}
	}
	if apart < len(x.flights) {
		for _, f := range x.flights {
			if f.step.inline {
				f.prepare(now, x.limit) // its time begins where the one before has ended
				f.runInline()
				now = f.began.Add(f.took)
			}
		}
	}
	if apart > 0 {
		x.waiter.wait(x.ctx, x.limit)
	}
}

// judgeValidators decides whether the verdicts stop the message. A denial
// leads, since it says more than a failure; ties go by name.
func (x *execution) judgeValidators(outs []Outcome) bool {
	var denials []Denial
	var lead *Outcome
	for i := range outs {
		out := &outs[i]
		if out.Validation != nil {
			x.res.ValidationSummary.Add(out.Validation)
		}
		if !out.blocks() || out.Entry.Type != core.TypeValidation {
			continue
		}
		if out.Verdict == VerdictDeny {
			denials = append(denials, Denial{out.Entry.Name, out.Validation.Verdict().Severity})
		}
		if lead == nil || out.Verdict == VerdictDeny && lead.Verdict != VerdictDeny {
			lead = out
		}
	}
	if x.stopped() {
		return false
	}
	if lead == nil {
		return true
	}
	x.abortAt(lead)
	x.abort.Denials = denials
	return false
}

// stopped reports whether the phase ended for a reason that is no
// interceptor's: the caller gave up, or the phase ran out of time.
func (x *execution) stopped() bool {
	if x.abort != nil || !x.plan.blocking {
		return x.abort != nil // what only audits cannot stop a message for want of time
	}
	if x.ctx.Err() != nil {
		x.abort = &AbortError{Phase: x.req.Phase, Reason: ReasonCancelled, Err: errCallerGone}
	} else if x.late() {
		// SEP-2624, Timeout: the whole chain is cancelled, fail-open or not.
		x.overtime()
	}
	return x.abort != nil
}

func (x *execution) abortAt(out *Outcome) {
	x.abort = &AbortError{
		Interceptor: out.Entry.Name, Type: out.Entry.Type, Phase: x.req.Phase,
		Reason: out.Reason, Err: out.Err,
	}
	if out.Verdict == VerdictDeny {
		x.abort.Err = ErrDenied
	}
	if out.Verdict == VerdictTimeout {
		x.abort.Timeout = out.Entry.Effective.Timeout
	}
}

// mutate runs the mutators one after another and reports whether the message
// may go on. Each gets what the previous one made; none applies if one blocks.
func (x *execution) mutate() bool {
	if len(x.plan.mutators) == 0 {
		return true
	}
	start := x.now
	m := mutation{execution: x}
	ok := m.run()
	x.lap()
	x.res.Times.Mutators += x.now.Sub(start)
	if ok && m.revalidate && x.req.Direction == core.Receiving {
		return x.revalidate()
	}
	return ok
}

// revalidate runs the active validators once more, on what mutators made of a
// payload that the first run had let pass.
func (x *execution) revalidate() bool {
	again := *x.plan
	again.validators = nil
	for _, st := range x.plan.validators {
		if !st.audit {
			again.validators = append(again.validators, st)
		}
	}
	x.plan = &again
	return x.validate()
}

// newFlight prepares a call of an active interceptor. It returns nil where
// there is nothing to call, and then the outcome is recorded already.
func (x *execution) newFlight(st *step, payload []byte) *flight {
	timeout, skip := x.allowance(st)
	if skip == nil && st.guard.Full() {
		skip = ErrTooManyAbandoned
	}
	f := x.nextFlight()
	f.guard, f.kind, f.invoke, f.step = st.guard, st.entry.Type, st.invoke, st
	if skip == nil {
		skip = f.enter(&x.snapshot.chain.inflight, &x.snapshot.chain.opts)
	}
	if skip == nil {
		if skip = x.enterGate(f); skip != nil {
			f.leave()
		}
	}
	f.inv = x.invocation(st, payload)
	if checkWrites && st.entry.Type == core.TypeValidation {
		f.inv.Payload = bytes.Clone(payload)
	}
	f.slot = x.slot(st)
	f.ctx = x.start(f, len(payload))
	f.propagator = x.snapshot.propagator
	x.snapshot.identify(f.ctx, &f.inv)
	if skip != nil {
		out := &x.res.Results[f.slot]
		out.Start = time.Now()
		out.skip(skip)
		x.end(f, out)
		return nil
	}
	f.parent, f.timeout, f.headRoom = f.ctx, timeout, st.headRoom
	return f
}

// nextFlight returns a flight that nobody has had. The first one is part of the
// execution, the others come together: a handler that runs on past its deadline
// keeps all of them alive.
func (x *execution) nextFlight() *flight {
	if !x.flown {
		x.flown = true
		return &x.first
	}
	if len(x.more) == 0 {
		x.more = make([]flight, max(1, x.plan.flights-1))
	}
	f := &x.more[0]
	x.more = x.more[1:]
	return f
}

// allowance returns how long the step may take, or why it must not run.
func (x *execution) allowance(st *step) (time.Duration, error) {
	if err := x.excluded(st); err != nil {
		return 0, err
	}
	if !st.failOpen || x.budget < 0 {
		return st.timeout, nil
	}
	if x.budget == 0 {
		return 0, errBudget
	}
	if st.timeout <= 0 || st.timeout > x.budget {
		return x.budget, nil
	}
	return st.timeout, nil
}

// excluded says why the step cannot run on this message, whatever its mode.
func (x *execution) excluded(st *step) error {
	if x.plan.bounded && !st.entry.Compat.Allows(x.req.Protocol) {
		return errCompat
	}
	return x.unreadable
}

// spend takes time from what fail-open interceptors may use.
func (x *execution) spend(d time.Duration) {
	if x.budget > 0 {
		x.budget = max(0, x.budget-d)
	}
}

func (x *execution) invocation(st *step, payload []byte) core.Invocation {
	config := st.config
	if own, ok := x.req.Config[st.entry.Name]; ok {
		config = own
	}
	return core.Invocation{
		Event: x.req.Event, Phase: x.req.Phase, Mode: st.entry.Effective.Mode,
		MessageID: x.res.MessageID, Retry: x.req.Retry, Payload: payload[:len(payload):len(payload)],
		Config: core.CloneMap(config), Context: x.req.Context.Clone(),
	}
}

// slot adds an outcome for the step and returns its place.
func (x *execution) slot(st *step) int {
	x.res.Results = append(x.res.Results, Outcome{Entry: st.entry, Phase: x.req.Phase, Mode: st.entry.Effective.Mode})
	return len(x.res.Results) - 1
}

// start tells the observers that an invoke begins.
func (x *execution) start(f *flight, size int) context.Context {
	obs := x.snapshot.observers
	if len(obs) == 0 {
		return x.ctx
	}
	f.call = x.newInvoke(f.step, size)
	return obs.invokeStart(x.ctx, &f.call, f.step.handles)
}

func (x *execution) newInvoke(st *step, size int) Invoke {
	x.index++
	return Invoke{
		Entry: st.entry, Event: x.req.Event, Phase: x.req.Phase,
		MessageID: x.res.MessageID, PayloadSize: size, Index: x.index - 1,
	}
}

func (x *execution) end(f *flight, out *Outcome) {
	if obs := x.snapshot.observers; len(obs) > 0 {
		obs.invokeEnd(f.ctx, &f.call, f.step.handles, out)
	}
}

// land turns a flight that has ended into its outcome.
func (x *execution) land(f *flight, original []byte) *Outcome {
	out := &x.res.Results[f.slot]
	out.Start, out.Ran = f.began, true
	if f.settled != nil {
		out.Abandoned = true
		out.Duration = f.lasted
		out.fail(f.settled)
	} else {
		out.Duration = f.took
		err := f.err
		if checkWrites && err == nil && f.step.entry.Type == core.TypeValidation && !bytes.Equal(f.inv.Payload, original) {
			err = ErrPayloadWritten
		}
		out.judge(f.answer, err)
	}
	f.leaveGate(out)
	if f.step.entry.Type == core.TypeValidation {
		x.end(f, out)
	}
	return out
}

// handOver passes an audit interceptor what an active one would have been
// given at this place, and goes on.
func (x *execution) handOver(st *step) {
	payload := x.payload
	j := &auditJob{
		ctx: context.WithoutCancel(x.ctx), step: st, snapshot: x.snapshot, observers: x.snapshot.observers,
		call: x.newInvoke(st, len(payload)), inv: x.invocation(st, payload),
	}
	skip := x.excluded(st)
	if skip == nil && x.snapshot.chain.opts.InlineAudit {
		x.inline = append(x.inline, j)
		return
	}
	if skip == nil && !st.lane.submit(j) {
		skip = errDropped
	}
	if skip != nil {
		ctx := j.observers.invokeStart(j.ctx, &j.call, st.handles)
		out := Outcome{Entry: st.entry, Phase: x.req.Phase, Mode: core.ModeAudit, Start: time.Now()}
		out.skip(skip)
		j.observers.invokeEnd(ctx, &j.call, st.handles, &out)
	}
}

// runInlineAudits makes the audit runs that Options.InlineAudit keeps on the
// message's path. They come after everything that can stop the message, and
// count towards none of its deadlines.
func (x *execution) runInlineAudits() {
	if len(x.inline) == 0 {
		return
	}
	outs := make(chan Outcome, len(x.inline))
	for _, j := range x.inline {
		go func() { outs <- j.run(x.snapshot.chain.audit) }()
	}
	first := len(x.res.Results)
	for range x.inline {
		out := <-outs
		x.res.Results = append(x.res.Results, out)
		if out.Validation != nil {
			x.res.ValidationSummary.Add(out.Validation)
		}
	}
	x.lap()
	slices.SortFunc(x.res.Results[first:], func(a, b Outcome) int { return strings.Compare(a.Entry.Name, b.Entry.Name) })
}
