package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// isNil reports whether v is nil or a nil pointer in an interface: go-sdk
// passes absent params as typed nils, and its own methods die on them.
func isNil(v any) bool {
	switch v := v.(type) { // what there is most of
	case nil:
		return true
	case *mcp.CallToolParamsRaw:
		return v == nil
	case *mcp.CallToolResult:
		return v == nil
	}
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}

var errRetarget = errors.New("changes what the request is for")

// applyParams makes a request with the mutated params. The old request and its
// params stay as they are: others may hold them.
func (m *message) applyParams(payload json.RawMessage) (chain.Applied, error) {
	if applied, ok, err := m.applyCall(payload); ok || err != nil {
		return applied, err
	}
	params := newParams(m.req)
	if params == nil {
		return chain.Applied{}, fmt.Errorf("params of %s cannot be replaced", m.method)
	}
	restored, err := restore(m.original, payload, nil)
	if err != nil {
		return chain.Applied{}, err
	}
	going, err := m.decodeFresh(restored, params)
	if err != nil {
		return chain.Applied{}, err
	}
	if err := m.carried(going); err != nil {
		return chain.Applied{}, err
	}
	retargeted, err := retargets(m.original, going)
	if err != nil {
		return chain.Applied{}, err
	}
	if retargeted && !m.opts.AllowRetarget {
		return chain.Applied{}, errRetarget
	}
	m.applied = withParams(m.req, params)
	return chain.Applied{Payload: going, Revalidate: retargeted}, nil
}

// carried says whether a mutated payload carries what it carried before.
func (m *message) carried(going json.RawMessage) error {
	if !manyRounds(m.method) {
		return nil
	}
	return carriesTheSame(m.original, going)
}

// retargets reports whether params say something else about what they are for.
// Both are as the same encoder writes them.
func retargets(before, after json.RawMessage) (bool, error) {
	if len(before) == 0 {
		before = json.RawMessage("{}")
	}
	old, err := core.Members(before)
	if err != nil {
		return false, err
	}
	now, err := core.Members(after)
	if err != nil {
		return false, err
	}
	for _, name := range [...]string{"name", "uri", "ref"} {
		if !bytes.Equal(valueOf(old, name), valueOf(now, name)) {
			return true, nil
		}
	}
	return false, nil
}

// newParams returns new params of the request's type, or nil where that cannot
// be told: on the sending side, params that are absent have none.
func newParams(req mcp.Request) mcp.Params {
	field := reflect.ValueOf(req).Elem().FieldByName("Params")
	if !field.IsValid() {
		return nil
	}
	t := field.Type()
	if t.Kind() == reflect.Interface {
		if field.IsNil() {
			return nil
		}
		t = field.Elem().Type()
	}
	if t.Kind() != reflect.Pointer {
		return nil
	}
	params, _ := reflect.New(t.Elem()).Interface().(mcp.Params)
	return params
}

// withParams returns a copy of the request that has other params.
func withParams(req mcp.Request, params mcp.Params) mcp.Request {
	old := reflect.ValueOf(req).Elem()
	changed := reflect.New(old.Type())
	changed.Elem().Set(old)
	changed.Elem().FieldByName("Params").Set(reflect.ValueOf(params))
	return changed.Interface().(mcp.Request)
}

// applyResult makes a result from a mutated payload. The old one stays as it
// is: it may be the server's own, or lead to its registry.
func (m *message) applyResult(payload json.RawMessage) (chain.Applied, error) {
	old := m.handled
	t := reflect.TypeOf(old)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || t.Elem().NumField() == 0 {
		return chain.Applied{}, fmt.Errorf("result of %s has no members to change", m.method)
	}
	restored, err := restore(m.original, payload, protectedMembers)
	if err != nil {
		return chain.Applied{}, err
	}
	fresh := reflect.New(t.Elem()).Interface().(mcp.Result)
	going, err := m.decodeFresh(restored, fresh)
	if err != nil {
		return chain.Applied{}, err
	}
	if err := m.carried(going); err != nil {
		return chain.Applied{}, err
	}
	if call, ok := fresh.(*mcp.CallToolResult); ok && call.IsError {
		if cause := old.(*mcp.CallToolResult).GetError(); cause != nil {
			call.SetError(cause) // only the server can see it; no codec carries it over
		}
	}
	m.result = fresh
	return chain.Applied{Payload: going}, nil
}

// decodeFresh decodes a payload into v, which must be new, and returns what v
// is written as: the bytes that will leave. What v has no place for is an
// error, since dropping it in silence would undo what a mutator did.
func (m *message) decodeFresh(payload json.RawMessage, v any) (json.RawMessage, error) {
	if err := decode(payload, v); err != nil {
		return nil, err
	}
	going, err := m.encode(v, bySomebody)
	if err != nil {
		return nil, err
	}
	if path, missing := core.Missing(payload, going); missing {
		return nil, fmt.Errorf("%s has no place in %T", path, v)
	}
	return going, nil
}

// decode reads a payload into a new value. Numbers in values of any type are
// kept digit for digit, but for two: the SDK hands out those of a request's
// _meta, and whatever is in types that are not its own, as float64, and that
// is what handlers expect. Arguments and structured content stay raw JSON.
func decode(payload json.RawMessage, v any) error {
	members, err := core.Members(payload)
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case *mcp.CallToolResult:
		return decodeCall(members, v)
	case mcp.Result:
		return core.Decode(payload, v)
	}
	if !sdkType(v) {
		return core.DecodePlain(payload, v)
	}
	if err := core.Decode(payload, v); err != nil {
		return err
	}
	if call, ok := v.(*mcp.CallToolParams); ok && call.Arguments != nil {
		call.Arguments = json.RawMessage(bytes.Clone(valueOf(members, "arguments")))
	}
	meta := valueOf(members, "_meta")
	if meta == nil {
		return nil
	}
	var plain map[string]any
	if err := json.Unmarshal(meta, &plain); err != nil {
		return err
	}
	if holder, ok := v.(interface{ SetMeta(map[string]any) }); ok {
		holder.SetMeta(plain)
	}
	return nil
}

// sdkType reports whether v is of a type of go-sdk's own.
func sdkType(v any) bool {
	return reflect.TypeOf(v).Elem().PkgPath() == reflect.TypeFor[mcp.Tool]().PkgPath()
}

// decodeCall reads a tool's result. The SDK's decoder would read numbers as
// float64 and set bounds to depth, so what it has no business with does not
// pass through it: structured content, and _meta, of the content too.
func decodeCall(members []core.Member, call *mcp.CallToolResult) error {
	structured := valueOf(members, "structuredContent")
	rest := make([]core.Member, 0, len(members))
	for _, m := range members {
		if m.Name != "structuredContent" {
			rest = append(rest, m)
		}
	}
	payload, err := core.JoinMembers(rest)
	if err != nil {
		return err
	}
	if err := core.Decode(payload, call); err != nil {
		return err
	}
	if structured != nil && string(structured) != "null" {
		call.StructuredContent = json.RawMessage(bytes.Clone(structured))
	}
	var exact struct {
		Meta    mcp.Meta `json:"_meta"`
		Content []struct {
			Meta mcp.Meta `json:"_meta"`
		} `json:"content"`
	}
	if err := core.Decode(payload, &exact); err != nil {
		return err
	}
	call.Meta = exact.Meta
	for i, c := range call.Content {
		setMeta(c, exact.Content[i].Meta)
	}
	return nil
}

// setMeta replaces the _meta of a content block.
func setMeta(c mcp.Content, meta mcp.Meta) {
	switch c := c.(type) {
	case *mcp.TextContent:
		c.Meta = meta
	case *mcp.ImageContent:
		c.Meta = meta
	case *mcp.AudioContent:
		c.Meta = meta
	case *mcp.ResourceLink:
		c.Meta = meta
	case *mcp.EmbeddedResource:
		c.Meta = meta
	}
}

func valueOf(members []core.Member, name string) json.RawMessage {
	for _, m := range members {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// protectedMembers of a result belong to the protocol, not to policy.
var protectedMembers = []string{"resultType", "ttlMs", "cacheScope"}

// reservedMeta reports whether a key of _meta belongs to the protocol.
func reservedMeta(key string) bool {
	switch key {
	case "progressToken", "traceparent", "tracestate", "baggage":
		return true
	}
	return strings.HasPrefix(key, "io.modelcontextprotocol/")
}

// restore puts back what a mutator left out and the protocol needs: reserved
// keys of _meta and the protected members. All else is the mutator's to remove.
func restore(original, mutated json.RawMessage, protected []string) (json.RawMessage, error) {
	now, err := core.Members(mutated)
	if err != nil {
		return nil, err
	}
	if len(original) == 0 {
		return mutated, nil
	}
	before, err := core.Members(original)
	if err != nil {
		return nil, err
	}
	now, changed, err := restoreMembers(before, now, protected)
	if err != nil {
		return nil, err
	}
	if !changed {
		return mutated, nil
	}
	return core.JoinMembers(now)
}

// restoreMembers is restore on members, and says whether there was any need.
func restoreMembers(before, now []core.Member, protected []string) (restored []core.Member, changed bool, err error) {
	for _, m := range before {
		if slices.Contains(protected, m.Name) && valueOf(now, m.Name) == nil {
			now, changed = append(now, m), true
		}
	}
	meta, err := restoreMeta(valueOf(before, "_meta"), valueOf(now, "_meta"))
	if err != nil {
		return nil, false, err
	}
	if meta != nil {
		now, changed = core.PutMember(now, core.Member{Name: "_meta", Value: meta}), true
	}
	return now, changed, nil
}

// restoreMeta returns a _meta that has the reserved keys again, or nil if none
// is missing.
func restoreMeta(before, now json.RawMessage) (json.RawMessage, error) {
	if before == nil || string(before) == "null" {
		return nil, nil
	}
	old, err := core.Members(before)
	if err != nil {
		return nil, err
	}
	var current []core.Member
	if now != nil && string(now) != "null" {
		if current, err = core.Members(now); err != nil {
			return nil, fmt.Errorf("_meta: %w", err)
		}
	}
	changed := false
	for _, m := range old {
		if reservedMeta(m.Name) && valueOf(current, m.Name) == nil {
			current, changed = append(current, m), true
		}
	}
	if !changed {
		return nil, nil
	}
	return core.JoinMembers(current)
}
