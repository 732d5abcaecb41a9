//go:build !race

package middleware_test

const raceSlack = 0
