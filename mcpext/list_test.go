package mcpext_test

import (
	"encoding/json"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What an entry looks like: defaults left out, both phases as two hooks, the
// priority in the form that it was given (SEP-2624, interceptors/list).
const (
	allowAll = `{"name":"conf/allow-all","type":"validation",` +
		`"hooks":[{"events":["tools/call"],"phase":"request"},{"events":["tools/call"],"phase":"response"}]}`
	redactor = `{"name":"redactor","type":"mutation","version":"1.2.0","description":"hides <secrets>",` +
		`"hooks":[{"events":["tools/call"],"phase":"request"}],"mode":"audit","failOpen":true,` +
		`"priorityHint":{"request":-1000},"compat":{"minProtocol":"2025-06-18"},"configSchema":{"type":"object"}}`
)

func listed() []core.Interceptor {
	return []core.Interceptor{
		ct.Validator("conf/allow-all", ct.Allow, ct.Inline, func(m *core.Metadata) { m.Mode = "enforce" }),
		ct.Mutator("redactor", ct.Keep, ct.On(core.PhaseRequest, "tools/call"), ct.Audit, ct.FailOpen,
			ct.Priority(core.RequestPriority(-1000)), compat(core.Compat{MinProtocol: "2025-06-18"}), schema(`{"type":"object"}`),
			func(m *core.Metadata) { m.Version, m.Description = "1.2.0", "hides <secrets>" }),
	}
}

func TestListIsWrittenAsTheSEPWantsIt(t *testing.T) {
	_, server := host(t, nil, listed()...)
	want := `{"interceptors":[` + allowAll + `,` + redactor + `]`
	p := dial(t, server, legacy)
	assert.Equal(t, want+`}`, p.result(p.ask("interceptors/list", `{}`)))
	p = dial(t, server, modern)
	assert.Equal(t, want+`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"host","version":"1"}}}`,
		p.result(p.ask("interceptors/list", `{}`)), "what the SDK adds stands last")
}

// Row 109: params may be absent in any way that JSON has for it.
func TestListWithoutParams(t *testing.T) {
	_, server := host(t, nil, listed()...)
	p := dial(t, server, legacy)
	want := p.result(p.ask("interceptors/list", `{}`))
	for name, params := range map[string]string{"missing": ``, "null": `null`, "an empty event": `{"event":""}`, "a null event": `{"event":null}`, "unknown members": `{"x":1}`} {
		assert.Equal(t, want, p.result(p.ask("interceptors/list", params)), name)
	}
}

func TestListKeepsTheOrderOfRegistration(t *testing.T) {
	ext, server := host(t, nil, named("z"), named("a"), named("m"))
	p := dial(t, server, modern)
	assert.Equal(t, []string{"z", "a", "m"}, p.list(`{}`))
	ext.RemoveInterceptor("z")
	require.NoError(t, ext.AddInterceptor(named("z")))
	assert.Equal(t, []string{"a", "m", "z"}, p.list(`{}`))
}

// list returns the names that are listed.
func (p *peer) list(params string) []string {
	p.t.Helper()
	var res struct{ Interceptors []core.Descriptor }
	require.NoError(p.t, json.Unmarshal([]byte(p.result(p.ask("interceptors/list", params))), &res))
	names := []string{}
	for _, d := range res.Interceptors {
		names = append(names, d.Name)
	}
	return names
}

func TestListEventFilter(t *testing.T) {
	_, server := host(
		t, nil,
		ct.Validator("literal", ct.Allow, ct.On(core.PhaseResponse, "prompts/get", "tools/call")),
		ct.Validator("any", ct.Allow, ct.On(core.PhaseRequest, "*")),
		ct.Validator("glob", ct.Allow, ct.On(core.PhaseBoth, "tools/*")),
		ct.Validator("phase", ct.Allow, ct.On(core.PhaseResponse, "*/response")),
		ct.Validator("notes", ct.Allow, ct.On(core.PhaseRequest, "notifications/*")),
		ct.Validator("idle", ct.Allow, ct.On(core.PhaseRequest, "server/discover")),
		ct.Validator("note", ct.Allow, ct.On(core.PhaseRequest, "notifications/progress", "ping")),
	)
	p := dial(t, server, legacy)
	tests := map[string]struct {
		event string
		want  []string
	}{
		"a literal, and the patterns that match it":  {"tools/call", []string{"literal", "any", "glob", "phase"}},
		"matched by a glob and by any":               {"tools/list", []string{"any", "glob", "phase"}},
		"an event that nobody names":                 {"vendor/x", []string{"any", "phase"}},
		"any by its own spelling, and its like":      {"*", []string{"any", "phase"}},
		"a glob by its own spelling, and any":        {"tools/*", []string{"any", "glob", "phase"}},
		"a pattern of notifications":                 {"notifications/*", []string{"notes"}},
		"a pattern that nobody spells so":            {"prompts/*", []string{"any", "phase"}},
		"a notification that is named":               {"notifications/progress", []string{"note"}},
		"ping, which patterns do not match":          {"ping", []string{"note"}},
		"a notification that nobody names":           {"notifications/message", nil},
		"an event that is never intercepted":         {"initialize", nil},
		"an event that is spelled out to no avail":   {"server/discover", []string{"idle"}},
		"the same event in other letters is another": {"Tools/Call", []string{"any", "phase"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p.t = t
			if tt.want == nil {
				assert.JSONEq(t, `{"interceptors":[]}`, p.result(p.ask("interceptors/list", `{"event":"`+tt.event+`"}`)), "a list, not null")
				return
			}
			assert.Equal(t, tt.want, p.list(`{"event":"`+tt.event+`"}`))
		})
	}
}
