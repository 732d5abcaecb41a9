//go:build e2e

package observe_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The questions of an operator, in the order of doc/OPERATIONS.md, which is the
// only place that has the queries: what operators are told to ask is what is
// asked here.
const (
	requestsAndErrors = iota
	whoBlocks
	whatAuditWouldBlock
	whatEachRequestPays
	openOrBlind
	questions
)

// readQuestions returns the queries of each question.
func readQuestions(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../doc/OPERATIONS.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Five questions\n")
	require.True(t, found, "doc/OPERATIONS.md has no section of questions")
	section, _, _ = strings.Cut(section, "\n## ")
	var all [][]string
	for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(section, -1) {
		all = append(all, expressions(block[1]))
	}
	require.Len(t, all, questions)
	return all
}

// expressions splits a block: one begins with each line that is not indented.
func expressions(block string) []string {
	var all []string
	for line := range strings.Lines(block) {
		if strings.HasPrefix(line, " ") && len(all) > 0 {
			all[len(all)-1] += " " + strings.TrimSpace(line)
		} else if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// total turns a query for rates into one for all that has ever been counted,
// which is what a ledger can say.
func total(query string) string {
	return regexp.MustCompile(`\b(?:rate|increase)\(([^()]*)\[[^\]]*\]\)`).ReplaceAllString(query, "$1")
}
