package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"go.opentelemetry.io/otel/trace"
)

// A report is an observer that prints what is blocked and changed, and counts.
// It prints names that the demo knows and nothing of what a client sent.
type report struct {
	chain.NopObserver

	// Fixed at creation.
	out   io.Writer
	lines chan string
	quit  chan struct{}
	done  chan struct{}

	begun bool // written before quit is closed, read after it

	requests, blocked, failed, changed, suspected, unprinted atomic.Int64
}

const (
	reportBacklog = 256
	// reportPatience bounds the wait for a terminal that takes no more.
	reportPatience = 500 * time.Millisecond
)

func newReport(out io.Writer) *report {
	r := &report{
		out: out, lines: make(chan string, reportBacklog),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	go r.print()
	return r
}

// print writes lines off the messages' path, where nobody may wait for a
// terminal.
func (r *report) print() {
	defer close(r.done)
	for {
		select {
		case line := <-r.lines:
			fmt.Fprintln(r.out, line)
		case <-r.quit:
			for len(r.lines) > 0 {
				fmt.Fprintln(r.out, <-r.lines)
			}
			if r.begun {
				fmt.Fprint(r.out, r.summary())
			}
			return
		}
	}
}

// close prints what is left and the summary.
func (r *report) close() {
	close(r.quit)
	select {
	case <-r.done:
	case <-time.After(reportPatience):
	}
}

func (r *report) say(format string, args ...any) {
	select {
	case r.lines <- fmt.Sprintf(format, args...):
	default:
		r.unprinted.Add(1)
	}
}

// addresses say where the demo serves what; empty for nowhere.
type addresses struct{ mcp, metrics, admin, token string }

func (a *addresses) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "MCP server at %s\n", a.mcp)
	if a.metrics != "" {
		fmt.Fprintf(&b, "Metrics at %s/metrics\n", a.metrics)
		fmt.Fprintf(&b, "Traces by headgate trace --from %s ID\n", a.metrics)
	}
	if a.admin != "" {
		fmt.Fprintf(&b, "Admin at %s\n", a.admin)
	}
	if a.token != "" {
		fmt.Fprintf(&b, "Admin token %s (made for this run)\n", a.token)
	}
	return b.String()
}

// begin prints what runs where.
func (r *report) begin(at *addresses, entries []chain.Entry) {
	r.begun = true
	var b strings.Builder
	fmt.Fprintln(&b, at)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INTERCEPTOR\tTYPE\tMODE\tHOST\tHOOKS")
	for _, e := range entries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Name, e.Type, e.Effective.Mode, e.Host, hooks(e.Effective.Hooks))
	}
	_ = w.Flush() // a Builder takes everything
	r.say("%s", b.String())
}

// hooks writes hooks as one line.
func hooks(hooks []core.Hook) string {
	var parts []string
	for _, h := range hooks {
		parts = append(parts, fmt.Sprintf("%s of %s", h.Phase, strings.Join(h.Events, ", ")))
	}
	return strings.Join(parts, "; ")
}

func (r *report) summary() string {
	requests, blocked, failed := r.requests.Load(), r.blocked.Load(), r.failed.Load()
	var b strings.Builder
	fmt.Fprintf(&b, "\nrequests            %d\n", requests)
	fmt.Fprintf(&b, "allowed             %d\n", requests-blocked-failed)
	fmt.Fprintf(&b, "blocked             %d\n", blocked)
	if failed > 0 {
		fmt.Fprintf(&b, "stopped by failures %d\n", failed)
	}
	fmt.Fprintf(&b, "changed             %d\n", r.changed.Load())
	fmt.Fprintf(&b, "would have blocked  %d (audit)\n", r.suspected.Load())
	if n := r.unprinted.Load(); n > 0 {
		fmt.Fprintf(&b, "lines not printed   %d\n", n)
	}
	return b.String()
}

// A record is what the report keeps of one message, on its context.
type record struct {
	message   *chain.Message
	blockedBy string
	changedBy []string
	suspected atomic.Bool // set by audit runs, which may outlast the message
}

type recordKey struct{}

func recordOf(ctx context.Context) *record {
	rec, _ := ctx.Value(recordKey{}).(*record)
	return rec
}

// MessageStart begins a record.
func (r *report) MessageStart(ctx context.Context, m *chain.Message) context.Context {
	return context.WithValue(ctx, recordKey{}, &record{message: m})
}

// ExecuteEnd notes who stopped or changed the message.
func (r *report) ExecuteEnd(ctx context.Context, res *chain.Result, err error) {
	rec := recordOf(ctx)
	if rec == nil {
		return
	}
	if abort := (*chain.AbortError)(nil); errors.As(err, &abort) {
		rec.blockedBy = blamed(abort)
		return
	}
	if !res.Mutated {
		return
	}
	for i := range res.Results {
		if out := &res.Results[i]; out.Action == chain.ActionModify {
			rec.changedBy = append(rec.changedBy, out.Entry.Name)
		}
	}
}

func blamed(abort *chain.AbortError) string {
	var names []string
	for _, d := range abort.Denials {
		names = append(names, d.Interceptor)
	}
	if len(names) == 0 {
		names = append(names, abort.Interceptor)
	}
	return strings.Join(slices.DeleteFunc(names, func(s string) bool { return s == "" }), ", ")
}

// InvokeEnd counts what an audit validator would have blocked, once a message.
func (r *report) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	if out.Mode != core.ModeAudit || out.Verdict != chain.VerdictDeny {
		return
	}
	rec := recordOf(ctx)
	if rec == nil || rec.suspected.Swap(true) {
		return
	}
	r.suspected.Add(1)
	r.tell(ctx, rec.message, "suspect", i.Entry.Name+", "+string(out.Phase)+" (audit: not blocked)")
}

// MessageEnd counts the message and says what became of it.
func (r *report) MessageEnd(ctx context.Context, end *chain.MessageEnd) {
	rec := recordOf(ctx)
	if rec == nil || end.Message.Notification {
		return
	}
	r.requests.Add(1)
	switch {
	case end.Outcome == chain.MessageDenied:
		r.blocked.Add(1)
		r.tell(ctx, end.Message, "blocked", rec.blockedBy+", "+string(end.Phase))
	case end.Outcome == chain.MessageFailed || end.Outcome == chain.MessageTimeout:
		r.failed.Add(1)
		r.tell(ctx, end.Message, "failed", rec.blockedBy+", "+string(end.Phase))
	case len(rec.changedBy) > 0:
		r.changed.Add(1)
		r.tell(ctx, end.Message, "changed", strings.Join(rec.changedBy, ", "))
	}
}

// tell prints a line. A target is printed only if the demo serves it: any other
// is a client's own words, and a resource's URI may be personal.
func (r *report) tell(ctx context.Context, m *chain.Message, what, who string) {
	method := m.Method
	if served(m.Target) {
		method += " " + m.Target
	}
	if id := trace.SpanContextFromContext(ctx).TraceID(); id.IsValid() && what != "changed" {
		who += "  trace " + id.String()
	}
	r.say("%s  %-7s  %-26s  by %s", m.Start.Format(time.TimeOnly), what, method, who)
}
