package telemetry

// WorstCase is how many series there can be, as the reference says.
func WorstCase(maxTools, maxInterceptors int) int { return worstCase(maxTools, maxInterceptors) }

// WorstCases says the same by metric.
func WorstCases(maxTools, maxInterceptors int) map[string]int {
	out := map[string]int{}
	for _, line := range budget(maxTools, maxInterceptors) {
		out[line.metric] = line.series
	}
	return out
}
