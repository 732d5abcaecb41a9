package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// secret is in whatever a message carries and in whatever is said of it.
const secret = "4111-1111-1111-1111"

// everything returns all that leaves the process: what spans say, and what is
// scraped.
func (w *world) everything(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, s := range w.ended(t) {
		fmt.Fprintln(&b, said(s))
	}
	for _, format := range []string{openMetrics, "text/plain"} {
		b.WriteString(w.scrape(t, format))
	}
	return b.String()
}

// said is all of a span that is text.
func said(s sdk.ReadOnlySpan) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Name(), plain(s.Attributes()), s.Status().Description, s.SpanContext().TraceState(), s.Resource())
	for _, e := range s.Events() {
		fmt.Fprintln(&b, e.Name, plain(e.Attributes))
	}
	for _, l := range s.Links() {
		fmt.Fprintln(&b, plain(l.Attributes))
	}
	return b.String()
}

// leaky returns interceptors that say what they have seen.
func leaky() []core.Interceptor {
	said := errors.New("found " + secret)
	return []core.Interceptor{
		ct.Validator("says", ct.Answer(core.ValidationResult{Severity: core.SeverityWarn, Messages: []core.Message{{Message: "found " + secret, Path: secret}}})),
		ct.Validator("denies", ct.Answer(*core.Deny("found " + secret)), ct.Audit),
		ct.Validator("fails", ct.Fail(said), ct.FailOpen),
		ct.Validator("panics", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(said) }, ct.FailOpen),
		ct.Mutator("mutates", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			return &core.MutationResult{Modified: true, Payload: inv.Payload, Info: map[string]any{"found": secret}}, nil
		}),
		ct.Mutator("fails too", func(context.Context, *core.Invocation) (*core.MutationResult, error) { return nil, said }, ct.FailOpen),
	}
}

// leak sends the secret in all that a client can send.
func leak(t *testing.T, w *world) {
	t.Helper()
	h := header{"Authorization": "Bearer " + secret, "Baggage": "card=" + secret, "X-Card": secret}
	cs := w.site(t, true, h, func(next http.Handler) http.Handler { return next })
	ctx := context.Background()
	for _, name := range []string{"echo", "fail", "broken", "panic", secret} {
		_, _ = cs.CallTool(ctx, &mcp.CallToolParams{
			Name: name, Arguments: map[string]any{"card": secret},
			Meta: mcp.Meta{"traceparent": traceparent, "baggage": "card=" + secret, "card": secret},
		})
	}
	_, _ = cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///" + secret})
	_, _ = cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "hello", Arguments: map[string]string{"card": secret}})
	_, _ = cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: secret})
}

// O21: nothing of a message, and no words about it, are in spans, labels or
// exemplars.
func TestNothingOfAMessageIsTold(t *testing.T) {
	for name, extra := range map[string][]core.Interceptor{
		"let pass": nil, "denied": {ct.Validator("last", ct.Answer(*core.Deny("found " + secret)))},
		"failed": {ct.Validator("last", ct.Fail(errors.New(secret)))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{interceptors: append(leaky(), extra...)})
			leak(t, w)
			all := w.everything(t)
			require.True(t, strings.Contains(all, "interceptor/invoke fails"))
			for _, line := range strings.Split(all, "\n") {
				require.NotContains(t, line, secret)
			}
		})
	}
}

// With Options.Reasons the words of validators and the texts of failures are on
// spans, and still in no metric; nothing else is.
func TestReasonsAreAnOption(t *testing.T) {
	w := newWorld(t, setup{
		options: telemetry.Options{Reasons: true},
		interceptors: []core.Interceptor{
			ct.Validator("v", ct.Answer(*core.Deny("found " + secret)), hook), ct.Validator("f", ct.Fail(errors.New("failed at "+secret)), hook),
		},
	})
	_, err := call(w.client(t, legacy), "echo")
	require.Error(t, err)
	spans := w.ended(t)
	event := plain(spans.one(t, "interceptor/invoke v").Events()[0].Attributes)
	require.Equal(t, "found "+secret, event[string(semconv.ReasonTextKey)])
	require.Equal(t, "failed at "+secret, spans.one(t, "interceptor/invoke f").Status().Description)
	require.NotContains(t, said(spans.one(t, "tools/call")), secret)
	require.NotContains(t, w.scrape(t, openMetrics), secret)
}

// A resource's URI is on spans only if it is asked for, and never elsewhere.
func TestResourceURIIsAnOption(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := newWorld(t, setup{options: telemetry.Options{ResourceURI: on}})
		_, err := w.client(t, legacy).ReadResource(context.Background(), &mcp.ReadResourceParams{URI: "file:///" + secret})
		require.Error(t, err)
		s := w.ended(t).one(t, "resources/read")
		require.Equal(t, on, attrs(s)["mcp.resource.uri"] == "file:///"+secret)
		require.NotContains(t, w.scrape(t, openMetrics), secret)
	}
}
