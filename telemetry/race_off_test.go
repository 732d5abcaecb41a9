//go:build !race

package telemetry_test

const raceSlack = 0
