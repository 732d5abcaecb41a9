package main

// The metrics that more than one panel asks.
const (
	mOperation = "mcp_server_operation_duration_seconds"
	mClient    = "mcp_client_operation_duration_seconds"
	mInvoke    = "headgate_interceptor_invoke_duration_seconds"
	mStage     = "headgate_interceptor_stage_duration_seconds"
	mPayload   = "headgate_interceptor_payload_size_bytes"
)

// Matchers of the variables, and of stages.
const (
	ofInterceptor = `interceptor=~"$interceptor"`
	ofEvent       = `event=~"$event"`
	ofMethod      = `mcp_method_name=~"$event"`
	onPath        = `stage!="audit"`
	ofChain       = `stage!~"audit|handler"`
)

// cost shows what each request pays and to whom.
func cost(f flavour) board {
	requests := f.times(mOperation, with(ofMethod), "")
	return board{
		uid: "headgate-cost", title: "Headgate: request cost",
		what: "What each request pays for interceptors, stage by stage and interceptor by interceptor.",
		sections: []section{
			{"What a request pays", append(costNumbers(f, requests), costStages(f, requests)...)},
			{"Who is paid", costInterceptors(f)},
			{"Payloads", costPayloads(f)},
			{"By method and tool", costMethods(f)},
		},
	}
}

func costNumbers(f flavour, requests string) []panel {
	return []panel{
		{
			kind: number, title: "Requests", what: "MCP requests and notifications received, per second.", unit: "reqps", width: 6, height: 4,
			queries: []query{{expr: requests, legend: "requests"}},
		},
		{
			kind: number, title: "Share of interceptors", what: "Of the time that requests take, what the chain takes: encoding, validators, mutators, application. The rest is the server's own handler.",
			unit: "percentunit", width: 6, height: 4,
			queries: []query{{expr: share(f.seconds(mStage, with(ofEvent, ofChain), ""), f.seconds(mOperation, with(ofMethod), "")), legend: "share"}},
		},
		{
			kind: number, title: "Interceptors, per request", what: "Mean time that a request spends in the chain.", unit: "s", width: 6, height: 4,
			queries: []query{{expr: share(f.seconds(mStage, with(ofEvent, ofChain), ""), requests), legend: "per request"}},
		},
		{
			kind: number, title: "Request p99", what: "99 % of requests take no longer, handler included.", unit: "s", width: 6, height: 4,
			queries: []query{{expr: f.quantile(0.99, mOperation, with(ofMethod), ""), legend: "p99"}},
		},
	}
}

func costStages(f flavour, requests string) []panel {
	quantiles := func(title string, q float64) panel {
		return panel{
			kind: lines, title: title, what: "By stage of the path, on a logarithmic scale. Classic buckets are coarse: read them as at most.", unit: "s", width: 8, height: 8, log: true,
			queries: []query{{expr: f.quantile(q, mStage, with(ofEvent, onPath), "stage"), legend: "{{stage}}", exemplars: true}},
		}
	}
	return []panel{
		{
			kind: stack, title: "Mean time per request, by stage", what: "The stages of the path stand on one another and add up to the request. Audit runs off the path and is not here.",
			unit: "s", width: 16, height: 9,
			queries: []query{{expr: f.seconds(mStage, with(ofEvent, onPath), "stage") + " / ignoring(stage) group_left " + requests, legend: "{{stage}}"}},
		},
		{
			kind: lines, title: "Not in any stage", what: "Mean time of a request that no stage accounts for: what Headgate and its telemetry take for themselves.",
			unit: "s", width: 8, height: 9,
			queries: []query{{expr: "clamp_min((" + f.seconds(mOperation, with(ofMethod), "") + " - " + f.seconds(mStage, with(ofEvent, onPath), "") + ") / " + requests + ", 0)", legend: "overhead"}},
		},
		quantiles("Stages, p50", 0.5), quantiles("Stages, p95", 0.95), quantiles("Stages, p99", 0.99),
	}
}

func costInterceptors(f flavour) []panel {
	sel := with(ofInterceptor)
	return []panel{
		{
			kind: rows, title: "Cost by interceptor", what: "Validators of a phase run at once, so these times are work, not wall time. Click a column to sort.",
			unit: "s", width: 24, height: 8, by: "interceptor", link: true,
			columns: []string{"Mean", "p95", "Calls per second", "Seconds per second", "Under way", "Abandoned"},
			units:   []string{"s", "s", "ops", "percentunit", "short", "short"},
			queries: []query{
				{expr: f.mean(mInvoke, sel, "interceptor")},
				{expr: f.quantile(0.95, mInvoke, sel, "interceptor")},
				{expr: f.times(mInvoke, sel, "interceptor")},
				{expr: f.seconds(mInvoke, sel, "interceptor")},
				{expr: "sum by (interceptor) (headgate_interceptor_inflight" + sel + ")"},
				{expr: "sum by (interceptor) (headgate_interceptor_abandoned" + sel + ")"},
			},
		},
		{
			kind: stack, title: "Work by interceptor", what: "Seconds of interceptor per second: how many are busy on average.", unit: "percentunit", width: 12, height: 8, link: true,
			queries: []query{{expr: f.seconds(mInvoke, sel, "interceptor"), legend: "{{interceptor}}"}},
		},
		{
			kind: lines, title: "Active against audit", what: "Work in each mode. Audit is off the path: it costs processor time, and no request waits for it.", unit: "percentunit", width: 12, height: 8,
			queries: []query{
				{expr: f.seconds(mInvoke, sel, "mode"), legend: "{{mode}}"},
				{expr: f.seconds(mStage, with(ofEvent, `stage="audit"`), ""), legend: "audit stage"},
			},
		},
	}
}

func costPayloads(f flavour) []panel {
	return []panel{
		{
			kind: heat, title: "Payload sizes", what: "How large what interceptors are shown is.", unit: "bytes", width: 12, height: 8,
			queries: []query{{expr: f.buckets(mPayload, with(ofEvent)), legend: "{{le}}"}},
		},
		{
			kind: stack, title: "Payload bytes", what: "Bytes that are encoded for interceptors, per second, by phase.", unit: "Bps", width: 12, height: 8,
			queries: []query{{expr: f.seconds(mPayload, with(ofEvent), "phase"), legend: "{{phase}}"}},
		},
	}
}

func costMethods(f flavour) []panel {
	return []panel{
		{
			kind: lines, title: "Mean by method", what: "Mean time of a request, handler included.", unit: "s", width: 8, height: 8,
			queries: []query{{expr: f.mean(mOperation, with(ofMethod), "mcp_method_name"), legend: "{{mcp_method_name}}"}},
		},
		{
			kind: lines, title: "p95 by tool", what: "95 % of the calls of a tool take no longer. Tools that the server is not known to have are _OTHER.", unit: "s", width: 8, height: 8,
			queries: []query{{expr: f.quantile(0.95, mOperation, with(`mcp_method_name="tools/call"`), "gen_ai_tool_name"), legend: "{{gen_ai_tool_name}}", exemplars: true}},
		},
		{
			kind: lines, title: "Requests that this server sends", what: "Sampling, elicitation, roots and notifications, per second.", unit: "reqps", width: 8, height: 8,
			queries: []query{{expr: orNone(f.times(mClient, with(), "mcp_method_name"), "mcp_method_name"), legend: "{{mcp_method_name}}"}},
		},
	}
}
