//go:build !race

package core_test

import (
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/require"
)

// Checking JSON allocates nothing, splitting it the list and its names.
func TestAllocations(t *testing.T) {
	data := []byte(`{"name":"act","arguments":{"text":"` + strings.Repeat("x", 1<<16) + `","rows":[1,2,{"a":null}]}}`)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if !core.Valid(data) || !core.Tight(data) || core.Spaced(data) {
			t.Fatal("it is tight JSON")
		}
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if _, err := core.Members(data); err != nil {
			t.Fatal(err)
		}
	}), 3.0)
}
