package telemetry

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write doc/OPERATIONS.md anew")

const operationsDoc = "../doc/OPERATIONS.md"

// The reference in doc/OPERATIONS.md says what the code says.
func TestReference(t *testing.T) {
	before, err := os.ReadFile(operationsDoc)
	require.NoError(t, err)
	after := string(before)
	for name, text := range map[string]string{
		"metrics": metricsTable(), "buckets": bucketsTable(), "attributes": attributesTable(t), "budget": budgetTable(),
	} {
		after = replaced(t, after, name, text)
	}
	if *update {
		require.NoError(t, os.WriteFile(operationsDoc, []byte(after), 0o644))
		return
	}
	require.Equal(t, string(before), after, "run make golden")
}

// replaced puts text between the marks of a section.
func replaced(t *testing.T, doc, name, text string) string {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	head, rest, ok := strings.Cut(doc, begin)
	require.True(t, ok, "no section %s", name)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, "section %s has no end", name)
	return head + begin + "\n" + text + "\n" + end + tail
}

func markdown(head string, rows ...string) string {
	columns := strings.Count(head, "|") - 1
	return head + "\n|" + strings.Repeat("---|", columns) + "\n" + strings.Join(rows, "\n") + "\n"
}

func metricsTable() string {
	var rows []string
	for _, d := range newCatalog().all() {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", d.name, d.kind, "`"+strings.Join(d.labels, "`, `")+"`", d.help))
	}
	return markdown("| metric | kind | labels | what |", rows...)
}

func bucketsTable() string {
	var rows []string
	for _, d := range newCatalog().all() {
		if d.buckets == nil {
			continue
		}
		var bounds []string
		for _, b := range d.buckets {
			bounds = append(bounds, strconv.FormatFloat(b, 'g', -1, 64))
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", d.name, strings.Join(bounds, " ")))
	}
	return markdown("| histogram | upper bounds of its classic buckets |", rows...)
}

// attributesTable reads the comments of the constants.
func attributesTable(t *testing.T) string {
	file, err := parser.ParseFile(token.NewFileSet(), "semconv/semconv.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var rows []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		call, ok := spec.Values[0].(*ast.CallExpr)
		if !ok {
			return true
		}
		key, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		require.NotEmpty(t, spec.Comment.Text(), key)
		on, what, _ := strings.Cut(strings.TrimSpace(spec.Comment.Text()), ": ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", key, on, what))
		return true
	})
	return markdown("| attribute | on | what |", rows...)
}

func budgetTable() string {
	var rows []string
	for _, line := range budget(defaultMaxTools, defaultMaxInterceptors) {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %d |", line.metric, line.formula, line.series))
	}
	rows = append(rows, fmt.Sprintf("| **all** | | **%d** |", worstCase(defaultMaxTools, defaultMaxInterceptors)))
	return markdown("| metric | worst case | series |", rows...)
}
