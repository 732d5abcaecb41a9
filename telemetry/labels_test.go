package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// sizes returns how many series a scrape has of each metric, and wants values of
// labels to be short.
func (w *world) sizes(t testing.TB) map[string]int {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	out := map[string]int{}
	for _, f := range families {
		for _, m := range f.Metric {
			out[f.GetName()]++
			if h := m.GetHistogram(); h != nil {
				out[f.GetName()] += len(h.Bucket) + 2 // +Inf, sum and count
			}
			for _, l := range m.Label {
				if len(l.GetValue()) > 128 {
					t.Errorf("%s: %d bytes in %s", f.GetName(), len(l.GetValue()), l.GetName())
				}
			}
		}
	}
	return out
}

func (w *world) total(t testing.TB) int {
	n := 0
	for _, size := range w.sizes(t) {
		n += size
	}
	return n
}

// A flood is a world that hostile values are poured into, by the observer's
// methods alone: a server would take too long.
type flood struct {
	*world
	t testing.TB
}

// The default bounds.
const (
	maxTools        = 64
	maxInterceptors = 32
)

func newFlood(t *testing.T) *flood {
	return &flood{newWorld(t, setup{options: telemetry.Options{NoTracing: true}}), t}
}

// messages sends a message of each kind there can be.
func (f *flood) messages(method, target string, offered bool) {
	for _, direction := range []core.Direction{core.Receiving, core.Sending} {
		for _, transport := range []string{"pipe", "tcp", "carrier pigeon"} {
			m := &chain.Message{Method: method, Target: target, Offered: offered, Transport: transport, Direction: direction}
			for _, how := range []chain.MessageOutcome{
				chain.MessageOK, chain.MessageToolError, chain.MessageDenied, chain.MessageFailed, chain.MessageTimeout,
				chain.MessageCancelled, chain.MessagePanic, "made up",
			} {
				f.message(&chain.MessageEnd{Message: m, Outcome: how, Duration: 1, Stages: chain.StageTimes{Handler: 1}})
			}
			for _, code := range []int64{0, -32700, -32600, -32601, -32602, -32603, -32002, 1} {
				f.message(&chain.MessageEnd{Message: m, Outcome: chain.MessageError, Code: code, Duration: 1})
			}
		}
	}
}

func (f *flood) message(end *chain.MessageEnd) {
	f.tel.MessageEnd(f.tel.MessageStart(context.Background(), end.Message), end)
}

// phases runs phases of an event that take all stages.
func (f *flood) phases(event string) {
	for _, phase := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
		ctx := f.tel.ExecuteStart(context.Background(), &chain.Execution{Event: event, Phase: phase, MarshalTime: 1})
		f.tel.ExecuteEnd(ctx, &chain.Result{Event: event, Phase: phase, Times: chain.StageWalls{Validators: 1, Mutators: 2, Apply: 1}}, nil)
	}
}

// invokes makes all calls of an interceptor that there can be.
func (f *flood) invokes(name string, typ core.Type, event string) {
	reasons := []chain.Reason{
		"", chain.ReasonValidation, chain.ReasonMutation, chain.ReasonError, chain.ReasonTimeout, chain.ReasonPanic,
		chain.ReasonProtocol, chain.ReasonOverload, chain.ReasonCancelled, "made up",
	}
	verdicts := []chain.Verdict{
		chain.VerdictAllow, chain.VerdictDeny, chain.VerdictError, chain.VerdictTimeout,
		chain.VerdictSkipped, chain.VerdictDropped, "made up",
	}
	if typ == core.TypeMutation {
		verdicts[1] = chain.VerdictModify
	}
	for _, mode := range []core.Mode{core.ModeActive, core.ModeAudit} {
		e := entry(name, typ, mode)
		h := f.tel.Prepare(e)
		for _, phase := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
			i := &chain.Invoke{Entry: e, Event: event, Phase: phase, Handle: h}
			for _, v := range verdicts {
				for _, r := range reasons {
					out := &chain.Outcome{Entry: e, Phase: phase, Mode: mode, Verdict: v, Reason: r, Duration: 1}
					out.Ran = v != chain.VerdictSkipped && v != chain.VerdictDropped
					f.tel.InvokeEnd(f.tel.InvokeStart(context.Background(), i), i, out)
				}
			}
			for _, r := range reasons {
				ctx := f.tel.ExecuteStart(context.Background(), &chain.Execution{Event: event, Phase: phase})
				f.tel.ExecuteEnd(ctx, &chain.Result{Event: event, Phase: phase}, &chain.AbortError{Interceptor: name, Phase: phase, Reason: r})
			}
		}
	}
}

func entry(name string, typ core.Type, mode core.Mode) *chain.Entry {
	e := &chain.Entry{Effective: chain.Effective{Mode: mode}}
	e.Name, e.Type = name, typ
	e.Hooks = []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseBoth}}
	return e
}

// hostile are values that no client of good will sends.
func hostile() []string {
	return []string{
		"", " ", "_OTHER", "_CHAIN", "\xff\xfe", "a\x00b", "line\nbreak", `quote"`, strings.Repeat("a", 1<<20),
		strings.Repeat("\xff", 1<<12), strings.Repeat("é", 64), strings.Repeat("é", 65),
	}
}

// O08: the number of series has a bound, whatever comes over the wire and
// however many interceptors there are. With all caps reached it is what the
// reference says.
func TestSeriesAreBounded(t *testing.T) {
	f := newFlood(t)
	names := hostile()
	for i := range 200 {
		names = append(names, "x"+strconv.Itoa(i))
	}
	var entries []*chain.Entry
	for i, name := range names {
		typ := core.TypeValidation // has more series than mutation
		if i > 100 && i%2 == 0 {
			typ = core.TypeMutation
		}
		e := entry(name, typ, core.ModeActive)
		e.Hooks[0].Events = []string{name + "/method", "acme/" + name, "*"}
		e.Version = name
		entries = append(entries, e)
		f.tel.Prepare(e)
		f.invokes(name, typ, name+"/method")
	}
	f.tel.PolicyChanged(f.chain, entries)
	for _, method := range append(core.StandardMethods(), names...) {
		f.messages(method, "", false)
		f.phases(method)
	}
	for _, name := range names {
		f.messages("acme/"+name, "", true)
		f.phases("acme/" + name)
		f.messages(core.EventToolsCall, name, true)
		f.messages(core.EventResourcesRead, name, true)
	}
	got, most := f.sizes(t), telemetry.WorstCases(maxTools, maxInterceptors)
	all := 0
	for name, n := range got {
		all += n
		require.LessOrEqual(t, n, most[name], name)
		require.GreaterOrEqual(t, n, most[name]*3/4, "the cap of %s is reached", name)
	}
	require.LessOrEqual(t, all, telemetry.WorstCase(maxTools, maxInterceptors))
	require.Greater(t, all, telemetry.WorstCase(maxTools, maxInterceptors)*9/10)
	for label, n := range f.counts(t, semconv.MetricOverflow) {
		require.Positive(t, n, label)
	}
}

// O08: a million names of tools are two series more than none.
func TestMillionToolNames(t *testing.T) {
	f := newFlood(t)
	for i := range 1_000_000 {
		m := &chain.Message{Method: core.EventToolsCall, Target: "tool-" + strconv.Itoa(i), Transport: "pipe", Direction: core.Receiving}
		f.message(&chain.MessageEnd{Message: m, Outcome: chain.MessageError, Code: -32602, Duration: time.Microsecond})
	}
	require.Equal(t, map[string]float64{" _OTHER tools/call pipe": 1e6}, f.counts(t, semconv.MetricServerOperation))
	require.Equal(t, 1e6, f.counts(t, semconv.MetricOverflow)["gen_ai_tool_name"])
}

// O08: even a server that has a million tools has a bounded number of series,
// and the first ones keep theirs.
func TestMillionTools(t *testing.T) {
	f := newFlood(t)
	for i := range 200_000 {
		m := &chain.Message{
			Method: core.EventToolsCall, Target: "tool-" + strconv.Itoa(i), Offered: true, Transport: "pipe", Direction: core.Receiving,
		}
		f.message(&chain.MessageEnd{Message: m, Outcome: chain.MessageOK, Duration: time.Microsecond})
	}
	got := f.counts(t, semconv.MetricServerOperation)
	require.Len(t, got, maxTools+1)
	require.Equal(t, 200_000.0-maxTools, got[" _OTHER tools/call pipe"])
	require.Equal(t, 1.0, got[" tool-0 tools/call pipe"])
}

// O08, through a server: names of tools and prompts, URIs, versions and ids are
// the client's, and none becomes a label or the name of a span.
func TestServerUnderHostileNames(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Allow, ct.On(core.PhaseRequest, "*"))}})
	cs := w.client(t, modern)
	ctx := context.Background()
	_, err := call(cs, "echo")
	require.NoError(t, err)
	_, _ = cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///0"})
	_, _ = cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p0"})
	_, _ = call(cs, "t0")
	before, names := w.total(t), map[string]bool{}
	for i := range 400 {
		_, _ = call(cs, "t"+strconv.Itoa(i))
		_, _ = cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///" + strconv.Itoa(i)})
		_, _ = cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p" + strconv.Itoa(i)})
	}
	for _, name := range hostile() {
		_, err := call(cs, name)
		require.Error(t, err)
	}
	require.Equal(t, before, w.total(t))
	for _, s := range w.ended(t) {
		names[s.Name()] = true
	}
	require.Equal(t, map[string]bool{
		"server/discover": true, "tools/call": true, "tools/call echo": true, "resources/read": true, "prompts/get": true,
		"intercept request": true, "interceptor/invoke v": true,
	}, names)
}

// Two hundred interceptors with hostile versions: beyond the bound they count
// together, and each has spans under its own name.
func TestManyInterceptors(t *testing.T) {
	var many []core.Interceptor
	for i := range 200 {
		v := ct.Validator(fmt.Sprintf("v%03d", i), ct.Fail(errors.New("no")), hook, ct.FailOpen, ct.Inline)
		v.Version = hostile()[i%len(hostile())]
		many = append(many, v)
	}
	w := newWorld(t, setup{interceptors: many})
	_, err := call(w.client(t, legacy), "echo")
	require.NoError(t, err)
	require.Len(t, w.counts(t, semconv.MetricInvoke), maxInterceptors+1)
	require.Equal(t, 200.0-maxInterceptors, w.counts(t, semconv.MetricFailOpen)["_OTHER request error"])
	require.Len(t, w.counts(t, semconv.MetricInfo), maxInterceptors, "one line could not speak for all others")
	require.Len(t, w.counts(t, semconv.MetricAbandoned), maxInterceptors+1)
	require.Positive(t, w.counts(t, semconv.MetricOverflow)["interceptor"])
	require.LessOrEqual(t, w.total(t), telemetry.WorstCase(maxTools, maxInterceptors))
	w.idle(t)
	spans := w.ended(t)
	for i := range 200 {
		spans.one(t, fmt.Sprintf("interceptor/invoke v%03d", i))
	}
}

// An interceptor may not pass for a whole phase, nor for all that have no label,
// by its name.
func TestReservedNames(t *testing.T) {
	w := newWorld(t, setup{
		chain:        chain.Options{InvokeTimeout: 10 * time.Millisecond},
		interceptors: []core.Interceptor{ct.Validator("_CHAIN", slow, hook), ct.Validator("_OTHER", ct.Allow, hook)},
	})
	_, err := call(w.client(t, legacy), "echo")
	require.Error(t, err)
	require.Equal(t, map[string]float64{"_OTHER request timeout": 1}, w.nonzero(t, semconv.MetricAborts))
	require.Positive(t, w.counts(t, semconv.MetricOverflow)["interceptor"])
	require.Empty(t, w.counts(t, semconv.MetricInfo))
	w.idle(t)
	w.ended(t).one(t, "interceptor/invoke _CHAIN")
}

// Which tools have labels can be fixed, or there are none.
func TestOptionsOfToolLabels(t *testing.T) {
	for name, c := range map[string]struct {
		options telemetry.Options
		want    map[string]float64
	}{
		"fixed":  {telemetry.Options{Tools: []string{"fail"}}, map[string]float64{"tool_error fail tools/call pipe": 1, " _OTHER tools/call pipe": 1}},
		"none":   {telemetry.Options{Tools: []string{}}, map[string]float64{"tool_error _OTHER tools/call pipe": 1, " _OTHER tools/call pipe": 1}},
		"off":    {telemetry.Options{NoToolLabel: true}, map[string]float64{"tool_error  tools/call pipe": 1, "  tools/call pipe": 1}},
		"bound":  {telemetry.Options{MaxTools: 1}, map[string]float64{"tool_error _OTHER tools/call pipe": 1, " echo tools/call pipe": 1}},
		"learnt": {telemetry.Options{}, map[string]float64{"tool_error fail tools/call pipe": 1, " echo tools/call pipe": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{options: c.options})
			cs := w.client(t, legacy)
			for _, tool := range []string{"echo", "fail"} {
				_, err := call(cs, tool)
				require.NoError(t, err)
			}
			got := map[string]float64{}
			for labels, n := range w.counts(t, semconv.MetricServerOperation) {
				if strings.Contains(labels, "tools/call") {
					got[labels] = n
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

// Which tools have names says nothing about prompts.
func TestPromptsBesideFixedTools(t *testing.T) {
	w := newWorld(t, setup{options: telemetry.Options{Tools: []string{"echo"}}})
	_, err := w.client(t, legacy).GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "hello"})
	require.NoError(t, err)
	w.ended(t).one(t, "prompts/get hello")
}

// Texts that an option lets onto spans are cut to size, between runes.
func TestTextsAreCut(t *testing.T) {
	long := strings.Repeat("é", 1000)
	w := newWorld(t, setup{
		options: telemetry.Options{Reasons: true, ResourceURI: true},
		interceptors: []core.Interceptor{
			ct.Validator("v", ct.Answer(*core.Deny("x" + long)), hook),
			ct.Validator("f", ct.Fail(errors.New("y\xff"+long)), ct.FailOpen, hook),
		},
	})
	m := message("resources/read", "\xff\xfefile:///"+long)
	w.tel.MessageEnd(w.tel.MessageStart(context.Background(), m), &chain.MessageEnd{Message: m, Outcome: chain.MessageOK})
	_, err := call(w.client(t, legacy), "echo")
	require.Error(t, err)
	spans := w.ended(t)
	for _, text := range []string{
		plain(spans.one(t, "interceptor/invoke v").Events()[0].Attributes)[string(semconv.ReasonTextKey)],
		spans.one(t, "interceptor/invoke f").Status().Description,
		attrs(spans.one(t, "resources/read"))["mcp.resource.uri"],
	} {
		require.LessOrEqual(t, len(text), 256)
		require.Greater(t, len(text), 250)
		require.True(t, strings.HasSuffix(text, "é"), text)
	}
}
