package mcpext

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A registry is the set of interceptors at one moment. It never changes.
type registry struct {
	list   []*registered // in the order of registration
	byName map[string]*registered
}

// A registered interceptor is what lists, invokes and chains all use.
type registered struct {
	core.Descriptor
	interceptor core.Interceptor
	schema      *jsonschema.Resolved // nil takes any configuration
	guard       chain.Guard          // in chains
	wireGuard   chain.Guard          // of interceptor/invoke: its callers must not use up the other
}

// register checks an interceptor and prepares what does not change any more.
// All its faults are joined; without a description there is nothing to return.
func register(i core.Interceptor) (*registered, error) {
	i = owned(i)
	errs := []error{core.CheckInterceptor(i)}
	d, ok := describe(i)
	if !ok {
		return nil, errs[0]
	}
	r := &registered{Descriptor: d, interceptor: i}
	if !slices.ContainsFunc(mcp.SupportedProtocolVersions(), r.Compat.Allows) {
		errs = append(errs, errors.New("compat excludes every protocol version that this SDK speaks"))
	}
	var err error
	if r.schema, err = resolveSchema(r.ConfigSchema); err != nil {
		errs = append(errs, fmt.Errorf("configSchema: %w", err))
	}
	return r, errors.Join(errs...)
}

// owned returns the interceptor itself for a pointer to one: what its author
// does to it later must not reach messages.
func owned(i core.Interceptor) core.Interceptor {
	switch p := i.(type) {
	case *core.Validator:
		if p != nil {
			return *p
		}
	case *core.Mutator:
		if p != nil {
			return *p
		}
	}
	return i
}

// describe is Describe, which panics on a nil pointer.
func describe(i core.Interceptor) (d core.Descriptor, ok bool) {
	defer func() { ok = recover() == nil }()
	return i.Describe(), true
}

func resolveSchema(raw json.RawMessage) (*jsonschema.Resolved, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// checkConfig holds a configuration against the schema (SEP-2624, Best
// Practices: configurations are validated).
func (r *registered) checkConfig(config map[string]any) error {
	if r.schema == nil || config == nil {
		return nil
	}
	if err := r.schema.Validate(config); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// invoke runs the interceptor. Every way to an interceptor of this process
// ends here, so that all give the same answers.
func (r *registered) invoke(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
	return core.Call(ctx, r.interceptor, inv)
}

func (r *registered) binding() chain.Binding {
	return chain.Binding{Descriptor: r.Descriptor, Invoke: r.invoke, CheckConfig: r.checkConfig, Guard: &r.guard}
}

// with returns a registry that has the new ones too, or all their faults.
func (g *registry) with(interceptors []core.Interceptor) (*registry, []*registered, error) {
	next := &registry{list: slices.Clone(g.list), byName: make(map[string]*registered, len(g.byName)+len(interceptors))}
	for name, r := range g.byName {
		next.byName[name] = r
	}
	var errs []error
	var added []*registered
	for n, i := range interceptors {
		r, err := register(i)
		if r != nil && next.byName[r.Name] != nil {
			err = errors.Join(err, ErrNameTaken)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("mcpext: interceptor %d %s: %w", n, nameOf(r, i), err))
			continue
		}
		next.list = append(next.list, r)
		next.byName[r.Name] = r
		added = append(added, r)
	}
	return next, added, errors.Join(errs...)
}

// nameOf names an interceptor in an error about it.
func nameOf(r *registered, i core.Interceptor) string {
	if r == nil && i != nil {
		return fmt.Sprintf("(%T)", i)
	}
	if r == nil {
		return "(nil)"
	}
	return fmt.Sprintf("%q", r.Name)
}

// without returns a registry that lacks the name, or nil if it never had it.
func (g *registry) without(name string) *registry {
	r := g.byName[name]
	if r == nil {
		return nil
	}
	next := &registry{byName: make(map[string]*registered, len(g.byName))}
	for _, other := range g.list {
		if other != r {
			next.list = append(next.list, other)
			next.byName[other.Name] = other
		}
	}
	return next
}

// events returns all events that hooks name, sorted, each once.
func (g *registry) events() []string {
	events := []string{}
	for _, r := range g.list {
		for _, h := range r.Hooks {
			events = append(events, h.Events...)
		}
	}
	slices.Sort(events)
	return slices.Compact(events)
}
