package main

import (
	"fmt"
	"strings"
)

// A flavour says how histograms are asked. All that differs between the two
// kinds of them is here.
type flavour struct {
	name   string
	native bool
}

func flavours() []flavour { return []flavour{{name: "classic"}, {name: "native", native: true}} }

// base selects what the variables of each dashboard say.
const base = `job=~"$job",instance=~"$instance"`

// window is how far back a rate looks.
const window = "[$__rate_interval]"

// with adds matchers to the base.
func with(matchers ...string) string {
	return "{" + strings.Join(append([]string{base}, matchers...), ",") + "}"
}

// by writes the grouping of a sum; empty for none.
func by(labels string) string {
	if labels == "" {
		return "sum"
	}
	return "sum by (" + labels + ")"
}

// quantile asks for a percentile of a histogram, by labels.
func (f flavour) quantile(q float64, metric, selector, labels string) string {
	if f.native {
		return fmt.Sprintf("histogram_quantile(%v, %s (rate(%s%s%s)))", q, by(labels), metric, selector, window)
	}
	le := "le"
	if labels != "" {
		le += ", " + labels
	}
	return fmt.Sprintf("histogram_quantile(%v, %s (rate(%s_bucket%s%s)))", q, by(le), metric, selector, window)
}

// seconds asks for what a histogram sums up, per second, by labels.
func (f flavour) seconds(metric, selector, labels string) string {
	if f.native {
		return fmt.Sprintf("%s (histogram_sum(rate(%s%s%s)))", by(labels), metric, selector, window)
	}
	return fmt.Sprintf("%s (rate(%s_sum%s%s))", by(labels), metric, selector, window)
}

// times asks for how often a histogram was observed, per second, by labels.
func (f flavour) times(metric, selector, labels string) string {
	if f.native {
		return fmt.Sprintf("%s (histogram_count(rate(%s%s%s)))", by(labels), metric, selector, window)
	}
	return fmt.Sprintf("%s (rate(%s_count%s%s))", by(labels), metric, selector, window)
}

// mean asks for the mean of a histogram, by labels. What was not observed has none.
func (f flavour) mean(metric, selector, labels string) string {
	return f.seconds(metric, selector, labels) + " / " + some(f.times(metric, selector, labels))
}

// buckets asks for a histogram itself, for a heatmap.
func (f flavour) buckets(metric, selector string) string {
	if f.native {
		return fmt.Sprintf("sum (increase(%s%s%s))", metric, selector, window)
	}
	return fmt.Sprintf("sum by (le) (increase(%s_bucket%s%s))", metric, selector, window)
}

// rate asks for a counter, per second, by labels.
func rate(metric, selector, labels string) string {
	return fmt.Sprintf("%s (rate(%s%s%s))", by(labels), metric, selector, window)
}

// some leaves out what is 0: counters are there from the start, for all that can
// happen, and a picture of that has more names than lines.
func some(expr string) string { return "(" + expr + " > 0)" }

// orNone names a series none, and has it at 0, where there is no other: a panel
// of what should not happen is then seen to work, and has no nameless series.
func orNone(expr, label string) string {
	return fmt.Sprintf(`%s or on () label_replace(vector(0), "%s", "none", "", "")`, expr, label)
}

// share divides, and is 0 where there is nothing to divide by.
func share(part, whole string) string {
	return fmt.Sprintf("(%s) / ((%s) > 0) or vector(0)", part, whole)
}
