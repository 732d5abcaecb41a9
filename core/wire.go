package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxTimeout is the longest timeoutMs that is taken.
const MaxTimeout = 10 * time.Minute

// An InvokeRequest is the params of interceptor/invoke, without _meta.
type InvokeRequest struct {
	// Name is the interceptor's.
	Name string
	// Timeout bounds the handler; zero leaves that to the host. On the wire
	// it is timeoutMs.
	Timeout time.Duration
	// Invocation is what the handler is given.
	Invocation
}

type wireInvoke struct {
	Name      string          `json:"name"`
	Event     string          `json:"event"`
	Phase     Phase           `json:"phase"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	Config    json.RawMessage `json:"config,omitempty"`
	TimeoutMs *float64        `json:"timeoutMs,omitempty"`
	Context   wireContext     `json:"context,omitzero"`
}

// wireContext is the SEP's context and keys of our own, which keep a
// remote interceptor as well informed as a local one.
type wireContext struct {
	Principal json.RawMessage `json:"principal,omitempty"`
	TraceID   string          `json:"traceId,omitempty"`
	SpanID    string          `json:"spanId,omitempty"`
	Timestamp string          `json:"timestamp,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	MessageID string          `json:"io.github.headgate-mcp/messageId,omitempty"`
	Mode      Mode            `json:"io.github.headgate-mcp/mode,omitempty"`
	Retry     bool            `json:"io.github.headgate-mcp/retry,omitempty"`
}

// MarshalJSON writes the request as in SEP-2624: the bare params or result as
// payload, what is empty left out.
func (r InvokeRequest) MarshalJSON() ([]byte, error) {
	w := wireInvoke{Name: r.Name, Event: r.Event, Phase: r.Phase, Payload: r.Payload}
	var err error
	if r.Config != nil {
		if w.Config, err = Encode(r.Config); err != nil {
			return nil, err
		}
	}
	if r.Timeout > 0 {
		ms := milliseconds(r.Timeout)
		w.TimeoutMs = &ms
	}
	c := &w.Context
	c.TraceID, c.SpanID, c.SessionID, c.MessageID = r.Context.TraceID, r.Context.SpanID, r.Context.SessionID, r.MessageID
	c.Retry = r.Retry
	if r.Mode != "" {
		if c.Mode, err = ParseMode(string(r.Mode)); err != nil {
			return nil, err
		}
	}
	if r.Context.Principal != nil {
		if c.Principal, err = Encode(r.Context.Principal); err != nil {
			return nil, err
		}
	}
	if !r.Context.Timestamp.IsZero() {
		c.Timestamp = r.Context.Timestamp.UTC().Format(time.RFC3339Nano)
	}
	return Encode(w)
}

// UnmarshalJSON reads and checks a request. A principal is marked as asserted.
// Members that SEP-2624 does not know are ignored.
func (r *InvokeRequest) UnmarshalJSON(data []byte) error {
	var w wireInvoke
	if err := Decode(data, &w); err != nil {
		return err
	}
	out := InvokeRequest{Name: w.Name}
	out.Event, out.Phase, out.Payload = w.Event, w.Phase, w.Payload
	if !w.Phase.Valid() {
		return fmt.Errorf("core: unknown phase %q", clip(string(w.Phase)))
	}
	var err error
	if out.Timeout, err = parseTimeout(w.TimeoutMs); err != nil {
		return err
	}
	if len(w.Config) > 0 {
		if err := DecodePlain(w.Config, &out.Config); err != nil {
			return fmt.Errorf("core: bad config: %w", err)
		}
	}
	if err := w.Context.into(&out.Invocation); err != nil {
		return err
	}
	*r = out
	return nil
}

func (w *wireContext) into(inv *Invocation) error {
	inv.MessageID, inv.Mode, inv.Retry = w.MessageID, w.Mode, w.Retry
	c := &inv.Context
	c.TraceID, c.SpanID, c.SessionID = w.TraceID, w.SpanID, w.SessionID
	if len(w.Principal) > 0 {
		if err := DecodePlain(w.Principal, &c.Principal); err != nil {
			return fmt.Errorf("core: bad principal: %w", err)
		}
	}
	if c.Principal != nil {
		c.Principal.Asserted = true
	}
	if w.Timestamp == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, w.Timestamp)
	if err == nil {
		c.Timestamp = t.UTC()
		// An offset can lead out of the years that the form has.
		_, err = c.Timestamp.MarshalText()
	}
	if err != nil {
		return errors.New("core: timestamp is not in RFC 3339 form")
	}
	return nil
}

// parseTimeout reads timeoutMs: absent and 0 mean the host's default.
func parseTimeout(ms *float64) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	most := milliseconds(MaxTimeout)
	if math.IsNaN(*ms) || *ms < 0 || *ms > most {
		return 0, fmt.Errorf("core: timeoutMs is outside 0 to %v", most)
	}
	if *ms == 0 {
		return 0, nil
	}
	return max(duration(*ms), 1), nil // however short, it is not 0, which means none was asked for
}

// duration is the inverse of milliseconds for times below a fortnight.
func duration(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// An InvokeResult is the result of interceptor/invoke, without _meta.
type InvokeResult struct {
	Interceptor string
	Type        Type
	Phase       Phase
	// Duration is the handler's time; on the wire it is durationMs, a fraction.
	Duration time.Duration
	// Answer is what the interceptor said. A mutation that changed nothing
	// carries the payload that it was given, as SEP-2624 asks.
	Answer
}

// resultHead is written first: some readers choose their decoder by the first
// member of an object, so type leads.
type resultHead struct {
	Type        Type   `json:"type"`
	Interceptor string `json:"interceptor"`
	Phase       Phase  `json:"phase"`
}

type resultTail struct {
	DurationMs float64        `json:"durationMs"`
	Info       map[string]any `json:"info,omitempty"`
}

// MarshalJSON writes the flat form of SEP-2624.
func (r InvokeResult) MarshalJSON() ([]byte, error) {
	if err := r.Check(r.Type); err != nil {
		return nil, err
	}
	head := resultHead{r.Type, r.Interceptor, r.Phase}
	if v := r.Validation; v != nil {
		return Encode(struct {
			resultHead
			Valid       bool         `json:"valid"`
			Severity    Severity     `json:"severity,omitempty"`
			Messages    []Message    `json:"messages,omitempty"`
			Suggestions []Suggestion `json:"suggestions,omitempty"`
			resultTail
		}{head, v.Valid, v.Severity, v.Messages, v.Suggestions, resultTail{milliseconds(r.Duration), v.Info}})
	}
	return Encode(struct {
		resultHead
		Modified bool            `json:"modified"`
		Payload  json.RawMessage `json:"payload"`
		resultTail
	}{head, r.Mutation.Modified, r.Mutation.Payload, resultTail{milliseconds(r.Duration), r.Mutation.Info}})
}

type wireValidation struct {
	Valid       *bool          `json:"valid"`
	Severity    Severity       `json:"severity"`
	Messages    []Message      `json:"messages"`
	Suggestions []Suggestion   `json:"suggestions"`
	Info        map[string]any `json:"info"`
}

func (w *wireValidation) result() (*ValidationResult, error) {
	if w.Valid == nil {
		return nil, fmt.Errorf("%w: no boolean valid", ErrMalformed)
	}
	return &ValidationResult{*w.Valid, w.Severity, w.Messages, w.Suggestions, w.Info}, nil
}

type wireMutation struct {
	Modified *bool           `json:"modified"`
	Payload  json.RawMessage `json:"payload"`
	Info     map[string]any  `json:"info"`
}

func (w *wireMutation) result() (*MutationResult, error) {
	if w.Modified == nil {
		return nil, fmt.Errorf("%w: no boolean modified", ErrMalformed)
	}
	return &MutationResult{*w.Modified, w.Payload, w.Info}, nil
}

// UnmarshalJSON reads the flat form, and the nested one of older Go hosts. A
// result that is not whole is an error that wraps [ErrMalformed].
func (r *InvokeResult) UnmarshalJSON(data []byte) error {
	var w struct {
		resultHead
		DurationMs float64         `json:"durationMs"`
		Validation *wireValidation `json:"validation"`
		Mutation   *wireMutation   `json:"mutation"`
	}
	if err := Decode(data, &w); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if w.Phase != "" && !w.Phase.Valid() {
		return fmt.Errorf("%w: unknown phase %q", ErrMalformed, clip(string(w.Phase)))
	}
	out := InvokeResult{Interceptor: w.Interceptor, Type: w.Type, Phase: w.Phase}
	if d := w.DurationMs; d > 0 && d < milliseconds(maxDuration) {
		out.Duration = duration(d)
	}
	var err error
	switch w.Type {
	case TypeValidation:
		out.Validation, err = readBody(data, w.Validation, (*wireValidation).result)
	case TypeMutation:
		out.Mutation, err = readBody(data, w.Mutation, (*wireMutation).result)
	default:
		err = fmt.Errorf("%w: %w %q", ErrMalformed, ErrUnknownType, clip(string(w.Type)))
	}
	if err == nil {
		out.Answer, err = out.Checked(w.Type)
	}
	if err != nil {
		return err
	}
	*r = out
	return nil
}

// maxDuration is the longest handler's time that is believed.
const maxDuration = 24 * time.Hour

// readBody reads the answer from the members of the object itself or, if the
// one that decides is not there, from the nested object. A member of the wrong
// type is an error: it must not make room for another verdict.
func readBody[W, R any](data []byte, nested *W, result func(*W) (*R, error)) (*R, error) {
	flat := new(W)
	if err := Decode(data, flat); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	r, err := result(flat)
	if err != nil && nested != nil {
		return result(nested)
	}
	return r, err
}
