package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/headgate-mcp/headgate/admin/history"
)

// What ctl reads of the plane's answers.
type (
	interceptorView struct {
		Name, Type, Host, ETag, Version string
		Chains                          []string
		Revision                        uint64
		Pinned                          bool
		Health                          struct{ OK bool }
		Effective                       struct {
			Mode, Source string
			FailOpen     bool
			TimeoutMs    int64
			Sources      map[string]string
			ExpiresAt    *time.Time
			Overdue      bool
		}
		Layers struct {
			Declared, Configured *layerView
			Override, BreakGlass *layerView
		}
		Stats *statsView
	}
	layerView struct {
		Mode, Action, Reason, Actor, Ticket string
		FailOpen                            *bool
		TimeoutMs                           int64
		ExpiresAt                           *time.Time
		Since                               *time.Time
	}
	statsView struct {
		SinceFlip, Recent struct{ Active, Audit modeStats }
		FlippedAt         *time.Time
		LastRanAt         *time.Time
		Draining          int64
		HostFault         string
		Circuit           *circuitView
	}
	modeStats struct {
		Evaluations, Denials, Modifications, Failures, FailOpen, Dropped uint64
	}
	changeView struct {
		interceptorView
		Change struct {
			ID, Before, After string
			Revision          uint64
		}
		Persisted    struct{ Local, Audit bool }
		Draining     int64
		DryRun, Noop bool
	}
	glassView struct {
		Active           bool
		BreakGlass       *layerView
		Weakened, Spared []string
		Persisted        *struct{ Local, Audit bool }
		DryRun, Noop     bool
	}
	statusView struct {
		Ready    bool
		Degraded map[string]string
		Store    struct {
			Kind    string
			Durable bool
		}
		History struct {
			Failures, Missing, Faults uint64
			Head                      history.Head
		}
		UptimeSeconds float64
	}
	decisionView struct {
		ID, TraceID, Chain, Method, Target, Outcome, Phase string
		Time                                               time.Time
		DurationMs                                         float64
		Steps                                              []struct {
			Interceptor, Type, Phase, Event, Mode, Verdict, Action, Reason string
			DurationMs                                                     float64
		}
		SameTrace []string
	}
)

// clock is how times are written for people: with their zone.
const clock = "2006-01-02 15:04:05 MST"

// actor writes who it was, and on whose behalf that one said to act.
func actor(a *history.Actor) string {
	if a.Claim == "" {
		return a.Name
	}
	return fmt.Sprintf("%s (says: for %q)", a.Name, a.Claim)
}

// printable makes a text that came from elsewhere fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// columns writes rows as a table.
func columns(w io.Writer, head string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // the writer below has its own errors
}

func drawList(w io.Writer, list []interceptorView) {
	var rows [][]string
	for i := range list {
		it := &list[i]
		ends, evaluations, blocked, would := "", "", "", ""
		if at := it.Effective.ExpiresAt; at != nil {
			ends = "in " + since(time.Until(*at))
		}
		if it.Effective.Overdue {
			ends = "overdue"
		}
		if st := it.Stats; st != nil {
			evaluations = fmt.Sprint(st.Recent.Active.Evaluations + st.Recent.Audit.Evaluations)
			blocked, would = fmt.Sprint(st.Recent.Active.Denials), fmt.Sprint(st.Recent.Audit.Denials)
		}
		rows = append(rows, []string{it.Name, it.Type, it.Effective.Mode, it.Effective.Source, ends, evaluations, blocked, would, state(it, it.Stats)})
	}
	columns(w, "INTERCEPTOR\tTYPE\tMODE\tBY\tENDS\tRAN/MIN\tBLOCKED/MIN\tWOULD BLOCK/MIN\tSTATE", rows)
}

func state(it *interceptorView, st *statsView) string {
	var words []string
	if it.Pinned {
		words = append(words, "pinned")
	}
	if !it.Health.OK {
		words = append(words, "failing")
	}
	if st != nil && st.HostFault != "" {
		words = append(words, "host away: "+st.HostFault)
	}
	if st != nil && st.Circuit != nil && st.Circuit.State != "closed" {
		words = append(words, "circuit "+st.Circuit.State)
	}
	if it.Effective.FailOpen {
		words = append(words, "fails open")
	}
	return strings.Join(words, ", ")
}

func drawInterceptor(w io.Writer, it *interceptorView, st *statsView) {
	fmt.Fprintf(w, "%s  %s  on %s, revision %d\n", printable(it.Name), it.Type, printable(strings.Join(it.Chains, ", ")), it.Revision)
	fmt.Fprintf(w, "mode %s, by %s", it.Effective.Mode, it.Effective.Source)
	if at := it.Effective.ExpiresAt; at != nil {
		fmt.Fprintf(w, ", ends in %s", since(time.Until(*at)))
	}
	if s := state(it, st); s != "" {
		fmt.Fprintf(w, "; %s", s)
	}
	fmt.Fprint(w, "\n\n")
	var rows [][]string
	for _, l := range []struct {
		name  string
		layer *layerView
	}{{"break-glass", it.Layers.BreakGlass}, {"override", it.Layers.Override}, {"configured", it.Layers.Configured}, {"declared", it.Layers.Declared}} {
		if l.layer == nil {
			continue
		}
		mode := l.layer.Mode
		if l.layer.Action != "" {
			mode = l.layer.Action
		}
		rows = append(rows, []string{l.name, mode, l.layer.Actor, l.layer.Ticket, l.layer.Reason})
	}
	columns(w, "LAYER\tMODE\tACTOR\tTICKET\tREASON", rows)
	fmt.Fprintln(w)
	if st.FlippedAt != nil {
		fmt.Fprintf(w, "since its policy changed, %s ago:\n", since(time.Since(*st.FlippedAt)))
	}
	row := func(mode string, m modeStats) []string {
		return []string{
			mode, fmt.Sprint(m.Evaluations), fmt.Sprint(m.Denials), fmt.Sprint(m.Modifications), fmt.Sprint(m.Failures),
			fmt.Sprint(m.FailOpen), fmt.Sprint(m.Dropped),
		}
	}
	columns(w, "MODE\tRAN\tDENIED\tCHANGED\tFAILED\tFAILED OPEN\tDROPPED",
		[][]string{row("active", st.SinceFlip.Active), row("audit", st.SinceFlip.Audit)})
	if st.Draining > 0 {
		fmt.Fprintf(w, "%d messages are still under way under the policy before\n", st.Draining)
	}
}

func drawChange(w io.Writer, ch *changeView) {
	switch {
	case ch.DryRun:
		fmt.Fprintf(w, "would be: %s %s -> %s\n", printable(ch.Name), ch.Change.Before, ch.Change.After)
		return
	case ch.Noop:
		fmt.Fprintf(w, "%s is as it was: %s\n", printable(ch.Name), ch.Effective.Mode)
		return
	}
	fmt.Fprintf(w, "%s %s -> %s, revision %d", printable(ch.Name), ch.Change.Before, ch.Change.After, ch.Change.Revision)
	if at := ch.Effective.ExpiresAt; at != nil {
		fmt.Fprintf(w, ", ends %s (in %s)", at.Local().Format(clock), since(time.Until(*at)))
	}
	fmt.Fprintln(w)
	if glass := ch.Layers.BreakGlass; glass != nil && ch.Effective.Source == "break-glass" {
		fmt.Fprintf(w, "note: break-glass (%s) is on and holds it at %s; this counts when that has ended\n", glass.Action, ch.Effective.Mode)
	}
	if ch.Draining > 0 {
		fmt.Fprintf(w, "%d messages are still under way under the policy before\n", ch.Draining)
	}
	drawPersisted(w, ch.Persisted.Local, ch.Persisted.Audit)
}

func drawPersisted(w io.Writer, local, audit bool) {
	if !local {
		fmt.Fprintln(w, "note: this does not survive a restart")
	} else if !audit {
		fmt.Fprintln(w, "note: the history could not be written")
	}
}

func drawGlass(w io.Writer, g *glassView) {
	if g.DryRun {
		fmt.Fprint(w, "would be: ")
	}
	if !g.Active {
		fmt.Fprintln(w, "break-glass is off: each interceptor runs under its own policy again")
		return
	}
	fmt.Fprintf(w, "break-glass is on: %s, by %s", g.BreakGlass.Action, printable(g.BreakGlass.Actor))
	if at := g.BreakGlass.ExpiresAt; at != nil {
		fmt.Fprintf(w, ", ends in %s", since(time.Until(*at)))
	}
	if len(g.Weakened) > 0 {
		fmt.Fprint(w, "\nnote: what mutators among the weakened redact or add, they do not any more")
	}
	fmt.Fprintf(w, "\nweakened: %s\nas before: %s\n", printable(strings.Join(g.Weakened, ", ")), printable(strings.Join(g.Spared, ", ")))
	if g.Persisted != nil && !g.DryRun {
		drawPersisted(w, g.Persisted.Local, g.Persisted.Audit)
	}
}

func drawDecision(w io.Writer, d *decisionView) {
	fmt.Fprintf(w, "%s  %s %s  %s", d.Time.Local().Format(clock), printable(d.Method), printable(d.Target), d.Outcome)
	if d.Phase != "" {
		fmt.Fprintf(w, " in the %s", d.Phase)
	}
	fmt.Fprintf(w, "  %.2f ms\nmessage %s  trace %s\n\n", d.DurationMs, printable(d.ID), printable(d.TraceID))
	var rows [][]string
	for _, s := range d.Steps {
		rows = append(rows, []string{s.Phase, s.Interceptor, s.Type, s.Mode, s.Verdict, s.Action, s.Reason, fmt.Sprintf("%.3f", s.DurationMs)})
	}
	columns(w, "PHASE\tINTERCEPTOR\tTYPE\tMODE\tVERDICT\tACTION\tREASON\tMS", rows)
	if len(d.SameTrace) > 0 {
		fmt.Fprintf(w, "\nof the same trace: %s\n", printable(strings.Join(d.SameTrace, ", ")))
	}
}

func drawStatus(w io.Writer, st *statusView) {
	fmt.Fprintf(w, "ready %t, up %s\nstore %s, survives a restart: %t\n", st.Ready, since(time.Duration(st.UptimeSeconds*float64(time.Second))),
		printable(st.Store.Kind), st.Store.Durable)
	fmt.Fprintf(w, "history up to %d, %d writes failed, %d records missing, %d faults\n",
		st.History.Head.Seq, st.History.Failures, st.History.Missing, st.History.Faults)
	for _, what := range slices.Sorted(maps.Keys(st.Degraded)) {
		fmt.Fprintf(w, "degraded: %s: %s\n", printable(what), printable(st.Degraded[what]))
	}
}

func drawHistory(w io.Writer, list []history.Record) {
	var rows [][]string
	for i := range list {
		r := &list[i]
		what := r.After
		if r.Before != "" {
			what = r.Before + " -> " + r.After
		}
		if r.Problem != "" {
			what = r.Problem
		}
		rows = append(rows, []string{
			fmt.Sprint(r.Seq), r.Time.Local().Format(clock), actor(&r.Actor), r.Action, r.Target, string(r.Outcome), what, r.Reason,
		})
	}
	columns(w, "SEQ\tTIME\tACTOR\tACTION\tTARGET\tOUTCOME\tWHAT\tREASON", rows)
}

func drawReport(w io.Writer, r *history.Report) {
	fmt.Fprintf(w, "%d records, %d to %d\n", r.Records, r.First, r.Head.Seq)
	if r.Missing > 0 {
		fmt.Fprintf(w, "%d could not be written when they were made\n", r.Missing)
	}
	if r.Recovered > 0 {
		fmt.Fprintf(w, "%d times state and history did not end alike at a start, as after a crash\n", r.Recovered)
	}
	if r.Torn {
		fmt.Fprintln(w, "the last line has no end, as after a crash")
	}
	for _, f := range r.Faults {
		fmt.Fprintln(w, "fault:", printable(f))
	}
	if len(r.Faults) == 0 {
		fmt.Fprintln(w, "the chain holds")
	}
}
