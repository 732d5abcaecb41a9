package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// states are the metrics that exist before the first message.
var states = []string{
	semconv.MetricAborts, semconv.MetricAuditDenials, semconv.MetricAuditFailures, semconv.MetricFailOpen,
	semconv.MetricAuditDropped, semconv.MetricSkipped, semconv.MetricRefused, semconv.MetricInflight, semconv.MetricAbandoned,
	semconv.MetricCircuitState, semconv.MetricCircuitOpened, semconv.MetricHostUp, semconv.MetricHostLosses, semconv.MetricInfo, semconv.MetricOverflow,
}

// fresh is what is exposed of a validator in the request phase and a mutator in
// the response phase before the first message.
const fresh = `
# HELP headgate_interceptor_abandoned Calls that ignored their deadline and still run. At 64 further ones fail at once.
# TYPE headgate_interceptor_abandoned gauge
headgate_interceptor_abandoned{interceptor="m"} 0
headgate_interceptor_abandoned{interceptor="v"} 0
# HELP headgate_interceptor_aborts_total Messages that were stopped, by the interceptor that led; _CHAIN where a whole phase ran out of time.
# TYPE headgate_interceptor_aborts_total counter
headgate_interceptor_aborts_total{interceptor="_CHAIN",phase="request",reason="timeout"} 0
headgate_interceptor_aborts_total{interceptor="_CHAIN",phase="response",reason="timeout"} 0
headgate_interceptor_aborts_total{interceptor="m",phase="response",reason="mutation"} 0
headgate_interceptor_aborts_total{interceptor="m",phase="response",reason="overload"} 0
headgate_interceptor_aborts_total{interceptor="m",phase="response",reason="panic"} 0
headgate_interceptor_aborts_total{interceptor="m",phase="response",reason="protocol"} 0
headgate_interceptor_aborts_total{interceptor="m",phase="response",reason="timeout"} 0
headgate_interceptor_aborts_total{interceptor="v",phase="request",reason="error"} 0
headgate_interceptor_aborts_total{interceptor="v",phase="request",reason="overload"} 0
headgate_interceptor_aborts_total{interceptor="v",phase="request",reason="panic"} 0
headgate_interceptor_aborts_total{interceptor="v",phase="request",reason="protocol"} 0
headgate_interceptor_aborts_total{interceptor="v",phase="request",reason="timeout"} 0
headgate_interceptor_aborts_total{interceptor="v",phase="request",reason="validation"} 0
# HELP headgate_interceptor_audit_denials_total Denials in audit mode: what would have been blocked.
# TYPE headgate_interceptor_audit_denials_total counter
headgate_interceptor_audit_denials_total{interceptor="v",phase="request",reason="validation"} 0
# HELP headgate_interceptor_audit_dropped_total Audit runs that never ran since the queue was full or the chain closed.
# TYPE headgate_interceptor_audit_dropped_total counter
headgate_interceptor_audit_dropped_total{interceptor="m"} 0
headgate_interceptor_audit_dropped_total{interceptor="v"} 0
# HELP headgate_interceptor_audit_failures_total Failures in audit mode, which stopped nothing.
# TYPE headgate_interceptor_audit_failures_total counter
headgate_interceptor_audit_failures_total{interceptor="m",phase="response",reason="mutation"} 0
headgate_interceptor_audit_failures_total{interceptor="m",phase="response",reason="overload"} 0
headgate_interceptor_audit_failures_total{interceptor="m",phase="response",reason="panic"} 0
headgate_interceptor_audit_failures_total{interceptor="m",phase="response",reason="protocol"} 0
headgate_interceptor_audit_failures_total{interceptor="m",phase="response",reason="timeout"} 0
headgate_interceptor_audit_failures_total{interceptor="v",phase="request",reason="error"} 0
headgate_interceptor_audit_failures_total{interceptor="v",phase="request",reason="overload"} 0
headgate_interceptor_audit_failures_total{interceptor="v",phase="request",reason="panic"} 0
headgate_interceptor_audit_failures_total{interceptor="v",phase="request",reason="protocol"} 0
headgate_interceptor_audit_failures_total{interceptor="v",phase="request",reason="timeout"} 0
# HELP headgate_interceptor_fail_open_total Failures of active interceptors that let the message pass since their policy is to fail open.
# TYPE headgate_interceptor_fail_open_total counter
headgate_interceptor_fail_open_total{interceptor="m",phase="response",reason="mutation"} 0
headgate_interceptor_fail_open_total{interceptor="m",phase="response",reason="overload"} 0
headgate_interceptor_fail_open_total{interceptor="m",phase="response",reason="panic"} 0
headgate_interceptor_fail_open_total{interceptor="m",phase="response",reason="protocol"} 0
headgate_interceptor_fail_open_total{interceptor="m",phase="response",reason="timeout"} 0
headgate_interceptor_fail_open_total{interceptor="v",phase="request",reason="error"} 0
headgate_interceptor_fail_open_total{interceptor="v",phase="request",reason="overload"} 0
headgate_interceptor_fail_open_total{interceptor="v",phase="request",reason="panic"} 0
headgate_interceptor_fail_open_total{interceptor="v",phase="request",reason="protocol"} 0
headgate_interceptor_fail_open_total{interceptor="v",phase="request",reason="timeout"} 0
# HELP headgate_interceptor_inflight Calls of an interceptor that are being waited for.
# TYPE headgate_interceptor_inflight gauge
headgate_interceptor_inflight{interceptor="m"} 0
headgate_interceptor_inflight{interceptor="v"} 0
# HELP headgate_interceptor_info Always 1: an interceptor and the policy that holds for it.
# TYPE headgate_interceptor_info gauge
headgate_interceptor_info{fail_open="false",interceptor="v",mode="active",type="validation",version="1.2"} 1
headgate_interceptor_info{fail_open="true",interceptor="m",mode="audit",type="mutation",version=""} 1
# HELP headgate_interceptor_refused_total Calls of an interceptor that were not begun since a limit was reached. Each is a failure, too.
# TYPE headgate_interceptor_refused_total counter
headgate_interceptor_refused_total{interceptor="m",limit="abandoned"} 0
headgate_interceptor_refused_total{interceptor="m",limit="budget"} 0
headgate_interceptor_refused_total{interceptor="m",limit="circuit"} 0
headgate_interceptor_refused_total{interceptor="m",limit="concurrency"} 0
headgate_interceptor_refused_total{interceptor="m",limit="inflight"} 0
headgate_interceptor_refused_total{interceptor="m",limit="payload"} 0
headgate_interceptor_refused_total{interceptor="v",limit="abandoned"} 0
headgate_interceptor_refused_total{interceptor="v",limit="budget"} 0
headgate_interceptor_refused_total{interceptor="v",limit="circuit"} 0
headgate_interceptor_refused_total{interceptor="v",limit="concurrency"} 0
headgate_interceptor_refused_total{interceptor="v",limit="inflight"} 0
headgate_interceptor_refused_total{interceptor="v",limit="payload"} 0
# HELP headgate_interceptor_skipped_total Messages that an interceptor did not see since its compat excludes their protocol version.
# TYPE headgate_interceptor_skipped_total counter
headgate_interceptor_skipped_total{interceptor="m",phase="response"} 0
headgate_interceptor_skipped_total{interceptor="v",phase="request"} 0
# HELP headgate_telemetry_label_overflow_total Values that a label was not given; they count as _OTHER.
# TYPE headgate_telemetry_label_overflow_total counter
headgate_telemetry_label_overflow_total{label="error_type"} 0
headgate_telemetry_label_overflow_total{label="event"} 0
headgate_telemetry_label_overflow_total{label="gen_ai_tool_name"} 0
headgate_telemetry_label_overflow_total{label="interceptor"} 0
headgate_telemetry_label_overflow_total{label="mcp_method_name"} 0
`

// Rates and alerts work from the first scrape on.
func TestCountersAreThereFromRegistrationOn(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{
		ct.Validator("v", ct.Allow, hook, func(m *core.Metadata) { m.Version = "1.2" }),
		ct.Mutator("m", ct.Keep, ct.On(core.PhaseResponse, core.EventToolsCall), ct.Audit, ct.FailOpen),
	}})
	require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(fresh), states...))
}

// busy brings about at least one series of each metric, and each stage.
func busy(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, setup{
		interceptors: []core.Interceptor{
			ct.Validator("v", ct.Allow), ct.Validator("a", ct.Deny, ct.Audit),
			ct.Mutator("m", ct.Set(`{"name":"echo","arguments":{"b":2}}`), hook),
		},
	})
	_, err := call(w.sender(t), "echo")
	require.NoError(t, err)
	return w
}

// sender connects a client that what it sends passes the chain on, too.
func (w *world) sender(t *testing.T) *mcp.ClientSession {
	t.Helper()
	ct, st := mcp.NewInMemoryTransports()
	ss, err := w.server.Connect(context.Background(), st, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	client.AddSendingMiddleware(middleware.Sending(w.chain, nil))
	cs, err := client.Connect(context.Background(), ct, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	require.NoError(t, err)
	w.close(t, func() { _ = cs.Close(); _ = ss.Wait() })
	return cs
}

// Every metric that is documented is there, and is as Prometheus wants metrics
// to be.
func TestAllMetrics(t *testing.T) {
	w := busy(t)
	w.ended(t)
	problems, err := testutil.GatherAndLint(w.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := w.registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		require.NotEmpty(t, f.Metric)
	}
	all := append([]string{
		semconv.MetricServerOperation, semconv.MetricClientOperation, semconv.MetricInvoke, semconv.MetricStage, semconv.MetricPayload,
	}, states...)
	// A closed chain has no interceptors, so that nothing is true of them.
	gone := map[string]bool{
		semconv.MetricInfo: true, semconv.MetricAbandoned: true, semconv.MetricCircuitState: true, semconv.MetricCircuitOpened: true,
		semconv.MetricHostUp: true, semconv.MetricHostLosses: true,
	}
	var left []string
	for _, name := range all {
		if !gone[name] {
			left = append(left, name)
		}
	}
	sort.Strings(left)
	require.Equal(t, left, names)
	stages := map[string]bool{}
	for labels := range w.counts(t, semconv.MetricStage) {
		stages[labels[strings.LastIndexByte(labels, ' ')+1:]] = true
	}
	require.Equal(t, map[string]bool{
		"marshal": true, "validators": true, "mutators": true, "unmarshal": true, "handler": true, "audit": true,
	}, stages)
}

// The client's side has a metric and spans of its own.
func TestSendingSide(t *testing.T) {
	w := busy(t)
	spans := w.ended(t).named("tools/call echo")
	require.Len(t, spans, 2)
	kinds := map[string]bool{}
	for _, s := range spans {
		kinds[s.SpanKind().String()] = true
	}
	require.Equal(t, map[string]bool{"client": true, "server": true}, kinds)
	require.Equal(t, 1.0, w.counts(t, semconv.MetricClientOperation)[" echo tools/call pipe"])
	require.Equal(t, 1.0, w.counts(t, semconv.MetricServerOperation)[" echo tools/call pipe"])
}

// To who sends a message, all codes are errors, but a denial by its own policy
// is none.
func TestErrorsOfTheSendingSide(t *testing.T) {
	w := newWorld(t, setup{
		interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, "prompts/get"))},
		options:      telemetry.Options{Tools: tools},
	})
	cs := w.sender(t)
	_, err := cs.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "hello"})
	require.Error(t, err)
	_, err = call(cs, "nonesuch")
	require.Error(t, err)
	got := w.nonzero(t, semconv.MetricClientOperation)
	require.Equal(t, 1.0, got["  prompts/get pipe"])
	require.Equal(t, 1.0, got["-32602 _OTHER tools/call pipe"])
	spans := w.ended(t)
	want{attrs: map[string]string{outcome: "denied", rpcCode: "-32602"}}.check(t, spans.one(t, "prompts/get"))
	failed := 0
	for _, s := range spans.named("tools/call") {
		if s.SpanKind() == trace.SpanKindClient {
			failed++
			want{status: codes.Error, attrs: map[string]string{outcome: "error", errorType: "-32602", rpcCode: "-32602"}}.check(t, s)
		}
	}
	require.Equal(t, 1, failed)
}

// The handshake and other messages that nothing is hooked on are no overflow:
// their methods are MCP's own.
func TestStandardMethodsAreNoOverflow(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		w := newWorld(t, setup{})
		cs := w.client(t, version)
		_, err := cs.ListTools(context.Background(), nil)
		require.NoError(t, err)
		_, err = call(cs, "echo")
		require.NoError(t, err)
		w.ended(t)
		require.Empty(t, w.nonzero(t, semconv.MetricOverflow))
	}
}

// The info metric follows the policy and leaves nothing stale behind.
func TestInfoFollowsThePolicy(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{
		ct.Validator("v", ct.Allow), ct.Mutator("m", ct.Keep, func(m *core.Metadata) { m.Version = "2" }),
	}})
	infos := func() []string {
		var out []string
		for labels := range w.counts(t, semconv.MetricInfo) { // fail_open interceptor mode type version
			out = append(out, strings.TrimSpace(labels))
		}
		sort.Strings(out)
		return out
	}
	const m = "false m active mutation 2"
	require.Equal(t, []string{m, "false v active validation"}, infos())
	yes := true
	for _, o := range []struct {
		chain.Overrides
		want string
	}{
		{chain.Overrides{Mode: core.ModeAudit}, "false v audit validation"},
		{chain.Overrides{Off: true}, "false v off validation"},
		{chain.Overrides{Off: true, Mode: core.ModeAudit}, "false v off validation"},
		{chain.Overrides{FailOpen: &yes}, "true v active validation"},
	} {
		require.NoError(t, w.chain.SetOverrides(map[string]chain.Overrides{"v": o.Overrides}))
		want := []string{m, o.want}
		sort.Strings(want)
		require.Equal(t, want, infos())
	}
	require.True(t, w.ext.RemoveInterceptor("v"))
	require.Equal(t, []string{m}, infos())
	require.NotContains(t, w.counts(t, semconv.MetricAbandoned), "v")
	require.Contains(t, w.counts(t, semconv.MetricInflight), "v", "a counter does not go back to nothing")
	require.NoError(t, w.ext.AddInterceptor(ct.Mutator("v", ct.Keep)))
	require.Equal(t, []string{m, "true v active mutation"}, infos(), "the override is still there")
	require.NoError(t, w.chain.Close())
	require.Empty(t, infos())
}

// Handlers that ignore their deadline are seen for as long as they run, and
// nobody waits for them (O01).
func TestAbandonedCalls(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, setup{
		chain: chain.Options{InvokeTimeout: 10 * time.Millisecond},
		interceptors: []core.Interceptor{ct.Validator("deaf", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			<-release
			return core.Allow(), nil
		}, hook, ct.FailOpen)},
	})
	cs := w.client(t, legacy)
	for range 3 {
		_, err := call(cs, "echo")
		require.NoError(t, err)
	}
	require.Equal(t, map[string]float64{"deaf": 3}, w.nonzero(t, semconv.MetricAbandoned))
	require.Equal(t, map[string]float64{"deaf request timeout": 3}, w.nonzero(t, semconv.MetricFailOpen))
	w.idle(t)
	close(release)
	require.Eventually(t, func() bool { return len(w.nonzero(t, semconv.MetricAbandoned)) == 0 }, time.Minute, time.Millisecond)
}

// A call in flight is seen, once.
func TestInflight(t *testing.T) {
	w := newWorld(t, setup{})
	var during map[string]float64
	require.NoError(t, w.ext.AddInterceptor(ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		during = w.nonzero(t, semconv.MetricInflight)
		panic("boom")
	}, hook)))
	_, err := call(w.client(t, legacy), "echo")
	require.Error(t, err)
	require.Equal(t, map[string]float64{"v": 1}, during)
	w.idle(t)
	// O01: a panic has a duration, an outcome and a reason.
	require.Equal(t, map[string]float64{"v active request validation error": 1}, w.nonzero(t, semconv.MetricInvoke))
	require.Equal(t, map[string]float64{"v request panic": 1}, w.nonzero(t, semconv.MetricAborts))
}

// What never ran since there was no room is counted, and nothing else of it.
func TestDroppedAuditRuns(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, setup{
		chain: chain.Options{AuditQueue: 1, DrainTimeout: time.Minute, AuditTimeout: time.Minute},
		interceptors: []core.Interceptor{ct.Validator("a", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			<-release
			return core.Allow(), nil
		}, hook, ct.Audit)},
	})
	cs := w.client(t, legacy)
	const calls = 20
	for range calls {
		_, err := call(cs, "echo")
		require.NoError(t, err)
	}
	dropped := float64(w.chain.Entries()[0].Health.AuditDropped)
	require.Greater(t, dropped, 1.0)
	require.Equal(t, map[string]float64{"a": dropped}, w.nonzero(t, semconv.MetricAuditDropped))
	close(release)
	events := 0
	for _, s := range w.ended(t).named("interceptor/invoke a") {
		if attrs(s)[verdict] == "dropped" {
			events++
			require.Equal(t, "overload", attrs(s)[reason])
		}
	}
	require.EqualValues(t, dropped, events)
	require.Equal(t, map[string]float64{"a audit request validation allow": calls - dropped}, w.counts(t, semconv.MetricInvoke))
	require.Empty(t, w.nonzero(t, semconv.MetricAuditFailures), "the interceptor did not fail")
	w.idle(t)
}

// Closing a chain cuts audit runs off: those that wait never run, and those that
// run are cancelled, which says nothing about the interceptor.
func TestAuditRunsCutOffByClose(t *testing.T) {
	w := newWorld(t, setup{
		chain:        chain.Options{DrainTimeout: 10 * time.Millisecond},
		interceptors: []core.Interceptor{ct.Validator("a", slow, hook, ct.Audit)},
	})
	const calls = 20
	for range calls {
		_, err := w.pass(context.Background(), core.EventToolsCall, callRequest("echo", nil), answer)
		require.NoError(t, err)
	}
	require.Error(t, w.chain.Close())
	cancelled := w.counts(t, semconv.MetricInvoke)["a audit request validation cancelled"]
	dropped := w.counts(t, semconv.MetricAuditDropped)["a"]
	require.Positive(t, cancelled)
	require.Positive(t, dropped)
	require.EqualValues(t, calls, cancelled+dropped)
	require.Empty(t, w.nonzero(t, semconv.MetricAuditFailures))
	require.Len(t, w.spans.Ended(), len(w.spans.Started()))
	w.idle(t)
}

// An interceptor that does not know a message's protocol is skipped for it.
func TestSkippedForCompat(t *testing.T) {
	old := func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2024-11-05", MaxProtocol: legacy} }
	w := newWorld(t, setup{interceptors: []core.Interceptor{
		ct.Validator("v", ct.Deny, hook, old), ct.Validator("a", ct.Deny, hook, old, ct.Audit),
	}})
	_, err := call(w.client(t, modern), "echo")
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"v request": 1, "a request": 1}, w.nonzero(t, semconv.MetricSkipped))
	require.Empty(t, w.counts(t, semconv.MetricInvoke))
	_, err = call(w.client(t, legacy), "echo")
	require.Error(t, err)
	require.Equal(t, map[string]float64{"v request": 1, "a request": 1}, w.nonzero(t, semconv.MetricSkipped))
	want{attrs: map[string]string{verdict: "skipped", action: "proceed"}, events: 1}.check(t, w.ended(t).named("interceptor/invoke v")[0])
	require.Empty(t, w.nonzero(t, semconv.MetricFailOpen))
	w.idle(t)
}

// A phase that runs out of time is the chain's, not an interceptor's. A message
// counts once, however many were against it, for the one that led.
func TestAbortsCountMessages(t *testing.T) {
	for name, s := range map[string]struct {
		chain        chain.Options
		interceptors []core.Interceptor
		want         string
	}{
		"timeout of the phase": {
			chain.Options{Timeout: 10 * time.Millisecond},
			[]core.Interceptor{ct.Validator("a", slow, hook), ct.Validator("b", ct.Deny, hook)},
			"_CHAIN request timeout",
		},
		"timeout of one": {
			chain.Options{InvokeTimeout: 10 * time.Millisecond},
			[]core.Interceptor{ct.Validator("a", slow, hook)},
			"a request timeout",
		},
		"a denial leads": {
			chain.Options{},
			[]core.Interceptor{ct.Validator("a", blow, hook), ct.Validator("b", ct.Deny, hook), ct.Validator("c", ct.Deny, hook)},
			"b request validation",
		},
		"response": {
			chain.Options{}, []core.Interceptor{ct.Mutator("m", failMutation, ct.On(core.PhaseResponse, "tools/call"))}, "m response mutation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{chain: s.chain, interceptors: s.interceptors})
			_, err := call(w.client(t, legacy), "echo")
			require.Error(t, err)
			require.Equal(t, map[string]float64{s.want: 1}, w.nonzero(t, semconv.MetricAborts))
			w.idle(t)
		})
	}
}

// A caller who gave up was stopped by nobody.
func TestCancelledMessageIsNoAbort(t *testing.T) {
	entered := make(chan struct{})
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		close(entered)
		return slow(ctx, inv)
	}, hook, ct.FailOpen)}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-entered; cancel() }()
	_, err := w.pass(ctx, core.EventToolsCall, callRequest("echo", nil), answer)
	require.Error(t, err)
	require.Empty(t, w.nonzero(t, semconv.MetricAborts))
	require.Empty(t, w.nonzero(t, semconv.MetricFailOpen))
	require.Equal(t, map[string]float64{"v active request validation cancelled": 1}, w.nonzero(t, semconv.MetricInvoke))
	require.Equal(t, map[string]float64{"cancelled _OTHER tools/call pipe": 1}, w.nonzero(t, semconv.MetricServerOperation))
	w.idle(t)
}

// O13: what would be blocked is counted apart from what is.
func TestAuditThenActive(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Deny, hook, ct.Audit)}})
	cs := w.client(t, legacy)
	for range 10 {
		_, err := call(cs, "echo")
		require.NoError(t, err)
	}
	require.NoError(t, w.chain.SetOverrides(map[string]chain.Overrides{"v": {Mode: core.ModeActive}}))
	for range 10 {
		_, err := call(cs, "echo")
		require.Error(t, err)
	}
	w.ended(t)
	require.Equal(t, map[string]float64{"v request validation": 10}, w.nonzero(t, semconv.MetricAuditDenials))
	require.Equal(t, map[string]float64{"v request validation": 10}, w.nonzero(t, semconv.MetricAborts))
	require.Equal(t, map[string]float64{
		"v audit request validation deny": 10, "v active request validation deny": 10,
	}, w.nonzero(t, semconv.MetricInvoke))
	require.Equal(t, 20.0, w.counts(t, semconv.MetricServerOperation)[" echo tools/call pipe"], "a denial is no error")
}

// O07: a tool that fails does not count as success.
func TestToolErrorsAreCounted(t *testing.T) {
	n := 0
	w := newWorld(t, setup{server: func(s *mcp.Server) {
		addTool(s, "some", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res := text("done")
			n++
			res.IsError = n%3 == 0
			return res, nil
		})
	}})
	cs := w.client(t, legacy)
	for range 10 {
		_, err := call(cs, "some")
		require.NoError(t, err)
	}
	got := w.counts(t, semconv.MetricServerOperation)
	require.Equal(t, 3.0, got["tool_error some tools/call pipe"])
	require.Equal(t, 7.0, got[" some tools/call pipe"])
}

// O18: what is told of single messages on spans is in no metric.
func TestMetricsDoNotGrowWithMessages(t *testing.T) {
	w := newWorld(t, setup{options: telemetry.Options{ResourceURI: true, Reasons: true}})
	series := func() string {
		families, err := w.registry.Gather()
		require.NoError(t, err)
		var out []string
		for _, f := range families {
			for labels := range w.counts(t, f.GetName()) {
				out = append(out, f.GetName()+" "+labels)
			}
		}
		sort.Strings(out)
		return strings.Join(out, "\n")
	}
	send := func(i int) {
		m := message("resources/read", fmt.Sprint("file:///", i))
		m.ID, m.SessionID, m.ProtocolVersion = fmt.Sprint("m-", i), fmt.Sprint("s-", i), fmt.Sprint("1-", i)
		end := &chain.MessageEnd{Message: m, Outcome: chain.MessageError, Err: errors.New("no"), Code: -32603}
		w.tel.MessageEnd(w.tel.MessageStart(context.Background(), m), end)
	}
	send(0)
	before := series()
	for i := range 500 {
		send(i)
	}
	require.Equal(t, before, series())
	s := w.ended(t).named("resources/read")[1]
	require.Equal(t, "s-0", attrs(s)["mcp.session.id"])
	require.Equal(t, "file:///0", attrs(s)["mcp.resource.uri"])
}

// O20: calls that take microseconds do not read 0, failing ones included.
func TestDurationsBelowAMillisecond(t *testing.T) {
	w := newWorld(t, setup{sampler: sdk.NeverSample(), interceptors: []core.Interceptor{
		ct.Validator("quick", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			for start := time.Now(); time.Since(start) < 200*time.Microsecond; {
			}
			return core.Allow(), nil
		}, hook),
		ct.Validator("failing", ct.Fail(errors.New("no")), hook, ct.FailOpen),
	}})
	_, err := call(w.client(t, legacy), "echo")
	require.NoError(t, err)
	got := w.series(t, semconv.MetricInvoke)
	require.GreaterOrEqual(t, got["quick active request validation allow"].sum, 200e-6)
	require.Less(t, got["quick active request validation allow"].sum, 5.0, "in seconds")
	require.Positive(t, got["failing active request validation error"].sum)
	families, err := w.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == semconv.MetricInvoke {
			require.LessOrEqual(t, f.Metric[0].Histogram.Bucket[0].GetUpperBound(), 1e-6)
		}
	}
}
