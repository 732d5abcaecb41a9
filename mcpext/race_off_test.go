//go:build !race

package mcpext_test

const raced = false
