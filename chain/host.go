package chain

import (
	"context"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A Host is where interceptors live. Its methods may be called from several
// goroutines at once.
type Host interface {
	// List returns the descriptors of all interceptors, names unique.
	List(ctx context.Context) ([]core.Descriptor, error)
	// Invoke runs one interceptor. The answer must fit the interceptor's type;
	// the chain checks. Deadline and panics are the chain's business too.
	Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error)
	// Close gives up what the host holds. The chain calls it once.
	Close() error
}

// A Binder is a [Host] whose interceptors are in this process: each can be
// bound when a plan is made, so that a message does not look anything up, and
// changes are followed as they happen.
type Binder interface {
	Host
	// Bindings returns all interceptors as they are now.
	Bindings() []Binding
	// Watch has changed called after each change of Bindings, one call at a
	// time, until stop is called.
	Watch(changed func()) (stop func())
}

// A Binding is one interceptor, bound.
type Binding struct {
	core.Descriptor
	// Invoke runs the interceptor.
	Invoke func(ctx context.Context, inv *core.Invocation) (core.Answer, error)
	// CheckConfig says whether a configuration fits. Nil takes all.
	CheckConfig func(config map[string]any) error
	// HeadRoom is how much longer than an invoke's timeout the chain waits. A
	// host that passes the timeout on needs it for the way back: the peer's
	// own report of a timeout is better than a lost call.
	HeadRoom time.Duration
	// Remote says that invokes leave this process, or are sent as if they did.
	Remote bool
	// Guard limits the interceptor wherever it is called from. Nil means that
	// the chain makes one.
	Guard *Guard
}

// A RemoteHost is a [Host] at the other end of a connection. Its invokes are
// sent with [TraceMeta].
type RemoteHost interface {
	Host
	// HeadRoom is that of all its bindings.
	HeadRoom() time.Duration
}

// bind returns the host's interceptors as bindings.
func bind(ctx context.Context, h Host) ([]Binding, error) {
	if b, ok := h.(Binder); ok {
		return b.Bindings(), nil
	}
	list, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	var headRoom time.Duration
	remote, isRemote := h.(RemoteHost)
	if isRemote {
		headRoom = remote.HeadRoom()
	}
	out := make([]Binding, len(list))
	for i, d := range list {
		out[i] = Binding{
			Descriptor: d, HeadRoom: headRoom, Remote: isRemote,
			Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
				return h.Invoke(ctx, d.Name, inv)
			},
		}
	}
	return out, nil
}
