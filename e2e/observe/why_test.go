//go:build e2e

package observe_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ctl runs headgate ctl against the demo and reads the JSON that it prints.
func (d *demo) ctl(t *testing.T, v any, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../bin/headgate", append([]string{"ctl", "--json"}, args...)...)
	cmd.Env = append(os.Environ(), "HEADGATE_ADMIN="+d.says("Admin at"), "HEADGATE_ADMIN_TOKEN="+d.token(t))
	out, err := cmd.Output()
	require.NoError(t, err, "%v: %s", args, out)
	require.NoError(t, json.Unmarshal(out, v), "%s", out)
}

// token returns what the demo printed.
func (d *demo) token(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^Admin token (\S+)`).FindStringSubmatch(d.out.String())
	require.NotNil(t, found)
	return found[1]
}

// testWhy asks the admin plane about the denied call, by the trace that the
// client gave it, and finds that trace in Jaeger.
func (o *observed) testWhy(t *testing.T) {
	var why struct {
		ID, TraceID, Outcome, Phase string
		Steps                       []struct{ Interceptor, Phase, Mode, Verdict, Action string }
	}
	o.demo.ctl(t, &why, "why", o.denied.trace)
	assert.Equal(t, "denied", why.Outcome)
	assert.Equal(t, "request", why.Phase)
	found := map[string]string{}
	for _, s := range why.Steps {
		found[s.Interceptor] = s.Mode + " " + s.Verdict + " " + s.Action
	}
	assert.Equal(t, "active deny block", found["block-destructive"])
	assert.Equal(t, "audit allow proceed", found["injection-scan"])
	o.eventually(t, why.TraceID, func(tr *jaegerTrace) error {
		server, err := tr.named("tools/call delete_records")
		if err != nil {
			return err
		}
		return expect(server, map[string]string{"headgate.message.id": why.ID})
	})
}
