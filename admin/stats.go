package admin

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A stat counts what one interceptor does, in all chains.
type stat struct {
	counts [2]counts    // active, audit
	last   atomic.Int64 // when it last ran, in Unix nanoseconds
}

type counts struct {
	evaluations, denials, modifications, failures, failOpen, skipped, dropped atomic.Uint64
}

func (s *stat) count(out *chain.Outcome) {
	c := &s.counts[0]
	if out.Mode == core.ModeAudit {
		c = &s.counts[1]
	}
	if out.Ran {
		c.evaluations.Add(1)
		s.last.Store(out.Start.UnixNano())
	}
	if out.Action == chain.ActionFailOpen {
		c.failOpen.Add(1)
	}
	switch out.Verdict {
	case chain.VerdictDeny:
		c.denials.Add(1)
	case chain.VerdictModify:
		c.modifications.Add(1)
	case chain.VerdictError, chain.VerdictTimeout:
		if out.Reason != chain.ReasonCancelled { // the caller gave up: nobody failed
			c.failures.Add(1)
		}
	case chain.VerdictSkipped:
		c.skipped.Add(1)
	case chain.VerdictDropped:
		c.dropped.Add(1)
	}
}

// A reading is a stat at one moment, as it is shown.
type reading struct {
	Active modeReading `json:"active"`
	Audit  modeReading `json:"audit"`
}

type modeReading struct {
	Evaluations   uint64 `json:"evaluations"`
	Denials       uint64 `json:"denials"`
	Modifications uint64 `json:"modifications"`
	Failures      uint64 `json:"failures"`
	FailOpen      uint64 `json:"failOpen"`
	Skipped       uint64 `json:"skipped"`
	Dropped       uint64 `json:"dropped"`
}

func (s *stat) read() reading { return reading{s.counts[0].read(), s.counts[1].read()} }

func (c *counts) read() modeReading {
	return modeReading{
		c.evaluations.Load(), c.denials.Load(), c.modifications.Load(), c.failures.Load(),
		c.failOpen.Load(), c.skipped.Load(), c.dropped.Load(),
	}
}

func (r reading) minus(o reading) reading {
	return reading{r.Active.minus(o.Active), r.Audit.minus(o.Audit)}
}

func (r modeReading) minus(o modeReading) modeReading {
	return modeReading{
		r.Evaluations - o.Evaluations, r.Denials - o.Denials, r.Modifications - o.Modifications,
		r.Failures - o.Failures, r.FailOpen - o.FailOpen, r.Skipped - o.Skipped, r.Dropped - o.Dropped,
	}
}

// A statBook has the stats of all interceptors by name, and what they were at the
// last change and a minute ago.
type statBook struct {
	mu     sync.Mutex
	stats  map[string]*stat
	flips  map[string]flip
	recent []sample // the oldest first
}

// A flip is when an interceptor's policy last changed.
type flip struct {
	at   time.Time
	base reading
	// policies are the numbers of the first snapshots under the new policy, by
	// chain.
	policies map[string]uint64
}

type sample struct {
	at       time.Time
	readings map[string]reading
}

// window is what recent numbers are about.
const window = time.Minute

func newStatBook() *statBook { return &statBook{stats: map[string]*stat{}, flips: map[string]flip{}} }

// maxStats bounds the names that are counted: hosts elsewhere make them up.
const maxStats = 4096

// of returns the stat of a name.
func (b *statBook) of(name string) *stat {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats[name]
	if s == nil {
		s = &stat{}
		if len(b.stats) < maxStats {
			b.stats[name] = s
		}
	}
	return s
}

// flipped notes that an interceptor's policy has changed.
func (b *statBook) flipped(name string, at time.Time, policies map[string]uint64) {
	s := b.of(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flips[name] = flip{at, s.read(), policies}
}

// sample notes the numbers of this moment and lets go of old ones.
func (b *statBook) sample(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := sample{now, make(map[string]reading, len(b.stats))}
	for name, st := range b.stats {
		s.readings[name] = st.read()
	}
	b.recent = append(b.recent, s)
	for len(b.recent) > 1 && now.Sub(b.recent[1].at) >= window {
		b.recent = b.recent[1:]
	}
}

// statsView are the numbers of one interceptor on the wire.
type statsView struct {
	Name  string  `json:"name"`
	Total reading `json:"total"`
	// SinceFlip are those since the policy last changed, at FlippedAt.
	SinceFlip reading    `json:"sinceFlip"`
	FlippedAt *time.Time `json:"flippedAt,omitempty"`
	// Recent are those of about the last minute.
	Recent    reading    `json:"recent"`
	LastRanAt *time.Time `json:"lastRanAt,omitempty"`
	// Draining counts messages that are under way under the policy before.
	Draining  int64      `json:"draining"`
	DrainedAt *time.Time `json:"drainedAt,omitempty"`
	// Abandoned counts calls that ignored their deadline and still run.
	Abandoned int `json:"abandoned"`
	// Circuit is absent where no chain of the interceptor has a breaker.
	Circuit *circuitView `json:"circuit,omitempty"`
	// HostFault says why the host is away; absent if it is not.
	HostFault chain.HostFault `json:"hostFault,omitempty"`
}

func (b *statBook) view(name string) (statsView, flip) {
	s := b.of(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.flips[name]
	v := statsView{Name: name, Total: s.read()}
	v.SinceFlip = v.Total.minus(f.base)
	v.Recent = v.Total
	if len(b.recent) > 0 {
		v.Recent = v.Total.minus(b.recent[0].readings[name])
	}
	if !f.at.IsZero() {
		v.FlippedAt = &f.at
	}
	if n := s.last.Load(); n != 0 {
		at := time.Unix(0, n).UTC()
		v.LastRanAt = &at
	}
	return v, f
}
