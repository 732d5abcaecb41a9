package mcpext

import (
	"strings"

	"github.com/headgate-mcp/headgate/core"
)

// nearest returns the method of MCP that an event was probably meant to be;
// empty if it is one, or is like none. Event names are an open set, so a
// typing error is no error, but it is a guard that never fires.
func nearest(event string) string {
	if !core.Literal(event) {
		return ""
	}
	best, least := "", 3 // two slips of the hand at most
	for _, method := range core.StandardMethods() {
		if method == event {
			return ""
		}
		if d := distance(strings.ToLower(event), strings.ToLower(method), least); d < least {
			best, least = method, d
		}
	}
	return best
}

// distance counts the letters to put in, take out or change to turn a into b.
// It gives up at most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
