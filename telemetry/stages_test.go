package telemetry_test

import (
	"context"
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

// A message's duration is its own pair of clock readings. What its stages come
// to agrees with it within 5 %, in sums, and audit is no part of that.
func TestStagesAddUpToTheOperation(t *testing.T) {
	pause := func(d time.Duration) ct.ValidatorFunc { return ct.Sleep(d, core.Allow()) }
	w := newWorld(t, setup{
		interceptors: []core.Interceptor{
			ct.Validator("a", pause(2*time.Millisecond)), ct.Validator("b", pause(3*time.Millisecond)),
			ct.Mutator("m", ct.Set(`{"name":"slow","arguments":{"b":2}}`), hook), ct.Validator("audit", pause(8*time.Millisecond), ct.Audit),
		},
		server: func(s *mcp.Server) {
			addTool(s, "slow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				time.Sleep(4 * time.Millisecond)
				return text("done"), nil
			})
		},
	})
	cs := w.client(t, legacy)
	const calls = 60
	for range calls {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{}})
		require.NoError(t, err)
	}
	operation := w.series(t, semconv.MetricServerOperation)[" slow tools/call pipe"]
	require.EqualValues(t, calls, operation.value)
	sum := 0.0
	for labels, s := range w.series(t, semconv.MetricStage) {
		if strings.HasPrefix(labels, "tools/call ") && !strings.HasSuffix(labels, " audit") {
			sum += s.sum
		}
	}
	require.LessOrEqual(t, sum, operation.sum)
	require.Greater(t, sum, 0.95*operation.sum)
	w.ended(t)
	require.EqualValues(t, calls, w.series(t, semconv.MetricStage)["tools/call request audit"].value, "of the audit interceptor alone")
	// Validators run at once, so that the stage takes as long as the slowest.
	stage := w.series(t, semconv.MetricStage)["tools/call request validators"]
	invokes := w.series(t, semconv.MetricInvoke)
	require.Less(t, stage.sum, invokes["a active request validation allow"].sum+invokes["b active request validation allow"].sum)
}

// The application of a mutated payload is a stage of its own, and no part of
// that of mutators.
func TestStagesOfAPhase(t *testing.T) {
	w := newWorld(t, setup{options: telemetry.Options{NoTracing: true}})
	ctx := w.tel.ExecuteStart(context.Background(), &chain.Execution{
		Event: "tools/call", Phase: core.PhaseRequest, PayloadSize: 300, MarshalTime: 5 * time.Second,
	})
	w.tel.ExecuteEnd(ctx, &chain.Result{
		Event: "tools/call", Phase: core.PhaseRequest,
		Times: chain.StageWalls{Validators: time.Second, Mutators: 5 * time.Second, Apply: 3 * time.Second},
	}, nil)
	got := map[string]float64{}
	for labels, s := range w.series(t, semconv.MetricStage) {
		require.Equal(t, 1.0, s.value)
		got[labels] = s.sum
	}
	require.Equal(t, map[string]float64{
		"tools/call request marshal": 5, "tools/call request validators": 1,
		"tools/call request mutators": 2, "tools/call request unmarshal": 3,
	}, got)
	require.Equal(t, map[string]sample{"tools/call request": {1, 300}}, w.series(t, semconv.MetricPayload))
}

// Sizes and encoding are observed once a phase.
func TestPayloads(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Allow)}})
	_, err := call(w.client(t, legacy), "echo")
	require.NoError(t, err)
	got := w.series(t, semconv.MetricPayload)
	require.Len(t, got, 2)
	spans := w.ended(t)
	for phase, name := range map[string]string{"request": "intercept request", "response": "intercept response"} {
		require.EqualValues(t, 1, got["tools/call "+phase].value)
		require.Greater(t, got["tools/call "+phase].sum, 20.0)
		s := attrs(spans.one(t, name))
		require.NotEmpty(t, s[string(semconv.MarshalDurationKey)])
		require.NotEqual(t, "0", s[string(semconv.PayloadSizeKey)])
		require.Equal(t, "1", s[string(semconv.ChainSizeKey)])
	}
}

// A subscription lasts for as long as it does; that is no duration of an
// operation.
func TestListenHasNoDuration(t *testing.T) {
	w := newWorld(t, setup{interceptors: []core.Interceptor{ct.Validator("v", ct.Allow, ct.On(core.PhaseRequest, "*"))}})
	_, err := w.pass(context.Background(), "subscriptions/listen", &mcp.ServerRequest[*mcp.CallToolParamsRaw]{},
		func(context.Context, string, mcp.Request) (mcp.Result, error) { return text("over"), nil })
	require.NoError(t, err)
	require.Empty(t, w.counts(t, semconv.MetricServerOperation))
	require.NotContains(t, w.counts(t, semconv.MetricStage), "subscriptions/listen  handler")
	require.EqualValues(t, 1, w.counts(t, semconv.MetricInvoke)["v active request validation allow"])
	w.ended(t).one(t, "subscriptions/listen")
}
