package chain

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A HealthReporter is a [Host] that knows whether it can be reached.
type HealthReporter interface {
	// Health says how the host fares at this moment. It must not block.
	Health() HostHealth
}

// A HostHealth says how a host fares. Its errors are for operators: they may quote
// addresses and what the peer said.
type HostHealth struct {
	// Err is why the host cannot be reached at the moment; nil if it can.
	Err error
	// Fault is Err in one word; empty if the host can be reached.
	Fault HostFault
	// Since is when it became so.
	Since time.Time
	// Losses counts how often it was there and then was not.
	Losses uint64
	// Last is why it was lost last, even if it is back; nil for never.
	Last error
}

// A HostFault says in one word why a host cannot be reached. The set is closed.
type HostFault string

// The faults.
const (
	FaultSession      HostFault = "session"      // the session ended, or the peer forgot it
	FaultUnreachable  HostFault = "unreachable"  // nobody answers there
	FaultUnresponsive HostFault = "unresponsive" // it takes messages and does not answer in time
	FaultProtocol     HostFault = "protocol"     // it answers, and not as an interceptor server
)

// A Refresher is a [Host] that can be asked to look again at once: to list what
// it has, or to dial if it cannot be reached.
type Refresher interface {
	// Refresh returns when that was done, or ctx ends.
	Refresh(ctx context.Context) error
}

// A HostStatus is a host of a chain, and how it fares.
type HostStatus struct {
	// Name is what the host was added under.
	Name string
	// Remote says that it is reached over a connection.
	Remote bool
	// Reports says that the host knows how it fares; Health is zero otherwise.
	Reports bool
	Health  HostHealth
	// Interceptors counts those that it listed last.
	Interceptors int
}

// HostStatuses returns the hosts in the order in which they were added, as they
// are at this moment. It takes no lock of the chain.
func (c *Chain) HostStatuses() []HostStatus {
	s := c.snapshot.Load()
	out := make([]HostStatus, len(s.hosts))
	for i, hd := range s.hosts {
		out[i].Name = hd.name
		_, out[i].Remote = hd.host.(RemoteHost)
		if r, ok := hd.host.(HealthReporter); ok {
			out[i].Reports, out[i].Health = true, r.Health()
		}
		for _, st := range s.steps {
			if st.entry.Host == hd.name {
				out[i].Interceptors++
			}
		}
	}
	return out
}

// RefreshHost lists one host again, and has it dial at once if it cannot be
// reached. What it lists takes effect with the next message. A host that cannot
// be listed keeps what it had. [ErrUnknownHost] is wrapped if there is none of
// that name.
func (c *Chain) RefreshHost(ctx context.Context, name string) error {
	c.mu.Lock()
	i := slices.IndexFunc(c.hosts, func(hd *hosted) bool { return hd.name == name })
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	if i < 0 {
		c.mu.Unlock()
		return fmt.Errorf("chain: %w: %q", ErrUnknownHost, name)
	}
	hd := c.hosts[i]
	c.mu.Unlock()
	return c.refreshHosts(ctx, []*hosted{hd})
}
