package doctest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// The README's example is the one that is compiled and run.
func TestReadmeExampleIsCompiled(t *testing.T) {
	block := regexp.MustCompile("(?s)```go\n(guard := .*?)```").FindStringSubmatch(read(t, "README.md"))
	require.NotNil(t, block)
	source := read(t, "middleware/example_test.go")
	body := source[strings.Index(source, "func Example() {\n")+len("func Example() {\n"):]
	body = body[:strings.Index(body, "\n\tfmt.Println")]
	lines := strings.Split(body, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "\t")
	}
	assert.Equal(t, strings.TrimSpace(strings.Join(lines, "\n")), strings.TrimSpace(block[1]))
}

// Each test that a document names exists.
func TestDocumentsNameTests(t *testing.T) {
	for doc, least := range map[string]int{"doc/CONFORMANCE.md": 100, "doc/RELIABILITY.md": 40, "doc/THREATS.md": 30} {
		t.Run(doc, func(t *testing.T) { namesTests(t, read(t, doc), least) })
	}
}

func namesTests(t *testing.T, table string, least int) {
	t.Helper()
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz|Example)\\w*)`").FindAllStringSubmatch(table, -1)
	require.Greater(t, len(named), least)
	sources := map[string]string{}
	for _, n := range named {
		folder, test := n[1], n[2]
		if sources[folder] == "" {
			files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
			require.NoError(t, err)
			for _, f := range files {
				text, err := os.ReadFile(f)
				require.NoError(t, err)
				sources[folder] += string(text)
			}
		}
		assert.True(t, strings.Contains(sources[folder], "\nfunc "+test+"("), "%s has no %s", folder, test)
	}
}

// Every row of the table of edge cases has a line: held by a test, or said not
// to be done yet.
func TestConformanceHasEveryRow(t *testing.T) {
	table := read(t, "doc/CONFORMANCE.md")
	for row := 1; row <= 110; row++ {
		line := regexp.MustCompile(`(?m)^\| ` + strconv.Itoa(row) + ` \|.*(\.(Test|Fuzz)\w+|not yet|does not apply)`)
		assert.True(t, line.MatchString(table), "row %d", row)
	}
}

// Relative links lead somewhere.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join(root, "doc", "*.md"))
	require.NoError(t, err)
	tops, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	for _, doc := range append(docs, tops...) {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(doc), link[1]))
			assert.NoError(t, err, "%s links to %s", doc, link[1])
		}
	}
}
