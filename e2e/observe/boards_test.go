//go:build e2e

package observe_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A panel is what a dashboard asks for one picture.
type panel struct {
	Title   string
	Type    string
	Targets []struct{ Expr string }
}

// panels reads the dashboards of a flavour, as Grafana would.
func panels(t *testing.T, flavour string) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../dashboards", flavour, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	out := map[string][]panel{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var board struct{ Panels []panel }
		require.NoError(t, json.Unmarshal(raw, &board))
		for _, p := range board.Panels {
			if p.Type != "row" {
				out[filepath.Base(file)] = append(out[filepath.Base(file)], p)
			}
		}
	}
	return out
}

// filled puts in what Grafana does: all values of all variables, and a window.
func filled(expr string) string {
	return strings.NewReplacer("$job", ".*", "$instance", ".*", "$interceptor", ".*", "$event", ".*", "$__rate_interval", "30s").Replace(expr)
}

// ask runs all queries of all panels, and wants data of each.
func ask(t *testing.T, p *prometheus, flavour string) {
	t.Helper()
	asked := 0
	for file, list := range panels(t, flavour) {
		for _, pn := range list {
			require.NotEmpty(t, pn.Targets, pn.Title)
			for _, target := range pn.Targets {
				asked++
				if err := hasData(t, p, filled(target.Expr)); err != nil {
					t.Errorf("%s, %s, %q: %v\n%s", flavour, file, pn.Title, err, target.Expr)
				}
			}
		}
	}
	assert.Greater(t, asked, 60)
}

func hasData(t *testing.T, p *prometheus, expr string) error {
	got, err := p.query(t.Context(), expr)
	if err != nil {
		return err
	}
	for _, s := range got {
		if !math.IsNaN(s.value) {
			return nil
		}
	}
	return fmt.Errorf("no data in %d rows", len(got))
}

// testBoards has a policy changed and everything weakened for a moment, and then
// asks what the dashboards ask.
func (o *observed) testBoards(t *testing.T) {
	native := startPrometheus3(t, strings.TrimSuffix(strings.TrimPrefix(o.demo.metrics, "http://"), "/metrics"))
	native.scrape(t)
	var any map[string]any
	o.demo.ctl(t, &any, "mode", "stamp-response", "audit", "--ttl", "10m", "--reason", "to have an override on the board")
	o.demo.ctl(t, &any, "break-glass", "audit-all", "--reason", "to have it in the history")
	o.demo.ctl(t, &any, "break-glass", "end")
	o.prometheus.scrape(t)
	drive(t, connect(t, o.demo.mcp, newLedger()), mix(*seed+2))
	o.prometheus.scrape(t)
	ask(t, o.prometheus, "classic")
	native.scrape(t)
	ask(t, native, "native")
}
