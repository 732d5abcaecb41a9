package main

// control shows who is in which mode, until when, and who changed it.
func control(flavour) board {
	return board{
		uid: "headgate-control", title: "Headgate: control plane",
		what: "Modes over time, overrides and their ends, changes, and how the admin plane fares.",
		sections: []section{
			{"Policy", controlPolicy()},
			{"Changes", controlChanges()},
			{"The plane itself", controlHealth()},
		},
	}
}

func controlPolicy() []panel {
	return []panel{
		{
			kind: states, title: "Modes", what: "Which mode each interceptor was in. With several instances, the strongest of them.", unit: "short", width: 24, height: 8,
			queries: []query{{
				expr: "max by (interceptor) (2 * headgate_interceptor_mode" + with(ofInterceptor, `mode="active"`) +
					" or headgate_interceptor_mode" + with(ofInterceptor, `mode="audit"`) + ")", legend: "{{interceptor}}",
			}},
		},
		{
			kind: rows, title: "Overrides", what: "Overrides that hold, and how long they still do. _ALL is break-glass. One without an end shows no time left.", unit: "s", width: 16, height: 7, by: "interceptor", link: true,
			columns: []string{"Held for", "Ends in"}, units: []string{"s", "s"},
			queries: []query{
				{expr: "time() - min by (interceptor) (headgate_override_since_timestamp_seconds" + with() + ")"},
				{expr: "min by (interceptor) (headgate_override_expiry_timestamp_seconds" + with() + ") - time()"},
			},
		},
		{
			kind: number, title: "Break-glass", what: "1 while everything is weakened.", unit: "short", width: 4, height: 7, red: ptr(1.0),
			queries: []query{{expr: "max(headgate_break_glass" + with() + ")", legend: "break-glass"}},
		},
		{
			kind: number, title: "Overdue", what: "Overrides that hold although their time is over, since they were asked to.", unit: "short", width: 4, height: 7, red: ptr(1.0),
			queries: []query{{expr: "sum(headgate_override_overdue" + with() + ")", legend: "overdue"}},
		},
		{
			kind: rows, title: "Interceptors", what: "What is registered, and the policy that holds.", unit: "short", width: 24, height: 7, by: "interceptor", link: true,
			columns: []string{"Instances"}, units: []string{"short"},
			queries: []query{{expr: "count by (interceptor, type, mode, fail_open, version) (headgate_interceptor_info" + with(ofInterceptor) + ")"}},
		},
	}
}

func controlChanges() []panel {
	return []panel{
		{
			kind: stack, title: "Changes", what: "Attempts to change policy, by what became of them.", unit: "short", width: 12, height: 8,
			queries: []query{{expr: orNone(some("sum by (action, outcome) (increase(headgate_control_changes_total"+with()+window+"))"), "action"), legend: "{{action}} {{outcome}}"}},
		},
		{
			kind: lines, title: "Ends that are near", what: "Warnings 15 minutes and one minute before an override ends.", unit: "short", width: 6, height: 8,
			queries: []query{{expr: "sum(increase(headgate_control_expiry_warnings_total" + with() + window + "))", legend: "warnings"}},
		},
		{
			kind: lines, title: "Not let in", what: "Requests that nobody could be made out for.", unit: "ops", width: 6, height: 8,
			queries: []query{{expr: orNone(some(rate("headgate_admin_auth_failures_total", with(), "reason")), "reason"), legend: "{{reason}}"}},
		},
	}
}

func controlHealth() []panel {
	return []panel{
		{
			kind: stack, title: "Admin requests", what: "By route and code. Routes are templates: names of interceptors are not in them.", unit: "ops", width: 12, height: 8,
			queries: []query{{expr: rate("headgate_admin_requests_total", with(), "route, code"), legend: "{{route}} {{code}}"}},
		},
		{
			kind: lines, title: "Refused requests", what: "4xx and 5xx, by route and code.", unit: "ops", width: 12, height: 8,
			queries: []query{{expr: orNone(rate("headgate_admin_requests_total", with(`code=~"4..|5.."`), "route, code"), "route"), legend: "{{route}} {{code}}"}},
		},
		{
			kind: number, title: "State is kept", what: "1 if what is changed survives a restart.", unit: "short", width: 4, height: 5, least: ptr(1.0),
			queries: []query{{expr: "min by (store) (headgate_control_store_up" + with() + ")", legend: "{{store}}"}},
		},
		{
			kind: number, title: "History failures", what: "Records that could not be written, in the last hour.", unit: "short", width: 3, height: 5, red: ptr(1.0),
			queries: []query{{expr: "sum(increase(headgate_admin_history_write_failures_total" + with() + "[1h]))", legend: "failures"}},
		},
		{
			kind: number, title: "History altered", what: "What does not hold of the history: lines edited, cut off or gone, at start or since. headgate ctl history verify says what.", unit: "short", width: 3, height: 5, red: ptr(1.0),
			queries: []query{{expr: "sum(headgate_admin_history_faults" + with() + ")", legend: "faults"}},
		},
		{
			kind: number, title: "Revision", what: "The highest revision of the state.", unit: "none", width: 4, height: 5,
			queries: []query{{expr: "max(headgate_control_revision" + with() + ")", legend: "revision"}},
		},
		{
			kind: number, title: "Behind", what: "Instances whose chains run under an older revision than their state has.", unit: "short", width: 3, height: 5, red: ptr(1.0),
			queries: []query{{expr: "sum(headgate_control_revision" + with() + " > bool headgate_control_applied_revision" + with() + ")", legend: "behind"}},
		},
		{
			kind: number, title: "Last look", what: "How long ago the plane worked out what holds. More than some seconds means that it hangs.", unit: "s", width: 4, height: 5, red: ptr(60.0),
			queries: []query{{expr: "max(time() - headgate_control_last_sync_timestamp_seconds" + with() + ")", legend: "ago"}},
		},
		{
			kind: number, title: "Event streams", what: "Clients that follow events; 64 at most.", unit: "short", width: 3, height: 5, red: ptr(60.0),
			queries: []query{{expr: "sum(headgate_admin_event_streams" + with() + ")", legend: "streams"}},
		},
	}
}
