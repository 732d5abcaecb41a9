package chain

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/headgate-mcp/headgate/core"
)

// compile makes a snapshot of hosts, overrides and observers and swaps it in,
// unless the chain is closed and stays so. It joins the faults of entries; an
// entry with a fault is compiled to fail. c.mu is held.
func (c *Chain) compile() error {
	if c.closed {
		return ErrClosed
	}
	s, err := c.build()
	c.publish(s)
	return err
}

// publish swaps a snapshot in and tells those who want to know. c.mu is held,
// so that they are told in order.
func (c *Chain) publish(s *Snapshot) {
	c.built = s.number
	c.snapshot.Store(s)
	s.observers.policyChanged(c, s.entries())
}

func (c *Chain) build() (*Snapshot, error) {
	s := &Snapshot{chain: c, number: c.built + 1, hosts: slices.Clone(c.hosts)}
	for _, o := range c.observers {
		s.observers = append(s.observers, *o)
	}
	s.propagator = c.propagator(s.observers)
	taken := map[string]string{}
	var errs []error
	for _, hd := range c.hosts {
		for i := range hd.bindings {
			st := c.newStep(hd.name, &hd.bindings[i], len(s.steps))
			st.entry.host, _ = hd.host.(HealthReporter)
			if other, ok := taken[st.entry.Name]; ok {
				st.fail(fmt.Errorf("name is taken by host %q", other))
			}
			taken[st.entry.Name] = hd.name
			if st.entry.Health.Err != nil {
				errs = append(errs, fmt.Errorf("interceptor %q: %w", st.entry.Name, st.entry.Health.Err))
			}
			st.handles = s.observers.prepare(st.entry)
			s.steps = append(s.steps, st)
		}
	}
	s.compile()
	return s, errors.Join(errs...)
}

func (c *Chain) newStep(host string, b *Binding, order int) *step {
	e := newEntry(host, b.Descriptor, c.overrides[b.Name], c.opts.InvokeTimeout)
	e.Remote, e.guard = b.Remote, c.guardOf(host, b)
	st := &step{
		entry: e, order: order,
		audit:    e.Effective.Mode == core.ModeAudit,
		failOpen: e.Effective.FailOpen,
		inline:   e.Inline || e.Effective.Timeout < 0,
		timeout:  e.Effective.Timeout,
		headRoom: b.HeadRoom,
		config:   c.configs[e.Name],
		invoke:   b.Invoke, checkConfig: b.CheckConfig,
		guard: e.guard,
		lane:  c.audit.lane(host, e.Name),
	}
	if e.Overrides.Config != nil {
		st.config = e.Overrides.Config
	}
	st.auditTimeout = c.opts.AuditTimeout
	if e.Overrides.Timeout > 0 {
		st.auditTimeout = e.Overrides.Timeout
	}
	st.fail(c.fault(st))
	return st
}

// fault says why a step cannot run.
func (c *Chain) fault(st *step) error {
	if err := st.entry.Metadata.Check(); err != nil {
		return err
	}
	if st.config != nil && st.checkConfig != nil {
		if err := st.checkConfig(st.config); err != nil {
			return fmt.Errorf("config: %w", err)
		}
	}
	if len(c.opts.Protocols) > 0 && !slices.ContainsFunc(c.opts.Protocols, st.entry.Compat.Allows) {
		return errCompat
	}
	return nil
}

// fail makes the step one whose every invoke fails with err.
func (st *step) fail(err error) {
	if err == nil {
		return
	}
	st.entry.Health.Err = err
	st.checkConfig = nil
	st.invoke = func(context.Context, *core.Invocation) (core.Answer, error) { return core.Answer{}, err }
}

// guardOf returns the binding's guard, or one that outlives this compilation.
func (c *Chain) guardOf(host string, b *Binding) *Guard {
	if b.Guard != nil {
		return b.Guard
	}
	key := host + "\x00" + b.Name
	if c.guards[key] == nil {
		c.guards[key] = new(Guard)
	}
	return c.guards[key]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// messageIDs makes ids that are unique among processes: a random prefix and a
// counter. They are made by the dozen, in one string, since each message needs
// one; the pool gives each processor a dozen of its own, without a lock.
type messageIDs struct {
	prefix string
	last   atomic.Uint64
	ready  sync.Pool // of *someIDs
}

// someIDs are ids that nobody has yet.
type someIDs struct {
	text string
	ends [idsAtOnce]int // of each id in the text
	next int
}

const idsAtOnce = 64

func (m *messageIDs) init() {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	letters := make([]byte, 0, 2*len(b)+1)
	for _, x := range b {
		// Letters only: a long run of digits would look like a card number.
		letters = append(letters, 'a'+x>>4, 'a'+x&15)
	}
	m.prefix = string(append(letters, '-'))
}

func (m *messageIDs) next() string {
	ids, ok := m.ready.Get().(*someIDs)
	if !ok {
		ids = &someIDs{next: idsAtOnce}
	}
	if ids.next == idsAtOnce {
		m.more(ids)
	}
	start := 0
	if ids.next > 0 {
		start = ids.ends[ids.next-1]
	}
	id := ids.text[start:ids.ends[ids.next]]
	ids.next++
	m.ready.Put(ids)
	return id
}

// more makes the next dozen.
func (m *messageIDs) more(ids *someIDs) {
	var room [40 * idsAtOnce]byte
	text := room[:0]
	first := m.last.Add(idsAtOnce) - idsAtOnce
	for i := range ids.ends {
		text = strconv.AppendUint(append(text, m.prefix...), first+uint64(i)+1, 36)
		ids.ends[i] = len(text)
	}
	ids.text, ids.next = string(text), 0
}
