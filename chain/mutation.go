package chain

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A mutation is the mutators' stage of an execution.
type mutation struct {
	*execution
	object     bool      // the payload is one
	given      bool      // the message's own bytes, to the last mutator
	sum        uint64    // of these bytes, before
	left       int       // active mutators that are still to run
	modified   []int     // the outcomes that changed the payload, in order
	called     []*flight // whose ends wait until the payload has been judged
	revalidate bool
}

func (m *mutation) run() bool {
	defer m.end()
	before := m.payload
	m.object = before[0] == '{'
	m.called = m.flights[:0] // the validators' are done with
	m.left = m.plan.flights - m.plan.active
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
	own := m.own()
	f := m.newFlight(st, own)
	if f == nil {
		return m.judge(&m.res.Results[len(m.res.Results)-1])
	}
	f.prepare(time.Now(), m.limit)
	if st.inline {
		f.runInline()
	} else {
		m.waiter.expect(1)
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
	if checkWrites && m.given && f.settled == nil {
		clear(own) // whoever reads it all the same is going to be seen
	}
	m.called = append(m.called, f)
	return m.judge(out)
}

// own returns the payload in bytes for one mutator alone: a handler may keep
// them, and write to them when its time is over. All get copies but the last,
// where nobody is going to look at the message's own bytes after it.
func (m *mutation) own() []byte {
	m.left--
	if m.left > 0 || len(m.modified) > 0 || !m.disposable() {
		return bytes.Clone(m.payload)
	}
	m.given, m.sum = true, maphash.Bytes(m.snapshot.chain.seed, m.payload)
	return m.payload
}

// disposable reports whether the payload is of no use to anybody once the
// mutators have been given it.
func (m *mutation) disposable() bool {
	validated := len(m.plan.validators) == 0 || m.req.Direction == core.Receiving
	return m.req.Disposable && m.req.Outright && !m.plan.audits && validated
}

// unchanged reports whether a mutator's payload is what it was given. Bytes that
// it was given outright it may have written to; their sum is that of before, and
// keyed, so that no peer can make two payloads that look equal.
func (m *mutation) unchanged(next []byte) bool {
	if m.given {
		return maphash.Bytes(m.snapshot.chain.seed, next) == m.sum
	}
	return bytes.Equal(next, m.payload)
}

// judge reports whether the stage goes on after an outcome.
func (m *mutation) judge(out *Outcome) bool {
	m.now = time.Now()
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
	next, err := canonical(out.Mutation.Payload, m.object)
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
	if m.unchanged(next) {
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
	if m.plan.audits {
		payload = bytes.Clone(payload) // audit runs may read theirs for as long as they like
	}
	a, err = m.req.Applier.Apply(payload)
	if err != nil {
		return Applied{}, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if m.plan.audits {
		a.Payload = bytes.Clone(a.Payload)
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
func canonical(payload []byte, object bool) ([]byte, error) {
	out, err := core.Compact(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrMalformed, err)
	}
	if object && out[0] != '{' {
		return nil, fmt.Errorf("%w: not an object", ErrUnfit)
	}
	return out, nil
}
