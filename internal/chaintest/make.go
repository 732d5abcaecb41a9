package chaintest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A ValidatorFunc and a MutatorFunc are handlers.
type (
	ValidatorFunc = func(context.Context, *core.Invocation) (*core.ValidationResult, error)
	MutatorFunc   = func(context.Context, *core.Invocation) (*core.MutationResult, error)
	// An Edit changes the metadata of an interceptor that is being made.
	Edit func(*core.Metadata)
)

// Validator returns a validator hooked on tools/call in both phases.
func Validator(name string, handler ValidatorFunc, edits ...Edit) core.Validator {
	return core.Validator{Metadata: metadata(name, edits), Handler: handler}
}

// Mutator returns a mutator hooked on tools/call in both phases.
func Mutator(name string, handler MutatorFunc, edits ...Edit) core.Mutator {
	return core.Mutator{Metadata: metadata(name, edits), Handler: handler}
}

func metadata(name string, edits []Edit) core.Metadata {
	m := core.Metadata{Name: name, Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseBoth}}}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

// Edits.
func Audit(m *core.Metadata)    { m.Mode = core.ModeAudit }
func FailOpen(m *core.Metadata) { m.FailOpen = true }
func Inline(m *core.Metadata)   { m.Inline = true }

// On hooks the interceptor on the events in the phase instead.
func On(phase core.Phase, events ...string) Edit {
	return func(m *core.Metadata) { m.Hooks = []core.Hook{{Events: events, Phase: phase}} }
}

// Priority sets the hint.
func Priority(p core.Priority) Edit { return func(m *core.Metadata) { m.PriorityHint = p } }

// Answer returns a handler that always gives this verdict.
func Answer(r core.ValidationResult) ValidatorFunc {
	return func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return &r, nil }
}

// Fail returns a handler that always fails.
func Fail(err error) ValidatorFunc {
	return func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return nil, err }
}

// Allow passes everything.
func Allow(context.Context, *core.Invocation) (*core.ValidationResult, error) {
	return core.Allow(), nil
}

// Deny passes nothing.
func Deny(context.Context, *core.Invocation) (*core.ValidationResult, error) {
	return core.Deny("no"), nil
}

// Keep changes nothing.
func Keep(context.Context, *core.Invocation) (*core.MutationResult, error) {
	return core.Unchanged(), nil
}

// Set returns a handler that replaces any payload by this one.
func Set(payload string) MutatorFunc {
	return func(context.Context, *core.Invocation) (*core.MutationResult, error) {
		return core.Replace(json.RawMessage(payload)), nil
	}
}

// Append returns a handler that adds word to the list under "log".
func Append(word string) MutatorFunc {
	return func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		var v map[string]any
		if err := inv.Decode(&v); err != nil {
			return nil, err
		}
		list, _ := v["log"].([]any)
		v["log"] = append(list, word)
		out, err := core.Encode(v)
		return core.Replace(out), err
	}
}

// Sleep returns a handler that honours its context and passes after d.
func Sleep(d time.Duration, then *core.ValidationResult) ValidatorFunc {
	return func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
		select {
		case <-time.After(d):
			return then, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Deaf returns a handler that ignores its context and passes after d.
func Deaf(d time.Duration) ValidatorFunc {
	return func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		time.Sleep(d)
		return core.Allow(), nil
	}
}

// SlowMutator returns a handler that replaces the payload after d, deaf to its
// context.
func SlowMutator(d time.Duration, payload string) MutatorFunc {
	return func(context.Context, *core.Invocation) (*core.MutationResult, error) {
		time.Sleep(d)
		return core.Replace(json.RawMessage(payload)), nil
	}
}
