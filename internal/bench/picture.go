package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// A series is one line of a picture.
type series struct {
	name       string
	contenders []Contender
}

// Draw measures what a phase costs against the size of its payload, and against
// the number of its interceptors, and writes two pictures to a folder.
func Draw(ctx context.Context, p Plan, dir string) error {
	inline := onRequest
	inline.inline = true
	var validators, inlines, mutators []Contender
	var counts []float64
	for _, n := range hookedSizes {
		counts = append(counts, float64(n))
		validators = append(validators, calls("", text(KiB), onRequest.validators(n)...))
		inlines = append(inlines, calls("", text(KiB), inline.validators(n)...))
		mutators = append(mutators, calls("", text(KiB), onRequest.mutators(n, keep)...))
	}
	err := drawn{
		title: "A phase of tools/call, 1 KiB, against its interceptors, which do nothing", x: "interceptors", xs: counts,
		lines: []series{{"validators, each under a deadline", validators}, {"validators, inline", inlines}, {"mutators, each under a deadline", mutators}},
	}.write(ctx, p, filepath.Join(dir, "cost-interceptors.svg"))
	if err != nil {
		return err
	}
	var copies, strings, rows, changes []Contender
	var sizes []float64
	for _, n := range payloadSizes {
		sizes = append(sizes, float64(n)/KiB)
		raw := text(n)
		copies = append(copies, plain("", func() { runtime.KeepAlive(bytes.Clone(raw)) }))
		strings = append(strings, calls("", raw, onRequest.validators(1)...))
		rows = append(rows, calls("", records(n), onRequest.validators(1)...))
		changes = append(changes, calls("", raw, onRequest.mutators(1, stampBytes)...))
	}
	return drawn{
		title: "A phase of tools/call against its payload", x: "KiB of arguments", xs: sizes, log: true,
		lines: []series{{"a copy of the arguments", copies}, {"1 validator, one string", strings}, {"1 validator, records", rows}, {"1 mutator that adds a member, one string", changes}},
	}.write(ctx, p, filepath.Join(dir, "cost-payload.svg"))
}

// A drawn is a picture with its data.
type drawn struct {
	title, x string
	xs       []float64
	log      bool // both axes
	lines    []series
}

// write measures the lines point by point, so that all lines of a point are
// measured side by side.
func (d drawn) write(ctx context.Context, p Plan, path string) error {
	ys := make([][]float64, len(d.lines))
	for i := range d.xs {
		point := make([]Contender, 0, len(d.lines))
		for _, l := range d.lines {
			point = append(point, l.contenders[i])
		}
		for n, f := range p.Measure(ctx, point...) {
			ys[n] = append(ys[n], float64(f.Least())/1e3)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	c := newChart(d.title, d.x, "µs, best round", d.log, d.xs, ys)
	for i, l := range d.lines {
		c.line(i, l.name, d.xs, ys[i])
		fmt.Printf("%-45s", l.name)
		for n, y := range ys[i] {
			fmt.Printf("  %g: %.1f µs", d.xs[n], y)
		}
		fmt.Println()
	}
	return os.WriteFile(path, c.svg(), 0o644)
}
