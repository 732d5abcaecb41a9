package chain

// A Gate decides whether a call of an active interceptor may begin at all, and is
// told what came of it. It is the seam for circuit breakers. Its methods run on
// the message's path, from several goroutines at once: they must not block.
type Gate interface {
	// Enter says that a call is about to begin. Its error, which wraps
	// [ErrCircuitOpen], is the call's failure: failOpen decides. Otherwise done,
	// unless it is nil, is called once with the outcome.
	Enter(e *Entry) (done func(out *Outcome), err error)
}

// enterGate asks the gate, if there is one. A panic in it counts as no gate.
func (x *execution) enterGate(f *flight) (err error) {
	gate := x.snapshot.chain.opts.Gate
	if gate == nil {
		return nil
	}
	contain(func() { f.tell, err = gate.Enter(f.step.entry) })
	return err
}

// leaveGate tells the gate what came of a call.
func (f *flight) leaveGate(out *Outcome) {
	if f.tell != nil {
		contain(func() { f.tell(out) })
	}
}
