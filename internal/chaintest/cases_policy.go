package chaintest

import (
	"context"
	"encoding/json"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policyCases say what overrides, filters and configurations do.
func policyCases() []Case {
	yes := true
	late := core.NewPriority(10)
	refused := func(part string) func(*T, *chain.Result, error) {
		return func(t *T, res *chain.Result, err error) {
			t.Helper()
			require.ErrorContains(t, err, part)
			assert.Nil(t, res)
		}
	}
	hook := func(phase core.Phase, events ...string) []core.Hook {
		return []core.Hook{{Events: events, Phase: phase}}
	}
	return []Case{
		{
			Name:         "row 69: an override turns a guard to audit",
			Interceptors: []core.Interceptor{Validator("v", Deny)},
			Overrides:    map[string]chain.Overrides{"v": {Mode: core.ModeAudit}},
			Check:        passes,
		},
		{
			Name:         "row 69: and an observer to active",
			Interceptors: []core.Interceptor{Validator("v", Deny, Audit)},
			Overrides:    map[string]chain.Overrides{"v": {Mode: "enforce"}},
			Check:        denied("v"),
		},
		{
			Name:         "an override takes a guard out",
			Interceptors: []core.Interceptor{Validator("v", Deny)},
			Overrides:    map[string]chain.Overrides{"v": {Off: true}},
			Check:        passes,
		},
		{
			Name:         "an override of failOpen",
			Interceptors: []core.Interceptor{Validator("v", Fail(nil))},
			Overrides:    map[string]chain.Overrides{"v": {FailOpen: &yes}},
			Check:        failsOpen,
		},
		{
			Name:         "row 70: an override of the priority replaces the whole hint",
			Interceptors: []core.Interceptor{Mutator("a", Append("a"), Priority(core.NewPriority(-7))), Mutator("b", Append("b"))},
			Overrides:    map[string]chain.Overrides{"a": {Priority: &late}},
			Request:      chain.Request{Payload: json.RawMessage(`{}`)},
			Check:        becomes(`{"log":["b","a"]}`),
		},
		{
			Name:         "row 65: hooks narrowed from * to one event",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseBoth, "*"))},
			Overrides:    map[string]chain.Overrides{"v": {Hooks: hook(core.PhaseRequest, "prompts/get")}},
			Check:        passes,
		},
		{
			Name:         "row 67: hooks narrowed to none",
			Interceptors: []core.Interceptor{Validator("v", Deny)},
			Overrides:    map[string]chain.Overrides{"v": {Hooks: []core.Hook{}}},
			Check:        passes,
		},
		{
			Name:         "row 59: an unknown phase is an error",
			Interceptors: []core.Interceptor{Validator("v", Allow)},
			Request:      chain.Request{Phase: "both"},
			Check:        refused("unknown phase"),
		},
		{
			Name:    "row 59: an unknown direction is an error",
			Request: chain.Request{Direction: "sideways"},
			Check:   refused("unknown direction"),
		},
		{
			Name:         "row 62: a filter with an unknown name is an error",
			Interceptors: []core.Interceptor{Validator("v", Allow)},
			Request:      chain.Request{Interceptors: []string{"v", "w"}},
			Check:        refused(`"w"`),
		},
		{
			Name:         "a filter runs the named ones only",
			Interceptors: []core.Interceptor{Validator("v", Deny), Validator("w", Allow)},
			Request:      chain.Request{Interceptors: []string{"w"}},
			Check:        passes,
		},
		{
			Name:         "row 63: an empty filter is none",
			Interceptors: []core.Interceptor{Validator("v", Deny)},
			Request:      chain.Request{Interceptors: []string{}},
			Check:        denied("v"),
		},
		{
			Name:         "row 80: compat that excludes the protocol skips",
			Interceptors: []core.Interceptor{Validator("v", Deny, func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2026-01-01"} })},
			Request:      chain.Request{Protocol: "2025-11-25"},
			Check: func(t *T, res *chain.Result, err error) {
				passes(t, res, err)
				assert.Equal(t, chain.VerdictSkipped, outcome(t, res, "v").Verdict)
			},
		},
		{
			Name:         "row 80: and runs for a protocol within its bounds, or unknown",
			Interceptors: []core.Interceptor{Validator("v", Deny, func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2026-01-01"} })},
			Check:        denied("v"),
		},
		{
			Name: "handlers are told mode, message, config and context, each in a copy",
			Options: chain.Options{Config: map[string]map[string]any{
				"a": {"n": map[string]any{"x": 1}}, "b": {"n": map[string]any{"x": 1}},
			}},
			Interceptors: []core.Interceptor{Validator("a", inspect), Validator("b", inspect), Validator("c", inspect)},
			Request: chain.Request{MessageID: "m-1", Context: core.InvocationContext{
				Principal: &core.Principal{Type: "user", ID: "u", Claims: map[string]any{"k": map[string]any{}}}, SessionID: "s",
			}},
			Check: func(t *T, res *chain.Result, err error) {
				passes(t, res, err)
				assert.Equal(t, "m-1", res.MessageID)
			},
		},
	}
}

// inspect denies unless it was told all that policyCases wants told, and
// writes to the maps that it got: the race detector sees shared ones.
func inspect(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
	p := inv.Context.Principal
	if inv.Mode != core.ModeActive || inv.MessageID != "m-1" || p == nil || p.ID != "u" || inv.Context.SessionID != "s" {
		return core.Deny("not told"), nil
	}
	p.Claims["mine"] = true
	p.Claims["k"].(map[string]any)["mine"] = true
	if inv.Config != nil {
		n := inv.Config["n"].(map[string]any)
		if n["x"] != 1.0 || n["mine"] != nil {
			return core.Deny("config"), nil
		}
		n["mine"] = true
	}
	return core.Allow(), nil
}
