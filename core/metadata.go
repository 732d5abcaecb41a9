package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Metadata describes an interceptor. It is plain data, the same in a registry
// and on the wire. Whoever registers it keeps a copy.
type Metadata struct {
	// Name identifies the interceptor in its host: valid UTF-8 of 1 to 128
	// bytes without control characters. It may hold slashes.
	Name string `json:"name"`
	// Version is the author's version of the interceptor.
	Version string `json:"version,omitempty"`
	// Description is for people.
	Description string `json:"description,omitempty"`
	// Hooks say which events are seen in which phase. At least one is needed.
	Hooks []Hook `json:"hooks"`
	// Mode is what the author declares; zero means active. Whoever runs the
	// chain may override it.
	Mode Mode `json:"mode,omitempty"`
	// FailOpen lets a message go on when the interceptor fails (crash, timeout,
	// malformed answer). It never lets a denial pass. Zero means fail closed.
	FailOpen bool `json:"failOpen,omitempty"`
	// PriorityHint orders mutators; validators ignore it.
	PriorityHint Priority `json:"priorityHint,omitzero"`
	// Compat bounds the protocol versions that the interceptor understands.
	Compat *Compat `json:"compat,omitempty"`
	// ConfigSchema is a JSON Schema object that configurations are checked
	// against. Empty means that any configuration is taken. Having none is not
	// checked: the handler is then given nil and uses its defaults.
	ConfigSchema json.RawMessage `json:"configSchema,omitempty"`
	// Inline promises that the handler only computes and honours its context,
	// so that it may run on the caller's goroutine. It is never written. A
	// handler that breaks the promise cannot be abandoned at its deadline.
	Inline bool `json:"-"`
}

const maxName = 128

// CheckName says why name cannot be an interceptor's name.
func CheckName(name string) error { return checkText("name", name, maxName) }

// Check joins all faults of the description.
func (m *Metadata) Check() error {
	var errs []error
	if err := CheckName(m.Name); err != nil {
		errs = append(errs, err)
	}
	if len(m.Hooks) == 0 {
		errs = append(errs, errors.New("no hooks"))
	}
	for _, h := range m.Hooks {
		if err := h.check(); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := ParseMode(string(m.Mode)); err != nil {
		errs = append(errs, err)
	}
	if err := m.Compat.check(); err != nil {
		errs = append(errs, err)
	}
	if len(m.ConfigSchema) > 0 && !isObject(m.ConfigSchema) {
		errs = append(errs, errors.New("configSchema is not a JSON object"))
	}
	return errors.Join(errs...)
}

// normalized returns a deep copy with phases expanded and the mode resolved.
// What Check would find fault with stays as it is, to be found.
func (m *Metadata) normalized() Metadata {
	out := *m
	out.Hooks = ExpandHooks(m.Hooks)
	if mode, err := ParseMode(string(m.Mode)); err == nil {
		out.Mode = mode
	}
	out.ConfigSchema = slices.Clone(m.ConfigSchema)
	if m.Compat != nil {
		compat := *m.Compat
		out.Compat = &compat
	}
	return out
}

// Matches reports whether one of the hooks sees messages of the method in the phase.
func (m *Metadata) Matches(method string, phase Phase) bool {
	return slices.ContainsFunc(m.Hooks, func(h Hook) bool { return h.Matches(method, phase) })
}

// Compat bounds the MCP protocol versions, which are dates, that an
// interceptor understands. An empty bound is open.
type Compat struct {
	MinProtocol string `json:"minProtocol,omitempty"`
	MaxProtocol string `json:"maxProtocol,omitempty"`
}

// Allows reports whether the version lies within the bounds. A nil Compat
// allows all, and an unknown (empty) version is allowed, so that a guard is
// not skipped for want of information.
func (c *Compat) Allows(version string) bool {
	if c == nil || version == "" {
		return true
	}
	return version >= c.MinProtocol && (c.MaxProtocol == "" || version <= c.MaxProtocol)
}

func (c *Compat) check() error {
	if c != nil && c.MaxProtocol != "" && c.MaxProtocol < c.MinProtocol {
		return fmt.Errorf("compat: maxProtocol %q is before minProtocol %q", clip(c.MaxProtocol), clip(c.MinProtocol))
	}
	return nil
}

// A Descriptor is an interceptor as a host lists it: its type and metadata.
type Descriptor struct {
	Type Type `json:"type"`
	Metadata
}

// Clone returns a copy that shares nothing with d.
func (d Descriptor) Clone() Descriptor {
	return Descriptor{Type: d.Type, Metadata: d.Metadata.normalized()}
}

// MarshalJSON writes a list entry as in SEP-2624: what has its default value
// is left out and phases are expanded.
func (d Descriptor) MarshalJSON() ([]byte, error) {
	m := d.Metadata.normalized()
	switch m.Mode {
	case ModeActive:
		m.Mode = ""
	case ModeAudit:
	default:
		return nil, fmt.Errorf("core: unknown mode %q", clip(string(m.Mode)))
	}
	return Encode(struct {
		Name string `json:"name"`
		Type Type   `json:"type"`
		*Metadata
	}{m.Name, d.Type, &m})
}

// UnmarshalJSON reads and checks a list entry. Members that SEP-2624 does not
// know are ignored. [ErrUnknownType] says that the entry is neither a
// validator nor a mutator.
func (d *Descriptor) UnmarshalJSON(data []byte) error {
	// The type comes first: what the members of an unknown one mean is not known.
	var head struct {
		Name string `json:"name"`
		Type Type   `json:"type"`
	}
	if err := Decode(data, &head); err != nil {
		return fmt.Errorf("core: interceptor descriptor: %w", err)
	}
	if head.Type != TypeValidation && head.Type != TypeMutation {
		return fmt.Errorf("core: interceptor %q: %w %q", clip(head.Name), ErrUnknownType, clip(string(head.Type)))
	}
	var wire struct {
		Type Type `json:"type"`
		Metadata
	}
	if err := Decode(data, &wire); err != nil {
		return fmt.Errorf("core: interceptor %q: %w", clip(head.Name), err)
	}
	if bytes.Equal(wire.ConfigSchema, []byte("null")) {
		wire.ConfigSchema = nil
	}
	if err := wire.Metadata.Check(); err != nil {
		return fmt.Errorf("core: interceptor %q: %w", clip(wire.Name), err)
	}
	*d = Descriptor{Type: wire.Type, Metadata: wire.Metadata.normalized()}
	return nil
}

// ErrUnknownType is reported for a descriptor or result of a type that
// SEP-2624 does not have. Lists skip such entries and keep the rest.
var ErrUnknownType = errors.New("unknown interceptor type")
