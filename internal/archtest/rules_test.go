package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/internal/archtest"
)

// Each rule is shown a sample that breaks it and its nearest neighbour that
// does not: a rule that cannot go red proves nothing about the tree.

func TestArrows(t *testing.T) {
	const mod = archtest.Module
	const goSDK, otel = "github.com/modelcontextprotocol/go-sdk", "go.opentelemetry.io/otel"
	for name, c := range map[string]struct {
		file, imports string
		nested        bool
		want          string // part of the only finding; empty: none
	}{
		"core, standard library":           {file: "core/a.go", imports: "encoding/json"},
		"core, chain":                      {file: "core/a.go", imports: mod + "/chain", want: "core may not import " + mod + "/chain"},
		"core, a test library in code":     {file: "core/a.go", imports: "pgregory.net/rapid", want: "core may not import"},
		"core, a test library in a test":   {file: "core/a_test.go", imports: "pgregory.net/rapid"},
		"core, the protocol in a test":     {file: "core/a_test.go", imports: goSDK + "/mcp", want: "core may not import"},
		"chain, core":                      {file: "chain/a.go", imports: mod + "/core"},
		"chain, a name that core begins":   {file: "chain/a.go", imports: mod + "/corelike", want: "chain may not import"},
		"chain, go-sdk":                    {file: "chain/a.go", imports: goSDK + "/mcp", want: "chain may not import"},
		"chain, internal":                  {file: "chain/a.go", imports: mod + "/internal/chaintest", want: "chain may not import"},
		"chain, internal in a test":        {file: "chain/a_test.go", imports: mod + "/internal/chaintest"},
		"mcpext, go-sdk":                   {file: "mcpext/a.go", imports: goSDK + "/mcp"},
		"mcpext, schemas":                  {file: "mcpext/a.go", imports: "github.com/google/jsonschema-go/jsonschema"},
		"mcpext, middleware":               {file: "mcpext/a.go", imports: mod + "/middleware", want: "mcpext may not import"},
		"mcpext, middleware in a test":     {file: "mcpext/a_test.go", imports: mod + "/middleware"},
		"middleware, schemas":              {file: "middleware/a.go", imports: "github.com/google/jsonschema-go/jsonschema", want: "middleware may not import"},
		"middleware, OTel":                 {file: "middleware/a.go", imports: otel + "/trace", want: "middleware may not import"},
		"telemetry, OTel's API":            {file: "telemetry/a.go", imports: otel + "/trace"},
		"telemetry, OTel's SDK":            {file: "telemetry/a.go", imports: otel + "/sdk/trace", want: "telemetry may not import"},
		"telemetry, an exporter":           {file: "telemetry/a.go", imports: otel + "/exporters/stdout/stdouttrace", want: "telemetry may not import"},
		"telemetry, OTel's SDK in a test":  {file: "telemetry/a_test.go", imports: otel + "/sdk/trace"},
		"telemetry, its OTLP folder":       {file: "telemetry/a.go", imports: mod + "/telemetry/otlp", want: "telemetry may not import"},
		"telemetry/otlp, OTel's SDK":       {file: "telemetry/otlp/a.go", imports: otel + "/sdk/metric"},
		"telemetry/otlp, chain":            {file: "telemetry/otlp/a.go", imports: mod + "/chain", want: "telemetry/otlp may not import"},
		"admin, chi":                       {file: "admin/a.go", imports: "github.com/go-chi/chi/v5"},
		"below admin, admin":               {file: "admin/store/a.go", imports: mod + "/admin"},
		"below admin, go-sdk":              {file: "admin/store/a.go", imports: goSDK + "/mcp", want: "admin may not import"},
		"dashboards, its builders":         {file: "dashboards/a.go", imports: "github.com/grafana/grafana-foundation-sdk/go/dashboard"},
		"dashboards, chain":                {file: "dashboards/a.go", imports: mod + "/chain", nested: true, want: "dashboards may not import"},
		"the binary, everything":           {file: "cmd/headgate/a.go", imports: otel + "/sdk/trace"},
		"a test peer, everything":          {file: "internal/peer/a.go", imports: goSDK + "/mcp"},
		"a folder without a row":           {file: "gateway/a.go", imports: "fmt", want: "no row"},
		"a folder without a row, tests":    {file: "doc/a_test.go", imports: goSDK + "/mcp"},
		"a folder without a row, a module": {file: "promcheck/a.go", imports: goSDK + "/mcp", nested: true},
		"the root":                         {file: "a.go", imports: "fmt", want: "no row"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parse(t, c.file, "package p\n\nimport _ \""+c.imports+"\"\n")
			s.Nested = c.nested
			expect(t, c.want, archtest.Arrows(s))
		})
	}
}

func TestFolderName(t *testing.T) {
	expect(t, "says nothing", archtest.FolderName("util"))
	expect(t, "says nothing", archtest.FolderName("internal/common"))
	expect(t, "says nothing", archtest.FolderName("admin/helpers"))
	expect(t, "", archtest.FolderName("admin/utilization"))
}

func TestPackageDoc(t *testing.T) {
	commented := parse(t, "core/doc.go", "// Package core is here.\npackage core\n")
	silent := parse(t, "core/doc.go", "package core\n")
	code := parse(t, "core/wire.go", "// Package core is here.\npackage core\n")
	test := parse(t, "core/wire_test.go", "package core\n")

	expect(t, "", archtest.PackageDoc("core", []*archtest.Source{code, commented}))
	expect(t, "no doc.go", archtest.PackageDoc("core", []*archtest.Source{code, silent}))
	expect(t, "no doc.go", archtest.PackageDoc("core", []*archtest.Source{code, test}))
	expect(t, "", archtest.PackageDoc("doc", []*archtest.Source{test}))
	expect(t, "", archtest.PackageDoc("cmd/examples/validator", []*archtest.Source{code}))
}

func TestExportedDocs(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"function":                         {"func Run() {}", "exported Run"},
		"function with a comment":          {"// Run runs.\nfunc Run() {}", ""},
		"own function":                     {"func run() {}", ""},
		"method":                           {"func (*Chain[K, V]) Run() {}", "exported Run"},
		"method of an own type":            {"func (*chain) Run() {}", ""},
		"type":                             {"type Chain struct{}", "exported Chain"},
		"type with a comment":              {"// A Chain runs.\ntype Chain struct{}", ""},
		"type in a group with a comment":   {"// Types.\ntype (\n\tChain struct{}\n)", "exported Chain"},
		"constant":                         {"const Max = 1", "exported Max"},
		"constants under one comment":      {"// Limits.\nconst (\n\tMax = 1\n\tMin = 0\n)", ""},
		"constant with a comment beside":   {"const (\n\tMax = 1 // the limit\n)", ""},
		"own name beside an exported name": {"var max, Min int", "exported Min"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, c.want, archtest.ExportedDocs(parse(t, "core/a.go", "package core\n\n"+c.text+"\n")))
			expect(t, "", archtest.ExportedDocs(parse(t, "core/a_test.go", "package core\n\n"+c.text+"\n")))
		})
	}
}

func TestIsPublic(t *testing.T) {
	for _, folder := range []string{"core", "admin", "admin/store"} {
		require.True(t, archtest.IsPublic(folder), folder)
	}
	for _, folder := range []string{".", "cmd/headgate", "internal/archtest", "admin/internal/x", "dashboards"} {
		require.False(t, archtest.IsPublic(folder), folder)
	}
}

func TestSizes(t *testing.T) {
	function := func(lines int) string {
		return "package p\n\nfunc f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n"
	}
	file := func(lines int) string { return "package p\n" + strings.Repeat("//\n", lines-1) }
	literal := strings.Replace(function(61), "func f()", "var f = func()", 1)
	generated := "// Code generated by a sample. DO NOT EDIT.\n\n"

	expect(t, "", archtest.Sizes(parse(t, "core/a.go", function(60))))
	expect(t, "", archtest.Sizes(parse(t, "internal/peer/a.go", function(61))))
	expect(t, "function of 61 lines", archtest.Sizes(parse(t, "core/a.go", function(61))))
	expect(t, "function of 61 lines", archtest.Sizes(parse(t, "core/a.go", literal)))
	expect(t, "", archtest.Sizes(parse(t, "core/a_test.go", function(61))))
	expect(t, "", archtest.Sizes(parse(t, "core/a.go", generated+function(61))))
	expect(t, "", archtest.Sizes(parse(t, "core/a.go", file(400))))
	expect(t, "401 lines", archtest.Sizes(parse(t, "core/a.go", file(401))))
}

func TestNoInit(t *testing.T) {
	expect(t, "init function", archtest.NoInit(parse(t, "core/a.go", "package core\n\nfunc init() {}\n")))
	expect(t, "init function", archtest.NoInit(parse(t, "core/a_test.go", "package core\n\nfunc init() {}\n")))
	expect(t, "", archtest.NoInit(parse(t, "core/a.go", "package core\n\nfunc (t) init() {}\n\nfunc initial() {}\n")))
}

func TestMachinePaths(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"at the start of a line":      {"/wo" + "rk/main\n", "a.md:1: path"},
		"in quotes, on a later line":  {"a\n\"/ro" + "ot/.cache\"\n", "a.md:2: path"},
		"in a file URL":               {"file:///wo" + "rk/main", "a.md:1: path"},
		"a folder below another":      {"doc/wo" + "rk/main\n", ""},
		"the end of a web address":    {"https://example.com/ro" + "ot/x\n", ""},
		"a name that only begins so":  {"/wo" + "rkshop/main\n", ""},
		"the words without the slash": {"wo" + "rk and ro" + "ot\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, c.want, archtest.MachinePaths(archtest.Text{Path: "a.md", Data: []byte(c.text)}))
		})
	}
}

// expect checks that there is one finding with want in it, or none if want is
// empty.
func expect(t *testing.T, want string, found []string) {
	t.Helper()
	if want == "" {
		require.Empty(t, found)
		return
	}
	require.Len(t, found, 1)
	require.Contains(t, found[0], want)
}

func parse(t *testing.T, name, text string) *archtest.Source {
	t.Helper()
	s, err := archtest.Parse(name, []byte(text))
	require.NoError(t, err)
	return s
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}
