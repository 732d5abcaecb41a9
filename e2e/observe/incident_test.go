//go:build e2e

package observe_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDashboards has everything happen that the dashboards show: denials,
// changes, audit, failures of all sorts, and an operator at work. Then each
// query of each panel has data, and what panels say is what the client counted,
// on a server with classic buckets and on one with native histograms.
func TestDashboards(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	policy := filepath.Join(t.TempDir(), "policy.json")
	require.NoError(t, os.WriteFile(policy, []byte(`{"interceptors": {"`+failsOpen+`": {"timeoutMs": 300}}}`), 0o600))
	d := runDemo(t, []string{asHost + "=1"}, "--host", "stdio:"+self, "--config", policy)
	target := strings.TrimSuffix(strings.TrimPrefix(d.metrics, "http://"), "/metrics")
	viewers := []*viewer{
		newViewer(t, "classic", startPrometheus(t, target)), newViewer(t, "native", startPrometheus3(t, target)),
	}
	scrape := func() {
		for _, v := range viewers {
			v.server.scrape(t)
		}
	}
	scrape() // a rate needs what was before
	l := newLedger()
	session := connect(t, d.mcp, l)
	t.Logf("-seed %d", *seed)
	// What happens for the first time makes a series, and a rate the second time.
	d.refuse(t)
	drive(t, session, append(mix(*seed), faults()...))
	scrape()
	operate(t, d, viewers, scrape, func() { drive(t, session, mix(*seed+1)) })
	d.refuse(t)
	drive(t, session, append(mix(*seed+2), faults()...))
	scrape()
	require.Empty(t, l.strange)
	require.Equal(t, l.crashes, l.stopped[failsClosed+" request"])

	for _, v := range viewers {
		t.Run(v.flavour, func(t *testing.T) {
			v.agrees(t, l)
			v.addsUp(t, l)
			v.look(t)
		})
	}
}

// operate flips a mode, breaks the glass and mends it, with traffic meanwhile.
func operate(t *testing.T, d *demo, viewers []*viewer, scrape, traffic func()) {
	t.Helper()
	var done any
	ctl := func(args ...string) { d.ctl(t, &done, args...) }
	shown := func(title string, want map[string]int) {
		t.Helper()
		scrape()
		for _, v := range viewers {
			assert.Subset(t, rows(v.now(t, title), "interceptor"), want, "%s, %s", v.flavour, title)
		}
	}
	ctl("mode", "stamp-response", "audit", "--ttl", "10m", "--reason", "to have an override in the end")
	ctl("mode", "block-destructive", "audit", "--ttl", "10m", "--reason", "to see what it would block")
	traffic()
	shown("Modes", map[string]int{"block-destructive": 1, "stamp-response": 1, "redact-pii": 2, "injection-scan": 1, failsClosed: 2})
	ctl("clear", "block-destructive", "--reason", "that was enough")
	ctl("break-glass", "audit-all", "--reason", "to have everything in audit")
	traffic()
	shown("Break-glass", map[string]int{"": 1})
	ctl("break-glass", "end", "--reason", "that was enough")
	shown("Modes", map[string]int{"block-destructive": 2, "stamp-response": 1, "redact-pii": 2, "injection-scan": 1, failsClosed: 2})
}

// refuse has the admin plane refuse two requests, for want of a token and of an
// interceptor.
func (d *demo) refuse(t *testing.T) {
	t.Helper()
	for _, token := range []string{"not-the-token-of-anybody-at-all-here", d.token(t)} {
		cmd := exec.CommandContext(t.Context(), "../../bin/headgate", "ctl", "get", "nobody")
		cmd.Env = append(os.Environ(), "HEADGATE_ADMIN="+d.says("Admin at"), "HEADGATE_ADMIN_TOKEN="+token)
		require.Error(t, cmd.Run())
	}
}

// agrees compares panels with the client's account.
func (v *viewer) agrees(t *testing.T, l *ledger) {
	t.Helper()
	stopped, would, errors := map[string]int{}, map[string]int{}, map[string]int{}
	for key, n := range l.blocked {
		stopped[drop(key, 1)] += n // without the phase
	}
	for key, n := range l.stopped {
		stopped[strings.Fields(key)[0]+" panic"] += n
	}
	for key, n := range l.denials {
		would[strings.Fields(key)[0]] += n
	}
	for key, n := range l.requests {
		if of := strings.SplitN(key, " ", 2)[1]; of != "" {
			errors[of] += n
		}
	}
	for _, c := range []struct {
		panel  string
		labels []string
		want   map[string]int
	}{
		// Audit may outlast the replies: this comes first, and waits.
		{"Would have been stopped, by interceptor", []string{"interceptor"}, would},
		{"Failed in audit", []string{"interceptor", "reason"}, l.auditFailed},
		{"Stopped, by interceptor and reason", []string{"interceptor", "reason"}, stopped},
		{"Errors, by type", []string{"error_type"}, errors},
		{"Requests", nil, map[string]int{"": sum(l.requests)}},
		{"Stopped", nil, map[string]int{"": sum(stopped)}},
		{"Would have been stopped", nil, map[string]int{"": sum(would)}},
	} {
		var got map[string]int
		v.server.await(t, c.panel+" agrees", func() error {
			got = rows(v.totals(t, c.panel)[0], c.labels...)
			if !assert.ObjectsAreEqual(c.want, got) {
				return fmt.Errorf("%s: the client says %v, the panel %v", c.panel, c.want, got)
			}
			return nil
		})
	}
	// Two panels of this title: the number, and the lines.
	assert.Equal(t, l.opened, rows(v.totals(t, "Failed open")[0], "interceptor", "reason"))
	panics := v.totals(t, "Panics")
	assert.Equal(t, l.crashes, int(panics[0][0].value), "stopped a message")
	assert.Equal(t, l.opened[failsOpen+" panic"], int(panics[1][0].value), "failed open")
	assert.Equal(t, l.auditFailed[failsAudit+" panic"], int(panics[2][0].value), "in audit")
	changes := rows(v.totals(t, "Changes")[0], "interceptor", "mode")
	for _, who := range []string{"redact-pii", "stamp-response"} {
		assert.Equal(t, l.verdicts[who+" modify"], changes[who+" active"], who)
	}
	assert.Equal(t, l.verdicts["block-destructive deny"], l.blocked["block-destructive request validation"])
}

// drop takes the i-th word out.
func drop(key string, i int) string {
	words := strings.Fields(key)
	return strings.Join(append(words[:i:i], words[i+1:]...), " ")
}

// addsUp checks that stages, and what no stage accounts for, are the request's
// time, which is less than what the client waited.
func (v *viewer) addsUp(t *testing.T, l *ledger) {
	t.Helper()
	n := float64(sum(l.requests))
	stages := 0.0
	for _, s := range v.totals(t, "Mean time per request, by stage")[0] {
		stages += s.value * n
	}
	rest := v.totals(t, "Not in any stage")[0][0].value * n
	byMethod := map[string]int{}
	for key, n := range l.requests {
		byMethod[strings.Fields(key)[0]] += n
	}
	took := 0.0
	for _, s := range v.totals(t, "Mean by method")[0] {
		took += s.value * float64(byMethod[s.labels["mcp_method_name"]])
	}
	t.Logf("%s: stages %.3f s, rest %.3f s, requests %.3f s; the client waited %.3f s", v.flavour, stages, rest, took, l.took.Seconds())
	assert.InEpsilon(t, took, stages+rest, 0.05, "stages and the rest are not the requests")
	assert.InEpsilon(t, took, stages, 0.05, "stages are not the requests")
	assert.LessOrEqual(t, took, l.took.Seconds())
}
