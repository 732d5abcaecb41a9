package chain

import "errors"

// A Limit names what kept an interceptor's call from being begun. The set is
// closed, so it is fit for a metric's label.
type Limit string

// The limits.
const (
	LimitPayload     Limit = "payload"     // Options.MaxPayload
	LimitConcurrency Limit = "concurrency" // Options.MaxConcurrent
	LimitInflight    Limit = "inflight"    // Options.MaxInflight
	LimitAbandoned   Limit = "abandoned"   // MaxAbandoned
	LimitCircuit     Limit = "circuit"     // Options.Gate
	LimitBudget      Limit = "budget"      // Options.FailOpenBudget
)

// Limits returns all limits.
func Limits() []Limit {
	return []Limit{LimitPayload, LimitConcurrency, LimitInflight, LimitAbandoned, LimitCircuit, LimitBudget}
}

// Limit returns the limit that kept the call from being begun; empty if none did.
func (o *Outcome) Limit() Limit {
	if o.Reason != ReasonOverload {
		return "" // or else the error may be a handler's, and panic when looked at
	}
	switch err := o.Err; {
	case errors.Is(err, ErrPayloadTooLarge):
		return LimitPayload
	case errors.Is(err, errInflight):
		return LimitInflight
	case errors.Is(err, ErrOverload):
		return LimitConcurrency
	case errors.Is(err, ErrTooManyAbandoned):
		return LimitAbandoned
	case errors.Is(err, ErrCircuitOpen):
		return LimitCircuit
	case errors.Is(err, errBudget):
		return LimitBudget
	}
	return ""
}
