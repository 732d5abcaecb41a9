//go:build race

package mcpext_test

// The race detector makes messages of many megabytes take many seconds.
const raced = true
