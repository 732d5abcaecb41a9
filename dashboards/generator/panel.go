package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// A kind is how a panel is drawn.
type kind int

const (
	lines kind = iota
	stack
	number
	rows
	heat
	states
)

// A query is one expression of a panel.
type query struct {
	expr, legend string
	exemplars    bool
}

// A panel is one picture. Title, description and unit are wanted of each.
type panel struct {
	kind              kind
	title, what, unit string
	width, height     uint32
	queries           []query
	// columns name the values of a table, in the order of the queries; by is the
	// label that its rows are joined on.
	columns []string
	units   []string
	by      string
	// red is where a number turns red, least where it ceases to be, if not nil.
	red, least *float64
	// log has an axis for values that differ by powers of ten.
	log bool
	// link leads from a row or series to the admin plane's page of an interceptor.
	link bool
}

// A section is a row of panels under a title.
type section struct {
	title  string
	panels []panel
}

func source(variable string) common.DataSourceRef {
	kind, uid := "prometheus", "${"+variable+"}"
	return common.DataSourceRef{Type: &kind, Uid: &uid}
}

func targets(p *panel) []cog.Builder[variants.Dataquery] {
	var out []cog.Builder[variants.Dataquery]
	for i, q := range p.queries {
		b := prometheus.NewDataqueryBuilder().Expr(q.expr).RefId(string(rune('A' + i))).LegendFormat(q.legend).Datasource(source("datasource"))
		if q.exemplars {
			b = b.Exemplar(true)
		}
		switch p.kind {
		case rows:
			b = b.Instant().Format(prometheus.PromQueryFormatTable)
		case heat:
			b = b.Range().Format(prometheus.PromQueryFormatHeatmap)
		default:
			b = b.Range()
		}
		out = append(out, b)
	}
	return out
}

// build returns the builder of a panel at its size.
func (p *panel) build() cog.Builder[dashboard.Panel] {
	switch p.kind {
	case number:
		return p.number()
	case rows:
		return p.rows()
	case heat:
		return heatmap.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Span(p.width).Height(p.height).
			Datasource(source("datasource")).Targets(targets(p)).
			YAxis(heatmap.NewYAxisConfigBuilder().Unit(p.unit))
	case states:
		return p.states()
	}
	return p.lines()
}

func (p *panel) lines() cog.Builder[dashboard.Panel] {
	b := timeseries.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Span(p.width).Height(p.height).
		Datasource(source("datasource")).Targets(targets(p)).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementBottom).Calcs([]string{"mean", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.log {
		b = b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10))
	} else {
		b = b.Min(0)
	}
	if p.kind == stack {
		b = b.FillOpacity(60).LineWidth(1).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	} else {
		b = b.FillOpacity(8).LineWidth(2)
	}
	if p.link {
		b = b.DataLinks(interceptorLinks("${__field.labels.interceptor}"))
	}
	return b
}

func (p *panel) number() cog.Builder[dashboard.Panel] {
	b := stat.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Span(p.width).Height(p.height).
		Datasource(source("datasource")).Targets(targets(p)).GraphMode(common.BigValueGraphModeArea).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	steps := []dashboard.Threshold{{Color: "green"}}
	if p.red != nil {
		steps = append(steps, dashboard.Threshold{Color: "red", Value: p.red})
	}
	if p.least != nil {
		steps = []dashboard.Threshold{{Color: "red"}, {Color: "green", Value: p.least}}
	}
	return b.Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps))
}

// rows joins the queries on one label: each is a column.
func (p *panel) rows() cog.Builder[dashboard.Panel] {
	hide := map[string]any{"Time": true}
	names := map[string]any{}
	for i, c := range p.columns {
		names["Value #"+string(rune('A'+i))] = c
	}
	if len(p.columns) == 1 { // the only one has no letter
		names["Value"] = p.columns[0]
	}
	b := table.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Span(p.width).Height(p.height).
		Datasource(source("datasource")).Targets(targets(p)).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})).
		Transformations([]dashboard.DataTransformerConfig{
			{Id: "merge", Options: map[string]any{}},
			{Id: "organize", Options: map[string]any{"excludeByName": hide, "renameByName": names, "indexByName": map[string]any{p.by: 0}}},
		})
	for i, c := range p.columns {
		b = b.OverrideByName(c, []dashboard.DynamicConfigValue{{Id: "unit", Value: p.units[i]}})
	}
	if p.link {
		b = b.OverrideByName(p.by, []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{
			{"title": "Admin plane", "url": adminURL("${__value.raw}"), "targetBlank": true},
		}}})
	}
	return b
}

// states draws modes over time.
func (p *panel) states() cog.Builder[dashboard.Panel] {
	state := func(value, text, color string) dashboard.ValueMapping {
		return dashboard.ValueMapping{ValueMap: &dashboard.ValueMap{
			Type:    "value",
			Options: map[string]dashboard.ValueMappingResult{value: {Text: &text, Color: &color}},
		}}
	}
	return statetimeline.NewPanelBuilder().Title(p.title).Description(p.what).Unit(p.unit).Span(p.width).Height(p.height).
		Datasource(source("datasource")).Targets(targets(p)).MergeValues(true).
		Mappings([]dashboard.ValueMapping{state("2", "active", "green"), state("1", "audit", "yellow"), state("0", "off", "red")})
}

// adminURL is the admin plane's page of an interceptor.
func adminURL(name string) string { return "${admin}/v1/interceptors/" + name }

func interceptorLinks(name string) []cog.Builder[dashboard.DashboardLink] {
	return []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("Admin plane").Type(dashboard.DashboardLinkTypeLink).Url(adminURL(name)).TargetBlank(true),
	}
}
