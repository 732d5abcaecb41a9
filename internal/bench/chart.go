package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// A chart is a picture of lines, as SVG: nothing but text, so that a change of
// it can be read.
type chart struct {
	out        bytes.Buffer
	log        bool
	minX, maxX float64
	minY, maxY float64
}

// The size of a chart, and of what is around its area.
const (
	chartWidth, chartHeight = 820, 420
	chartLeft, chartRight   = 70, 250
	chartTop, chartBottom   = 40, 50
)

// newChart returns a chart with its axes, for values that it has to hold.
func newChart(title, x, y string, log bool, xs []float64, ys [][]float64) *chart {
	c := &chart{log: log, minX: slices.Min(xs), maxX: slices.Max(xs), maxY: 0, minY: math.Inf(1)}
	for _, line := range ys {
		c.maxY, c.minY = max(c.maxY, slices.Max(line)), min(c.minY, slices.Min(line))
	}
	if log {
		c.minY, c.maxY = math.Pow(10, math.Floor(math.Log10(c.minY))), math.Pow(10, math.Ceil(math.Log10(c.maxY)))
	} else {
		c.minY = 0
	}
	fmt.Fprintf(&c.out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&c.out, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="22" font-size="14">%s</text>`+"\n", chartLeft, title)
	for _, v := range xs {
		c.text(c.atX(v), chartHeight-chartBottom+18, "middle", fmt.Sprintf("%g", v))
	}
	c.text((chartLeft+chartWidth-chartRight)/2, chartHeight-10, "middle", x)
	for _, v := range c.ticks() {
		h := c.atY(v)
		fmt.Fprintf(&c.out, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", chartLeft, h, chartWidth-chartRight)
		c.text(chartLeft-8, h+4, "end", fmt.Sprintf("%g", v))
	}
	c.text(chartLeft-8, chartTop-6, "end", y)
	return c
}

// ticks are where the vertical axis has numbers.
func (c *chart) ticks() (at []float64) {
	if c.log {
		for v := c.minY; v <= c.maxY*1.001; v *= 10 {
			at = append(at, v)
		}
		return at
	}
	step := math.Pow(10, math.Floor(math.Log10(c.maxY)))
	if c.maxY/step < 4 {
		step /= 2
	}
	for v := 0.0; v <= c.maxY; v += step {
		at = append(at, v)
	}
	return at
}

func (c *chart) atX(v float64) float64 {
	return chartLeft + (chartWidth-chartLeft-chartRight)*c.share(v, c.minX, c.maxX)
}

func (c *chart) atY(v float64) float64 {
	return chartHeight - chartBottom - (chartHeight-chartTop-chartBottom)*c.share(v, c.minY, c.maxY)
}

// share returns where a value lies between two others.
func (c *chart) share(v, least, most float64) float64 {
	if c.log {
		v, least, most = math.Log(v), math.Log(least), math.Log(most)
	}
	return (v - least) / (most - least)
}

func (c *chart) text(x, y float64, anchor, s string) {
	fmt.Fprintf(&c.out, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, s)
}

// line draws one line with its name.
func (c *chart) line(n int, name string, xs, ys []float64) {
	colour := [...]string{"#1f6feb", "#d9480f", "#2b8a3e", "#862e9c"}[n%4]
	c.out.WriteString(`<polyline fill="none" stroke-width="2" stroke="` + colour + `" points="`)
	for i, x := range xs {
		fmt.Fprintf(&c.out, "%.1f,%.1f ", c.atX(x), c.atY(ys[i]))
	}
	c.out.WriteString(`"/>` + "\n")
	for i, x := range xs {
		fmt.Fprintf(&c.out, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", c.atX(x), c.atY(ys[i]), colour)
	}
	fmt.Fprintf(&c.out, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", chartWidth-chartRight+12, chartTop+20+20*n, colour, name)
}

// svg ends the picture.
func (c *chart) svg() []byte {
	c.out.WriteString("</svg>\n")
	return c.out.Bytes()
}
