package chain

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// An auditor runs audit interceptors off the messages' path. Each interceptor
// has a lane of its own, so that one that hangs starves nobody else; lanes are
// bounded in entries and bytes and drop what exceeds them.
type auditor struct {
	// Fixed at creation.
	opts *Options
	ctx  context.Context // ended by close; audit runs have no other end than their deadline
	end  context.CancelFunc

	unfinished atomic.Int64 // runs that the end cut off

	mu     sync.Mutex
	lanes  map[string]*lane
	closed bool
	busy   sync.WaitGroup
}

// laneWorkers is how many runs of one audit interceptor may go on at once.
const laneWorkers = 4

// A lane is the queue of one audit interceptor. Its fields are guarded by the
// lane's own mutex; workers live only while there is work.
type lane struct {
	auditor *auditor

	mu      sync.Mutex
	queue   []*auditJob
	bytes   int
	workers int
	dropped uint64
}

// An auditJob is one audit run that has been handed over. Its payload is
// shared with the message and only ever read; the handler gets a copy.
type auditJob struct {
	ctx       context.Context
	step      *step
	snapshot  *Snapshot
	observers observers
	call      Invoke
	inv       core.Invocation
}

func newAuditor(opts *Options) *auditor {
	a := &auditor{opts: opts, lanes: map[string]*lane{}}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a
}

// lane returns the lane of an interceptor, which outlives changes of policy.
func (a *auditor) lane(host, name string) *lane {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := host + "\x00" + name
	if a.lanes[key] == nil {
		a.lanes[key] = &lane{auditor: a}
	}
	return a.lanes[key]
}

// enter reports whether a worker may start.
func (a *auditor) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.busy.Add(1)
	return true
}

// close waits for the lanes to empty, ends them at the drain deadline, and
// reports what never ran.
func (a *auditor) close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	done := make(chan struct{})
	go func() { a.busy.Wait(); close(done) }()
	timer := time.NewTimer(a.opts.DrainTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	// Ends what still runs, and makes workers drop what still waits.
	a.end()
	<-done
	if n := a.unfinished.Load(); n > 0 {
		return fmt.Errorf("chain: %d audit runs were still waiting or running at close", n)
	}
	return nil
}

// submit hands a job over. It never waits: what does not fit is dropped.
func (l *lane) submit(j *auditJob) bool {
	opts := l.auditor.opts
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= opts.AuditQueue || l.bytes+len(j.inv.Payload) > opts.AuditBytes {
		l.dropped++
		return false
	}
	if l.workers < laneWorkers {
		if !l.auditor.enter() {
			l.dropped++
			return false
		}
		l.workers++
		go l.work()
	}
	l.queue = append(l.queue, j)
	l.bytes += len(j.inv.Payload)
	return true
}

// work runs jobs until the lane is empty.
func (l *lane) work() {
	defer l.auditor.busy.Done()
	for {
		j := l.take()
		if j == nil {
			return
		}
		j.run(l.auditor)
	}
}

func (l *lane) take() *auditJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.workers--
		l.queue = nil
		return nil
	}
	j := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	l.bytes -= len(j.inv.Payload)
	return j
}

func (l *lane) health() (queued int, dropped uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue), l.dropped
}

// run invokes the interceptor on its own copy, under its own deadline, and
// reports the outcome to the observers. There is nobody else to tell.
func (j *auditJob) run(a *auditor) Outcome {
	j.inv.Payload = bytes.Clone(j.inv.Payload)
	ctx := j.observers.invokeStart(j.ctx, &j.call, j.step.handles)
	j.snapshot.identify(ctx, &j.inv)
	began := time.Now()
	var answer core.Answer
	err := errDropped
	ran := a.ctx.Err() == nil
	if ran {
		ended, stop := mergeEnd(ctx, a.ctx)
		limits := invokeLimits{timeout: j.step.auditTimeout, headRoom: j.step.headRoom, propagator: j.snapshot.propagator}
		answer, err = j.step.guard.do(ended, j.step.entry.Type, limits, &j.inv, j.step.invoke)
		stop()
	}
	if a.ctx.Err() != nil {
		a.unfinished.Add(1)
	}
	out := Outcome{Entry: j.step.entry, Phase: j.inv.Phase, Mode: core.ModeAudit, Ran: ran, Start: began, Duration: time.Since(began)}
	out.judge(answer, err)
	j.observers.invokeEnd(ctx, &j.call, j.step.handles, &out)
	return out
}

// mergeEnd returns ctx with the end of other added to its own.
func mergeEnd(ctx, other context.Context) (context.Context, func()) {
	merged, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(other, cancel)
	return merged, func() { unhook(); cancel() }
}
