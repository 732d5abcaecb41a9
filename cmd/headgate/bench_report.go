package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// A benchReport is what headgate bench prints.
type benchReport struct {
	flags           *benchFlags
	bare, protected benchServer
}

// A benchServer is one server's part. Durations are in seconds.
type benchServer struct {
	Name      string      `json:"name"`
	Requests  int         `json:"requests"`
	Failed    int         `json:"failed"`
	PerSecond float64     `json:"perSecond"`
	Latency   percentiles `json:"latency"`

	turns []percentiles // of each turn
	rates []float64
}

type percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// summary puts the turns of a server together.
func summary(name string, turns []samples) benchServer {
	s := benchServer{Name: name}
	var all []time.Duration
	var took time.Duration
	for _, t := range turns {
		all = append(all, t.latencies...)
		s.Failed += t.failed
		took += t.took
		s.turns = append(s.turns, percentilesOf(t.latencies))
		s.rates = append(s.rates, perSecond(len(t.latencies), t.took))
	}
	s.Requests = len(all)
	s.PerSecond = perSecond(s.Requests, took)
	s.Latency = percentilesOf(all)
	return s
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// percentilesOf sorts the latencies. They are few enough to keep, and so exact.
func percentilesOf(latencies []time.Duration) percentiles {
	slices.Sort(latencies)
	at := func(q float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		// The smallest one that q of all are no larger than.
		return latencies[max(0, ceil(q*float64(len(latencies)))-1)].Seconds()
	}
	return percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

func ceil(x float64) int {
	n := int(x)
	if float64(n) < x {
		n++
	}
	return n
}

// ratios are those of the protected server to the bare one: medians of the
// turns, which stood side by side.
type ratios struct {
	Throughput float64 `json:"throughput"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
}

func (r *benchReport) ratios() ratios {
	var rate, p50, p99 []float64
	for i := range r.bare.turns {
		b, p := r.bare.turns[i], r.protected.turns[i]
		rate = append(rate, quotient(r.protected.rates[i], r.bare.rates[i]))
		p50 = append(p50, quotient(p.P50, b.P50))
		p99 = append(p99, quotient(p.P99, b.P99))
	}
	return ratios{Throughput: middle(rate), P50: middle(p50), P99: middle(p99)}
}

func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func (r *benchReport) writeJSON(out io.Writer) error {
	f := r.flags
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Clients   int           `json:"clients"`
		Rate      float64       `json:"rate"`
		Seconds   float64       `json:"seconds"`
		Turns     int           `json:"turns"`
		Payload   int           `json:"payload"`
		Chain     string        `json:"chain"`
		Telemetry bool          `json:"telemetry"`
		CPUs      int           `json:"cpus"`
		Go        string        `json:"go"`
		Servers   []benchServer `json:"servers"`
		Ratios    ratios        `json:"ratios"`
	}{
		f.Clients, f.Rate, f.Duration.Seconds(), f.Turns, f.Payload, f.Chain, f.Telemetry,
		runtime.GOMAXPROCS(0), runtime.Version(),
		[]benchServer{r.bare, r.protected},
		r.ratios(),
	})
}

func (r *benchReport) writeTable(out io.Writer) error {
	f := r.flags
	load := "as fast as they are answered"
	if f.Rate > 0 {
		load = fmt.Sprintf("%g requests/s", f.Rate)
	}
	fmt.Fprintf(out, "%d clients over streamable HTTP, %s, %s chain, %d bytes, %d turns of %v, %d CPUs\n\n",
		f.Clients, load, f.Chain, f.Payload, f.Turns, f.Duration/time.Duration(f.Turns), runtime.GOMAXPROCS(0))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\trequests\tfailed\t/s\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, s := range []benchServer{r.bare, r.protected} {
		l := s.Latency
		fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t\n", s.Name, s.Requests, s.Failed, s.PerSecond,
			seconds(l.P50), seconds(l.P90), seconds(l.P99), seconds(l.P999), seconds(l.Max))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	q := r.ratios()
	_, err := fmt.Fprintf(out, "\nprotected to bare, median of turns: throughput %.2f×, p50 %.2f×, p99 %.2f×\n", q.Throughput, q.P50, q.P99)
	return err
}

// seconds writes a time for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond).String()
}
