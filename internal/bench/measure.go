package bench

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// A Contender is one thing to be measured. Make prepares it and returns its
// operation and what cleans up after it.
type Contender struct {
	Name string
	Make func() (op func(), done func())
}

// A Figure is what one operation of a contender costs.
type Figure struct {
	Name   string
	Time   time.Duration // the median of the rounds
	Allocs float64
	Bytes  float64

	rounds []float64 // nanoseconds
}

// A Plan says how long to measure.
type Plan struct {
	Rounds int           // turns of each contender
	Turn   time.Duration // how long one lasts
}

// Measure has the contenders take turns and returns a figure for each, in their
// order. It ends early when ctx does.
func (p Plan) Measure(ctx context.Context, contenders ...Contender) []Figure {
	ops, counts := make([]func(), len(contenders)), make([]int, len(contenders))
	figures := make([]Figure, len(contenders))
	for i, c := range contenders {
		op, done := c.Make()
		defer done()
		ops[i], counts[i] = op, calibrate(op, p.Turn)
		figures[i].Name = c.Name
		figures[i].Allocs, figures[i].Bytes = allocations(op, min(counts[i], 500))
	}
	for round := 0; round < p.Rounds && ctx.Err() == nil; round++ {
		for i := range ops {
			// Each turn begins with a clean heap, so that nobody pays for another's litter.
			runtime.GC()
			figures[i].rounds = append(figures[i].rounds, turn(ops[i], counts[i]))
		}
	}
	for i := range figures {
		figures[i].Time = time.Duration(median(figures[i].rounds))
	}
	return figures
}

// calibrate returns how many operations make a turn.
func calibrate(op func(), length time.Duration) int {
	for n := 1; ; n *= 2 {
		if took := turn(op, n) * float64(n); took >= float64(length)/4 || n >= 1<<24 {
			return max(1, int(float64(n)*float64(length)/max(took, 1)))
		}
	}
}

// turn returns the time of one of n operations, in nanoseconds.
func turn(op func(), n int) float64 {
	start := time.Now()
	for range n {
		op()
	}
	return float64(time.Since(start)) / float64(n)
}

// allocations returns what one of n operations allocates: the least of a few
// goes, since whatever else goes on in the process only adds to it.
func allocations(op func(), n int) (count, bytes float64) {
	count, bytes = allocated(op, n)
	for range 2 {
		c, b := allocated(op, n)
		count, bytes = min(count, c), min(bytes, b)
	}
	return count, bytes
}

func allocated(op func(), n int) (count, bytes float64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		op()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

// Least is the time of the best round: what the operation takes when nobody else
// wants the machine.
func (f Figure) Least() time.Duration {
	if len(f.rounds) == 0 {
		return 0
	}
	return time.Duration(slices.Min(f.rounds))
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Ratio returns how much longer f takes than the reference: the median of the
// ratios of single rounds, in which both had their turns close together, so
// that a machine which is slow for a while is slow for both.
func (f Figure) Ratio(reference Figure) float64 {
	n := min(len(f.rounds), len(reference.rounds))
	ratios := make([]float64, 0, n)
	for i := range n {
		if reference.rounds[i] > 0 {
			ratios = append(ratios, f.rounds[i]/reference.rounds[i])
		}
	}
	return median(ratios)
}
