package bench_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/internal/bench"
	"github.com/stretchr/testify/require"
)

func wait(name string, d time.Duration) bench.Contender {
	return bench.Contender{Name: name, Make: func() (func(), func()) { return func() { time.Sleep(d) }, func() {} }}
}

// What is within a fifth of its band passes, what is not fails.
func TestBand(t *testing.T) {
	synctest.Test(t, testBand) // its clock is nobody's but the contenders'
}

func testBand(t *testing.T) {
	p := bench.Plan{Rounds: 1, Turn: time.Millisecond}
	in := bench.Band{Name: "in", Reference: wait("r", 4*time.Millisecond), Measured: wait("m", 4*time.Millisecond), Usual: 2}
	_, err := in.Hold(t.Context(), p)
	require.NoError(t, err)
	out := bench.Band{Name: "out", Reference: wait("r", time.Millisecond), Measured: wait("m", 10*time.Millisecond), Usual: 1}
	_, err = out.Hold(t.Context(), p)
	require.ErrorContains(t, err, "out")
}

// All contenders do what they are there for: each is run once. What they cost
// is for `make bench` and `make ratios`, on a machine that has nothing else to do.
func TestContenders(t *testing.T) {
	if testing.Short() {
		t.Skip("a few seconds")
	}
	for _, b := range bench.Bands() {
		for _, c := range []bench.Contender{b.Reference, b.Measured} {
			op, done := c.Make()
			op()
			done()
		}
	}
}

// BenchmarkBands has benchstat compare what is held.
func BenchmarkBands(b *testing.B) {
	for _, band := range bench.Bands() {
		b.Run(band.Measured.Name, func(b *testing.B) {
			op, done := band.Measured.Make()
			defer done()
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
}
