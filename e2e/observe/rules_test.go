//go:build e2e

package observe_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each alert fires in its scenario, and none does where all is well: Prometheus'
// own tool says so.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "recording.yaml", "alerts.yaml"}, {"test", "rules", "tests.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = "../../dashboards/rules"
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "promtool %v: %s", args, said)
	}
}
