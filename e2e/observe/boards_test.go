//go:build e2e

package observe_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A panel is what a dashboard asks for one picture.
type panel struct {
	Title   string
	Type    string
	Targets []struct{ Expr string }
}

// A dashboard is one file, as Grafana would read it.
type dashboard struct {
	file       string
	Panels     []panel
	Templating struct {
		List []struct{ Type, Name, Query, AllValue string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

// A viewer is who looks at the dashboards of a flavour on a server.
type viewer struct {
	flavour string
	server  *prometheus
	boards  []dashboard
}

func newViewer(t *testing.T, flavour string, server *prometheus) *viewer {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../dashboards", flavour, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	v := &viewer{flavour: flavour, server: server}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		d := dashboard{file: flavour + "/" + filepath.Base(file)}
		require.NoError(t, json.Unmarshal(raw, &d))
		d.Panels = slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
		v.boards = append(v.boards, d)
	}
	return v
}

// rateInterval is what Grafana takes for a server that is not said to scrape
// more often than each 15 s.
const rateInterval = "1m"

// fill puts in what Grafana does: a window, and values of variables.
func fill(expr string, values map[string]string) string {
	pairs := []string{"$__rate_interval", rateInterval}
	for name, value := range values {
		pairs = append(pairs, "$"+name, value)
	}
	return strings.NewReplacer(pairs...).Replace(expr)
}

// all are the values of variables when nobody has chosen any.
func (d *dashboard) all() map[string]string {
	values := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			values[v.Name] = v.AllValue
		}
	}
	return values
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// chosen are the values of variables when somebody has ticked each that there
// is, one after the other, as variables depend on those before them.
func (v *viewer) chosen(t *testing.T, d *dashboard) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(variable.Query)
		require.NotNil(t, m, variable.Query)
		var found []string
		args := url.Values{"match[]": {fill(m[1], values)}}
		require.NoError(t, v.server.ask(t.Context(), "label/"+m[2]+"/values", args, &found))
		require.NotEmpty(t, found, variable.Query)
		for i, value := range found {
			found[i] = strings.ReplaceAll(regexp.QuoteMeta(value), `\`, `\\`)
		}
		values[variable.Name] = "(" + strings.Join(found, "|") + ")"
	}
	require.Len(t, values, 4)
	return values
}

// look asks all that the dashboards ask: each answer has data, also where each
// value is chosen by hand.
func (v *viewer) look(t *testing.T) {
	t.Helper()
	asked := 0
	for i := range v.boards {
		d := &v.boards[i]
		all, chosen := d.all(), v.chosen(t, d)
		for _, p := range d.Panels {
			require.NotEmpty(t, p.Targets, p.Title)
			for _, target := range p.Targets {
				asked++
				for _, values := range []map[string]string{all, chosen} {
					if err := v.hasData(t, fill(target.Expr, values), busy(p.Title)); err != nil {
						t.Errorf("%s, %q: %v\n%s", d.file, p.Title, err, fill(target.Expr, values))
					}
				}
			}
		}
		for _, a := range d.Annotations.List {
			require.NoError(t, v.hasData(t, fill(a.Expr, all), true), "%s, %s", d.file, a.Name)
		}
	}
	require.Greater(t, asked, 60)
}

// busy reports whether a panel must have more than zeros: all but those of what
// did not happen here.
func busy(title string) bool {
	return !slices.Contains([]string{
		"Audit dropped", "Dropped and abandoned", "Not seen", "Requests that this server sends", "Policies in audit", "Cost by interceptor",
		"Break-glass", "Overdue", "State is kept", "History failures", "History altered", "Hosts that are away", "Hosts lost", "Circuits", "Refused by limits", "Behind", "Event streams",
		"Not in any stage", // of so few requests, rates are too rough for a difference
	}, title)
}

// hasData asks for a moment. A row must have a number, and one more than 0 if it
// is meant to.
func (v *viewer) hasData(t *testing.T, expr string, positive bool) error {
	t.Helper()
	got, err := v.server.query(t.Context(), expr)
	if err != nil {
		return err
	}
	for _, s := range got {
		if s.value > 0 || !positive && !math.IsNaN(s.value) {
			return nil
		}
	}
	return fmt.Errorf("no data in %d rows", len(got))
}

// totals asks the panel's queries for all that was ever counted, in place of
// rates: that is what a ledger can say.
func (v *viewer) totals(t *testing.T, title string) (answers [][]sample) {
	t.Helper()
	return v.answers(t, title, total)
}

// answers asks the queries of a panel, after a change.
func (v *viewer) answers(t *testing.T, title string, change func(string) string) (answers [][]sample) {
	t.Helper()
	for i := range v.boards {
		for _, p := range v.boards[i].Panels {
			if p.Title != title || p.Type == "stat" && len(answers) > 0 {
				continue
			}
			answers = nil
			for _, target := range p.Targets {
				got, err := v.server.query(t.Context(), fill(change(target.Expr), v.boards[i].all()))
				require.NoError(t, err, target.Expr)
				answers = append(answers, got)
			}
		}
	}
	require.NotEmpty(t, answers, "no panel %q", title)
	return answers
}

// now asks a panel's only query as it is.
func (v *viewer) now(t *testing.T, title string) []sample {
	t.Helper()
	return v.answers(t, title, func(expr string) string { return expr })[0]
}
