package admin

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rates. An actor has a bucket of its own; an address has one for its failing
// attempts alone, so that nobody is refused for what others did.
const (
	actorRate   = 20
	actorBurst  = 100
	failRate    = 1
	failBurst   = 10
	maxBuckets  = 4096
	refusalRate = time.Minute
	maxRefusals = 60 // that are written to the history, each minute
)

// A limiter has a token bucket for each key, up to a number of keys; beyond it
// all others share one.
type limiter struct {
	mu     sync.Mutex
	actors map[string]*rate.Limiter
	fails  map[string]*rate.Limiter
}

func newLimiter() *limiter {
	return &limiter{actors: map[string]*rate.Limiter{}, fails: map[string]*rate.Limiter{}}
}

// actor reports whether an authenticated actor may go on.
func (l *limiter) actor(name string) bool { return l.take(l.actors, name, actorRate, actorBurst) }

// failed reports whether an address may be told that its attempt failed, or is
// told to wait.
func (l *limiter) failed(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return l.take(l.fails, host, failRate, failBurst)
}

func (l *limiter) take(buckets map[string]*rate.Limiter, key string, each rate.Limit, burst int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := buckets[key]
	if b == nil {
		if len(buckets) >= maxBuckets {
			sweep(buckets, burst)
		}
		if len(buckets) >= maxBuckets {
			key = "" // shared by whoever comes now
		}
		if b = buckets[key]; b == nil {
			b = rate.NewLimiter(each, burst)
			buckets[key] = b
		}
	}
	return b.Allow()
}

// sweep lets go of buckets that are full again: they know nothing.
func sweep(buckets map[string]*rate.Limiter, burst int) {
	for key, b := range buckets {
		if b.Tokens() >= float64(burst) {
			delete(buckets, key)
		}
	}
}

// A recorder bounds how many refused attempts are written to the history.
type recorder struct {
	mu     sync.Mutex
	from   time.Time
	count  int
	unseen uint64 // refused, and only counted
}

func newRecorder() *recorder { return &recorder{} }

// take reports whether one more is written, and how many were only counted since
// the last that was.
func (r *recorder) take(now time.Time) (ok bool, unseen uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.from) >= refusalRate || now.Before(r.from) {
		r.from, r.count = now, 0
	}
	if r.count >= maxRefusals {
		r.unseen++
		return false, 0
	}
	r.count++
	unseen, r.unseen = r.unseen, 0
	return true, unseen
}
