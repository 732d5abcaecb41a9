package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A script says what each interceptor does with one message, by its name.
type script map[string]string

// scriptOf reads the script of a call, which the tool echoes.
func scriptOf(inv *core.Invocation) script {
	type arguments struct {
		Script script `json:"script"`
	}
	var message struct {
		Arguments arguments `json:"arguments"`
		Content   []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if inv.Decode(&message) != nil {
		return nil
	}
	if inv.Phase == core.PhaseResponse && len(message.Content) > 0 {
		_ = json.Unmarshal([]byte(message.Content[0].Text), &message.Arguments) // the tool that fails echoes nothing
	}
	return message.Arguments.Script
}

// An actor is an interceptor that follows scripts.
type actor struct {
	name     string
	typ      core.Type
	phase    core.Phase
	audit    bool
	failOpen bool
}

func (a *actor) edit(m *core.Metadata) {
	ct.On(a.phase, core.EventToolsCall)(m)
	m.FailOpen = a.failOpen
	if a.audit {
		m.Mode = core.ModeAudit
	}
}

// acts are what actors of a type can do, and the reasons of what goes wrong.
var acts = map[core.Type]map[string]chain.Reason{
	core.TypeValidation: {
		"allow": "", "deny": chain.ReasonValidation, "error": chain.ReasonError, "panic": chain.ReasonPanic, "malformed": chain.ReasonProtocol,
	},
	core.TypeMutation: {
		"keep": "", "modify": "", "error": chain.ReasonMutation, "panic": chain.ReasonPanic, "malformed": chain.ReasonProtocol,
	},
}

func (a *actor) interceptor() core.Interceptor {
	if a.typ == core.TypeValidation {
		return ct.Validator(a.name, func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			switch scriptOf(inv)[a.name] {
			case "deny":
				return core.Deny("no"), nil
			case "error":
				return nil, errors.New("no")
			case "panic":
				panic("no")
			case "malformed":
				return nil, nil
			}
			return core.Allow(), nil
		}, a.edit)
	}
	return ct.Mutator(a.name, func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		switch scriptOf(inv)[a.name] {
		case "modify":
			return core.Replace(json.RawMessage(" " + string(inv.Payload))), nil
		case "error":
			return nil, errors.New("no")
		case "panic":
			panic("no")
		case "malformed":
			return core.Replace(json.RawMessage("[")), nil
		}
		return core.Unchanged(), nil
	}, a.edit)
}

// A ledger is kept by the client, from what came over the wire.
type ledger struct {
	actors     map[string]*actor
	waited     time.Duration      // for all answers
	operations map[string]float64 // by error_type and tool
	aborts     map[string]float64 // by interceptor, phase and reason
}

// enter books an answer. The wire says which interceptor stopped the message;
// why, the client knows from what it had asked for.
func (l *ledger) enter(t require.TestingT, tool string, s script, res *mcp.CallToolResult, err error) {
	var wire *jsonrpc.Error
	switch {
	case err == nil && res.IsError:
		l.operations["tool_error "+tool]++
		return
	case err == nil:
		l.operations[" "+tool]++
		return
	}
	require.ErrorAs(t, err, &wire)
	var data struct {
		ValidationErrors               []struct{ Interceptor string }
		Interceptor, FailedInterceptor string
	}
	require.NoError(t, json.Unmarshal(wire.Data, &data))
	kind, lead := "", data.Interceptor+data.FailedInterceptor
	switch wire.Code {
	case -32602: // a denial is no error
		lead = data.ValidationErrors[0].Interceptor
	case -32603:
		kind = "-32603"
	default:
		t.Errorf("code %d", wire.Code)
	}
	l.operations[kind+" "+tool]++
	a := l.actors[lead]
	require.NotNil(t, a, lead)
	l.aborts[fmt.Sprintf("%s %s %s", lead, a.phase, acts[a.typ][s[lead]])]++
}

func drawActors(t *rapid.T) map[string]*actor {
	out := map[string]*actor{}
	for i := range rapid.IntRange(0, 6).Draw(t, "interceptors") {
		a := &actor{
			name:  string(rune('a' + i)),
			typ:   rapid.SampledFrom([]core.Type{core.TypeValidation, core.TypeMutation}).Draw(t, "type"),
			phase: rapid.SampledFrom([]core.Phase{core.PhaseRequest, core.PhaseResponse}).Draw(t, "phase"),
			audit: rapid.Bool().Draw(t, "audit"), failOpen: rapid.Bool().Draw(t, "failOpen"),
		}
		out[a.name] = a
	}
	return out
}

// drawScript draws what actors do. Most let a message pass, so that it comes to
// the others.
func drawScript(t *rapid.T, actors map[string]*actor) script {
	s := script{}
	for i := range len(actors) {
		a := actors[string(rune('a'+i))]
		if rapid.IntRange(0, 2).Draw(t, "passes") > 0 {
			continue
		}
		which := []string{"allow", "deny", "error", "panic", "malformed"}
		if a.typ == core.TypeMutation {
			which = []string{"keep", "modify", "error", "panic", "malformed"}
		}
		s[a.name] = rapid.SampledFrom(which).Draw(t, "act")
	}
	return s
}

// compare holds the metrics against the ledger.
func (l *ledger) compare(t *rapid.T, tb testing.TB, w *world, calls int) {
	operations, count, took := map[string]float64{}, 0.0, 0.0
	for labels, s := range w.series(tb, semconv.MetricServerOperation) { // error type, tool, method, transport
		if kind, ok := strings.CutSuffix(labels, " tools/call pipe"); ok {
			operations[kind] = s.value
			count += s.value
			took += s.sum
		}
	}
	require.Positive(t, took)
	require.Less(t, took, l.waited.Seconds(), "the client waits longer than the server takes")
	require.Equal(t, l.operations, operations)
	require.EqualValues(t, calls, count)
	require.Equal(t, l.aborts, w.nonzero(tb, semconv.MetricAborts))
	for labels, n := range w.nonzero(tb, semconv.MetricAuditDenials) {
		require.True(t, l.actors[labels[:1]].audit, "%s: %v", labels, n)
	}
	for labels, n := range w.nonzero(tb, semconv.MetricFailOpen) {
		require.True(t, l.actors[labels[:1]].failOpen && !l.actors[labels[:1]].audit, "%s: %v", labels, n)
	}
	l.compareInvokes(t, tb, w, calls)
}

// compareInvokes wants each validator of the request phase to have seen each
// message, and each failure of one to be in one of the counters.
func (l *ledger) compareInvokes(t *rapid.T, tb testing.TB, w *world, calls int) {
	seen, bad := map[string]float64{}, map[string]float64{}
	for labels, n := range w.nonzero(tb, semconv.MetricInvoke) {
		f := strings.Fields(labels) // interceptor mode phase type verdict
		seen[f[0]] += n
		if f[4] == "deny" || f[4] == "error" {
			bad[f[0]] += n
		}
	}
	counted := map[string]float64{}
	for _, metric := range []string{semconv.MetricAuditDenials, semconv.MetricAuditFailures, semconv.MetricFailOpen} {
		for labels, n := range w.nonzero(tb, metric) {
			counted[labels[:1]] += n
		}
	}
	for name, a := range l.actors {
		if a.typ == core.TypeValidation && a.phase == core.PhaseRequest {
			require.EqualValues(t, calls, seen[name], name)
		}
		if a.audit {
			require.Equal(t, bad[name], counted[name], name)
		}
	}
	require.Empty(t, w.nonzero(tb, semconv.MetricInflight))
}

// What metrics say is what clients were answered, for any chain and any
// messages.
func TestMetricsAgreeWithTheClient(t *testing.T) {
	stopped, failedOpen, audited := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		l := &ledger{actors: drawActors(rt), operations: map[string]float64{}, aborts: map[string]float64{}}
		s := setup{options: telemetry.Options{Tools: []string{"echo", "fail"}}, local: rapid.IntRange(0, 9).Draw(rt, "local") == 0}
		for _, a := range l.actors {
			s.interceptors = append(s.interceptors, a.interceptor())
		}
		w := newWorld(t, s)
		cs := w.client(t, rapid.SampledFrom([]string{legacy, modern}).Draw(rt, "version"))
		calls := rapid.IntRange(1, 12).Draw(rt, "calls")
		for range calls {
			tool, script := rapid.SampledFrom([]string{"echo", "echo", "fail"}).Draw(rt, "tool"), drawScript(rt, l.actors)
			start := time.Now()
			res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"script": script}})
			l.waited += time.Since(start)
			l.enter(rt, tool, script, res, err)
		}
		w.ended(t)
		l.compare(rt, t, w, calls)
		stopped += len(l.aborts)
		failedOpen += len(w.nonzero(t, semconv.MetricFailOpen))
		audited += len(w.nonzero(t, semconv.MetricAuditFailures)) + len(w.nonzero(t, semconv.MetricAuditDenials))
	})
	for _, n := range []int{stopped, failedOpen, audited} {
		require.Positive(t, n, "something went wrong now and then, or nothing was compared")
	}
}
