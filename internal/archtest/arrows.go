package archtest

import (
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the root module.
const Module = "github.com/headgate-mcp/headgate"

const (
	goSDK     = "github.com/modelcontextprotocol/go-sdk"
	schema    = "github.com/google/jsonschema-go"
	otel      = "go.opentelemetry.io/otel"
	bridges   = "go.opentelemetry.io/contrib/bridges/prometheus"
	rateLimit = "golang.org/x/time/rate"
	gobreaker = "github.com/sony/gobreaker/v2"
	prom      = "github.com/prometheus/client_golang"
	chi       = "github.com/go-chi/chi/v5"
	grafana   = "github.com/grafana/grafana-foundation-sdk/go"

	core  = Module + "/core"
	chain = Module + "/chain"
)

// An Allowance says what a top-level folder may import besides the standard
// library and itself. A path stands for all that lies below it too.
type Allowance struct {
	May []string
	Not []string // taken out of May again
	// AnyTest lets test files import anything. Where it is false they get the
	// internal test peers and the libraries of [testLibraries] and no more, so
	// that core and chain stay testable without a protocol.
	AnyTest bool
}

// Table has a row for each folder of library code: the arrows of the
// architecture. Folders that do not exist (yet) may have a row.
func Table() map[string]Allowance {
	return map[string]Allowance{
		"core":  {},
		"chain": {May: []string{core}, Not: []string{chain + "/breaker"}},
		// For those who want circuits.
		"chain/breaker": {May: []string{core, chain, gobreaker}},
		"mcpext":        {May: []string{core, chain, goSDK, schema}, AnyTest: true},
		"middleware":    {May: []string{core, chain, goSDK}, AnyTest: true},
		"telemetry": {
			May:     []string{core, chain, otel, prom},
			Not:     []string{otel + "/sdk", otel + "/exporters", Module + "/telemetry/otlp"},
			AnyTest: true,
		},
		// For those who have OTel's SDK anyway.
		"telemetry/otlp": {May: []string{bridges, otel + "/sdk/metric", prom}, AnyTest: true},
		"admin":          {May: []string{core, chain, chi, prom, rateLimit}, AnyTest: true},
		"dashboards":     {May: []string{grafana}, AnyTest: true},
	}
}

func testLibraries() []string {
	return []string{
		Module + "/internal",
		"github.com/rogpeppe/go-internal",
		"github.com/stretchr/testify",
		"go.uber.org/goleak",
		"pgregory.net/rapid",
	}
}

// Arrows finds the imports of s that the table does not have. cmd wires
// everything and internal serves the tests, so both may import what they like;
// code in any other folder needs a row first.
func Arrows(s *Source) []string {
	folder, row, known := rowOf(s)
	switch {
	case folder == "cmd" || folder == "internal":
		return nil
	case !known && (s.IsTest() || s.Nested):
		return nil
	case !known:
		return []string{s.finding(s.File.Package, "folder %q has no row in the table of arrows", s.Folder())}
	case s.IsTest() && row.AnyTest:
		return nil
	}
	may := append([]string{Module + "/" + folder}, row.May...)
	if s.IsTest() {
		may = append(may, testLibraries()...)
	}
	var found []string
	for _, spec := range s.File.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil || isStandard(name) || (below(name, may) && !below(name, row.Not)) {
			continue
		}
		found = append(found, s.finding(spec.Pos(), "%s may not import %s", folder, name))
	}
	return found
}

// rowOf returns the row of the source's folder: its own, or that of its top.
func rowOf(s *Source) (folder string, row Allowance, known bool) {
	if row, known = Table()[s.Folder()]; known {
		return s.Folder(), row, true
	}
	folder, _, _ = strings.Cut(s.Path, "/")
	row, known = Table()[folder]
	return folder, row, known
}

func below(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(name, f) })
}

// isStandard relies on what the go command relies on: only paths outside of
// the standard library begin with a domain name.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}
