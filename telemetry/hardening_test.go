package telemetry_test

import (
	"context"
	"io"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
)

// A caller who gives up has given up, whatever cause it has for that.
func TestCallerWhoGivesUpForACause(t *testing.T) {
	entered := make(chan struct{})
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		close(entered)
		return slow(ctx, inv)
	}, hook)}})
	ctx, stop := context.WithCancelCause(context.Background())
	go func() { <-entered; stop(io.EOF) }()
	_, err := w.sender(t).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
	require.Error(t, err)
	want{status: codes.Error, attrs: map[string]string{outcome: "cancelled", errorType: "cancelled", rpcCode: "-32603"}}.
		check(t, w.ended(t).one(t, "tools/call"))
}

// An error whose methods panic, as those of a nil pointer do, is a panic of the
// interceptor and does not take the process with it.
func TestErrorThatPanicsWhenUnwrapped(t *testing.T) {
	for name, edit := range map[string]ct.Edit{"active": func(*core.Metadata) {}, "inline": ct.Inline, "audit": ct.Audit} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("guard", ct.Fail((*unwrapNil)(nil)), hook, edit)}})
			_, _ = call(w.client(t, legacy), "echo")
			require.Equal(t, "panic", attrs(w.ended(t).one(t, "interceptor/invoke guard"))[errorType])
			w.idle(t)
		})
	}
}

type unwrapNil struct{ inner error }

func (e *unwrapNil) Error() string { return "no" }
func (e *unwrapNil) Unwrap() error { return e.inner }

// O08: the name that the handler was called with is on offer, not the one that
// a mutator replaced.
func TestRetargetedNameIsNotLearned(t *testing.T) {
	w := newWorld(t, setup{
		middleware:   middleware.Options{AllowRetarget: true},
		interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(`{"name":"echo","arguments":{}}`), hook)},
	})
	cs := w.client(t, legacy)
	for _, name := range []string{"evil", "evil"} {
		_, err := call(cs, name)
		require.NoError(t, err)
	}
	require.Equal(t, 2.0, w.counts(t, semconv.MetricServerOperation)[" _OTHER tools/call pipe"])
}

// O07: what counts is the result that the caller gets.
func TestOutcomeIsThatOfTheFinalResult(t *testing.T) {
	for tool, c := range map[string]struct{ set, want string }{
		"fail": {`{"content":[]}`, " fail tools/call pipe"},
		"echo": {`{"content":[],"isError":true}`, "tool_error echo tools/call pipe"},
	} {
		w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Mutator("m", ct.Set(c.set), ct.On(core.PhaseResponse, "tools/call"))}})
		_, err := call(w.client(t, legacy), tool)
		require.NoError(t, err)
		require.Contains(t, w.counts(t, semconv.MetricServerOperation), c.want)
	}
}
