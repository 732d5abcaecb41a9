package admin

import (
	"context"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/core"
)

// loop looks at the clock and at the chains until the plane ends.
func (p *Plane) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case t := <-p.decided:
			p.publishDecision(t)
			continue
		case <-timer.C:
		case <-p.wake:
		}
		timer.Reset(p.look())
	}
}

// follow has the loop look again after changes that others make in the store.
func (p *Plane) follow() {
	for p.life.Err() == nil {
		if err := p.store.Watch(p.life, p.reload); err != nil && p.life.Err() == nil {
			select {
			case <-time.After(tick):
			case <-p.life.Done():
			}
		}
	}
}

// reload takes over what others have written.
func (p *Plane) reload() {
	p.write.Lock()
	defer p.write.Unlock()
	contents, err := p.store.Load(p.life)
	if err != nil || contents.Revision <= p.memory.contents.Revision {
		return
	}
	next := remember(contents)
	next.configured = p.memory.configured
	p.memory = next
	p.apply(time.Now())
}

// look ends what is over, warns of what ends soon, and takes over what chains
// have now. It returns when to look again.
func (p *Plane) look() time.Duration {
	p.write.Lock()
	defer p.write.Unlock()
	now := time.Now()
	p.retry()
	p.expire(now)
	p.apply(now)
	p.stats.sample(now)
	p.noteHead()
	p.tellUnknown()
	p.lookAtHosts()
	next, warned := tick, map[string]time.Duration{}
	p.memory.expiries(func(name string, at time.Time) {
		left := at.Sub(now.Round(0))
		warned[name+at.String()] = p.warn(name, at, left)
		if left > 0 {
			next = min(next, left)
		}
	})
	p.warned = warned
	return next
}

// retry has a store that could not write try again.
func (p *Plane) retry() {
	if s, ok := p.store.(interface{ Retry() error }); ok {
		_ = s.Retry() // its status says
	}
}

// expire ends overrides and break-glass whose time is over. Each is a change,
// made by time.
func (p *Plane) expire(now time.Time) {
	for name, o := range p.memory.overrides {
		if !o.Over(now) {
			continue
		}
		c := p.byTime(now, "override.expire", name, o.ExpiresAt)
		c.record.Before = string(o.Mode)
		_, _ = p.commitExpiry(c, now, name, keyOverride+name)
	}
	if b := p.memory.breakGlass; b != nil && b.Over(now) {
		c := p.byTime(now, "break-glass.expire", "", &b.ExpiresAt)
		c.record.Before = b.Action
		_, _ = p.commitExpiry(c, now, "", keyGlass)
	}
}

func (p *Plane) byTime(now time.Time, action, name string, at *time.Time) *change {
	return &change{record: history.Record{
		Time: now, Actor: history.Actor{Name: "system:ttl"}, Surface: "system", Action: action, Target: name, ExpiresAt: at,
	}}
}

// commitExpiry removes a record. What cannot be removed is over all the same:
// what holds is worked out from the time.
func (p *Plane) commitExpiry(c *change, now time.Time, name, key string) (*changed, error) {
	r := &c.record
	r.ID, r.Outcome, r.Revision = history.NewID(now), history.Expired, max(p.memory.contents.Revision, p.history.Revision())+1
	if it := p.memory.with(key, nil, r.Revision).state(p.opts.Chains, now).items[name]; it != nil {
		r.After = string(it.effective.Mode)
	}
	var audited bool
	again := p.stuck[key]
	if !again {
		c.record, audited = p.record(*r, true)
	}
	if err := p.keep(context.WithoutCancel(p.life), key, nil, c.record.Revision); err != nil {
		if again {
			return nil, err // which was written down the first time
		}
		p.stuck[key] = true
		return nil, p.failed(c, err)
	}
	if again {
		c.record, audited = p.record(*r, true)
	}
	delete(p.stuck, key)
	p.metrics.changed(&c.record)
	p.log(&c.record).Warn("override has ended")
	return &changed{state: p.state.Load(), record: c.record, audited: audited}, nil
}

// warnings are how long before its end an override is warned of.
func warnings() []time.Duration { return []time.Duration{time.Minute, 15 * time.Minute} }

// warn tells once for each of the warnings that an end is near, and returns the
// last one that was told. Name is empty for break-glass.
func (p *Plane) warn(name string, at time.Time, left time.Duration) time.Duration {
	told := p.warned[name+at.String()]
	for _, w := range warnings() {
		if left <= 0 || left > w {
			continue
		}
		if told != 0 && told <= w {
			return told
		}
		raw, err := core.Encode(map[string]any{"interceptor": name, "expiresAt": at.UTC(), "secondsLeft": left.Seconds()})
		if err != nil {
			return told
		}
		p.opts.Logger.Warn("an override ends soon", "interceptor", name, "expires_at", at)
		p.metrics.expiring.Inc()
		p.hub.publish(event{Type: eventExpiring, Interceptor: name, Data: raw})
		return w
	}
	return told
}

// publishDecision tells those who asked for decisions.
func (p *Plane) publishDecision(t *tally) {
	d := t.view()
	raw, err := core.Encode(&d)
	if err != nil {
		return
	}
	for _, step := range d.Steps {
		if step.Verdict != "allow" {
			p.hub.publish(event{Type: eventDecision, Interceptor: step.Interceptor, Data: raw})
			return
		}
	}
}
