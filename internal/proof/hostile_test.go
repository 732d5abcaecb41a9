package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A hostile is an interceptor that does its worst.
type hostile struct {
	name     string
	act      string
	deed     time.Duration
	payload  json.RawMessage
	metadata core.Metadata
}

// acts are what a hostile does each time that it is called.
var acts = []string{
	"deny", "deny loudly", "fail", "fail with a bomb", "fail with nothing", "panic", "panic with nil", "exit", "hang", "deaf", "scribble", "scribble later",
	"nil", "replace", "unknown severity", "scribble on maps",
}

// giant is a payload that nobody wants.
var giant = json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 256<<10) + `"}]}`)

func (d dice) hostile(name string) *hostile {
	h := &hostile{name: name, act: pick(d, acts...), deed: time.Duration(1+d.IntN(20)) * time.Millisecond}
	h.payload = pick(d, giant, json.RawMessage(`{}`), json.RawMessage(`{"name":"fails"}`), json.RawMessage(`null`), json.RawMessage(`[]`),
		json.RawMessage(`{"content":[]}`), json.RawMessage(`{{`), json.RawMessage(nil), json.RawMessage(`"x"`), json.RawMessage(`{"tools":[],"uri":"b://y"}`))
	h.metadata = core.Metadata{
		Name: name, FailOpen: d.chance(2), Inline: d.chance(4) && h.act != "exit",
		PriorityHint: core.NewPriority(int32(d.IntN(7) - 3)),
		Hooks:        []core.Hook{{Events: d.events(), Phase: pick(d, core.PhaseRequest, core.PhaseResponse, core.PhaseBoth, core.PhaseBoth)}},
	}
	if d.chance(2) {
		h.metadata.Mode = core.ModeAudit
	}
	return h
}

func (d dice) events() []string {
	all := []string{"*", "ping", "notifications/progress", "notifications/message", "notifications/roots/list_changed"}
	return pick(d, all, all, []string{"tools/*"}, []string{"tools/call"}, []string{"*"}, []string{"vendor/echo", "*/list"}, []string{"elicitation/create", "tools/call"})
}

// A bomb is an error that panics when it is asked for its text.
type bomb struct{}

func (bomb) Error() string { panic("boom") }

// misbehave does what comes before an answer.
func (h *hostile) misbehave(ctx context.Context, inv *core.Invocation) error {
	switch h.act {
	case "fail":
		return errors.New(h.name)
	case "fail with a bomb":
		return bomb{}
	case "fail with nothing":
		var none *chain.AbortError
		return none
	case "panic":
		panic(h.name)
	case "panic with nil":
		panic(nil) //nolint:govet // the very thing
	case "exit":
		runtime.Goexit()
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "deaf":
		time.Sleep(h.deed)
	case "scribble":
		scribble(inv.Payload)
	case "scribble later":
		go func() {
			time.Sleep(h.deed / 10)
			scribble(inv.Payload)
		}()
	case "scribble on maps":
		inv.Config["scribbled"] = true // nil without a configuration: then it panics
	}
	return nil
}

// scribble writes over all that there is, beyond the end too.
func scribble(payload []byte) {
	payload = payload[:cap(payload)]
	for i := range payload {
		payload[i] = '!'
	}
}

func (h *hostile) validate(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
	err := h.misbehave(ctx, inv)
	switch {
	case err != nil, h.act == "nil":
		return nil, err
	case h.act == "unknown severity":
		return &core.ValidationResult{Valid: true, Severity: "fatal"}, nil
	case h.act == "deny loudly":
		return &core.ValidationResult{Messages: []core.Message{{Message: string(h.payload), Severity: core.SeverityError}}, Info: map[string]any{"f": func() {}}}, nil
	}
	return core.Deny("no"), nil
}

func (h *hostile) mutate(ctx context.Context, inv *core.Invocation) (*core.MutationResult, error) {
	if err := h.misbehave(ctx, inv); err != nil || h.act == "nil" {
		return nil, err
	}
	if h.act == "scribble later" {
		return core.Replace(h.payload), nil // what it writes to meanwhile is its own
	}
	if h.act == "replace" || h.act == "deny" {
		return &core.MutationResult{Modified: h.act == "replace", Payload: h.payload}, nil
	}
	return core.Replace(inv.Payload), nil // scribbled on, perhaps
}

func (d dice) interceptor(name string, tell func(format string, args ...any)) core.Interceptor {
	h := d.hostile(name)
	mutator := d.chance(2)
	tell("%s: %s for %v, mutator %v, payload %.60s, %+v", name, h.act, h.deed, mutator, h.payload, h.metadata)
	if mutator {
		return core.Mutator{Metadata: h.metadata, Handler: h.mutate}
	}
	return core.Validator{Metadata: h.metadata, Handler: h.validate}
}

// A liar is a host whose answers are not of the type that it lists.
type liar struct{ lie string }

var lies = []string{"the other type", "both types", "nothing", "panic", "a page that panics"}

func (l *liar) List(context.Context) ([]core.Descriptor, error) {
	var list []core.Descriptor
	for i, t := range []core.Type{core.TypeValidation, core.TypeMutation} {
		list = append(list, core.Descriptor{Type: t, Metadata: core.Metadata{
			Name: fmt.Sprint("liar", i), Mode: core.ModeAudit,
			Hooks: []core.Hook{{Events: []string{"*"}, Phase: core.PhaseRequest}, {Events: []string{"*"}, Phase: core.PhaseResponse}},
		}})
	}
	return list, nil
}

func (l *liar) Invoke(_ context.Context, name string, _ *core.Invocation) (core.Answer, error) {
	denial, change := core.Deny("lie"), core.Replace(giant)
	switch l.lie {
	case "the other type":
		if name == "liar0" {
			return core.Answer{Mutation: change}, nil
		}
		return core.Answer{Validation: denial}, nil
	case "both types":
		return core.Answer{Validation: denial, Mutation: change}, nil
	case "panic":
		panic(name)
	}
	return core.Answer{}, nil
}

func (l *liar) Close() error { return nil }

// A breaker is an observer that panics now and then.
type breaker struct {
	chain.NopObserver
	when int
}

func (b breaker) MessageStart(ctx context.Context, _ *chain.Message) context.Context {
	b.perhaps(0)
	return ctx
}
func (b breaker) MessageEnd(context.Context, *chain.MessageEnd) { b.perhaps(1) }
func (b breaker) ExecuteEnd(context.Context, *chain.Result, error) {
	b.perhaps(2)
}
func (b breaker) InvokeEnd(context.Context, *chain.Invoke, *chain.Outcome) { b.perhaps(3) }

func (b breaker) perhaps(where int) {
	if b.when == where {
		panic("observer")
	}
}
