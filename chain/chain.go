package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-mcp/headgate/core"
)

// A Chain runs interceptors of one or more hosts. Make one with [New].
type Chain struct {
	// Fixed at creation.
	opts    Options
	configs map[string]map[string]any
	audit   *auditor
	seed    maphash.Seed // of payloads' sums

	snapshot atomic.Pointer[Snapshot]
	ids      messageIDs
	inflight atomic.Int64  // calls of active interceptors that run
	done     chan struct{} // closed when Close has ended
	ended    error         // what Close returned; set before done is closed

	mu        sync.Mutex
	hosts     []*hosted
	overrides map[string]Overrides
	observers []*Observer
	guards    map[string]*Guard
	built     uint64 // the number of the newest snapshot
	closed    bool
}

// A hosted is a host in a chain, and what it listed last.
type hosted struct {
	// Fixed at creation.
	name string
	host Host
	stop func()

	refreshing chan struct{} // holds one token while somebody refreshes; taken before the chain's lock

	bindings []Binding // guarded by the chain
}

// New returns a chain without hosts. Configurations that JSON cannot hold are
// an error.
func New(opts *Options) (*Chain, error) {
	c := &Chain{opts: opts.withDefaults(), seed: maphash.MakeSeed(), guards: map[string]*Guard{}, configs: map[string]map[string]any{}}
	for name, config := range c.opts.Config {
		canonical, err := canonicalConfig(config)
		if err != nil {
			return nil, fmt.Errorf("chain: config of %q: %w", name, err)
		}
		c.configs[name] = canonical
	}
	if err := c.opts.check(); err != nil {
		return nil, err
	}
	c.audit = newAuditor(&c.opts)
	c.done = make(chan struct{})
	c.ids.init()
	if c.opts.Observer != nil {
		c.observers = append(c.observers, &c.opts.Observer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.compile() // nothing can be wrong with no hosts
	return c, nil
}

// canonicalConfig gives a configuration the form that it would have after a
// trip over the wire, so that local and remote handlers are given the same.
func canonicalConfig(config map[string]any) (map[string]any, error) {
	raw, err := core.Encode(config)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

// AddHost lists a host and adds its interceptors under the host's name, which
// must be new, as must the names of all its interceptors. Faults are joined,
// and then nothing is added. The chain closes its hosts.
func (c *Chain) AddHost(ctx context.Context, name string, h Host) error {
	hd := &hosted{name: name, host: h, stop: func() {}, refreshing: make(chan struct{}, 1)}
	// Watched before it is read, so that no change falls in between; changes
	// of a host that is not in the chain yet are ignored.
	if b, ok := h.(Binder); ok {
		hd.stop = b.Watch(func() { c.follow(hd, b) })
	}
	bindings, err := bind(ctx, h)
	if err == nil {
		err = c.addHost(hd, bindings)
	}
	if err != nil {
		hd.stop()
		return fmt.Errorf("chain: host %q: %w", name, err)
	}
	return nil
}

func (c *Chain) addHost(hd *hosted, bindings []Binding) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	for _, other := range c.hosts {
		if other.name == hd.name {
			return errors.New("host name is taken")
		}
	}
	hd.bindings = bindings
	if b, ok := hd.host.(Binder); ok {
		hd.bindings = b.Bindings() // the newest: changes are followed from here on
	}
	c.hosts = append(c.hosts, hd)
	s, err := c.build()
	if err != nil {
		c.hosts = c.hosts[:len(c.hosts)-1]
		return err // nothing of it was ever live
	}
	c.publish(s)
	return nil
}

// RemoveHost takes a host and its interceptors out of the chain and closes it,
// so that another can be added in its place. Messages under way keep them to
// their end, and fail where the host has gone. It is an error if there is no
// host of that name.
func (c *Chain) RemoveHost(name string) error {
	c.mu.Lock()
	i := slices.IndexFunc(c.hosts, func(hd *hosted) bool { return hd.name == name })
	if c.closed || i < 0 {
		c.mu.Unlock()
		return fmt.Errorf("chain: no host %q", name)
	}
	hd := c.hosts[i]
	c.hosts = slices.Delete(slices.Clone(c.hosts), i, i+1)
	_ = c.compile() // what is left was there before
	c.mu.Unlock()
	hd.stop()
	return hd.host.Close()
}

// follow takes over a change of a host in this process. A fault in what is new
// leaves that interceptor present and failing.
func (c *Chain) follow(hd *hosted, b Binder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !slices.Contains(c.hosts, hd) {
		return
	}
	hd.bindings = b.Bindings()
	_ = c.compile()
}

// Refresh lists all hosts again. Faults are joined; a host that cannot be
// listed keeps what it listed before, and an interceptor with a fault is
// present and failing.
func (c *Chain) Refresh(ctx context.Context) error {
	c.mu.Lock()
	hosts := slices.Clone(c.hosts)
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return c.refreshHosts(ctx, hosts)
}

// refreshHosts refreshes one host after the other, and takes effect once.
func (c *Chain) refreshHosts(ctx context.Context, hosts []*hosted) error {
	var errs []error
	for _, hd := range hosts {
		if err := c.refreshOne(ctx, hd); err != nil {
			errs = append(errs, fmt.Errorf("chain: host %q: %w", hd.name, err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(append(errs, c.compile())...)
}

// refreshOne takes over what a host lists now. A host that hangs keeps nobody
// from refreshing others, and from this one no longer than ctx says.
func (c *Chain) refreshOne(ctx context.Context, hd *hosted) error {
	select { // one at a time, or else an older list could replace a newer one
	case hd.refreshing <- struct{}{}:
		defer func() { <-hd.refreshing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	list, err := refreshed(ctx, hd.host)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b, ok := hd.host.(Binder); ok {
		list = b.Bindings() // it may have changed since
	}
	hd.bindings = list
	return nil
}

// refreshed has a host look again, and lists it.
func refreshed(ctx context.Context, h Host) ([]Binding, error) {
	if r, ok := h.(Refresher); ok {
		if err := r.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	return bind(ctx, h)
}

// SetOverrides replaces all overrides, by interceptor name. It is all or
// nothing: an unknown name or hooks that widen are an error that says which,
// and then nothing changes. Messages under way keep the policy they began with.
func (c *Chain) SetOverrides(overrides map[string]Overrides) error {
	return c.setOverrides(overrides, false)
}

// SetStanding is SetOverrides for whoever keeps policy for longer than
// interceptors live: an override for a name that no host lists yet stands, and
// holds from the moment when one does. Hooks in it that widen have no effect.
func (c *Chain) SetStanding(overrides map[string]Overrides) error {
	return c.setOverrides(overrides, true)
}

func (c *Chain) setOverrides(overrides map[string]Overrides, standing bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	names := c.snapshot.Load().names
	next := make(map[string]Overrides, len(overrides))
	var errs []error
	for _, name := range sortedKeys(overrides) {
		o := overrides[name]
		st, ok := names[name]
		o = o.clone()
		err := o.canonicalConfig()
		switch {
		case ok:
			err = errors.Join(err, o.check(&st.entry.Descriptor))
		case !standing:
			err = ErrUnknownName
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("chain: override of %q: %w", name, err))
		}
		next[name] = o
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	c.overrides = next
	_ = c.compile() // faults are those of before and stand in the entries
	return nil
}

// AddObserver adds an observer. Messages under way are not shown to it. The
// returned function removes it again.
func (c *Chain) AddObserver(o Observer) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := &o
	c.observers = append(c.observers, mine)
	_ = c.compile()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := len(c.observers)
		c.observers = slices.DeleteFunc(slices.Clone(c.observers), func(p *Observer) bool { return p == mine })
		if len(c.observers) == before {
			return
		}
		observers{o}.policyChanged(c, nil)
		_ = c.compile()
	}
}

// Entries returns all interceptors in the order in which hosts and the
// interceptors in them were added.
func (c *Chain) Entries() []Entry {
	steps := c.snapshot.Load().steps
	out := make([]Entry, len(steps))
	for i, st := range steps {
		out[i] = st.entry.clone()
		out[i].Health.Host = st.entry.HostHealth()
		out[i].Health.Abandoned = st.guard.Abandoned()
		out[i].Health.AuditQueued, out[i].Health.AuditDropped = st.lane.health()
	}
	return out
}

// Hosts returns the names of the hosts in the order in which they were added.
func (c *Chain) Hosts() []string {
	hosts := c.snapshot.Load().hosts
	names := make([]string, len(hosts))
	for i, hd := range hosts {
		names[i] = hd.name
	}
	return names
}

// Snapshot returns the policy of this moment.
func (c *Chain) Snapshot() *Snapshot { return c.snapshot.Load() }

// NewMessageID returns an id that no other message of any process has.
func (c *Chain) NewMessageID() string { return c.ids.next() }

// Execute runs one phase of a message under the policy of this moment.
func (c *Chain) Execute(ctx context.Context, req *Request) (*Result, error) {
	return c.Snapshot().Execute(ctx, req)
}

// Close ends the audit runner and closes the hosts. Audit runs that wait are
// given Options.DrainTimeout; what has not finished by then is cancelled and
// reported in the error. Later executions fail with [ErrClosed].
func (c *Chain) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return c.ended
	}
	c.closed = true
	hosts := c.hosts
	// What was guarded stays guarded: messages that come late are refused.
	s := &Snapshot{chain: c, hosts: slices.Clone(hosts), steps: c.snapshot.Load().steps, closed: true}
	s.compile()
	watching := c.snapshot.Load().observers
	c.snapshot.Store(s)
	c.mu.Unlock()
	for _, hd := range hosts {
		hd.stop()
	}
	defer close(c.done)
	errs := []error{c.audit.close()}
	watching.policyChanged(c, nil)
	for _, hd := range hosts {
		if err := hd.host.Close(); err != nil {
			errs = append(errs, fmt.Errorf("chain: host %q: %w", hd.name, err))
		}
	}
	c.ended = errors.Join(errs...)
	return c.ended
}
