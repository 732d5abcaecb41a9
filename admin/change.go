package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A change is an attempt to change a layer, on its way through the plane.
type change struct {
	record history.Record // who, what, why; completed on the way
	match  *precondition
	dryRun bool
	admin  bool // the actor has the role admin
}

// A changed is what became of a change.
type changed struct {
	state  *state
	record history.Record
	noop   bool
	// audited says that the record is in the history on disk, if there is one.
	audited bool
}

// setOverride puts an override on an interceptor.
func (p *Plane) setOverride(ctx context.Context, name string, body []byte, c *change) (*changed, error) {
	p.write.Lock()
	defer p.write.Unlock()
	now := time.Now()
	it, err := p.item(name)
	if err != nil {
		return nil, err
	}
	if err := c.match.check(it.tag(), viewItem(name, it)); err != nil {
		return nil, err
	}
	in, err := control.ParseOverride(body)
	if err != nil {
		return nil, err
	}
	o, err := in.Override(&it.layers, p.opts.Limits, now, c.admin)
	if err != nil {
		return nil, err
	}
	o.Actor = c.record.Actor.Name
	c.record.Reason, c.record.Ticket, c.record.ExpiresAt = o.Reason, o.Ticket, o.ExpiresAt
	c.record.Before = string(it.effective.Mode)
	if old := it.layers.Override; old != nil && !old.Over(now) && control.Same(old, o) {
		return p.noop(c, old.Reason != o.Reason)
	}
	return p.commit(ctx, c, now, name, func(r *history.Record) (key string, value any) {
		o.Change = r.ID
		return keyOverride + name, o
	})
}

// clearOverride takes the override off an interceptor.
func (p *Plane) clearOverride(ctx context.Context, name string, c *change) (*changed, error) {
	p.write.Lock()
	defer p.write.Unlock()
	now := time.Now()
	it, err := p.item(name)
	if o := p.memory.overrides[name]; err != nil && o != nil { // for one that is not there at the moment
		it, err = standing(name, o, p.memory.records[keyOverride+name]), nil
	}
	if err != nil {
		return nil, err
	}
	if err := c.match.check(it.tag(), viewItem(name, it)); err != nil {
		return nil, err
	}
	c.record.Before = string(it.effective.Mode)
	if it.layers.Override == nil {
		return p.noop(c, false)
	}
	return p.commit(ctx, c, now, name, func(*history.Record) (string, any) { return keyOverride + name, nil })
}

// breakGlass weakens everything.
func (p *Plane) breakGlass(ctx context.Context, body []byte, c *change) (*changed, error) {
	p.write.Lock()
	defer p.write.Unlock()
	now := time.Now()
	in, err := control.ParseBreakGlass(body)
	if err != nil {
		return nil, err
	}
	b, err := in.BreakGlass(p.opts.Limits, now)
	if err != nil {
		return nil, err
	}
	b.Actor = c.record.Actor.Name
	c.record.Reason, c.record.Ticket, c.record.ExpiresAt, c.record.After = b.Reason, b.Ticket, &b.ExpiresAt, b.Action
	return p.commit(ctx, c, now, "", func(r *history.Record) (string, any) {
		b.Change = r.ID
		return keyGlass, b
	})
}

// mendGlass ends break-glass.
func (p *Plane) mendGlass(ctx context.Context, c *change) (*changed, error) {
	p.write.Lock()
	defer p.write.Unlock()
	if p.memory.breakGlass == nil {
		return p.noop(c, false)
	}
	c.record.Before = p.memory.breakGlass.Action
	return p.commit(ctx, c, time.Now(), "", func(*history.Record) (string, any) { return keyGlass, nil })
}

// item returns the interceptor of a name; an error with near matches for none.
func (p *Plane) item(name string) (*item, error) {
	s := p.state.Load()
	if it := s.items[name]; it != nil {
		return it, nil
	}
	bad := newProblem("not-found", "no interceptor has this name")
	bad.similar = similar(name, s.names)
	return nil, bad
}

// noop answers a change that changes nothing.
func (p *Plane) noop(c *change, write bool) (*changed, error) {
	c.record.Outcome, c.record.Revision, c.record.After = history.Noop, p.memory.contents.Revision, c.record.Before
	out := &changed{state: p.state.Load(), noop: true, audited: true}
	if write && !c.dryRun {
		c.record, out.audited = p.record(c.record, true)
	}
	out.record = c.record
	p.metrics.changed(&c.record)
	return out, nil
}

// commit makes a change: it is written down, kept, applied and told, in this
// order. A dry run stops before the first. p.write is held.
func (p *Plane) commit(ctx context.Context, c *change, now time.Time, name string,
	build func(*history.Record) (key string, value any),
) (*changed, error) {
	r := &c.record
	r.ID, r.Time, r.Outcome = history.NewID(now), now, history.Applied
	r.Revision = max(p.memory.contents.Revision, p.history.Revision()) + 1
	key, value := build(r)
	raw, err := encodeValue(value)
	if err != nil {
		return nil, err
	}
	r.Change = raw
	preview := p.memory.with(key, raw, r.Revision).state(p.opts.Chains, now)
	if it := preview.items[name]; it != nil {
		r.After = string(it.effective.Mode)
	}
	if c.dryRun {
		r.DryRun = true
		return &changed{state: preview, record: *r, audited: true}, nil
	}
	var audited bool
	c.record, audited = p.record(*r, true)
	if err := p.keep(ctx, key, raw, c.record.Revision); err != nil {
		return nil, p.failed(c, err)
	}
	if p.store.Status().Err == nil {
		delete(p.degraded, "state") // what could not be read was put aside
	}
	p.apply(now)
	p.nudge()
	p.metrics.changed(&c.record)
	p.log(&c.record).Warn("policy changed")
	return &changed{state: p.state.Load(), record: c.record, audited: audited}, nil
}

func encodeValue(value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	return core.Encode(value)
}

// keep commits a value to the store. A store that allocates another revision
// than was written down has others that write to it; that one counts.
func (p *Plane) keep(ctx context.Context, key string, raw json.RawMessage, revision uint64) error {
	note, err := core.Encode(p.history.Head())
	if err != nil {
		return err
	}
	// A change that was begun is not ended by its client's going away.
	revision, err = p.store.Commit(context.WithoutCancel(ctx), store.Commit{
		Writes: []store.Write{{Key: key, Was: p.memory.records[key], Value: raw}}, Note: note, Floor: revision - 1,
	})
	if err != nil {
		return err
	}
	next := p.memory.with(key, raw, revision)
	next.contents.Note = note
	p.memory = next
	return nil
}

// failed writes down that a change did not come to be.
func (p *Plane) failed(c *change, err error) error {
	slug := "store-unavailable"
	if errors.Is(err, store.ErrConflict) {
		slug = "stale"
		p.poke()
	}
	p.opts.Logger.Error("change not kept", "action", c.record.Action, "target", c.record.Target, "err", err)
	bad := newProblem(slug, "the store did not take the change")
	bad.retryAfter = 1
	undone := c.record
	undone.ID, undone.Outcome, undone.Problem = "", history.Rejected, slug
	p.record(undone, true)
	return bad
}

// with returns the memory after a change of one record.
func (m *memory) with(key string, raw json.RawMessage, revision uint64) *memory {
	c := m.contents
	c.Revision = revision
	c.Records = slices.DeleteFunc(slices.Clone(c.Records), func(r store.Record) bool { return r.Key == key })
	c.Records = append(c.Records, store.Record{Key: key, Revision: revision, Value: raw})
	slices.SortFunc(c.Records, func(a, b store.Record) int { return cmp.Compare(a.Key, b.Key) })
	next := remember(c)
	next.configured = m.configured
	return next
}

// record completes a record, writes it and tells whoever listens.
func (p *Plane) record(r history.Record, sync bool) (history.Record, bool) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r, err := p.history.Append(r, sync)
	p.judge()
	written := err == nil
	if err != nil {
		p.degraded["history"] = "the history cannot be written"
		p.opts.Logger.Error("history not written", "action", r.Action, "target", r.Target, "err", err)
	} else if missing := p.degraded["history"]; missing == "the history cannot be written" {
		delete(p.degraded, "history")
	}
	if raw, err := core.Encode(&r); err == nil && r.Outcome != history.Rejected {
		for _, e := range eventsOf(&r, raw) {
			if !written {
				e.Seq = 0 // another record will have it
			}
			p.hub.publish(e)
		}
	}
	return r, written
}

// Configure replaces the configured layer, as after a change of its file. One
// that does not fit the interceptors that are known changes nothing.
func (p *Plane) Configure(c *control.Configuration) error {
	p.write.Lock()
	defer p.write.Unlock()
	return p.configure(c, history.Actor{Name: "system:configuration"}, "file")
}

// configure takes a configuration over. p.write is held, and there may be no
// state yet.
func (p *Plane) configure(c *control.Configuration, by history.Actor, surface string) error {
	if c == nil {
		c = &control.Configuration{}
	}
	now := time.Now()
	if err := errors.Join(c.Check(p.memory.state(p.opts.Chains, now).hooks()), p.checkConfigs(c)); err != nil {
		return err
	}
	before := p.memory.configured
	p.memory.configured = c
	next := configuredRecord{Digests: digests(c), Revisions: maps.Clone(p.memory.changed.Revisions)}
	names := differing(p.memory.changed.Digests, next.Digests)
	if len(names) == 0 {
		p.apply(now)
		return nil
	}
	revision := max(p.memory.contents.Revision, p.history.Revision()) + 1
	for _, name := range names {
		next.Revisions[name] = revision
	}
	r := history.Record{
		Time: now, Actor: by, Surface: surface, Action: "config.load", Outcome: history.Applied, Revision: revision,
	}
	r.Change, _ = core.Encode(map[string]any{"interceptors": names})
	r, _ = p.record(r, true)
	raw, err := core.Encode(next)
	if err != nil {
		return err
	}
	if err := p.keep(p.life, keyConfigured, raw, revision); err != nil {
		p.memory.configured = before
		return err
	}
	p.apply(now)
	p.metrics.changed(&r)
	return nil
}

// tellUnknown reports names in the configuration that no chain has: a slip in a
// name is a guard that is not configured. They may come later, with a host.
func (p *Plane) tellUnknown() {
	var unknown []string
	if p.memory.configured != nil {
		for name := range p.memory.configured.Interceptors {
			if p.state.Load().items[name] == nil {
				unknown = append(unknown, strconv.Quote(name))
			}
		}
	}
	slices.Sort(unknown)
	text := ""
	if len(unknown) > 0 {
		text = "no interceptor has the configured name " + strings.Join(unknown, ", ")
	}
	if p.degraded["configuration"] == text {
		return
	}
	delete(p.degraded, "configuration")
	if text != "" {
		p.degraded["configuration"] = text
		p.opts.Logger.Warn("configured, and not there", "interceptors", unknown)
	}
}

// checkConfigs says which configurations do not match their schemas.
func (p *Plane) checkConfigs(c *control.Configuration) error {
	var errs []error
	for name, s := range c.Interceptors {
		if s.Config == nil {
			continue
		}
		for _, w := range p.watchers {
			if err := w.chain.CheckConfig(name, s.Config); err != nil && !errors.Is(err, chain.ErrUnknownName) {
				// The cause may quote the configuration, which may hold secrets.
				errs = append(errs, fmt.Errorf("admin: the config of %q does not match its configSchema", name))
			}
		}
	}
	return errors.Join(errs...)
}

// digests returns a digest of what is configured for each interceptor. The
// values themselves may be secrets and are kept nowhere.
func digests(c *control.Configuration) map[string]string {
	out := map[string]string{}
	for name, s := range c.Interceptors {
		if raw, err := core.Encode(s); err == nil {
			sum := sha256.Sum256(raw)
			out[name] = hex.EncodeToString(sum[:])
		}
	}
	return out
}

// differing returns the keys under which two maps differ, sorted.
func differing(a, b map[string]string) []string {
	var names []string
	for name := range a {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
