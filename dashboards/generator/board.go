package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// A board is one dashboard.
type board struct {
	uid, title, what string
	sections         []section
}

// boards are all dashboards of a flavour.
func boards(f flavour) []board { return []board{cost(f), decisions(f), control(f)} }

// build makes the dashboard of a flavour.
func (b *board) build(f flavour) (dashboard.Dashboard, error) {
	uid, title := b.uid, b.title
	if f.native {
		uid, title = uid+"-native", title+" (native histograms)"
	}
	d := dashboard.NewDashboardBuilder(title).Uid(uid).Description(b.what).Tags([]string{"headgate", "mcp"}).
		Time("now-1h", "now").Refresh("30s").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Editable().Annotation(flips()).
		Link(dashboard.NewDashboardLinkBuilder("Headgate").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"headgate"}).
			IncludeVars(true).KeepTime(true).AsDropdown(true))
	for _, v := range variables() {
		d = d.WithVariable(v)
	}
	for _, s := range b.sections {
		d = d.WithRow(dashboard.NewRowBuilder(s.title))
		for i := range s.panels {
			d = d.WithPanel(s.panels[i].build())
		}
	}
	out, err := d.Build()
	if err == nil {
		number1(&out)
	}
	return out, err
}

// number1 gives panels and rows ids, from 1: the builders leave them out.
func number1(d *dashboard.Dashboard) {
	for i := range d.Panels {
		id := uint32(i + 1)
		if p := d.Panels[i].Panel; p != nil {
			p.Id = &id
		}
		if r := d.Panels[i].RowPanel; r != nil {
			r.Id = id
		}
	}
}

// flips marks the moments when an interceptor's mode changed.
func flips() *dashboard.AnnotationQueryBuilder {
	changed := "sum by (job, instance, interceptor) (changes(headgate_interceptor_mode" + with() + "[1m])) > 0"
	return dashboard.NewAnnotationQueryBuilder().Name("Mode changes").Datasource(source("datasource")).Enable(true).IconColor("orange").
		Expr(changed).TitleFormat("{{interceptor}} changed its mode").TextFormat("{{job}} {{instance}}").Step("30s").
		Target(prometheus.NewDataqueryBuilder().Expr(changed).RefId("Anno"))
}

// variables are those that all dashboards have.
func variables() []cog.Builder[dashboard.VariableModel] {
	text := func(s string) dashboard.StringOrMap { return dashboard.StringOrMap{String: &s} }
	all := dashboard.VariableOption{
		Text: dashboard.StringOrArrayOfString{String: ptr("All")}, Value: dashboard.StringOrArrayOfString{String: ptr("$__all")},
	}
	values := func(name, label, query string) cog.Builder[dashboard.VariableModel] {
		return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source("datasource")).Query(text(query)).
			Multi(true).IncludeAll(true).AllValue(".*").Current(all).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalAsc)
	}
	const op = "mcp_server_operation_duration_seconds"
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus"),
		dashboard.NewDatasourceVariableBuilder("traces").Label("Traces").Type("jaeger").Regex("").
			Description("A Jaeger data source; for Tempo change the type of this variable."),
		values("job", "Job", "label_values(headgate_interceptor_info, job)"),
		values("instance", "Instance", `label_values(headgate_interceptor_info{job=~"$job"}, instance)`),
		values("interceptor", "Interceptor", `label_values(headgate_interceptor_info{job=~"$job"}, interceptor)`),
		values("event", "Event", `label_values(headgate_interceptor_stage_duration_seconds_count{job=~"$job"}, event)`),
		dashboard.NewTextBoxVariableBuilder("admin").Label("Admin plane").DefaultValue(text("http://127.0.0.1:9901")),
	}
}

func ptr[T any](v T) *T { return &v }
