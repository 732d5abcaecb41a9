package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// The committed files are what the generator makes.
func TestFilesAreGenerated(t *testing.T) {
	made, err := files()
	require.NoError(t, err)
	for name, raw := range made {
		committed, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		require.Equal(t, string(committed), string(raw), "%s: run go generate ./dashboards", name)
	}
}

// Each dashboard goes through the SDK's types and comes back the same.
func TestRoundTrip(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	made, err := files()
	require.NoError(t, err)
	for name, raw := range made {
		var strict, first dashboard.Dashboard
		var faults cog.BuildErrors // the SDK returns it also when it is empty
		if err := strict.UnmarshalJSONStrict(raw); errors.As(err, &faults) {
			require.Empty(t, faults, name)
		}
		require.NoError(t, json.Unmarshal(raw, &first), name)
		require.NoError(t, first.Validate(), name)
		again, err := json.MarshalIndent(first, "", "  ")
		require.NoError(t, err)
		require.JSONEq(t, string(raw), string(again), name)
	}
}

// registered are the metrics of telemetry and admin, with their labels.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	reg := &descriptions{found: map[string][]string{}}
	tel, err := telemetry.New(&telemetry.Options{Registerer: reg})
	require.NoError(t, err)
	ch, err := chain.New(&chain.Options{Observer: tel})
	require.NoError(t, err)
	plane, err := admin.New(&admin.Options{Chains: map[string]*chain.Chain{"c": ch}, Anonymous: admin.RoleRead, Registerer: reg})
	require.NoError(t, err)
	require.NoError(t, plane.Close())
	require.NoError(t, ch.Close())
	require.Greater(t, len(reg.found), 25)
	return reg.found
}

// descriptions is a registerer that only reads what is described.
type descriptions struct{ found map[string][]string }

var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (d *descriptions) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 100)
	c.Describe(ch)
	close(ch)
	for desc := range ch {
		m := described.FindStringSubmatch(desc.String())
		if m == nil {
			return fmt.Errorf("not understood: %s", desc)
		}
		d.found[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	return nil
}

func (d *descriptions) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

func (*descriptions) Unregister(prometheus.Collector) bool { return true }

// grafana puts numbers in the place of what Grafana fills in.
func grafana(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$__interval", "30s").Replace(expr)
}

// Every panel has what a reader needs, and asks what there is.
func TestPanels(t *testing.T) {
	metrics, asked := registered(t), map[string]bool{}
	for _, f := range flavours() {
		for _, b := range boards(f) {
			require.NotEmpty(t, b.what)
			for _, s := range b.sections {
				require.NotEmpty(t, s.title)
				for i := range s.panels {
					for _, fault := range lint(&s.panels[i], f, metrics, asked) {
						t.Errorf("%s, %s, %q: %s", f.name, b.uid, s.panels[i].title, fault)
					}
				}
			}
		}
	}
	for name := range metrics {
		require.True(t, asked[name], "%s is on no panel", name)
	}
}

// lint returns what is wrong with a panel. It notes which metrics it asks.
func lint(p *panel, f flavour, metrics map[string][]string, asked map[string]bool) (faults []string) {
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if p.title == "" || p.what == "" || p.unit == "" {
		wrong("no title, description or unit")
	}
	if p.width == 0 || p.width > 24 || p.height == 0 {
		wrong("no size")
	}
	if len(p.queries) == 0 {
		wrong("no query")
	}
	if p.kind == rows && (len(p.columns) != len(p.queries) || len(p.units) != len(p.queries)) {
		wrong("columns and queries differ in number")
	}
	for _, q := range p.queries {
		if p.kind != rows && q.legend == "" {
			wrong("no legend: %s", q.expr)
		}
		faults = append(faults, lintQuery(q.expr, f, metrics, asked)...)
	}
	return faults
}

// lintQuery holds an expression against what is registered.
func lintQuery(expr string, f flavour, metrics map[string][]string, asked map[string]bool) (faults []string) {
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(grafana(expr))
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		sel, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		base, suffix := split(sel.Name, metrics)
		known, ok := metrics[base]
		if !ok {
			wrong("no such metric: %s", sel.Name)
			return nil
		}
		asked[base] = true
		jobs := false
		for _, m := range sel.LabelMatchers {
			jobs = jobs || m.Name == "job" && m.Type == labels.MatchRegexp && m.Value == "$job"
			if !allowed(m.Name, known) {
				wrong("%s has no label %s", base, m.Name)
			}
		}
		if !jobs {
			wrong("%s is asked of all jobs", sel.Name)
		}
		if f.native && suffix != "" && strings.HasSuffix(base, "_seconds") {
			wrong("%s is of the classic flavour", sel.Name)
		}
		if counts(base, suffix) && !underRate(path) {
			wrong("%s only ever grows: ask its rate", sel.Name)
		}
		return nil
	})
	return append(faults, lintGrouping(parsed, metrics)...)
}

// lintGrouping finds labels that sums group by and nobody has.
func lintGrouping(expr parser.Expr, metrics map[string][]string) (faults []string) {
	all := map[string]bool{"le": true, "job": true, "instance": true}
	for _, labels := range metrics {
		for _, l := range labels {
			all[l] = true
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if agg, ok := node.(*parser.AggregateExpr); ok {
			for _, l := range agg.Grouping {
				if !all[l] {
					faults = append(faults, "no metric has the label "+l)
				}
			}
		}
		return nil
	})
	return faults
}

// split takes the suffix of a histogram's series off its name.
func split(name string, metrics map[string][]string) (base, suffix string) {
	if _, ok := metrics[name]; ok {
		return name, ""
	}
	for _, s := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, s); ok {
			return base, s
		}
	}
	return name, ""
}

func allowed(label string, known []string) bool {
	switch label {
	case "__name__", "job", "instance", "le":
		return true
	}
	for _, k := range known {
		if k == label {
			return true
		}
	}
	return false
}

// counts reports whether a series only ever grows.
func counts(base, suffix string) bool { return strings.HasSuffix(base, "_total") || suffix != "" }

func underRate(path []parser.Node) bool {
	for _, n := range path {
		if call, ok := n.(*parser.Call); ok {
			switch call.Func.Name {
			case "rate", "increase", "irate":
				return true
			}
		}
	}
	return false
}

// The lint finds what it is for.
func TestLintFinds(t *testing.T) {
	metrics := registered(t)
	classic, native := flavours()[0], flavours()[1]
	good := panel{kind: lines, title: "t", what: "w", unit: "s", width: 8, height: 8, queries: []query{{expr: rate(mAborts, with(ofInterceptor), "reason"), legend: "l"}}}
	require.Empty(t, lint(&good, classic, metrics, map[string]bool{}))
	for name, spoil := range map[string]func(p *panel){
		"a panel without a unit":      func(p *panel) { p.unit = "" },
		"a panel without a legend":    func(p *panel) { p.queries[0].legend = "" },
		"a metric that was renamed":   func(p *panel) { p.queries[0].expr = rate("headgate_aborts_total", with(), "reason") },
		"a label that was renamed":    func(p *panel) { p.queries[0].expr = rate(mAborts, with(`name="x"`), "reason") },
		"a grouping by nothing":       func(p *panel) { p.queries[0].expr = rate(mAborts, with(), "because") },
		"a query that does not parse": func(p *panel) { p.queries[0].expr = "sum by (reason) (rate(" },
		"a counter as it is":          func(p *panel) { p.queries[0].expr = "sum(" + mAborts + with() + ")" },
		"all jobs":                    func(p *panel) { p.queries[0].expr = "sum(rate(" + mAborts + "[5m]))" },
	} {
		p := good
		p.queries = []query{good.queries[0]}
		spoil(&p)
		require.NotEmpty(t, lint(&p, classic, metrics, map[string]bool{}), name)
	}
	p := good
	p.queries = []query{{expr: classic.seconds(mInvoke, with(), "mode"), legend: "l"}}
	require.NotEmpty(t, lint(&p, native, metrics, map[string]bool{}), "classic series in the native flavour")
}

// Rules ask what there is, and each alert says what it needs to.
func TestRules(t *testing.T) {
	metrics := registered(t)
	runbooks, err := os.ReadFile("../../doc/OPERATIONS.md")
	require.NoError(t, err)
	recorded := map[string]bool{}
	for _, file := range []string{"recording.yaml", "alerts.yaml"} {
		raw, err := os.ReadFile(filepath.Join("..", "rules", file))
		require.NoError(t, err)
		var rules struct {
			Groups []struct {
				Rules []struct {
					Record, Alert, Expr string
					Labels, Annotations map[string]string
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(raw, &rules))
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				recorded[r.Record] = r.Record != ""
				for _, name := range namesIn(t, r.Expr) {
					base, _ := split(name, metrics)
					_, known := metrics[base]
					require.True(t, known || recorded[name], "%s%s asks %s", r.Record, r.Alert, name)
				}
				if r.Alert == "" {
					continue
				}
				for _, a := range []string{"summary", "description", "runbook_url"} {
					require.NotEmpty(t, r.Annotations[a], r.Alert)
				}
				require.NotEmpty(t, r.Labels["severity"])
				require.Contains(t, string(runbooks), "### "+r.Alert+"\n")
				require.True(t, strings.HasSuffix(r.Annotations["runbook_url"], "#"+strings.ToLower(r.Alert)), r.Alert)
			}
		}
	}
}

func namesIn(t *testing.T, expr string) (names []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(t, err, expr)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if sel, ok := node.(*parser.VectorSelector); ok {
			names = append(names, sel.Name)
		}
		return nil
	})
	return names
}
