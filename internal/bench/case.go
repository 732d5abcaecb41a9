package bench

import (
	"context"
	"fmt"
	"time"
)

// A Case is one aim: what is measured for it, and what the figures say.
type Case struct {
	Name       string
	Contenders []Contender
	// Judge turns the figures, in the contenders' order, into lines.
	Judge func(figures []Figure) []Line
	// Slow says that one operation takes milliseconds.
	Slow bool
}

// A Line is one value of a case, beside its aim if it has one.
type Line struct {
	Case string
	What string
	// Value is the measured one, in Unit. Most is what it may be.
	Value, Most float64
	Unit        Unit
	// Quoted says that there is no aim: the value is for information.
	Quoted bool
}

// Met reports whether the aim is reached.
func (l Line) Met() bool { return l.Quoted || l.Value <= l.Most }

// A Unit says how values are printed.
type Unit string

// The units.
const (
	Nanoseconds Unit = "ns"
	Allocations Unit = "allocs"
	Ratio       Unit = "×"
	Kilobytes   Unit = "KiB"
)

// Format returns a value in the unit.
func (u Unit) Format(v float64) string {
	switch u {
	case Nanoseconds:
		d := time.Duration(v)
		switch {
		case d < 10*time.Microsecond:
			return fmt.Sprintf("%.0f ns", v)
		case d < 10*time.Millisecond:
			return fmt.Sprintf("%.1f µs", v/1e3)
		}
		return fmt.Sprintf("%.1f ms", v/1e6)
	case Allocations:
		return fmt.Sprintf("%.1f allocs", v)
	case Kilobytes:
		return fmt.Sprintf("%.1f KiB", v)
	}
	return fmt.Sprintf("%.2f×", v)
}

// Run measures the case.
func (c *Case) Run(ctx context.Context, p Plan) ([]Line, []Figure) {
	figures := p.Measure(ctx, c.Contenders...)
	if ctx.Err() != nil {
		return nil, nil
	}
	lines := c.Judge(figures)
	for i := range lines {
		lines[i].Case = c.Name
	}
	return lines, figures
}

func quoted(what string, value float64, unit Unit) Line {
	return Line{What: what, Value: value, Unit: unit, Quoted: true}
}

func atMost(what string, value, most float64, unit Unit) Line {
	return Line{What: what, Value: value, Most: most, Unit: unit}
}

func nanos(f Figure) float64 { return float64(f.Time) }
