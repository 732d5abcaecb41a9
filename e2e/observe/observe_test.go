//go:build e2e

// Package observe_test sees the demo as its operator does: through a real
// Prometheus and a real Jaeger. What they say has to agree with the account
// that a client keeps of what came over the wire. make e2e runs it, with all it
// needs installed.
package observe_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "order of the requests")

// A demo is the program as an operator runs it.
type demo struct {
	*process
	mcp, metrics string // URLs
}

// startDemo starts the demo, to send spans after delay, in milliseconds.
func startDemo(t *testing.T, otlp, delay string) *demo {
	t.Helper()
	return runDemo(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + otlp, "OTEL_BSP_SCHEDULE_DELAY=" + delay})
}

// runDemo starts the binary that make builds, with variables and more flags.
func runDemo(t *testing.T, env []string, flags ...string) *demo {
	t.Helper()
	binary, err := filepath.Abs("../../bin/headgate")
	require.NoError(t, err)
	_, err = os.Stat(binary)
	require.NoError(t, err, "make build builds it; make e2e does so before it runs this")
	d := &demo{}
	argv := []string{binary, "demo", "--mcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--traffic", "0"}
	d.process = start(t, "headgate demo", env, append(argv, flags...)...)
	d.await(t, "it says where it listens", func() error {
		d.mcp, d.metrics = d.says("MCP server at"), d.says("Metrics at")
		if d.mcp == "" || d.metrics == "" {
			return fmt.Errorf("it says %q", d.out.String())
		}
		return nil
	})
	return d
}

// says returns the URL behind the words.
func (d *demo) says(words string) string {
	found := regexp.MustCompile(`(?m)^` + words + ` (http://\S+)\n`).FindStringSubmatch(d.out.String())
	if found == nil {
		return ""
	}
	return found[1]
}

// An observed is a demo that has served the mix, and all who watched.
type observed struct {
	demo       *demo
	prometheus *prometheus
	jaeger     *jaeger
	ledger     *ledger
	began      time.Time

	allowed, denied traced // calls that the client has traced
}

// observe runs the demo and the mix.
func observe(t *testing.T) *observed {
	t.Helper()
	o := &observed{ledger: newLedger(), began: time.Now()}
	o.jaeger = startJaeger(t)
	o.demo = startDemo(t, o.jaeger.otlp, "200")
	o.prometheus = startPrometheus(t, strings.TrimSuffix(strings.TrimPrefix(o.demo.metrics, "http://"), "/metrics"))
	session := connect(t, o.demo.mcp, o.ledger)

	t.Logf("-seed %d", *seed)
	// A rate needs two scrapes, with something of all kinds between them.
	drive(t, session, mix(*seed))
	o.prometheus.scrape(t)
	drive(t, session, mix(*seed+1))
	o.allowed = callTraced(t, session, "echo", map[string]any{"text": "hello"})
	o.denied = callTraced(t, session, "delete_records", map[string]any{"table": "orders"})
	o.auditIsThrough(t)
	o.prometheus.scrape(t)

	l := o.ledger
	require.Empty(t, l.strange, "answers that no server should give")
	require.Equal(t, 2*mixBlocked+1, sum(l.blocked), "blocked, as the client saw it")
	require.Equal(t, 2*mixLured, l.lured)
	require.Equal(t, 2*mixFailed, l.failed)
	return o
}

// auditIsThrough waits for audit runs, which may outlast the replies: each
// phase of a call has one.
func (o *observed) auditIsThrough(t *testing.T) {
	t.Helper()
	const begun, ended = `sum(headgate_interceptor_payload_size_bytes_count{event="tools/call"})`,
		`sum(headgate_interceptor_invoke_duration_seconds_count{mode="audit"})`
	o.prometheus.await(t, "audit runs are through", func() error {
		o.prometheus.scrape(t)
		got, err := o.prometheus.query(t.Context(), begun+" == "+ended)
		if err == nil && len(got) == 0 {
			err = fmt.Errorf("not yet: %s", ended)
		}
		return err
	})
}

func TestDemoIsObserved(t *testing.T) {
	t.Parallel()
	o := observe(t)
	t.Run("the exposition has no faults", o.testExposition)
	t.Run("the five questions have the client's answers", o.testQuestions)
	t.Run("each call of an interceptor is counted", o.testVerdicts)
	t.Run("an exemplar leads to its trace", o.testExemplars)
	t.Run("a call has one trace from the client on", o.testAllowed)
	t.Run("a denial is seen and is no error", o.testDenied)
	t.Run("the admin plane says why", o.testWhy)
	t.Run("searches find what the client saw", o.testSearches)
	t.Run("the last spans are sent at the end", o.testFlush)
}

// promtool is Prometheus's own linter. It reads the plain format alone; that
// the other one is right is shown by the server, which asks for it, and by its
// having exemplars.
func (o *observed) testExposition(t *testing.T) {
	plain, kind, err := get(t.Context(), o.demo.metrics, "")
	require.NoError(t, err)
	require.Contains(t, kind, "text/plain")
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = bytes.NewReader(plain)
	said, err := check.CombinedOutput()
	require.NoError(t, err, "promtool check metrics: %s", said)
	require.Empty(t, string(said), "promtool check metrics")

	open, kind, err := get(t.Context(), o.demo.metrics, "application/openmetrics-text; version=1.0.0")
	require.NoError(t, err)
	require.Contains(t, kind, "application/openmetrics-text")
	require.True(t, bytes.HasSuffix(open, []byte("\n# EOF\n")), "the exposition is cut off")
	for _, metric := range []string{
		"mcp_server_operation_duration_seconds_bucket", "headgate_interceptor_invoke_duration_seconds_bucket",
		"headgate_interceptor_aborts_total", "headgate_interceptor_audit_denials_total",
	} {
		assert.Regexp(t, `(?m)^`+metric+`\{.*# \{.*trace_id="[0-9a-f]{32}"`, string(open))
	}
}

func (o *observed) testQuestions(t *testing.T) {
	all := readQuestions(t)
	answer := func(t *testing.T, query string) []sample {
		t.Helper()
		got, err := o.prometheus.query(t.Context(), query)
		require.NoError(t, err, query)
		require.NotEmpty(t, got, query)
		return got
	}
	// As they are, they have answers, and the busy ones a rate.
	for n, queries := range all {
		for _, query := range queries {
			rate := 0.0
			for _, s := range answer(t, query) {
				require.False(t, math.IsNaN(s.value) || math.IsInf(s.value, 0), "%s: %v", query, s)
				rate += s.value
			}
			assert.Equal(t, n != openOrBlind, rate > 0, "%s: %v", query, rate)
		}
	}
	assert.Equal(t, o.ledger.requests, rows(answer(t, total(all[requestsAndErrors][0])), "mcp_method_name", "error_type"))
	assert.Equal(t, o.ledger.blocked, rows(answer(t, total(all[whoBlocks][0])), "interceptor", "phase", "reason"))
	assert.Equal(t, o.ledger.denials, rows(answer(t, total(all[whatAuditWouldBlock][0])), "interceptor", "phase"))
	for _, query := range all[openOrBlind] {
		assert.Empty(t, rows(answer(t, total(query)), "interceptor", "reason"), query)
	}
	o.testCost(t, answer(t, total(all[whatEachRequestPays][0])))
}

// testCost compares what a request pays by stage with what it took, as the
// server measured it, and with what the client waited for.
func (o *observed) testCost(t *testing.T, stages []sample) {
	got, err := o.prometheus.query(t.Context(), "sum(mcp_server_operation_duration_seconds_sum)")
	require.NoError(t, err)
	require.Len(t, got, 1)
	took, n := got[0].value, float64(sum(o.ledger.requests))
	paid := map[string]float64{}
	path, own := 0.0, 0.0
	for _, s := range stages {
		stage := s.labels["stage"]
		paid[stage] = s.value
		path += s.value * n
		if stage != "handler" {
			own += s.value * n
		}
	}
	for _, stage := range []string{"marshal", "validators", "mutators", "unmarshal", "handler"} {
		assert.Positive(t, paid[stage], stage)
	}
	assert.NotContains(t, paid, "audit")
	t.Logf("%.0f requests took %.1f ms in all; interceptors and what they need: %.1f ms; the client waited %v",
		n, took*1e3, own*1e3, o.ledger.took)
	assert.Positive(t, own)
	assert.LessOrEqual(t, path, took, "the stages of a request are more than the request")
	assert.Less(t, took, o.ledger.took.Seconds(), "the server took longer than its client waited")
}

// testVerdicts compares with what can be seen on the results themselves.
func (o *observed) testVerdicts(t *testing.T) {
	got, err := o.prometheus.query(t.Context(),
		`sum by (interceptor, verdict) (headgate_interceptor_invoke_duration_seconds_count{mode="active", verdict!="allow"})`)
	require.NoError(t, err)
	assert.Equal(t, o.ledger.verdicts, rows(got, "interceptor", "verdict"))
}

// testExemplars goes the way of an operator: from a metric to a message.
func (o *observed) testExemplars(t *testing.T) {
	found, err := o.prometheus.exemplars(t.Context(), `headgate_interceptor_aborts_total`+job, o.began)
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, e := range found {
		o.eventually(t, e.Labels.TraceID, func(tr *jaegerTrace) error {
			phase, err := tr.named("intercept request")
			if err != nil {
				return err
			}
			if phase.SpanID != e.Labels.SpanID {
				return fmt.Errorf("the span is %s, not %s", phase.SpanID, e.Labels.SpanID)
			}
			return expect(phase, map[string]string{"headgate.interceptor.action": "block"})
		})
	}
}

// eventually looks at a trace until it is as it should be: spans come in
// batches.
func (o *observed) eventually(t *testing.T, id string, ok func(*jaegerTrace) error) {
	t.Helper()
	o.jaeger.await(t, "trace "+id+" is complete", func() error {
		tr, err := o.jaeger.trace(t.Context(), id)
		if err != nil {
			return err
		}
		return ok(tr)
	})
}

// tree checks that the spans hang below one another: each name below that
// before it, beginning with a span of the client.
func tree(tr *jaegerTrace, parent string, names ...string) (last *span, err error) {
	for _, name := range names {
		if last, err = tr.named(name); err != nil {
			return nil, err
		}
		if last.parent() != parent {
			return nil, fmt.Errorf("%s hangs below %q, not %q", name, last.parent(), parent)
		}
		parent = last.SpanID
	}
	return last, nil
}

// expect compares attributes. An empty value is one that must not be there.
func expect(s *span, want map[string]string) error {
	for key, value := range want {
		if got := s.tag(key); got != value {
			return fmt.Errorf("%s: %s is %q, not %q", s.OperationName, key, got, value)
		}
	}
	return nil
}

func (o *observed) testAllowed(t *testing.T) {
	o.eventually(t, o.allowed.trace, func(tr *jaegerTrace) error {
		server, err := tree(tr, o.allowed.span, "tools/call echo")
		if err != nil {
			return err
		}
		err = expect(server, map[string]string{
			"span.kind": "server", "mcp.method.name": "tools/call", "gen_ai.tool.name": "echo", "gen_ai.operation.name": "execute_tool",
			"headgate.message.outcome": "ok", "network.transport": "tcp", "error": "", "error.type": "", "rpc.response.status_code": "",
		})
		if err != nil {
			return err
		}
		for name, phase := range map[string]string{"block-destructive": "request", "redact-pii": "response", "stamp-response": "response"} {
			invoke, err := tree(tr, o.allowed.span, "tools/call echo", "intercept "+phase, "interceptor/invoke "+name)
			if err != nil {
				return err
			}
			err = expect(invoke, map[string]string{
				"span.kind": "internal", "headgate.interceptor.name": name, "headgate.interceptor.phase": phase,
				"headgate.interceptor.mode": "active", "error": "",
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *observed) testDenied(t *testing.T) {
	o.eventually(t, o.denied.trace, func(tr *jaegerTrace) error {
		invoke, err := tree(tr, o.denied.span, "tools/call delete_records", "intercept request", "interceptor/invoke block-destructive")
		if err != nil {
			return err
		}
		err = expect(invoke, map[string]string{
			"headgate.interceptor.verdict": "deny", "headgate.interceptor.action": "block", "error": "", "error.type": "",
		})
		if err != nil {
			return err
		}
		server, err := tr.named("tools/call delete_records")
		if err != nil {
			return err
		}
		return expect(server, map[string]string{
			"rpc.response.status_code": "-32602", "headgate.message.outcome": "denied", "span.kind": "server", "error": "", "error.type": "",
		})
	})
}

// testSearches runs the searches that doc/OPERATIONS.md tells of. Each message
// is a trace, so that their numbers are the client's.
func (o *observed) testSearches(t *testing.T) {
	for _, c := range []struct {
		tags map[string]string
		want int
		has  string
	}{
		{map[string]string{"headgate.interceptor.action": "block"}, sum(o.ledger.blocked), o.denied.trace},
		{map[string]string{"headgate.interceptor.mode": "audit", "headgate.interceptor.verdict": "deny"}, o.ledger.lured, ""},
		{map[string]string{"error.type": "tool_error"}, o.ledger.failed, ""},
	} {
		o.jaeger.await(t, fmt.Sprintf("it finds %v", c.tags), func() error {
			ids, err := o.jaeger.search(t.Context(), c.tags)
			if err == nil && len(ids) != c.want {
				err = fmt.Errorf("%d traces, not %d", len(ids), c.want)
			}
			if err == nil && c.has != "" && !strings.Contains(strings.Join(ids, " "), c.has) {
				err = fmt.Errorf("%s is not among %v", c.has, ids)
			}
			return err
		})
	}
}

// testFlush ends a demo that would send its spans an hour later.
func (o *observed) testFlush(t *testing.T) {
	d := startDemo(t, o.jaeger.otlp, "3600000")
	last := callTraced(t, connect(t, d.mcp, newLedger()), "echo", map[string]any{"text": "bye"})
	d.stop(t)
	o.eventually(t, last.trace, func(tr *jaegerTrace) error {
		_, err := tree(tr, last.span, "tools/call echo", "intercept response", "interceptor/invoke stamp-response")
		return err
	})
}
