package core

import (
	"encoding/json"
	"fmt"
)

// A Type says what an interceptor may do.
type Type string

// The two types of SEP-2624.
const (
	TypeValidation Type = "validation" // inspects, never changes
	TypeMutation   Type = "mutation"   // returns a replacement payload
)

// A Phase says which half of an exchange is meant.
type Phase string

// The phases of SEP-2624.
const (
	PhaseRequest  Phase = "request"  // params, on their way to a handler
	PhaseResponse Phase = "response" // a result, on its way back
	// PhaseBoth is for authors only: it becomes two hooks, request then
	// response, when an interceptor is registered, and is never written.
	PhaseBoth Phase = "both"
)

// Valid reports whether p is a phase that a message can be in.
func (p Phase) Valid() bool { return p == PhaseRequest || p == PhaseResponse }

// A Direction says which way data crosses the trust boundary, seen from the
// peer that runs the chain. It decides the order of validators and mutators.
type Direction string

// The two directions of SEP-2624, Trust Boundary.
const (
	Receiving Direction = "receiving" // validate, then mutate
	Sending   Direction = "sending"   // mutate, then validate
)

// Valid reports whether d is one of the two directions.
func (d Direction) Valid() bool { return d == Receiving || d == Sending }

// A Mode says whether an interceptor's answer counts. The zero value reads as
// [ModeActive].
type Mode string

// The modes of SEP-2624.
const (
	ModeActive Mode = "active" // denials block, mutations apply
	ModeAudit  Mode = "audit"  // never blocks, never changes anything
)

// modeEnforce is what older hosts write for active. It is read, never written.
const modeEnforce = "enforce"

// ParseMode reads a mode. The older word "enforce" and the empty string are
// read as [ModeActive]; any other word is an error, so that a typing error
// cannot quietly turn a guard into an observer.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "", modeEnforce, string(ModeActive):
		return ModeActive, nil
	case string(ModeAudit):
		return ModeAudit, nil
	}
	return "", fmt.Errorf("core: unknown mode %q (want %q or %q)", clip(s), ModeActive, ModeAudit)
}

// UnmarshalJSON reads a mode as [ParseMode] does.
func (m *Mode) UnmarshalJSON(data []byte) error {
	s, err := decodeWord("mode", data)
	if err != nil {
		return err
	}
	*m, err = ParseMode(s)
	return err
}

// A Severity grades a finding.
type Severity string

// The severities of SEP-2624, from the lightest to the one that blocks.
const (
	SeverityInfo  Severity = "info"
	SeverityWarn  Severity = "warn"
	SeverityError Severity = "error"
)

// Valid reports whether s is a severity. The empty string is none.
func (s Severity) Valid() bool { return s.rank() > 0 }

func (s Severity) rank() int {
	switch s {
	case SeverityInfo:
		return 1
	case SeverityWarn:
		return 2
	case SeverityError:
		return 3
	}
	return 0
}

// decodeWord reads a JSON string; null and other types are errors.
func decodeWord(what string, data []byte) (string, error) {
	var s *string
	if err := json.Unmarshal(data, &s); err != nil || s == nil {
		return "", fmt.Errorf("core: %s is not a string", what)
	}
	return *s, nil
}

// clip shortens text from outside before it is quoted in an error.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
