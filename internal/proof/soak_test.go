package proof_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

const soakVariable = "HEADGATE_PROOF_SOAK"

// What a server uses does not grow with what it has done: after mixed traffic over
// sessions that come and go, flips, scrapes, and an interceptor host that is killed
// all the while, heap, goroutines, file descriptors and series are what they were
// after a little of it; and nothing got past the guard meanwhile.
func TestSoak(t *testing.T) {
	length := 2 * time.Second
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	far := &pipeGuard{spec: overPipes}
	defer far.close()
	st := newStand(t, newDice(seed(t), "soak"), 100*time.Millisecond, far.dial)
	defer st.close()
	web := httptest.NewServer(newWebHandler(st.server))
	defer web.Close()
	soak := &soak{stand: st, far: far, url: web.URL}

	soak.run(min(length/4, 30*time.Second), 1)
	before := soak.measure()
	start := time.Now()
	soak.run(length, 2)
	after := soak.measure()
	t.Logf("before, after %v: %v", soak.warm, before)
	t.Logf("after %v more:   %v", time.Since(start).Round(time.Second), after)

	require.LessOrEqual(t, after.goroutines, before.goroutines+8)
	require.LessOrEqual(t, after.descriptors, before.descriptors+4)
	require.LessOrEqual(t, after.heap, before.heap+before.heap/4+8<<20)
	require.LessOrEqual(t, after.series, before.series+before.series/20+8, "series exist when they are first used, and no more than once")
	require.Zero(t, st.reached.Load()+st.leaked.Load(), "messages got past the guard")
	all := 0
	for _, n := range st.stopped {
		all += n
	}
	require.EqualValues(t, all, st.count(semconv.MetricAborts, "", ""))
}

// A soak is a stand under load for a long time.
type soak struct {
	stand *stand
	far   *pipeGuard
	url   string
	warm  time.Duration

	mu    sync.Mutex
	kills int
	flips int
	gone  int // sessions
}

// run has everything go on at once, and then comes to rest.
func (s *soak) run(length time.Duration, round uint64) {
	if s.warm == 0 {
		s.warm = length
	}
	end := time.Now().Add(length)
	var all sync.WaitGroup
	every := func(pause time.Duration, purpose string, do func(d dice)) {
		d := newDice(round, purpose)
		all.Go(func() {
			for time.Now().Before(end) {
				do(d)
				time.Sleep(pause)
			}
		})
	}
	for i := range 8 {
		every(time.Millisecond, fmt.Sprint("traffic", i), func(d dice) { s.stand.batch(d, 6) })
	}
	every(5*time.Millisecond, "sessions", s.session)
	every(120*time.Millisecond, "flips", func(d dice) {
		s.stand.flip(pick(d, "moody", "open"), pick(d, "audit", "off", "active"), time.Hour)
		s.count(&s.flips)
	})
	every(time.Second, "kills", func(d dice) {
		s.far.strike(d)
		time.Sleep(guardTimeout)
		s.far.signal(syscall.SIGCONT)
		s.count(&s.kills)
	})
	handler := telemetry.Handler(s.stand.registry)
	every(500*time.Millisecond, "scrapes", func(dice) { handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)) })
	all.Wait()
	s.stand.recover(50 * time.Millisecond)
	time.Sleep(3 * guardTimeout) // for audits and what was abandoned
}

func (s *soak) count(n *int) {
	s.mu.Lock()
	*n++
	s.mu.Unlock()
}

// session is one over HTTP, from its beginning to its end.
func (s *soak) session(d dice) {
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).
		Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: s.url, DisableStandaloneSSE: true}, nil)
	if err != nil {
		s.stand.t.Errorf("connect: %v", err)
		return
	}
	for range 3 {
		s.stand.sendOver(cs, core.EventToolsCall, pick(d, "fine", forbidden, "out"))
	}
	_ = cs.Close()
	s.count(&s.gone)
}

// Figures are what a server uses at one moment.
type figures struct {
	heap, goroutines, descriptors, series int

	passed                  int64
	stopped                 map[int64]int
	sessions, flips, killed int
}

func (f figures) String() string {
	return fmt.Sprintf("heap %.1f MiB, %d goroutines, %d file descriptors, %d series; so far %d messages passed, stopped by code %v, %d sessions over HTTP, %d flips, %d times the host was killed, stopped or woken",
		float64(f.heap)/(1<<20), f.goroutines, f.descriptors, f.series, f.passed, f.stopped, f.sessions, f.flips, f.killed)
}

func (s *soak) measure() figures {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(s.stand.t, err)
	families, err := s.stand.registry.Gather()
	require.NoError(s.stand.t, err)
	f := figures{
		heap: int(m.HeapAlloc), goroutines: runtime.NumGoroutine(), descriptors: len(open),
		passed: s.stand.passed.Load(), stopped: map[int64]int{}, sessions: s.gone, flips: s.flips, killed: s.kills,
	}
	for code, n := range s.stand.stopped {
		f.stopped[code] = n
	}
	for _, family := range families {
		f.series += len(family.GetMetric())
	}
	return f
}
