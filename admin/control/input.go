package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-mcp/headgate/core"
)

// Limits bound what operators may ask for. The zero value has the defaults.
type Limits struct {
	// DefaultTTL is what a weakening override lasts if it does not say; zero
	// means 4 h. MaxTTL is what it may last; zero means 7 days.
	DefaultTTL, MaxTTL time.Duration
	// BreakGlassTTL is what break-glass lasts if it does not say, and at most;
	// zero means 1 h.
	BreakGlassTTL time.Duration
}

// WithDefaults returns the limits that hold.
func (l Limits) WithDefaults() Limits {
	if l.DefaultTTL <= 0 {
		l.DefaultTTL = 4 * time.Hour
	}
	if l.MaxTTL <= 0 {
		l.MaxTTL = 7 * 24 * time.Hour
	}
	if l.BreakGlassTTL <= 0 {
		l.BreakGlassTTL = time.Hour
	}
	l.DefaultTTL = min(l.DefaultTTL, l.MaxTTL)
	return l
}

// Bounds of what operators write.
const (
	minReason = 10
	maxReason = 500
	maxTicket = 200
	maxHooks  = 64
	maxExcept = 256
)

// Strict decodes an object into v: no unknown members, none twice, none in other
// letters, nothing after it, and no null.
func Strict(raw []byte, v any) error {
	var f Faults
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || trimmed[0] != '{' {
		f.add(Malformed, "", "an object is wanted")
		return f
	}
	if err := core.Decode(trimmed, v); err != nil {
		f.add(Malformed, "", plain(err))
		return f
	}
	dec := json.NewDecoder(bytes.NewReader(trimmed))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		f.add(Malformed, pointerOf(err), plain(err))
	} else if _, err := dec.Token(); err != io.EOF {
		f.add(Malformed, "", "something follows the object")
	}
	return f.err()
}

// plain says what is wrong with JSON without what Go calls it.
func plain(err error) string {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var noTime *time.ParseError
	switch {
	case errors.As(err, &wrong):
		return "a value has the wrong type: " + wrong.Value
	case errors.As(err, &syntax):
		return fmt.Sprintf("not JSON, from byte %d on", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "not JSON: it ends too early"
	case errors.As(err, &noTime), strings.Contains(err.Error(), "Time.UnmarshalJSON"):
		return "not a time in the form of RFC 3339"
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "core: ")
	if len(text) > 200 {
		text = text[:200]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func pointerOf(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return "/" + strings.ReplaceAll(wrong.Field, ".", "/")
	}
	return ""
}

// An OverrideInput is what an operator sends.
type OverrideInput struct {
	Mode         *string         `json:"mode"`
	FailOpen     *bool           `json:"failOpen"`
	TimeoutMs    *int64          `json:"timeoutMs"`
	PriorityHint json.RawMessage `json:"priorityHint"`
	Hooks        *[]core.Hook    `json:"hooks"`
	TTL          *string         `json:"ttl"`
	ExpiresAt    *time.Time      `json:"expiresAt"`
	OnExpiry     *string         `json:"onExpiry"`
	Reason       *string         `json:"reason"`
	Ticket       *string         `json:"ticket"`
}

// ParseOverride reads the body of a request for an override.
func ParseOverride(raw []byte) (*OverrideInput, error) {
	var in OverrideInput
	if err := Strict(raw, &in); err != nil {
		return nil, err
	}
	var f Faults
	f.nulls(raw)
	return &in, f.err()
}

// nulls refuses members that are null: it could mean to keep or to clear.
func (f *Faults) nulls(raw []byte) {
	members, err := core.Members(raw)
	if err != nil {
		f.add(Malformed, "", plain(err))
	}
	for _, m := range members {
		if string(bytes.TrimSpace(m.Value)) == "null" {
			f.add(Malformed, "/"+m.Name, "null says nothing: leave the member out")
		}
	}
}

// Override returns the override that the input asks for, for an interceptor with
// these layers. Admin says that it may last for ever.
func (in *OverrideInput) Override(l *Layers, limits Limits, now time.Time, admin bool) (*Override, error) {
	var f Faults
	o := &Override{Since: now}
	in.settings(&f, o)
	if !o.says() && len(f) == 0 {
		f.add(Malformed, "", "nothing is overridden: mode, failOpen, timeoutMs, priorityHint or hooks is wanted")
	}
	o.Reason, o.Ticket = f.reason(in.Reason), f.ticket(in.Ticket)
	if in.OnExpiry != nil {
		o.OnExpiry = *in.OnExpiry
	}
	if o.OnExpiry == "" {
		o.OnExpiry = Revert
	}
	if o.OnExpiry != Revert && o.OnExpiry != Hold {
		f.add(Malformed, "/onExpiry", "neither revert nor hold")
	}
	if len(Widens(l.Declared.Hooks, o.Hooks)) > 0 {
		f.add(Incompatible, "/hooks", "hooks only narrow: there is an event, or a phase of one, that is not declared")
	}
	base := l.Base()
	weaker := weakened(l, o, &base)
	if weaker && l.Pinned {
		f.add(Pinned, "", "the interceptor is pinned and cannot be weakened")
	}
	in.expiry(&f, o, limits, now, weaker, admin)
	if err := f.err(); err != nil {
		return nil, err
	}
	return o, nil
}

// weakened reports whether the override, by itself, weakens what is below it.
func weakened(l *Layers, o *Override, base *Effective) bool {
	alone := Layers{Name: l.Name, Declared: l.Declared, Configured: l.Configured, Override: &Override{Settings: o.Settings}}
	e := alone.At(time.Time{})
	return Weakens(base, &e)
}

func (in *OverrideInput) settings(f *Faults, o *Override) {
	if in.Mode != nil {
		m, err := ParseMode(*in.Mode)
		if err != nil {
			f.add(Malformed, "/mode", err.Error())
		}
		o.Mode = m
	}
	o.FailOpen = in.FailOpen
	if ms := in.TimeoutMs; ms != nil {
		if *ms < 0 || *ms > core.MaxTimeout.Milliseconds() {
			f.add(Invalid, "/timeoutMs", fmt.Sprintf("outside 0 to %d", core.MaxTimeout.Milliseconds()))
		}
		o.TimeoutMs = *ms
	}
	if in.PriorityHint != nil {
		var p core.Priority
		if err := p.UnmarshalJSON(in.PriorityHint); err != nil {
			f.add(Malformed, "/priorityHint", "neither a number nor an object of numbers by phase")
		}
		o.PriorityHint = &p
	}
	if in.Hooks != nil {
		o.Hooks = f.hooks(*in.Hooks)
	}
}

func (f *Faults) hooks(hooks []core.Hook) []core.Hook {
	if len(hooks) > maxHooks {
		f.add(Invalid, "/hooks", fmt.Sprintf("more than %d", maxHooks))
		return nil
	}
	for i, h := range hooks {
		if h.Phase != core.PhaseBoth && !h.Phase.Valid() {
			f.add(Malformed, fmt.Sprintf("/hooks/%d/phase", i), "none of request, response and both")
		}
		if len(h.Events) == 0 || len(h.Events) > maxHooks {
			f.add(Malformed, fmt.Sprintf("/hooks/%d/events", i), "no events, or too many")
		}
	}
	out := core.ExpandHooks(hooks)
	if out == nil {
		out = []core.Hook{}
	}
	return out
}

// expiry settles when the override ends.
func (in *OverrideInput) expiry(f *Faults, o *Override, limits Limits, now time.Time, weaker, admin bool) {
	at := "/ttl"
	switch {
	case in.TTL != nil && in.ExpiresAt != nil:
		f.add(Invalid, "/ttl", "ttl and expiresAt exclude each other")
		return
	case in.TTL != nil && *in.TTL == "none":
		if weaker && !admin {
			*f = append(*f, Fault{Kind: Forbidden, Pointer: at, Detail: "weakening without an end takes the role admin", Role: "admin"})
		}
		return
	case in.TTL != nil:
		d, err := ParseTTL(*in.TTL)
		if err != nil {
			f.add(Invalid, at, err.Error())
			return
		}
		o.ends(now.Add(d))
	case in.ExpiresAt != nil:
		at = "/expiresAt"
		o.ends(*in.ExpiresAt)
	case weaker:
		o.ends(now.Add(limits.DefaultTTL))
	default:
		return
	}
	switch left := o.ExpiresAt.Sub(now); {
	case left <= 0:
		f.add(Invalid, at, "it would be over already")
	case left > limits.MaxTTL:
		f.add(Invalid, at, fmt.Sprintf("longer than %v", limits.MaxTTL))
	}
}

func (o *Override) ends(at time.Time) {
	at = at.UTC().Round(0)
	o.ExpiresAt = &at
}

// ParseTTL reads a duration as Go writes it, or a number of days such as 7d.
func ParseTTL(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		hours, err := time.ParseDuration(days + "h")
		if err == nil && hours > 0 && hours < 24*366*time.Hour {
			return 24 * hours, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New("no duration such as 90s, 30m, 4h or 2d")
	}
	return d, nil
}

func (f *Faults) reason(s *string) string {
	if s == nil {
		f.add(Invalid, "/reason", "a reason is wanted")
		return ""
	}
	if n := utf8.RuneCountInString(strings.TrimSpace(*s)); n < minReason || n > maxReason || !printable(*s) {
		f.add(Invalid, "/reason", fmt.Sprintf("%d to %d characters are wanted, on one line", minReason, maxReason))
	}
	return strings.TrimSpace(*s)
}

func (f *Faults) ticket(s *string) string {
	if s == nil {
		return ""
	}
	if len(*s) > maxTicket || !printable(*s) {
		f.add(Invalid, "/ticket", fmt.Sprintf("more than %d bytes, or not on one line", maxTicket))
	}
	return *s
}

// printable reports whether a text is fit for one line of a log or a terminal.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
