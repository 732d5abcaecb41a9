package chain

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A mutation is the mutators' stage of an execution.
type mutation struct {
	*execution
	modified   []int     // the outcomes that changed the payload, in order
	called     []*flight // whose ends wait until the payload has been judged
	revalidate bool
}

func (m *mutation) run() bool {
	defer m.end()
	before := m.payload
	for _, st := range m.plan.mutators {
		if st.audit {
			m.handOver(st)
			continue
		}
		if !m.step(st) {
			m.payload, m.mutated = before, false
			return false
		}
	}
	if len(m.modified) == 0 || m.req.Applier == nil {
		return true
	}
	if m.applied(m.payload) != nil {
		m.blame()
	} else if !m.stopped() {
		return true
	}
	m.payload, m.mutated = before, false
	return false
}

// end tells the observers what came of each call. It may only be known at the
// end of the stage: a change that does not fit is its mutator's failure.
func (m *mutation) end() {
	for _, f := range m.called {
		m.execution.end(f, &m.res.Results[f.slot])
	}
}

// step runs one active mutator.
func (m *mutation) step(st *step) bool {
	// A copy for each: a handler may keep it, and write to it when its time is over.
	f := m.newFlight(st, bytes.Clone(m.payload))
	if f == nil {
		return m.judge(&m.res.Results[len(m.res.Results)-1])
	}
	if st.inline {
		f.runInline()
	} else {
		m.waiter.launch(f)
		m.waiter.wait(m.ctx, m.limit)
	}
	out := m.land(f, nil)
	if st.failOpen {
		m.spend(out.Duration)
	}
	if out.Action == ActionModify {
		m.take(f.slot, out)
	}
	m.called = append(m.called, f)
	return m.judge(out)
}

// judge reports whether the stage goes on after an outcome.
func (m *mutation) judge(out *Outcome) bool {
	if m.stopped() {
		return false
	}
	if out.blocks() {
		m.abortAt(out)
		return false
	}
	return true
}

// take makes a mutator's payload the current one, if it is fit to be.
func (m *mutation) take(slot int, out *Outcome) {
	next, err := canonical(out.Mutation.Payload, m.payload)
	if most := m.snapshot.chain.opts.MaxPayload; err == nil && most > 0 && len(next) > most {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrPayloadTooLarge, len(next), most)
	}
	if err == nil && m.req.Applier != nil && out.Entry.Effective.FailOpen {
		// Only now can this mutator's change be left out alone.
		var a Applied
		if a, err = m.apply(next); err == nil {
			next = a.Payload
		}
	}
	if err != nil {
		out.fail(err)
		return
	}
	if bytes.Equal(next, m.payload) {
		return
	}
	m.payload, m.mutated = next, true
	// A result of our own: the handler may keep and reuse the one it returned.
	out.Mutation = &core.MutationResult{Modified: true, Payload: next, Info: out.Mutation.Info}
	m.modified = append(m.modified, slot)
}

// applied asks whether the payload can stand in for the original, and takes
// over what goes on in its place.
func (m *mutation) applied(payload []byte) error {
	a, err := m.apply(payload)
	if err == nil {
		m.payload, m.revalidate = a.Payload, a.Revalidate
	}
	return err
}

// apply contains panics: decoders of the message's own types may have some for
// payloads that they do not expect.
func (m *mutation) apply(payload []byte) (a Applied, err error) {
	start := time.Now()
	defer func() {
		m.res.Times.Apply += time.Since(start)
		if v := recover(); v != nil {
			a, err = Applied{}, fmt.Errorf("%w: %w", ErrUnfit, &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	a, err = m.req.Applier.Apply(payload)
	if err != nil {
		return Applied{}, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	return a, nil
}

// blame finds the first mutator whose payload does not fit and blocks there.
// It has run off the fast path: something is wrong already.
func (m *mutation) blame() {
	culprit, cause := m.modified[len(m.modified)-1], error(nil)
	for _, slot := range m.modified {
		_, err := m.apply(m.res.Results[slot].Mutation.Payload)
		if cause = err; err != nil {
			culprit = slot
			break
		}
	}
	if cause == nil {
		cause = fmt.Errorf("%w: %w", ErrUnfit, errors.New("together with earlier changes"))
	}
	out := &m.res.Results[culprit]
	out.fail(cause)
	out.Action = ActionBlock
	m.abortAt(out)
}

// canonical returns a mutator's payload, compact and in bytes of our own. An
// object must stay an object.
func canonical(payload, before []byte) ([]byte, error) {
	out, err := core.Compact(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrMalformed, err)
	}
	if before[0] == '{' && out[0] != '{' {
		return nil, fmt.Errorf("%w: not an object", ErrUnfit)
	}
	return out, nil
}
