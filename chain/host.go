package chain

import (
	"context"

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
	// Guard limits the interceptor wherever it is called from. Nil means that
	// the chain makes one.
	Guard *Guard
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
	out := make([]Binding, len(list))
	for i, d := range list {
		out[i] = Binding{
			Descriptor: d,
			Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
				return h.Invoke(ctx, d.Name, inv)
			},
		}
	}
	return out, nil
}
