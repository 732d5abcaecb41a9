package proof_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// A lane is a way in which a client reaches a server.
type lane struct {
	name, version string
	pipelines     int
	frames        int // of each pipeline
	asks          bool
	// connect returns wires to two servers: one bare, one behind the pipeline.
	connect func(t testing.TB, seed uint64, purpose string) (plain, guarded wire, waits bool)
}

// inMemory is a lane of JSON lines in this process.
func inMemory(version string) lane {
	return lane{"in memory", version, 10, 80, true, func(t testing.TB, seed uint64, purpose string) (plain, guarded wire, waits bool) {
		server, p := guardedSubject(t, seed, purpose)
		return newPipe(t, newSubject(), version), newPipe(t, server, version), p.waits
	}}
}

// overStdio is a lane to other processes.
func overStdio(version string) lane {
	return lane{"stdio", version, 3, 60, true, func(t testing.TB, seed uint64, purpose string) (plain, guarded wire, waits bool) {
		return newProcess(t, peer(subjectPeer, bare), version), newProcess(t, peer(subjectPeer, fmt.Sprint(seed, " ", purpose)), version), true
	}}
}

// overHTTP is a lane of streamable HTTP.
func overHTTP(name, version string, opts mcp.StreamableHTTPOptions) lane {
	return lane{name, version, 2, 60, version == modern, func(t testing.TB, seed uint64, purpose string) (plain, guarded wire, waits bool) {
		server, p := guardedSubject(t, seed, purpose)
		return newWeb(t, newSubject(), version, opts), newWeb(t, server, version, opts), p.waits
	}}
}

func guardedSubject(t testing.TB, seed uint64, purpose string) (*mcp.Server, *pipeline) {
	server := newSubject()
	p, err := newPipeline(newDice(seed, purpose), server)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	return server, p
}

func lanes() []lane {
	return []lane{
		inMemory(legacy), inMemory(modern), overStdio(legacy), overStdio(modern),
		overHTTP("stateful HTTP, SSE", legacy, mcp.StreamableHTTPOptions{}),
		overHTTP("stateful HTTP, JSON", legacy, mcp.StreamableHTTPOptions{JSONResponse: true}),
		overHTTP("stateless HTTP, SSE", legacy, mcp.StreamableHTTPOptions{Stateless: true}),
		overHTTP("stateless HTTP, JSON", legacy, mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}),
		overHTTP("stateless HTTP, SSE", modern, mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}),
		overHTTP("stateless HTTP, JSON", modern, mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}),
	}
}

// Times are what exchanges took, without Headgate and with it, in pairs.
type times struct{ plain, guarded []time.Duration }

func (x *times) quantile(list []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[int(q*float64(len(sorted)-1))]
}

// Whatever interceptors do that are in audit mode or off, each byte that a client
// gets is what the server sends without Headgate, and comes about as soon.
func TestTransparency(t *testing.T) {
	s := seed(t)
	var took times
	exchanges := 0
	for _, l := range lanes() {
		t.Run(l.name+" "+l.version, func(t *testing.T) {
			start := time.Now()
			n := 0
			for i := range scaled(t, l.pipelines) {
				purpose := fmt.Sprint("transparency ", l.name, " ", l.version, " ", i)
				if !t.Run(fmt.Sprint(i), func(t *testing.T) { n += l.compare(t, s, purpose, &took) }) {
					return
				}
			}
			exchanges += n
			t.Logf("%d exchanges in %v", n, time.Since(start).Round(time.Millisecond))
		})
	}
	if t.Failed() || len(took.plain) == 0 {
		return
	}
	for _, q := range []float64{.5, .9} {
		plain, guarded := took.quantile(took.plain, q), took.quantile(took.guarded, q)
		t.Logf("%d exchanges, quantile %v in memory: %v without, %v with", exchanges, q, plain, guarded)
		require.Less(t, guarded, latencyBound*plain, "quantile %v", q)
	}
}

// latencyBound is how many times longer an exchange may take. The audit runs
// themselves compete for the processors, and both kinds of exchange take turns
// in a run, so that a busy machine is busy for both. If audits were waited for,
// those that hang would show in the upper quantile.
const latencyBound = 4

// compare sends the same frames to both servers and wants the same back.
func (l *lane) compare(t *testing.T, s uint64, purpose string, took *times) int {
	plain, guarded, waits := l.connect(t, s, purpose)
	t.Cleanup(plain.close)
	t.Cleanup(guarded.close)
	w := &writer{dice: newDice(s, purpose+" frames"), version: l.version, asks: l.asks}
	n := l.frames
	if waits {
		n /= 4
	}
	for i := range n {
		f := w.draw()
		if i == n-1 {
			f = w.last()
		}
		start := time.Now()
		want := plain.exchange(f)
		between := time.Now()
		got := guarded.exchange(f)
		if l.name == "in memory" && !waits {
			took.plain = append(took.plain, between.Sub(start))
			took.guarded = append(took.guarded, time.Since(between))
		}
		if want != got {
			require.FailNow(t, "not the same", "frame %d: %.2000s\nwithout:\n%.4000s\nwith:\n%.4000s\nbehind\n%s", i, f.text, want, got, story(s, purpose))
		}
	}
	return n
}
