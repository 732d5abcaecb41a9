package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBenchJSON(t *testing.T) {
	for _, extra := range [][]string{nil, {"--rate", "0"}, {"--telemetry", "--payload", "0", "--chain", "idle"}} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"bench", "--json", "--clients", "2", "--rate", "50", "--duration", "400ms", "--turns", "2", "--payload", "100"}, extra...)
		require.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), stderr.String())
		var got struct {
			Clients int
			Servers []benchServer
			Ratios  ratios
		}
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &got))
		assert.Equal(t, 2, got.Clients)
		require.Len(t, got.Servers, 2)
		for _, s := range got.Servers {
			assert.Positive(t, s.Requests, s.Name)
			assert.Zero(t, s.Failed, s.Name)
			assert.Positive(t, s.Latency.P50)
			assert.GreaterOrEqual(t, s.Latency.Max, s.Latency.P50)
		}
		assert.Positive(t, got.Ratios.Throughput)
	}
}

func TestBenchTable(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"bench", "--clients", "1", "--rate", "20", "--duration", "200ms", "--turns", "1"}, &stdout, &stderr)
	require.Equal(t, exitOK, code, stderr.String())
	for _, word := range []string{"1 clients", "20 requests/s", "bare", "protected", "p99.9", "throughput"} {
		assert.Contains(t, stdout.String(), word)
	}
}

func TestBenchFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--clients", "0"}, {"--rate", "-1"}, {"--rate", "NaN"}, {"--duration", "0s"}, {"--turns", "0"}, {"--payload", "-1"}, {"--payload", "9999999"}, {"--chain", "x"}, {"--no-such"}, {"more"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), append([]string{"bench"}, args...), &stdout, &stderr), args)
		assert.Contains(t, stderr.String(), "headgate bench:")
		assert.Empty(t, stdout.String())
	}
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitOK, run(t.Context(), []string{"bench", "--help"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "--clients")
}

func TestBenchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailure, run(ctx, []string{"bench", "--clients", "1", "--duration", "1h"}, &stdout, &stderr))
}

// A server that stands still for a second makes late what should have been
// sent meanwhile: that shows in as many latencies, not in one. Seen red with
// latencies that count from when a request was sent.
func TestLatenciesCountFromWhenRequestsWereDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		p := pace{start: time.Now(), end: time.Now().Add(3 * time.Second), step: 1, rate: 10}
		got := p.drive(t.Context(), func(context.Context) error {
			if n++; n == 11 {
				time.Sleep(time.Second)
			}
			return nil
		})
		require.Len(t, got.latencies, 30)
		late := 0
		for _, l := range got.latencies {
			if l >= 100*time.Millisecond {
				late++
			}
		}
		assert.Equal(t, 10, late)
		assert.Equal(t, 2900*time.Millisecond, time.Since(p.start))
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		second := pace{start: start, end: start.Add(time.Second), next: 1, step: 4, rate: 8}
		var at []time.Duration
		got := second.drive(t.Context(), func(context.Context) error {
			at = append(at, time.Since(start))
			return errors.New("x")
		})
		assert.Equal(t, []time.Duration{125 * time.Millisecond, 625 * time.Millisecond}, at)
		assert.Equal(t, 2, got.failed)
		assert.Empty(t, got.latencies)
	})
}

func TestPercentiles(t *testing.T) {
	var list []time.Duration
	for i := range 1000 {
		list = append(list, time.Duration(1000-i)*time.Millisecond)
	}
	assert.Equal(t, percentiles{P50: 0.5, P90: 0.9, P99: 0.99, P999: 0.999, Max: 1}, percentilesOf(list))
	assert.Equal(t, percentiles{}, percentilesOf(nil))
	assert.Equal(t, percentiles{1, 1, 1, 1, 1}, percentilesOf([]time.Duration{time.Second}))
}
