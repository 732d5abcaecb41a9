//go:build race

package telemetry_test

// The race detector has sync.Pool drop what it holds at random, and allocates
// on its own account.
const raceSlack = 8
