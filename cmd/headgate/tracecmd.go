package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// traceCommand is the command headgate trace.
func traceCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("headgate trace", flag.ContinueOnError)
	fs.SetOutput(stderr)
	from := fs.String("from", "http://"+defaultMetrics, "`URL` of the demo's metrics port")
	fs.Usage = func() {
		fmt.Fprintln(stderr, "Usage: headgate trace [--from URL] ID")
		fs.PrintDefaults()
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case fs.NArg() != 1:
		fs.Usage()
		return exitUsage
	}
	spans, err := fetchTrace(ctx, *from, fs.Arg(0))
	if err != nil {
		fmt.Fprintln(stderr, "headgate trace:", err)
		return exitFailure
	}
	drawTrace(stdout, spans)
	return exitOK
}

func fetchTrace(ctx context.Context, from, id string) ([]keptSpan, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(from, "/")+tracesPath+url.PathEscape(id), nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("is the demo running there? --from says where else: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		return nil, errors.New(strings.TrimSpace(string(text)))
	}
	var spans []keptSpan
	return spans, json.NewDecoder(res.Body).Decode(&spans)
}

// drawTrace writes the spans as trees, with the times of each from the start of
// the trace on.
func drawTrace(out io.Writer, spans []keptSpan) {
	slices.SortStableFunc(spans, func(a, b keptSpan) int { return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End)) })
	known, below := map[string]bool{}, map[string][]keptSpan{}
	for _, s := range spans {
		known[s.ID] = true
	}
	var roots []keptSpan
	for _, s := range spans {
		if s.Parent == "" || !known[s.Parent] { // its parent is a client's, or still goes on
			roots = append(roots, s)
			continue
		}
		below[s.Parent] = append(below[s.Parent], s)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "START\tTOOK\t SPAN")
	d := drawing{out: w, below: below, zero: spans[0].Start}
	for _, root := range roots {
		d.draw(root, "", "")
	}
	_ = w.Flush() // the writer below it has its own errors
}

type drawing struct {
	out   io.Writer
	below map[string][]keptSpan
	zero  time.Time
}

// draw writes a span and what is below it.
func (d *drawing) draw(s keptSpan, first, rest string) {
	fmt.Fprintf(d.out, "%v\t%v\t %s%s%s\n", short(s.Start.Sub(d.zero)), short(s.End.Sub(s.Start)), first, s.Name, note(&s))
	children := d.below[s.ID]
	for i, child := range children {
		if i == len(children)-1 {
			d.draw(child, rest+"└─ ", rest+"   ")
		} else {
			d.draw(child, rest+"├─ ", rest+"│  ")
		}
	}
}

// short rounds a duration to what a person reads.
func short(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(100 * time.Nanosecond)
	}
	return d.Round(10 * time.Microsecond)
}

// note says what came of a span, if that is worth a word.
func note(s *keptSpan) string {
	var words []string
	if verdict := s.Attributes["headgate.interceptor.verdict"]; verdict != "" {
		words = append(words, verdict)
		if action := s.Attributes["headgate.interceptor.action"]; action != "proceed" && action != verdict {
			words = append(words, action)
		}
	}
	if s.Attributes["headgate.interceptor.mode"] == "audit" {
		words = append(words, "audit")
	}
	if outcome := s.Attributes["headgate.message.outcome"]; outcome != "" && outcome != "ok" {
		words = append(words, outcome)
	}
	if s.Error != "" {
		words = append(words, "error: "+s.Error)
	}
	if len(words) == 0 {
		return ""
	}
	return "  [" + strings.Join(words, ", ") + "]"
}
