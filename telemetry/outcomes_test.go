package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Short names of attributes in tables.
const (
	outcome   = string(semconv.MessageOutcomeKey)
	verdict   = string(semconv.InterceptorVerdictKey)
	action    = string(semconv.InterceptorActionKey)
	reason    = string(semconv.InterceptorReasonKey)
	mode      = string(semconv.InterceptorModeKey)
	named     = string(semconv.InterceptorNameKey)
	errorType = "error.type"
	rpcCode   = "rpc.response.status_code"
)

// A want says how a span ended. An attribute that is wanted empty must not be
// there. The type of the error and the code must not be there unless wanted.
type want struct {
	status codes.Code
	attrs  map[string]string
	events int // decisions
}

func (w want) check(t testing.TB, s sdk.ReadOnlySpan) {
	t.Helper()
	got := attrs(s)
	assert.Equal(t, w.status, s.Status().Code, "status of %s", s.Name())
	for _, key := range []string{errorType, rpcCode, reason} {
		assert.Equal(t, w.attrs[key], got[key], "%s of %s", key, s.Name())
	}
	for key, value := range w.attrs {
		assert.Equal(t, value, got[key], "%s of %s", key, s.Name())
		_, there := got[key]
		assert.Equal(t, value != "", there, "%s of %s", key, s.Name())
	}
	require.Len(t, s.Events(), w.events, "events of %s", s.Name())
	for _, e := range s.Events() {
		assert.Equal(t, semconv.EventDecision, e.Name)
		on := plain(e.Attributes)
		for _, key := range []string{verdict, action, reason, mode, named} {
			assert.Equal(t, got[key], on[key], "%s of the decision", key)
		}
		assert.NotEmpty(t, on[string(semconv.InterceptorPhaseKey)])
	}
}

// A scenario is one call of a tool, and the three spans of it.
type scenario struct {
	interceptor            core.Interceptor
	tool                   string // echo, if empty
	chain                  chain.Options
	do                     func(*testing.T, *world, *mcp.ClientSession) // calls the tool, if nil
	message, phase, invoke want
}

// hook is in the request phase of a call alone, so that there is one invoke.
var hook = ct.On(core.PhaseRequest, core.EventToolsCall)

func slow(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func blow(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("boom") }

func failMutation(context.Context, *core.Invocation) (*core.MutationResult, error) {
	return nil, errors.New("no")
}

// passing are scenarios in which the message passes the interceptor.
func passing() map[string]scenario {
	ok := want{attrs: map[string]string{outcome: "ok"}}
	proceed := want{attrs: map[string]string{action: "proceed", named: ""}}
	failure := func(kind, why, did, in string) want {
		return want{codes.Error, map[string]string{verdict: "error", reason: why, action: did, errorType: kind, mode: in}, 1}
	}
	return map[string]scenario{
		"allow": {
			interceptor: ct.Validator("guard", ct.Allow, hook), message: ok, phase: proceed,
			invoke: want{attrs: map[string]string{verdict: "allow", action: "proceed", mode: "active", named: "guard"}},
		},
		"a mutator that changes nothing": {
			interceptor: ct.Mutator("guard", ct.Keep, hook), message: ok, phase: proceed,
			invoke: want{attrs: map[string]string{verdict: "allow", action: "proceed", string(semconv.ResultSizeKey): ""}},
		},
		"modify": {
			interceptor: ct.Mutator("guard", ct.Set(`{"name":"echo","arguments":{}}`), hook, ct.Priority(core.NewPriority(7))),
			message:     ok,
			phase:       want{attrs: map[string]string{action: "modify", string(semconv.ResultSizeKey): "30"}},
			invoke: want{attrs: map[string]string{
				verdict: "modify", action: "modify", string(semconv.ResultSizeKey): "30", string(semconv.InterceptorPriorityKey): "7",
			}, events: 1},
		},
		"fail-open error": {
			interceptor: ct.Validator("guard", ct.Fail(errors.New("no")), hook, ct.FailOpen), message: ok, phase: proceed,
			invoke: failure("*errors.errorString", "error", "fail_open", "active"),
		},
		"audit deny": {
			interceptor: ct.Validator("guard", ct.Deny, hook, ct.Audit), message: ok, phase: proceed,
			invoke: want{attrs: map[string]string{verdict: "deny", action: "proceed", reason: "validation", mode: "audit"}, events: 1},
		},
		"audit modify": {
			interceptor: ct.Mutator("guard", ct.Set(`{}`), hook, ct.Audit), message: ok, phase: proceed,
			invoke: want{attrs: map[string]string{verdict: "modify", action: "proceed", mode: "audit"}, events: 1},
		},
		"audit panic": {
			interceptor: ct.Validator("guard", blow, hook, ct.Audit), message: ok, phase: proceed,
			invoke: failure("panic", "panic", "proceed", "audit"),
		},
	}
}

// stopping are scenarios in which the interceptor stops the message.
func stopping() map[string]scenario {
	failed := func(why string) (message, phase, invoke want) {
		message = want{status: codes.Error, attrs: map[string]string{outcome: "failed", errorType: "-32603", rpcCode: "-32603"}}
		phase = want{status: codes.Error, attrs: map[string]string{action: "block", reason: why, errorType: why, named: "guard"}}
		invoke = want{codes.Error, map[string]string{verdict: "error", action: "block", reason: why, errorType: why}, 1}
		return message, phase, invoke
	}
	out := map[string]scenario{
		// A denial is visible and no error: neither in status nor in error.type.
		"deny": {
			interceptor: ct.Validator("guard", ct.Deny, hook),
			message:     want{attrs: map[string]string{outcome: "denied", rpcCode: "-32602"}},
			phase:       want{attrs: map[string]string{action: "block", reason: "validation", named: "guard", string(semconv.FindingsErrorKey): "1"}},
			invoke:      want{attrs: map[string]string{verdict: "deny", action: "block", reason: "validation"}, events: 1},
		},
		"timeout": {
			interceptor: ct.Validator("guard", slow, hook), chain: chain.Options{InvokeTimeout: 20 * time.Millisecond},
			message: want{status: codes.Error, attrs: map[string]string{outcome: "timeout", errorType: "timeout", rpcCode: "-32000"}},
			phase:   want{status: codes.Error, attrs: map[string]string{action: "block", reason: "timeout", errorType: "timeout", named: "guard"}},
			invoke:  want{codes.Error, map[string]string{verdict: "timeout", action: "block", reason: "timeout", errorType: "timeout"}, 1},
		},
		"timeout of the whole phase": {
			interceptor: ct.Validator("guard", slow, hook), chain: chain.Options{Timeout: 20 * time.Millisecond},
			message: want{status: codes.Error, attrs: map[string]string{outcome: "timeout", errorType: "timeout", rpcCode: "-32000"}},
			phase:   want{status: codes.Error, attrs: map[string]string{action: "block", reason: "timeout", errorType: "timeout", named: ""}},
			invoke:  want{codes.Error, map[string]string{verdict: "timeout", action: "block", reason: "timeout", errorType: "timeout"}, 1},
		},
	}
	for name, of := range map[string]struct {
		why, kind string
		make      core.Interceptor
	}{
		"validator error": {"error", "*errors.errorString", ct.Validator("guard", ct.Fail(errors.New("no")), hook)},
		"mutator error":   {"mutation", "*errors.errorString", ct.Mutator("guard", failMutation, hook)},
		"panic":           {"panic", "panic", ct.Validator("guard", blow, hook)},
		"malformed":       {"protocol", "protocol", ct.Mutator("guard", ct.Set(`[`), hook)},
	} {
		s := scenario{interceptor: of.make}
		s.message, s.phase, s.invoke = failed(of.why)
		s.invoke.attrs[errorType] = of.kind
		out[name] = s
	}
	return out
}

// handled are scenarios in which it is the handler that matters.
func handled() map[string]scenario {
	allow := want{attrs: map[string]string{verdict: "allow", action: "proceed"}}
	proceed := want{attrs: map[string]string{action: "proceed"}}
	s := func(tool string, message want) scenario {
		return scenario{interceptor: ct.Validator("guard", ct.Allow, hook), tool: tool, message: message, phase: proceed, invoke: allow}
	}
	failure := func(how, kind, code string) want {
		return want{status: codes.Error, attrs: map[string]string{outcome: how, errorType: kind, rpcCode: code}}
	}
	return map[string]scenario{
		// O07: a tool's failure is one, though it comes with a result.
		"isError result":     s("fail", failure("tool_error", "tool_error", "")),
		"handler error":      s("broken", failure("error", "_OTHER", "")),
		"handler panic":      s("panic", failure("panic", "panic", "-32603")),
		"handler -32603":     s("internal", failure("error", "-32603", "-32603")),
		"handler's own code": s("own", failure("error", "_OTHER", "-12345")),
		// The caller's fault is no error of the server's.
		"handler -32602": s("invalid", want{attrs: map[string]string{outcome: "error", rpcCode: "-32602"}}),
		"handler -32002": s("missing", want{attrs: map[string]string{outcome: "error", rpcCode: "-32002"}}),
	}
}

// coded adds tools that answer with JSON-RPC errors.
func coded(s *mcp.Server) {
	for name, code := range map[string]int64{"internal": -32603, "own": -12345, "invalid": -32602, "missing": -32002} {
		addTool(s, name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: code, Message: "no"}
		})
	}
}

// tools are all tools of a world.
var tools = []string{"echo", "fail", "broken", "panic", "internal", "own", "invalid", "missing"}

func (s scenario) run(t *testing.T) {
	if s.tool == "" {
		s.tool = "echo"
	}
	w := newWorld(t, setup{
		interceptors: []core.Interceptor{s.interceptor}, chain: s.chain, server: coded, options: telemetry.Options{Tools: tools},
	})
	cs := w.client(t, legacy)
	if s.do == nil {
		_, _ = call(cs, s.tool)
	} else {
		s.do(t, w, cs)
	}
	spans := w.ended(t)
	message := spans.one(t, "tools/call "+s.tool)
	phase := spans.one(t, "intercept request")
	invoke := spans.one(t, "interceptor/invoke guard")
	s.message.check(t, message)
	s.phase.check(t, phase)
	s.invoke.check(t, invoke)
	assert.Equal(t, message.SpanContext(), phase.Parent())
	assert.Equal(t, phase.SpanContext(), invoke.Parent(), "also that of an audit run, which ends later")
	assert.Equal(t, trace.SpanKindServer, message.SpanKind())
	assert.Equal(t, trace.SpanKindInternal, phase.SpanKind())
	assert.Equal(t, trace.SpanKindInternal, invoke.SpanKind())
	for _, sp := range spans {
		// O02: Ok could never become Error again, so it is never set.
		assert.NotEqual(t, codes.Ok, sp.Status().Code, sp.Name())
		assert.False(t, sp.EndTime().Before(sp.StartTime()), sp.Name())
	}
	w.idle(t)
}

// O01, O02, O07: each way in which a message can end is told apart, and its
// spans end in all of them.
func TestSpansSayHowMessagesEnd(t *testing.T) {
	for _, group := range []map[string]scenario{passing(), stopping(), handled()} {
		for name, s := range group {
			t.Run(name, s.run)
		}
	}
}

// A caller who gives up is nobody's failure.
func TestCancelledMessageIsNoError(t *testing.T) {
	entered := make(chan struct{})
	s := scenario{
		interceptor: ct.Validator("guard", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			close(entered)
			return slow(ctx, inv)
		}, hook),
		do: func(t *testing.T, w *world, cs *mcp.ClientSession) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-entered; cancel() }()
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
			require.ErrorIs(t, err, context.Canceled)
			require.Eventually(t, func() bool { return len(spanList(w.spans.Ended()).named("tools/call echo")) == 1 }, time.Minute, time.Millisecond)
		},
		message: want{attrs: map[string]string{outcome: "cancelled", errorType: "cancelled", rpcCode: "-32603"}},
		phase:   want{attrs: map[string]string{action: "block"}},
		invoke:  want{attrs: map[string]string{verdict: "cancelled", action: "block", reason: "cancelled"}, events: 1},
	}
	s.run(t)
}

// A span of an audit run lasts until the run has ended, after the reply.
func TestAuditSpanMayOutliveItsMessage(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		<-release
		return core.Deny("no"), nil
	}, hook, ct.Audit)}})
	_, err := call(w.client(t, legacy), "echo")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(spanList(w.spans.Ended()).named("tools/call echo")) == 1 }, time.Minute, time.Millisecond)
	require.Empty(t, spanList(w.spans.Ended()).named("interceptor/invoke guard"), "the run has not ended")
	close(release)
	spans := w.ended(t)
	message, invoke := spans.one(t, "tools/call echo"), spans.one(t, "interceptor/invoke guard")
	require.Equal(t, message.SpanContext().TraceID(), invoke.SpanContext().TraceID())
	require.True(t, invoke.EndTime().After(message.EndTime()))
}
