//go:build race

package middleware_test

// The race detector has sync.Pool drop what it holds at random, and allocates
// on its own account.
const raceSlack = 4
