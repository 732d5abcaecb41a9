package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable writes lines as a table for people, grouped by case.
func WriteTable(out io.Writer, lines []Line) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	last := ""
	for _, l := range lines {
		if l.Case != last {
			fmt.Fprintf(w, "\n%s\t\t\t\n", l.Case)
			last = l.Case
		}
		aim, verdict := "", ""
		if !l.Quoted {
			aim, verdict = "≤ "+l.Unit.Format(l.Most), "met"
			if !l.Met() {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", l.What, l.Unit.Format(l.Value), aim, verdict)
	}
	return w.Flush()
}
