package core

import (
	"encoding/json"
	"reflect"
	"time"
)

// An Invocation is what a handler is given for one message in one phase. It
// belongs to the handler until that returns; nothing in it may be kept.
type Invocation struct {
	// Event is the JSON-RPC method of the message.
	Event string
	// Phase says which half of the exchange Payload is.
	Phase Phase
	// Mode is the effective mode. A handler with side effects, such as a rate
	// limiter or an alert, holds them back in audit.
	Mode Mode
	// MessageID is the same in both phases of one message and differs between
	// messages, so that state can be matched to its request.
	MessageID string
	// Retry says that the request is one that was seen before and is sent once
	// more, with answers to what its first result asked for (SEP-2322). A
	// handler that counts or bills does so when it is false. It is the peer's
	// word: a limit that must hold does not look at it.
	Retry bool
	// Payload is the bare params or result: {} when the message has none.
	Payload json.RawMessage
	// Config is the interceptor's configuration, a copy; nil if there is none.
	Config map[string]any
	// Context says on whose behalf the message travels.
	Context InvocationContext
}

// Decode reads the payload into v as [Decode] does.
func (inv *Invocation) Decode(v any) error { return Decode(inv.Payload, v) }

// An InvocationContext says on whose behalf a message travels.
type InvocationContext struct {
	// Principal is who acts; nil if that is not known.
	Principal *Principal
	// TraceID and SpanID are W3C Trace Context ids in hex.
	TraceID, SpanID string
	// Timestamp is when the message was taken up.
	Timestamp time.Time
	// SessionID is the MCP session; empty where the protocol has none.
	SessionID string
}

// A Principal is who acts: a user, a service, an agent.
type Principal struct {
	Type   string         `json:"type,omitempty"`
	ID     string         `json:"id,omitempty"`
	Claims map[string]any `json:"claims,omitempty"`
	// Asserted marks a principal that came over the wire in interceptor/invoke.
	// Its word is only as good as the peer that sent it, so it must not feed a
	// local decision about access.
	Asserted bool `json:"-"`
}

// Clone returns a deep copy, so that handlers that run at once cannot meet in
// one map. Values are copied as [CloneMap] copies them.
func (c InvocationContext) Clone() InvocationContext {
	if c.Principal != nil {
		p := *c.Principal
		p.Claims = CloneMap(p.Claims)
		c.Principal = &p
	}
	return c
}

// CloneMap returns a deep copy of a map of JSON values: maps and slices of any
// type are copied, pointers and what they point to are not. Nil stays nil.
func CloneMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = cloneValue(v)
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return CloneMap(v)
	case string, bool, float64, json.Number, nil:
		return v
	}
	// Authors put []string and map[string]string into claims, too.
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Map || rv.Kind() == reflect.Slice {
		return cloneReflect(rv).Interface()
	}
	return v
}

func cloneReflect(v reflect.Value) reflect.Value {
	switch kind := v.Kind(); {
	case kind == reflect.Interface && !v.IsNil():
		return reflect.ValueOf(cloneValue(v.Interface()))
	case kind == reflect.Map && !v.IsNil():
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), cloneReflect(it.Value()))
		}
		return out
	case kind == reflect.Slice && !v.IsNil():
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(cloneReflect(v.Index(i)))
		}
		return out
	}
	return v
}
