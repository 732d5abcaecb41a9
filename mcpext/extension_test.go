package mcpext_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// names returns what a chain of the extension holds.
func names(t *testing.T, ext *mcpext.Extension) []string {
	t.Helper()
	ch, err := ext.Chain(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, ch.Close()) }()
	list := []string{}
	for _, e := range ch.Entries() {
		list = append(list, e.Name)
	}
	return list
}

func named(name string) core.Interceptor { return ct.Validator(name, ct.Allow) }

func edited(edit ct.Edit) core.Interceptor { return ct.Validator("x", ct.Allow, edit) }

func schema(s string) ct.Edit {
	return func(m *core.Metadata) { m.ConfigSchema = json.RawMessage(s) }
}

func compat(c core.Compat) ct.Edit { return func(m *core.Metadata) { m.Compat = &c } }

func TestAddInterceptorRefuses(t *testing.T) {
	tests := map[string]struct {
		add  core.Interceptor
		want []string // all of them
	}{
		"nil":                               {nil, []string{"nil interceptor"}},
		"a nil validator":                   {(*core.Validator)(nil), []string{"nil interceptor"}},
		"a nil mutator":                     {(*core.Mutator)(nil), []string{"nil interceptor"}},
		"no handler":                        {ct.Validator("x", nil), []string{`"x"`, "no handler"}},
		"a mutator without a handler":       {ct.Mutator("x", nil), []string{`"x"`, "no handler"}},
		"no hooks":                          {edited(func(m *core.Metadata) { m.Hooks = nil }), []string{"no hooks"}},
		"a hook without events":             {edited(ct.On(core.PhaseRequest)), []string{"without events"}},
		"an unknown phase":                  {edited(ct.On("sideways", "tools/call")), []string{"sideways"}},
		"an unknown mode":                   {edited(func(m *core.Metadata) { m.Mode = "aduit" }), []string{"aduit"}},
		"no name":                           {named(""), []string{"empty name"}},
		"a name that is too long":           {named(strings.Repeat("n", 129)), []string{"129 bytes"}},
		"a control character in the name":   {named("a\x00b"), []string{"control character"}},
		"a name that is not UTF-8":          {named("a\xff"), []string{"UTF-8"}},
		"a name that is taken":              {named("here"), []string{`"here"`, "name is taken"}},
		"compat before all that is spoken":  {edited(compat(core.Compat{MaxProtocol: "2020-01-01"})), []string{"compat excludes every"}},
		"compat after all that is spoken":   {edited(compat(core.Compat{MinProtocol: "2999-01-01"})), []string{"compat excludes every"}},
		"compat bounds in the wrong order":  {edited(compat(core.Compat{MinProtocol: "2025-11-25", MaxProtocol: "2025-06-18"})), []string{"maxProtocol"}},
		"a configSchema that is no object":  {edited(schema(`["object"]`)), []string{"configSchema"}},
		"a configSchema that is no schema":  {edited(schema(`{"type":7}`)), []string{"configSchema"}},
		"a configSchema that leads nowhere": {edited(schema(`{"$ref":"#/$defs/none"}`)), []string{"configSchema"}},
		"several faults at once": {
			ct.Validator("", nil, func(m *core.Metadata) { m.Hooks = nil }, compat(core.Compat{MinProtocol: "b", MaxProtocol: "a"})),
			[]string{"no handler", "no hooks", "empty name", "compat"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ext := mcpext.New(nil)
			require.NoError(t, ext.AddInterceptor(named("here")))
			err := ext.AddInterceptor(named("before"), tt.add, named("after"))
			for _, want := range append(tt.want, "interceptor 1 ") {
				require.ErrorContains(t, err, want)
			}
			assert.Equal(t, []string{"here"}, names(t, ext), "nothing is half-added")
		})
	}
}

// Row 72, and the same name twice in one call.
func TestAddInterceptorJoinsTheFaultsOfAllArguments(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(named("here")))
	err := ext.AddInterceptor(named("twice"), nil, named("twice"), named("here"), ct.Mutator("silent", nil))
	require.ErrorIs(t, err, mcpext.ErrNameTaken)
	for _, want := range []string{"interceptor 1 (nil)", `interceptor 2 "twice": name is taken`, `interceptor 3 "here": name is taken`, `interceptor 4 "silent": no handler`} {
		require.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "interceptor 0")
	assert.Equal(t, []string{"here"}, names(t, ext))
	require.NoError(t, ext.AddInterceptor(named("twice")), "a refused name stays free")
	require.NoError(t, ext.AddInterceptor())
}

// What the author does to his values afterwards changes nothing.
func TestRegisteredValuesAreCopies(t *testing.T) {
	config := json.RawMessage(`{"type":"object"}`)
	limits := &core.Compat{MinProtocol: "2025-06-18"}
	hooks := []core.Hook{{Events: []string{"tools/call"}, Phase: core.PhaseRequest}}
	v := core.Validator{Metadata: core.Metadata{Name: "v", Hooks: hooks, Compat: limits, ConfigSchema: config}, Handler: ct.Allow}
	_, server := host(t, nil, &v)
	p := dial(t, server, legacy)
	want := p.result(p.ask("interceptors/list", ""))

	hooks[0].Events[0], hooks[0].Phase = "prompts/get", core.PhaseResponse
	limits.MinProtocol = "2999-01-01"
	copy(config, `{"type":"string"}`)
	v.Name, v.Handler = "other", nil
	assert.Equal(t, want, p.result(p.ask("interceptors/list", "")))
	p.result(p.ask("interceptor/invoke", `{"name":"v","event":"tools/call","phase":"request","payload":{},"config":{}}`))
}

func TestRemoveInterceptor(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(named("a"), named("b"), named("c")))
	assert.False(t, ext.RemoveInterceptor("nobody"))
	assert.True(t, ext.RemoveInterceptor("b"))
	assert.False(t, ext.RemoveInterceptor("b"), "it is gone already")
	assert.Equal(t, []string{"a", "c"}, names(t, ext))
	require.NoError(t, ext.AddInterceptor(named("b")), "its name is free again")
	assert.Equal(t, []string{"a", "c", "b"}, names(t, ext), "a newcomer goes last")
}

// A hook that can never fire would be a guard in name only.
func TestWarningsAboutHooksThatNeverFire(t *testing.T) {
	tests := map[string]struct {
		phase  core.Phase
		events []string
		warned int
	}{
		"good: sampling":                           {core.PhaseBoth, []string{core.EventSampling, "sampling/*", "*/createMessage"}, 0},
		"good: elicitation":                        {core.PhaseRequest, []string{core.EventElicitation}, 0},
		"good: roots":                              {core.PhaseResponse, []string{core.EventRoots}, 0},
		"a handshake":                              {core.PhaseRequest, []string{"initialize", "server/discover"}, 2},
		"the extension's own methods":              {core.PhaseRequest, []string{core.MethodList, core.MethodInvoke}, 2},
		"a pattern of notifications":               {core.PhaseRequest, []string{"notifications/*"}, 1},
		"the response of a notification":           {core.PhaseResponse, []string{"notifications/progress"}, 1},
		"the response of a subscription":           {core.PhaseResponse, []string{"subscriptions/listen"}, 1},
		"a pattern for the other phase":            {core.PhaseRequest, []string{"*/response"}, 1},
		"a pattern for the other phase, too":       {core.PhaseResponse, []string{"*/request"}, 1},
		"one bad event among good ones":            {core.PhaseRequest, []string{"tools/call", "initialize", "tools/list"}, 1},
		"good: an event of the SEP":                {core.PhaseBoth, []string{"tools/call", "resources/read"}, 0},
		"good: any, a glob and the SEP's phases":   {core.PhaseRequest, []string{"*", "tools/*", "*/request"}, 0},
		"good: an event that nobody knows":         {core.PhaseBoth, []string{"vendor/method", "vendor/*", "llm/completion"}, 0},
		"good: a pattern that sampling is part of": {core.PhaseBoth, []string{"*/list", "*e*"}, 0},
		"good: a named notification and its kind":  {core.PhaseRequest, []string{"notifications/progress", "ping", "subscriptions/listen"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			log := &logBuffer{}
			ext := mcpext.New(&mcpext.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, ext.AddInterceptor(ct.Validator("guard", ct.Allow, ct.On(tt.phase, tt.events...))))
			assert.Equal(t, tt.warned, strings.Count(log.String(), `level=WARN msg="hook never fires" interceptor=guard`), log)
		})
	}
}

func TestRefusedInterceptorsAreNotWarnedAbout(t *testing.T) {
	log := &logBuffer{}
	ext := mcpext.New(&mcpext.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.Error(t, ext.AddInterceptor(ct.Validator("guard", ct.Allow, ct.On(core.PhaseRequest, "initialize")), nil))
	assert.Empty(t, log.String())
}

// A typing error in an event is a guard that never fires.
func TestWarningsAboutEventsThatAreNearlyRight(t *testing.T) {
	for event, nearest := range map[string]string{
		"tool/call": "tools/call", "tools/lits": "tools/list", "sampling/createmessage": "sampling/createMessage", "Tools/Call": "tools/call",
		"tools/call": "", "acme/custom": "", "tools/*": "", "*": "", "llm/completion": "",
	} {
		t.Run(event, func(t *testing.T) {
			log := &logBuffer{}
			ext := mcpext.New(&mcpext.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, ext.AddInterceptor(ct.Validator("v", ct.Allow, ct.On(core.PhaseRequest, event))))
			if nearest == "" {
				assert.Empty(t, log.String())
				return
			}
			assert.Contains(t, log.String(), "nearest="+nearest)
		})
	}
}

// So is a configuration whose name nobody has.
func TestWarningAboutConfigsForNobody(t *testing.T) {
	log := &logBuffer{}
	ext := mcpext.New(&mcpext.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, ext.AddInterceptor(ct.Validator("v", ct.Allow)))
	ch, err := ext.Chain(&chain.Options{Config: map[string]map[string]any{"v": {}, "typo": {}}})
	require.NoError(t, err)
	require.NoError(t, ch.Close())
	assert.Contains(t, log.String(), "interceptor=typo")
	assert.NotContains(t, log.String(), "interceptor=v ")
}
