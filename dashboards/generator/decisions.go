package main

import "fmt"

// decisions shows what was blocked, what audit would have blocked, and what got
// through without being judged.
func decisions(f flavour) board {
	return board{
		uid: "headgate-decisions", title: "Headgate: decisions",
		what: "What interceptors decided: blocked, would have blocked, changed, failed.",
		sections: []section{
			{"Now", decisionNumbers()},
			{"Blocked, and would have been", decisionDenials(f)},
			{"Is this audit policy safe to activate?", decisionRollout(f)},
			{"Failures", decisionFailures(f)},
			{"Hosts, circuits, limits", decisionHosts()},
			{"The rest", decisionRest(f)},
		},
	}
}

const (
	mAborts    = "headgate_interceptor_aborts_total"
	mDenials   = "headgate_interceptor_audit_denials_total"
	mAuditFail = "headgate_interceptor_audit_failures_total"
	mFailOpen  = "headgate_interceptor_fail_open_total"
	mDropped   = "headgate_interceptor_audit_dropped_total"
)

func decisionNumbers() []panel {
	some := ptr(0.000001)
	of := func(title, what, metric string, red *float64) panel {
		return panel{
			kind: number, title: title, what: what, unit: "ops", width: 6, height: 4, red: red,
			queries: []query{{expr: rate(metric, with(ofAny(metric)), ""), legend: "per second"}},
		}
	}
	return []panel{
		of("Stopped", "Messages that were stopped, per second, for any reason.", mAborts, nil),
		of("Would have been stopped", "Denials in audit, per second.", mDenials, nil),
		of("Failed open", "Failures that let a message pass unjudged. Anything but 0 is a guard that is open.", mFailOpen, some),
		of("Audit dropped", "Audit runs that found no room. Anything but 0 means that audit sees less than there is.", mDropped, some),
	}
}

// ofAny selects by interceptor; a phase that ran out of time has none of its own.
func ofAny(metric string) string {
	if metric == mAborts {
		return `interceptor=~"$interceptor|_CHAIN"`
	}
	return ofInterceptor
}

func decisionDenials(f flavour) []panel {
	return []panel{
		{
			kind: stack, title: "Stopped, by interceptor and reason", what: "validation is a denial; all other reasons are failures of an interceptor that fails closed. _CHAIN is a phase that ran out of time.",
			unit: "ops", width: 12, height: 8, link: true,
			queries: []query{{expr: orNone(some(rate(mAborts, with(ofAny(mAborts)), "interceptor, reason")), "interceptor"), legend: "{{interceptor}} {{reason}}"}},
		},
		{
			kind: stack, title: "Would have been stopped, by interceptor", what: "Denials in audit. A message that two would have stopped counts twice here, and once when they are active.",
			unit: "ops", width: 12, height: 8, link: true,
			queries: []query{{expr: orNone(some(rate(mDenials, with(ofInterceptor), "interceptor")), "interceptor"), legend: "{{interceptor}}"}},
		},
		{
			kind: lines, title: "Share that is denied", what: "Denials of all that an interceptor judged, by mode: the two sides of a flip.", unit: "percentunit", width: 12, height: 8, link: true,
			queries: []query{{expr: fmt.Sprintf("%s / %s", f.times(mInvoke, with(ofInterceptor, `verdict="deny"`), "interceptor, mode"),
				some(f.times(mInvoke, with(ofInterceptor), "interceptor, mode"))), legend: "{{interceptor}} {{mode}}"}},
		},
		{
			kind: lines, title: "Changes", what: "Messages that mutators changed or, in audit, would have.", unit: "ops", width: 12, height: 8,
			queries: []query{{expr: f.times(mInvoke, with(ofInterceptor, `verdict="modify"`), "interceptor, mode"), legend: "{{interceptor}} {{mode}}"}},
		},
	}
}

// decisionRollout answers one question in one row: the first three should be as
// low as is wanted, the last as high as traffic allows.
func decisionRollout(f flavour) []panel {
	audit := with(ofInterceptor, `mode="audit"`)
	runs := f.times(mInvoke, audit, "interceptor")
	// Those that were in audit once have all these series, too.
	now := func(expr string) query {
		return query{expr: expr + " and on (interceptor) headgate_interceptor_info" + audit}
	}
	return []panel{
		{
			kind: rows, title: "Policies in audit", what: "Safe to activate: it has seen traffic, would deny what it should, does not fail, is not dropped, and takes no longer than requests can spare.",
			unit: "short", width: 24, height: 7, by: "interceptor", link: true,
			columns: []string{"Runs per second", "Would deny", "Fails", "Dropped per second", "p95"},
			units:   []string{"ops", "percentunit", "percentunit", "ops", "s"},
			queries: []query{
				now(runs),
				now(f.times(mInvoke, with(ofInterceptor, `mode="audit",verdict="deny"`), "interceptor") + " / " + some(runs)),
				now(rate(mAuditFail, with(ofInterceptor), "interceptor") + " / " + some(runs)),
				now(rate(mDropped, with(ofInterceptor), "interceptor")),
				now(f.quantile(0.95, mInvoke, audit, "interceptor")),
			},
		},
	}
}

func decisionFailures(f flavour) []panel {
	failures := func(title, what, metric string) panel {
		return panel{
			kind: lines, title: title, what: what, unit: "ops", width: 8, height: 8, link: true,
			queries: []query{{expr: orNone(some(rate(metric, with(ofAny(metric)), "interceptor, reason")), "interceptor"), legend: "{{interceptor}} {{reason}}"}},
		}
	}
	return []panel{
		failures("Failed open", "Active interceptors that failed and, by their policy, let the message pass.", mFailOpen),
		failures("Failed in audit", "They stopped nothing, and would when active unless they fail open.", mAuditFail),
		{
			kind: lines, title: "Timeouts", what: "Calls that took longer than they may.", unit: "ops", width: 8, height: 8,
			queries: []query{{expr: orNone(f.times(mInvoke, with(ofInterceptor, `verdict="timeout"`), "interceptor"), "interceptor"), legend: "{{interceptor}}"}},
		},
		{
			kind: lines, title: "Panics", what: "Handlers that panicked, in any mode. They are contained; they are still bugs.", unit: "ops", width: 12, height: 8,
			queries: []query{
				{expr: rate(mAborts, with(`reason="panic"`), ""), legend: "stopped a message"},
				{expr: rate(mFailOpen, with(`reason="panic"`), ""), legend: "failed open"},
				{expr: rate(mAuditFail, with(`reason="panic"`), ""), legend: "in audit"},
			},
		},
		{
			kind: lines, title: "Dropped and abandoned", what: "Audit runs that found no room, and calls that ignored their deadline and still run.", unit: "short", width: 12, height: 8,
			queries: []query{
				{expr: orNone(some(rate(mDropped, with(ofInterceptor), "interceptor")), "interceptor"), legend: "{{interceptor}} dropped per second"},
				{expr: orNone(some("sum by (interceptor) (headgate_interceptor_abandoned"+with(ofInterceptor)+")"), "interceptor"), legend: "{{interceptor}} abandoned"},
			},
		},
	}
}

// decisionHosts shows why interceptors fail that are not themselves at fault.
func decisionHosts() []panel {
	return []panel{
		{
			kind: lines, title: "Hosts that are away", what: "1 while a host elsewhere cannot be reached: its interceptors fail at once.", unit: "short", width: 6, height: 8,
			queries: []query{{expr: orNone(some("max by (host) (1 - headgate_host_up"+with()+")"), "host"), legend: "{{host}}"}},
		},
		{
			kind: lines, title: "Hosts lost", what: "How often hosts went away that had been there.", unit: "short", width: 6, height: 8,
			queries: []query{{expr: orNone(some("sum by (host) (increase(headgate_host_losses_total"+with()+window+"))"), "host"), legend: "{{host}}"}},
		},
		{
			kind: lines, title: "Circuits", what: "2 while a circuit is open and calls fail at once, 1 while one call is let through to see; and how often it opened.", unit: "short", width: 6, height: 8, link: true,
			queries: []query{
				{expr: orNone(some("max by (interceptor) (headgate_interceptor_circuit_state"+with(ofInterceptor)+")"), "interceptor"), legend: "{{interceptor}}"},
				{expr: orNone(some("sum by (interceptor) (increase(headgate_interceptor_circuit_opened_total"+with(ofInterceptor)+window+"))"), "interceptor"), legend: "{{interceptor}} opened"},
			},
		},
		{
			kind: stack, title: "Refused by limits", what: "Calls that were not begun since a limit was reached. Each is a failure, and failOpen decides.", unit: "ops", width: 6, height: 8, link: true,
			queries: []query{{expr: orNone(some(rate("headgate_interceptor_refused_total", with(ofInterceptor), "interceptor, limit")), "interceptor"), legend: "{{interceptor}} {{limit}}"}},
		},
	}
}

func decisionRest(f flavour) []panel {
	return []panel{
		{
			kind: stack, title: "Errors, by type", what: "error.type as OpenTelemetry has it. A denial is no error and not here.", unit: "ops", width: 12, height: 8,
			queries: []query{{expr: orNone(f.times(mOperation, with(`error_type!=""`), "error_type"), "error_type"), legend: "{{error_type}}"}},
		},
		{
			kind: lines, title: "Not seen", what: "Messages whose protocol version an interceptor's compat excludes.", unit: "ops", width: 6, height: 8,
			queries: []query{{expr: orNone(some(rate("headgate_interceptor_skipped_total", with(ofInterceptor), "interceptor")), "interceptor"), legend: "{{interceptor}}"}},
		},
		{
			kind: lines, title: "Label overflow", what: "Values that no label was given: unknown names, or more than there is room for.", unit: "ops", width: 6, height: 8,
			queries: []query{{expr: orNone(some(rate("headgate_telemetry_label_overflow_total", with(), "label")), "label"), legend: "{{label}}"}},
		},
	}
}
