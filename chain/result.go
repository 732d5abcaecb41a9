package chain

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A Request is one phase of one message.
type Request struct {
	// Event is the JSON-RPC method, Phase the half of the exchange.
	Event string
	Phase core.Phase
	// Direction decides the order: receiving validates first, sending mutates
	// first (SEP-2624, Trust Boundary).
	Direction core.Direction
	// Payload is the bare params or result as JSON. Nil and null mean none;
	// interceptors then see {}. Execute reads it and never writes to it.
	Payload json.RawMessage
	// Unreadable is why there is no payload, if it could not be encoded. Each
	// interceptor then fails with it: active ones as their policy says, audit
	// ones without any effect.
	Unreadable error
	// MarshalTime is what making Payload took; observers are told.
	MarshalTime time.Duration
	// Disposable gives Payload up: validators may be handed it without a copy.
	// A caller that sets it must not use Payload any more, and must not trust
	// FinalPayload's bytes unless Mutated is set.
	Disposable bool
	// Outright gives a disposable Payload up altogether: the last mutator may be
	// given the very bytes, to write to, so Applier must not look at them.
	Outright bool
	// MessageID is handed to interceptors. If empty one is made.
	MessageID string
	// Retry is handed to interceptors; see [core.Invocation].
	Retry bool
	// Protocol is the MCP version that the message speaks; empty if unknown.
	Protocol string
	// Interceptors restricts the run to these names. Empty means all. A name
	// that no host lists is an error: a typing error must not turn a guard off.
	Interceptors []string
	// Config replaces the chain's configuration of the named interceptors.
	Config map[string]map[string]any
	// Timeout replaces Options.Timeout; zero keeps it, negative means none.
	Timeout time.Duration
	// Context is handed to interceptors, each gets a copy.
	Context core.InvocationContext
	// Applier is asked whether a mutated payload can stand in for the original.
	// Nil takes any payload.
	Applier Applier
}

// An Applier judges mutated payloads.
type Applier interface {
	// Apply says whether the payload can stand in for the original. Its error
	// is a failure of the mutator that made the payload. It is called on the
	// caller's goroutine, perhaps several times; the last call counts. The
	// payload may be kept, and after Execute has returned be written to: only
	// the Result shows it too.
	Apply(payload json.RawMessage) (Applied, error)
}

// Applied is what became of a mutated payload.
type Applied struct {
	// Payload is what goes on: the mutated payload, with what the mutator must
	// not remove put back.
	Payload json.RawMessage
	// Revalidate asks for the validators to run once more on Payload.
	Revalidate bool
}

// A Status says how an execution ended, in SEP-2624's words.
type Status string

// The statuses.
const (
	StatusSuccess          Status = "success"
	StatusValidationFailed Status = "validation_failed"
	StatusMutationFailed   Status = "mutation_failed"
	StatusTimeout          Status = "timeout"
	// StatusCancelled is not the SEP's: the caller gave up, which is neither a
	// denial nor a timeout.
	StatusCancelled Status = "cancelled"
)

// A Result is the record of one execution. It belongs to the caller.
type Result struct {
	Status    Status
	Event     string
	Phase     core.Phase
	MessageID string
	// Results are the outcomes in a stable order: validators by name, mutators
	// in the order of their run; the stage that ran first comes first.
	Results []Outcome
	// FinalPayload is what goes on; nil if the message must not. It must not be
	// written to: audit runs may still be reading it.
	FinalPayload json.RawMessage
	// Mutated says that FinalPayload is not the payload of the request.
	Mutated bool
	// ValidationSummary counts the findings in Results.
	ValidationSummary ValidationSummary
	// TotalDuration is the time of the execution.
	TotalDuration time.Duration
	// Times are the wall times of the stages.
	Times StageWalls
	// AbortedAt says what stopped the message; nil if nothing did.
	AbortedAt *AbortInfo
}

// StageWalls are the wall times of an execution's stages.
type StageWalls struct {
	Validators, Mutators time.Duration
	// Apply is the part of Mutators that Request.Applier took.
	Apply time.Duration
}

// An AbortInfo names what stopped a message.
type AbortInfo struct {
	// Interceptor is the name; empty if the whole phase ran out of time.
	Interceptor string
	// Type is validation, mutation or timeout, as in SEP-2624.
	Type string
	// Reason says why in one word of a closed set.
	Reason Reason
}

// A ValidationSummary counts findings by severity. A verdict without messages
// counts as one finding.
type ValidationSummary struct {
	Errors, Warnings, Infos int
}

func (s *ValidationSummary) add(sev core.Severity) {
	switch sev {
	case core.SeverityError:
		s.Errors++
	case core.SeverityWarn:
		s.Warnings++
	case core.SeverityInfo:
		s.Infos++
	}
}

// Add counts the findings of a result.
func (s *ValidationSummary) Add(r *core.ValidationResult) {
	if len(r.Messages) == 0 {
		s.add(r.Verdict().Severity)
		return
	}
	for _, m := range r.Messages {
		if m.Severity == "" {
			s.add(r.Verdict().Severity)
			continue
		}
		s.add(m.Severity)
	}
}

// A Verdict is what an interceptor said, or became.
type Verdict string

// The verdicts.
const (
	VerdictAllow   Verdict = "allow"
	VerdictDeny    Verdict = "deny"
	VerdictModify  Verdict = "modify"
	VerdictError   Verdict = "error"
	VerdictTimeout Verdict = "timeout"
	VerdictSkipped Verdict = "skipped" // compat excludes the message's protocol, or the fail-open budget is spent
	VerdictDropped Verdict = "dropped" // an audit run that found no room
)

// An Action is what the chain made of a verdict.
type Action string

// The actions.
const (
	ActionProceed  Action = "proceed"
	ActionBlock    Action = "block"
	ActionModify   Action = "modify"
	ActionFailOpen Action = "fail_open"
)

// An Outcome is one interceptor's part in an execution.
type Outcome struct {
	Entry *Entry
	Phase core.Phase
	// Mode is the effective mode of this run.
	Mode    core.Mode
	Verdict Verdict
	Action  Action
	// Reason and Err are set where Verdict is error, timeout, skipped or
	// dropped; Reason is also set for a denial.
	Reason Reason
	Err    error
	// Validation or Mutation is the answer, if there was one.
	Validation *core.ValidationResult
	Mutation   *core.MutationResult
	// Ran says that the handler was called: it is not where the interceptor
	// was skipped, or there was nothing to hand to it.
	Ran bool
	// Abandoned says that the handler still ran when it was given up.
	Abandoned bool
	Start     time.Time
	Duration  time.Duration
}

// judge fills in what a checked answer or a failure comes to. It is the one place
// that holds the policy of what stops a message.
func (o *Outcome) judge(answer core.Answer, err error) {
	if err != nil {
		o.fail(err)
		return
	}
	o.Validation, o.Mutation = answer.Validation, answer.Mutation
	o.Verdict, o.Action = VerdictAllow, ActionProceed
	switch {
	case o.Validation != nil && o.Validation.Verdict().Rejects:
		o.Verdict, o.Reason = VerdictDeny, ReasonValidation
		if o.Mode != core.ModeAudit {
			o.Action = ActionBlock
		}
	case o.Mutation != nil && o.Mutation.Modified:
		o.Verdict = VerdictModify
		if o.Mode != core.ModeAudit {
			o.Action = ActionModify
		}
	}
}

// fail makes the outcome a failure. What it does to the message is a matter of
// mode and failOpen, not of the failure.
func (o *Outcome) fail(err error) {
	o.Err, o.Reason = err, reasonOf(o.Entry.Type, err)
	o.Verdict = VerdictError
	switch {
	case errors.Is(err, ErrTimeout):
		o.Verdict = VerdictTimeout
	case errors.Is(err, errDropped):
		o.Verdict = VerdictDropped
	case errors.Is(err, errBudget), errors.Is(err, errCompat):
		o.Verdict = VerdictSkipped
	}
	switch {
	case o.Mode == core.ModeAudit:
		// SEP-2624, Audit Mode: whatever happens, the message proceeds.
		o.Action = ActionProceed
	case o.Entry.Effective.FailOpen:
		o.Action = ActionFailOpen
	default:
		o.Action = ActionBlock
	}
}

// blocks reports whether the message must not go on.
func (o *Outcome) blocks() bool { return o.Action == ActionBlock }

// skip records an interceptor that did not run and does not stop the message.
func (o *Outcome) skip(err error) {
	o.fail(err)
	if errors.Is(err, errCompat) {
		o.Action, o.Reason = ActionProceed, ""
	}
}
