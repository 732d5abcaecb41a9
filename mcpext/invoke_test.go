package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// invocation returns params of interceptor/invoke for one called x, with
// further members.
func invocation(more string) string {
	return `{"name":"x","event":"tools/call","phase":"request"` + more + `}`
}

// invoke calls the interceptor and returns the result without its duration.
func (p *peer) invoke(more string) string {
	p.t.Helper()
	return timeless(p.result(p.ask("interceptor/invoke", invocation(more))))
}

func mutates(r *core.MutationResult) core.Interceptor {
	return ct.Mutator("x", func(context.Context, *core.Invocation) (*core.MutationResult, error) { return r, nil })
}

// Results are flat; type leads for readers that choose a decoder by it, _meta
// comes last, and what is empty is left out (SEP-2624, interceptor/invoke).
func TestResultsByteForByte(t *testing.T) {
	full := core.ValidationResult{
		Severity:    core.SeverityError,
		Messages:    []core.Message{{Path: "arguments.a", Message: "a < b", Severity: core.SeverityError}, {Message: "plain"}},
		Suggestions: []core.Suggestion{{Path: "arguments.a", Value: 7}}, Info: map[string]any{"k": 1},
	}
	tests := map[string]struct {
		interceptor core.Interceptor
		payload     string
		want        string
	}{
		"a pass has no severity and no messages": {
			ct.Validator("x", ct.Allow), `{}`,
			`{"type":"validation","interceptor":"x","phase":"request","valid":true,"durationMs":0}`,
		},
		"a denial with all that it can have": {
			ct.Validator("x", ct.Answer(full)), `{}`,
			`{"type":"validation","interceptor":"x","phase":"request","valid":false,"severity":"error",` +
				`"messages":[{"path":"arguments.a","message":"a < b","severity":"error"},{"message":"plain"}],` +
				`"suggestions":[{"path":"arguments.a","value":7}],"durationMs":0,"info":{"k":1}}`,
		},
		"a bare no": {
			ct.Validator("x", ct.Answer(core.ValidationResult{})), `{}`,
			`{"type":"validation","interceptor":"x","phase":"request","valid":false,"durationMs":0}`,
		},
		"a mutation": {
			mutates(&core.MutationResult{Modified: true, Payload: json.RawMessage(`{"a":9007199254740993,"b":"<"}`), Info: map[string]any{"k": 1}}), `{}`,
			`{"type":"mutation","interceptor":"x","phase":"request","modified":true,"payload":{"a":9007199254740993,"b":"<"},"durationMs":0,"info":{"k":1}}`,
		},
		"an unchanged mutation carries the payload as it came": {
			mutates(core.Unchanged()), `{"z":1,"a":9007199254740993,"e":"<&>é","f":0.10}`,
			`{"type":"mutation","interceptor":"x","phase":"request","modified":false,"payload":{"z":1,"a":9007199254740993,"e":"<&>é","f":0.10},"durationMs":0}`,
		},
		"an unchanged mutation has no say in the payload": {
			mutates(&core.MutationResult{Payload: json.RawMessage(`{"smuggled":`)}), `{"a":1}`,
			`{"type":"mutation","interceptor":"x","phase":"request","modified":false,"payload":{"a":1},"durationMs":0}`,
		},
		"an unchanged null stays null": {
			mutates(core.Unchanged()), `null`,
			`{"type":"mutation","interceptor":"x","phase":"request","modified":false,"payload":null,"durationMs":0}`,
		},
		"a payload that was not there is null": {
			mutates(core.Unchanged()), ``,
			`{"type":"mutation","interceptor":"x","phase":"request","modified":false,"payload":null,"durationMs":0}`,
		},
		"a mutator that writes to its payload without saying so": {
			ct.Mutator("x", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
				inv.Payload[2] = 'X'
				return core.Unchanged(), nil
			}), `{"a":1}`,
			`{"type":"mutation","interceptor":"x","phase":"request","modified":false,"payload":{"a":1},"durationMs":0}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, server := host(t, nil, tt.interceptor)
			payload := ""
			if tt.payload != "" {
				payload = `,"payload":` + tt.payload
			}
			assert.Equal(t, tt.want, dial(t, server, legacy).invoke(payload))
			meta := `,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"host","version":"1"}}}`
			assert.Equal(t, strings.TrimSuffix(tt.want, "}")+meta, dial(t, server, modern).invoke(payload))
		})
	}
}

// seen returns an interceptor called x, and what it is given when the members
// are added to the params.
func seen(t *testing.T, more string, edits ...ct.Edit) core.Invocation {
	t.Helper()
	var got core.Invocation
	_, server := host(t, nil, ct.Validator("x", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		got = *inv
		return core.Allow(), nil
	}, edits...))
	dial(t, server, modern).invoke(more)
	return got
}

func TestWhatTheHandlerIsGiven(t *testing.T) {
	inv := seen(t, `,"payload":{"a":1.0},"config":{"max":3},"context":{
		"principal":{"type":"service","id":"root","claims":{"admin":true},"asserted":false,"Asserted":false},
		"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7","timestamp":"2026-01-01T01:00:00+01:00","sessionId":"s",
		"io.github.headgate-mcp/messageId":"m-1","io.github.headgate-mcp/mode":"audit","unknown":1}`)
	assert.Equal(t, core.Invocation{
		Event: "tools/call", Phase: core.PhaseRequest, Payload: json.RawMessage(`{"a":1.0}`), Config: map[string]any{"max": 3.0},
		MessageID: "m-1", Mode: core.ModeAudit,
		Context: core.InvocationContext{
			// B11: whoever sends this may write anything here.
			Principal: &core.Principal{Type: "service", ID: "root", Claims: map[string]any{"admin": true}, Asserted: true},
			TraceID:   "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7",
			Timestamp: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), SessionID: "s",
		},
	}, inv)
}

func TestWhatTheHandlerIsGivenWhenThingsAreMissing(t *testing.T) {
	for name, more := range map[string]string{"missing": ``, "null": `,"payload":null,"context":null,"config":null,"timeoutMs":null`} {
		inv := seen(t, more)
		assert.JSONEq(t, `{}`, string(inv.Payload), name)
		assert.Nil(t, inv.Config, name)
		assert.Zero(t, inv.Context, name)
		assert.Equal(t, core.ModeActive, inv.Mode, name)
	}
	assert.Equal(t, core.ModeAudit, seen(t, ``, ct.Audit).Mode, "declared, since nobody says otherwise")
}

// S11: the older word for active is taken, an unknown one is not.
func TestModeOnTheWire(t *testing.T) {
	mode := func(word string) string { return `,"context":{"io.github.headgate-mcp/mode":"` + word + `"}` }
	assert.Equal(t, core.ModeActive, seen(t, mode("enforce"), ct.Audit).Mode)
	_, server := host(t, nil, named("x"))
	p := dial(t, server, modern)
	p.refused(p.ask("interceptor/invoke", invocation(mode("Active"))), -32602, "")
}

// All refusals of params have one code, and their answers quote nothing that
// a payload may hold.
func TestParamsThatAreRefused(t *testing.T) {
	payload := `,"payload":{"k":"` + secret + `"}`
	x := func(members string) string { return `{"name":"x",` + members + payload + `}` }
	tests := map[string]struct {
		params string
		data   string
	}{
		"missing params":                       {``, ``},
		"null params":                          {`null`, ``},
		"no members at all":                    {`{}`, ``},
		"params that are a list":               {`["` + secret + `"]`, ``},
		"no name":                              {`{"event":"tools/call","phase":"request"` + payload + `}`, `{}`},
		"an unknown name":                      {`{"name":"y","event":"tools/call","phase":"request"` + payload + `}`, `{"interceptor":"y"}`},
		"a name that is no name is not quoted": {`{"name":"` + strings.Repeat("vault", 30) + `","event":"tools/call","phase":"request"}`, `{}`},
		"a name of another type":               {`{"name":["` + secret + `"],"event":"tools/call","phase":"request"}`, ``},
		"an event that is not hooked":          {x(`"event":"tools/list","phase":"request"`), `{"interceptor":"x","event":"tools/list","phase":"request"}`},
		"no event":                             {x(`"phase":"request"`), `{"interceptor":"x","phase":"request"}`},
		"an event too long to be quoted":       {x(`"event":"` + strings.Repeat("vault", 60) + `","phase":"request"`), `{"interceptor":"x","phase":"request"}`},
		"a phase that is not hooked":           {x(`"event":"tools/call","phase":"response"`), `{"interceptor":"x","event":"tools/call","phase":"response"}`},
		"row 58: both, which is for authors":   {x(`"event":"tools/call","phase":"both"`), ``},
		"an empty phase":                       {x(`"event":"tools/call","phase":""`), ``},
		"no phase":                             {x(`"event":"tools/call"`), ``},
		"a phase of another type":              {x(`"event":"tools/call","phase":1`), ``},
		"a config of another type":             {invocation(payload + `,"config":["` + secret + `"]`), ``},
		"a context of another type":            {invocation(payload + `,"context":"` + secret + `"`), ``},
		"a principal of another type":          {invocation(payload + `,"context":{"principal":"` + secret + `"}`), ``},
		"a timestamp that is none":             {invocation(payload + `,"context":{"timestamp":"` + secret + `"}`), ``},
		"a timeout of another type":            {invocation(payload + `,"timeoutMs":"` + secret + `"`), ``},
		"row 88: a negative timeout":           {invocation(payload + `,"timeoutMs":-1`), ``},
		"row 88: a huge timeout":               {invocation(payload + `,"timeoutMs":1e300`), ``},
		"row 88: a timeout of infinity":        {invocation(payload + `,"timeoutMs":1e999`), ``},
		"row 88: over ten minutes":             {invocation(payload + `,"timeoutMs":600000.5`), ``},
		"a payload that comes twice":           {invocation(payload + payload), ``},
		"a name in other letters":              {invocation(payload + `,"Name":"x"`), ``},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, server := host(t, nil, ct.Validator("x", ct.Allow, ct.On(core.PhaseRequest, "tools/call")))
			p := dial(t, server, legacy)
			p.refused(p.ask("interceptor/invoke", tt.params), -32602, tt.data)
			assert.Contains(t, p.invoke(`,"timeoutMs":600000`), `"valid":true`, "the session goes on")
		})
	}
}

func TestPayloadsOverTheLimit(t *testing.T) {
	calls := 0
	_, server := host(t, &mcpext.Options{MaxPayload: 64}, ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		calls++
		return core.Allow(), nil
	}))
	p := dial(t, server, modern)
	payload := func(size int) string { return `,"payload":{"k":"` + strings.Repeat("v", size-8) + `"}` }
	p.invoke(payload(64))
	p.refused(p.ask("interceptor/invoke", invocation(payload(65))), -32602,
		`{"interceptor":"x","event":"tools/call","phase":"request","reason":"payload too large"}`)
	assert.Equal(t, 1, calls)
}

// A failure has a code and one of few reasons; its own words go to the log.
func TestHandlersThatFail(t *testing.T) {
	answer := func(r core.ValidationResult) core.Interceptor { return ct.Validator("x", ct.Answer(r)) }
	tests := map[string]struct {
		interceptor core.Interceptor
		reason      string
		logged      string
	}{
		"an error":                          {ct.Validator("x", ct.Fail(errors.New(secret))), "execution failed", secret},
		"a panic":                           {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(secret) }), "crashed", secret},
		"a panic on the caller's goroutine": {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(secret) }, ct.Inline), "crashed", secret},
		"a handler that ends its goroutine": {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			runtime.Goexit()
			return nil, nil
		}), "crashed", "Goexit"},
		"row 87: a timeout of its own making": {ct.Validator("x", ct.Fail(fmt.Errorf("%s: %w", secret, context.DeadlineExceeded))), "execution failed", secret},
		"no result":                           {ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return nil, nil }), "malformed result", "no validation result"},
		"no mutation":                         {mutates(nil), "malformed result", "no mutation result"},
		"an unknown severity":                 {answer(core.ValidationResult{Valid: true, Severity: "vault"}), "malformed result", "vault"},
		"an unknown severity of a message":    {answer(core.ValidationResult{Messages: []core.Message{{Severity: "vault"}}}), "malformed result", "vault"},
		"info that JSON cannot hold":          {answer(core.ValidationResult{Valid: true, Info: map[string]any{"vault": make(chan int)}}), "malformed result", "info"},
		"modified without a payload":          {mutates(&core.MutationResult{Modified: true}), "malformed result", "without a payload"},
		"a payload that is not JSON":          {mutates(core.Replace(json.RawMessage(`{"vault":`))), "malformed result", "not JSON"},
		"a payload that is null":              {mutates(core.Replace(json.RawMessage(`null`))), "malformed result", "null"},
	}
	for name, tt := range tests {
		for _, version := range []string{modern, legacy} {
			t.Run(name+" "+version, func(t *testing.T) {
				log := &logBuffer{}
				_, server := host(t, &mcpext.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}, tt.interceptor)
				p := dial(t, server, version)
				p.refused(p.ask("interceptor/invoke", invocation(`,"payload":{"k":"vault"}`)), -32603,
					`{"interceptor":"x","phase":"request","reason":"`+tt.reason+`"}`)
				assert.Contains(t, log.String(), tt.logged)
				assert.Empty(t, p.list(`{"event":"prompts/get"}`), "the session goes on")
			})
		}
	}
}

// Row 81: the caller is answered at the deadline, whatever the handler does.
func TestTimeouts(t *testing.T) {
	tests := map[string]struct {
		opts    mcpext.Options
		more    string
		handler ct.ValidatorFunc
		want    time.Duration
	}{
		"a handler that ignores its context":          {mcpext.Options{}, `,"timeoutMs":1500`, ct.Deaf(time.Hour), 1500 * time.Millisecond},
		"a handler that honours its context":          {mcpext.Options{}, `,"timeoutMs":1500`, ct.Sleep(time.Hour, core.Allow()), 1500 * time.Millisecond},
		"a fraction":                                  {mcpext.Options{}, `,"timeoutMs":0.5`, ct.Deaf(time.Hour), 500 * time.Microsecond},
		"nothing asked for":                           {mcpext.Options{}, ``, ct.Deaf(time.Hour), 5 * time.Second},
		"0 asks for nothing":                          {mcpext.Options{}, `,"timeoutMs":0`, ct.Deaf(time.Hour), 5 * time.Second},
		"the option holds where nothing is asked for": {mcpext.Options{InvokeTimeout: 2 * time.Second}, ``, ct.Deaf(time.Hour), 2 * time.Second},
		"a negative option is no way to have none":    {mcpext.Options{InvokeTimeout: -1}, ``, ct.Deaf(time.Hour), 5 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(2 * time.Hour) })
				_, server := host(t, &tt.opts, ct.Validator("x", tt.handler))
				p := dial(t, server, modern)
				start := time.Now()
				line := p.ask("interceptor/invoke", invocation(tt.more))
				assert.Equal(t, tt.want, time.Since(start))
				p.refused(line, -32000, fmt.Sprintf(`{"interceptor":"x","timeoutMs":%v,"phase":"request"}`, tt.want.Seconds()*1000))
				assert.Equal(t, "interceptor timeout", p.refusal(line).Message)
			})
		})
	}
}

// Invokes that were given up and still run are limited, those of clients apart
// from those of chains.
func TestAbandonedInvokesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
		ext, server := host(t, nil, ct.Validator("x", ct.Deaf(time.Hour)))
		ch, err := ext.Chain(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, ch.Close()) }()
		p := dial(t, server, modern)
		for range chain.MaxAbandoned {
			p.refused(p.ask("interceptor/invoke", invocation(`,"timeoutMs":1`)), -32000, `{"interceptor":"x","timeoutMs":1,"phase":"request"}`)
		}
		p.refused(p.ask("interceptor/invoke", invocation(``)), -32603, `{"interceptor":"x","phase":"request","reason":"overloaded"}`)
		_, err = ch.Execute(t.Context(), &chain.Request{Event: "tools/call", Phase: core.PhaseRequest, Direction: core.Receiving})
		require.ErrorIs(t, err, chain.ErrTimeout, "clients do not use up what chains have")
	})
}

func TestInvokesAtOnceAreLimited(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	_, server := host(t, &mcpext.Options{MaxInvokes: 2}, ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		began <- struct{}{}
		<-release
		return core.Allow(), nil
	}))
	p, other := dial(t, server, modern), dial(t, server, legacy)
	p.begin("interceptor/invoke", invocation(``))
	<-began
	p.begin("interceptor/invoke", invocation(``))
	<-began
	for range 3 {
		other.refused(other.ask("interceptor/invoke", invocation(``)), -32603, `{"interceptor":"x","phase":"request","reason":"overloaded"}`)
	}
	assert.Equal(t, []string{"x"}, other.list(`{}`), "lists are not invokes")
	close(release)
	p.result(<-p.lines)
	p.result(<-p.lines)
	other.begin("interceptor/invoke", invocation(``))
	<-began
	other.result(<-other.lines)
}

// Row 79: a configuration is held against the schema, and may be missing.
func TestConfig(t *testing.T) {
	limits := schema(`{"type":"object","properties":{"max":{"type":"integer","minimum":1}},"required":["max"],"additionalProperties":false}`)
	tests := map[string]struct {
		config string
		taken  bool
	}{
		"missing":          {``, true},
		"null":             {`,"config":null`, true},
		"fitting":          {`,"config":{"max":3}`, true},
		"of another type":  {`,"config":{"max":"vault"}`, false},
		"out of bounds":    {`,"config":{"max":0}`, false},
		"empty":            {`,"config":{}`, false},
		"with more in it":  {`,"config":{"max":3,"vault":1}`, false},
		"in other letters": {`,"config":{"Max":3}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, server := host(t, nil, ct.Validator("x", ct.Allow, limits))
			p := dial(t, server, modern)
			line := p.ask("interceptor/invoke", invocation(tt.config))
			if tt.taken {
				p.result(line)
				return
			}
			p.refused(line, -32602, `{"interceptor":"x","event":"tools/call","phase":"request","reason":"config does not match configSchema"}`)
		})
	}
	assert.Equal(t, map[string]any{"any": []any{1.0}}, seen(t, `,"config":{"any":[1]}`).Config, "without a schema any is taken")
}
