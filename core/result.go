package core

import (
	"encoding/json"
	"fmt"
)

// A ValidationResult is a validator's answer.
type ValidationResult struct {
	// Valid is the verdict.
	Valid bool
	// Severity is the overall severity. Empty means that the messages decide.
	Severity Severity
	// Messages say what was found, [MaxMessages] at most. They stay inside the process that runs the
	// chain: a blocked caller is not shown them.
	Messages []Message
	// Suggestions are corrections that a caller could make.
	Suggestions []Suggestion
	// Info is free data, as JSON can hold it.
	Info map[string]any
}

// A Message is one finding.
type Message struct {
	// Path is where in the payload, such as arguments.location.
	Path string `json:"path,omitempty"`
	// Message is the explanation for people.
	Message string `json:"message"`
	// Severity grades this finding; empty adds nothing to the verdict.
	Severity Severity `json:"severity,omitempty"`
}

// A Suggestion is a correction for one place in the payload.
type Suggestion struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Allow returns a pass.
func Allow() *ValidationResult { return &ValidationResult{Valid: true} }

// Deny returns a denial of severity error that says why. The text is for the
// operator: it is in the outcome that observers see, and in no log and no
// answer to the caller.
func Deny(message string) *ValidationResult {
	return &ValidationResult{
		Severity: SeverityError,
		Messages: []Message{{Message: message, Severity: SeverityError}},
	}
}

// A Verdict is what a well-formed validation result comes to.
type Verdict struct {
	// Rejects says that the message must not go on, if the validator is active.
	Rejects bool
	// Severity is the effective severity; empty for a plain pass.
	Severity Severity
	// Contradicts marks a pass that carries a finding of severity error. It
	// still passes, but somebody should look at it.
	Contradicts bool
}

// Verdict holds the whole rule of what a validation result means. The
// effective severity is the top-level one if there is one, else the highest of
// the messages, else error when Valid is false; a result rejects when Valid is
// false and the effective severity is error.
func (r *ValidationResult) Verdict() Verdict {
	sev := r.Severity
	if sev == "" {
		for _, m := range r.Messages {
			if m.Severity.rank() > sev.rank() {
				sev = m.Severity
			}
		}
	}
	if sev == "" && !r.Valid {
		// SEP-2624, Best Practices: fail secure. A bare "no" is a no.
		sev = SeverityError
	}
	return Verdict{
		Rejects:     !r.Valid && sev == SeverityError,
		Severity:    sev,
		Contradicts: r.Valid && sev == SeverityError,
	}
}

// MaxMessages is how many messages one result may have. One with more is
// malformed as a whole: a part of what was found would look like all of it.
const MaxMessages = 10_000

func (r *ValidationResult) check() error {
	if n := len(r.Messages); n > MaxMessages {
		return fmt.Errorf("%w: %d messages, at most %d", ErrMalformed, n, MaxMessages)
	}
	if r.Severity != "" && !r.Severity.Valid() {
		return fmt.Errorf("%w: unknown severity %q", ErrMalformed, clip(string(r.Severity)))
	}
	for i, m := range r.Messages {
		if m.Severity != "" && !m.Severity.Valid() {
			return fmt.Errorf("%w: message %d: unknown severity %q", ErrMalformed, i, clip(string(m.Severity)))
		}
	}
	return nil
}

// plain returns a copy in which free data has become plain JSON values. What
// cannot be written would be no answer over the wire, so it is none here.
func (r *ValidationResult) plain() (*ValidationResult, error) {
	if r.Info == nil && r.Suggestions == nil {
		return r, nil
	}
	out := *r
	if err := plainCopy(r.Info, &out.Info); err != nil {
		return nil, err
	}
	if err := plainCopy(r.Suggestions, &out.Suggestions); err != nil {
		return nil, err
	}
	return &out, nil
}

// plainCopy gives free data the form that it would have after a trip over the
// wire.
func plainCopy[T map[string]any | []Suggestion](from T, to *T) error {
	if from == nil {
		return nil
	}
	raw, err := Encode(from)
	if err == nil {
		*to = nil
		err = Decode(raw, to)
	}
	if err != nil {
		return fmt.Errorf("%w: info or suggestions: %v", ErrMalformed, err)
	}
	return nil
}

// A MutationResult is a mutator's answer.
type MutationResult struct {
	// Modified says that Payload replaces what the mutator was given. If it is
	// false, Payload is ignored.
	Modified bool
	// Payload is the replacement: valid JSON.
	Payload json.RawMessage
	// Info is free data, as JSON can hold it.
	Info map[string]any
}

// Unchanged returns an answer that leaves the payload as it is.
func Unchanged() *MutationResult { return &MutationResult{} }

// Replace returns an answer that replaces the payload. Use [Encode] to make
// payloads: encoding/json's Marshal escapes <, > and &, which changes text.
func Replace(payload json.RawMessage) *MutationResult {
	return &MutationResult{Modified: true, Payload: payload}
}

func (r *MutationResult) check() error {
	if r.Modified && len(r.Payload) == 0 {
		return fmt.Errorf("%w: modified without a payload", ErrMalformed)
	}
	if r.Modified && !Valid(r.Payload) {
		return fmt.Errorf("%w: payload is not JSON", ErrMalformed)
	}
	if r.Modified && firstByte(r.Payload) == 'n' {
		return fmt.Errorf("%w: payload is null", ErrMalformed)
	}
	return nil
}

// plain is the same for a mutator's free data.
func (r *MutationResult) plain() (*MutationResult, error) {
	if r.Info == nil {
		return r, nil
	}
	out := *r
	if err := plainCopy(r.Info, &out.Info); err != nil {
		return nil, err
	}
	return &out, nil
}
