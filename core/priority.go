package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// A Priority orders mutators: the lower one runs first. It is a single number
// or one per phase, and keeps that form when it is written (SEP-2624, Priority
// Resolution). The zero value is "not given", which counts as 0.
type Priority struct {
	form              priorityForm
	request, response int32
}

// priorityForm says which parts of a priority were given.
type priorityForm uint8

const (
	formNumber priorityForm = 1 << iota
	formObject
	formRequest
	formResponse
)

// NewPriority returns a priority that holds in both phases.
func NewPriority(n int32) Priority {
	return Priority{form: formNumber, request: n, response: n}
}

// RequestPriority returns a priority for the request phase; the response phase has 0.
func RequestPriority(n int32) Priority {
	return Priority{form: formObject | formRequest, request: n}
}

// ResponsePriority returns a priority for the response phase; the request phase has 0.
func ResponsePriority(n int32) Priority {
	return Priority{form: formObject | formResponse, response: n}
}

// PhasePriority returns a priority with a number for each phase.
func PhasePriority(request, response int32) Priority {
	return Priority{form: formObject | formRequest | formResponse, request: request, response: response}
}

// For returns the number that holds in the phase.
func (p Priority) For(phase Phase) int32 {
	if phase == PhaseResponse {
		return p.response
	}
	return p.request
}

// IsZero reports whether the priority says what leaving it out would say:
// nothing, or the number 0.
func (p Priority) IsZero() bool {
	return p.form == 0 || p.form == formNumber && p.request == 0
}

// MarshalJSON writes the priority in the form that it was given in.
func (p Priority) MarshalJSON() ([]byte, error) {
	if p.form&formObject == 0 {
		return strconv.AppendInt(nil, int64(p.request), 10), nil
	}
	var wire wirePriority
	if p.form&formRequest != 0 {
		wire.Request = json.RawMessage(strconv.Itoa(int(p.request)))
	}
	if p.form&formResponse != 0 {
		wire.Response = json.RawMessage(strconv.Itoa(int(p.response)))
	}
	return json.Marshal(wire)
}

type wirePriority struct {
	Request  json.RawMessage `json:"request,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
}

// UnmarshalJSON reads a number or a per-phase object. A number outside 32
// bits, a fraction or another type is an error.
func (p *Priority) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '{' {
		n, err := parsePriority(data)
		if err != nil {
			return err
		}
		*p = NewPriority(n)
		return nil
	}
	var wire wirePriority
	if err := Decode(data, &wire); err != nil {
		return fmt.Errorf("core: priorityHint: %w", err)
	}
	out := Priority{form: formObject}
	for _, part := range []struct {
		raw  json.RawMessage
		form priorityForm
		to   *int32
	}{{wire.Request, formRequest, &out.request}, {wire.Response, formResponse, &out.response}} {
		if part.raw == nil {
			continue
		}
		n, err := parsePriority(part.raw)
		if err != nil {
			return err
		}
		out.form |= part.form
		*part.to = n
	}
	*p = out
	return nil
}

// parsePriority reads a JSON number that is a whole 32-bit number, however it
// is spelled: some hosts write 1000.0.
func parsePriority(data []byte) (int32, error) {
	var num json.Number
	if len(data) == 0 || data[0] == '"' || json.Unmarshal(data, &num) != nil || num == "" {
		return 0, fmt.Errorf("core: priorityHint is not a number or an object: %q", clip(string(data)))
	}
	f, err := num.Float64()
	if err != nil || f < math.MinInt32 || f > math.MaxInt32 || !isWhole(num.String(), f) {
		return 0, fmt.Errorf("core: priorityHint is not a 32-bit whole number: %q", clip(string(data)))
	}
	return int32(f), nil
}

// isWhole reports whether a number, given as text and as the float next to it,
// is whole. The float alone can't say: it has 1e-400 as 0.
func isWhole(text string, f float64) bool {
	const most = 64 // bytes; bounds what the exact reading costs
	if len(text) > most {
		return false
	}
	if f == 0 {
		digits, _, _ := strings.Cut(strings.ToLower(text), "e")
		return !strings.ContainsAny(digits, "123456789")
	}
	r, ok := new(big.Rat).SetString(text)
	return ok && r.IsInt()
}
