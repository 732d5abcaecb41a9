package mcpext

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options configures an [Extension]. The zero value is ready to use.
type Options struct {
	// Logger takes warnings and the details of failures that callers are not
	// told. Nil logs nothing.
	Logger *slog.Logger
	// Authorize says whether a session may call the method, which is one of
	// interceptors/list and interceptor/invoke. Its error is logged, not sent.
	// Nil lets in whoever the server lets in. The principal in an invoke's
	// context is the caller's own word and plays no part in it.
	Authorize func(ctx context.Context, session *mcp.ServerSession, method string) error
	// InvokeTimeout bounds an invoke that names no timeoutMs. Zero means 5 s.
	InvokeTimeout time.Duration
	// MaxPayload bounds the payload of an invoke in bytes, and what the
	// interceptor may make of it. Zero means 4 MiB. The SDK's transports end a
	// session over a message of more than 16 MiB.
	MaxPayload int
	// MaxInvokes bounds how many invokes run at once. Zero means 128.
	MaxInvokes int
	// Propagator reads the trace context that an invoke carries, so that spans
	// of handlers join the caller's trace. Nil reads none. A chain in this
	// process has its own way.
	Propagator chain.Propagator
}

const (
	defaultInvokeTimeout = 5 * time.Second
	defaultMaxPayload    = 4 << 20
	defaultMaxInvokes    = 128
)

// An Extension is a registry of interceptors in this process. Make one with
// [New].
type Extension struct {
	// Fixed at creation.
	opts   Options
	logger *slog.Logger

	exposed *service // what Install exposes; its limits hold for all servers together

	registry atomic.Pointer[registry]

	mu       sync.Mutex // serialises changes of the registry
	watchers []*func()
	chains   []weak.Pointer[chain.Chain] // of this extension's own making; whoever has them keeps them
}

var _ chain.Binder = (*host)(nil)

// New returns an empty extension.
func New(opts *Options) *Extension {
	e := &Extension{}
	if opts != nil {
		e.opts = *opts
	}
	e.logger = e.opts.Logger
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	if e.opts.InvokeTimeout <= 0 {
		e.opts.InvokeTimeout = defaultInvokeTimeout
	}
	if e.opts.MaxPayload <= 0 {
		e.opts.MaxPayload = defaultMaxPayload
	}
	if e.opts.MaxInvokes <= 0 {
		e.opts.MaxInvokes = defaultMaxInvokes
	}
	e.exposed = &service{
		extension: e, authorize: e.opts.Authorize,
		maxPayload: e.opts.MaxPayload, maxInvokes: int64(e.opts.MaxInvokes),
	}
	if p := e.opts.Propagator; p != nil {
		e.exposed.extract = p.Extract
	}
	e.registry.Store(&registry{byName: map[string]*registered{}})
	return e
}

// AddInterceptor registers interceptors. Every fault of every argument is
// joined into the error, and then none is added. They take effect in all
// chains and lists with the next message.
func (e *Extension) AddInterceptor(interceptors ...core.Interceptor) error {
	e.mu.Lock()
	next, added, err := e.registry.Load().with(interceptors)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	e.registry.Store(next)
	watchers := slices.Clone(e.watchers)
	e.mu.Unlock()
	e.warn(added)
	notify(watchers)
	return nil
}

// RemoveInterceptor takes an interceptor out and reports whether it was there.
// Messages under way keep it to their end.
func (e *Extension) RemoveInterceptor(name string) bool {
	e.mu.Lock()
	next := e.registry.Load().without(name)
	if next == nil {
		e.mu.Unlock()
		return false
	}
	e.registry.Store(next)
	watchers := slices.Clone(e.watchers)
	e.mu.Unlock()
	notify(watchers)
	return true
}

// notify runs without the lock: watchers take locks of their own, and read the
// newest registry in whatever order they are called.
func notify(watchers []*func()) {
	for _, w := range watchers {
		(*w)()
	}
}

// warn points out hooks that can never fire.
func (e *Extension) warn(added []*registered) {
	for _, r := range added {
		for _, h := range r.Hooks {
			for _, event := range h.Events {
				if why := idle(event, h.Phase); why != "" {
					e.logger.Warn("hook never fires", "interceptor", r.Name, "event", event, "phase", h.Phase, "why", why)
				} else if method := nearest(event); method != "" {
					e.logger.Warn("hook on an unknown event", "interceptor", r.Name, "event", event, "nearest", method)
				}
			}
		}
	}
}

func idle(event string, phase core.Phase) string {
	one := core.Hook{Events: []string{event}, Phase: phase}
	switch {
	case core.Literal(event) && !one.Matches(event, phase):
		return "this event is never intercepted in this phase"
	case core.IsNotification(event) && !core.Literal(event):
		return "patterns do not match notifications: name them"
	case event == "*/request" && phase == core.PhaseResponse, event == "*/response" && phase == core.PhaseRequest:
		return "this pattern is for the other phase"
	}
	return ""
}

// Chain returns a chain that runs the extension's interceptors by direct
// dispatch and follows later changes. Close it when it is no longer needed;
// the extension stays usable.
func (e *Extension) Chain(opts *chain.Options) (*chain.Chain, error) {
	ch, err := newChain(opts)
	if err != nil {
		return nil, err
	}
	if err := ch.AddHost(context.Background(), "local", &host{e}); err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	e.warnOfConfigs(opts)
	e.own(ch)
	return ch, nil
}

// own notes a chain, whose operator may turn interceptors off.
func (e *Extension) own(ch *chain.Chain) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.chains = append(e.chains, weak.Make(ch))
}

// off returns the interceptors that are off in all chains that run them: they
// are not listed, and not to be had.
func (e *Extension) off() map[string]bool {
	e.mu.Lock()
	var chains []*chain.Chain
	e.chains = slices.DeleteFunc(e.chains, func(p weak.Pointer[chain.Chain]) bool {
		ch := p.Value()
		if ch == nil || ch.Snapshot().Closed() {
			return true
		}
		chains = append(chains, ch)
		return false
	})
	e.mu.Unlock()
	off := map[string]bool{}
	for i, ch := range chains {
		for _, entry := range ch.Entries() {
			if i == 0 {
				off[entry.Name] = entry.Effective.Off
			} else if !entry.Effective.Off {
				off[entry.Name] = false
			}
		}
	}
	return off
}

// warnOfConfigs points out configurations that nobody has asked for. They may
// be for interceptors that are still to come, so they are no error.
func (e *Extension) warnOfConfigs(opts *chain.Options) {
	if opts == nil {
		return
	}
	for name := range opts.Config {
		if e.registry.Load().byName[name] == nil {
			e.logger.Warn("config for an interceptor that is not registered", "interceptor", name)
		}
	}
}

// newChain returns a chain that knows which protocols this SDK speaks.
func newChain(opts *chain.Options) (*chain.Chain, error) {
	var o chain.Options
	if opts != nil {
		o = *opts
	}
	if o.Protocols == nil {
		o.Protocols = mcp.SupportedProtocolVersions()
	}
	return chain.New(&o)
}

// A host is an extension as chains see it.
type host struct{ e *Extension }

// List returns the descriptors in the order of registration.
func (h *host) List(context.Context) ([]core.Descriptor, error) {
	var out []core.Descriptor
	for _, r := range h.e.registry.Load().list {
		out = append(out, r.Descriptor)
	}
	return out, nil
}

// Invoke runs one interceptor by name.
func (h *host) Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error) {
	r := h.e.registry.Load().byName[name]
	if r == nil {
		return core.Answer{}, fmt.Errorf("mcpext: %q: %w", name, ErrNotFound)
	}
	return r.invoke(ctx, inv)
}

// Close does nothing: the extension outlives its chains.
func (h *host) Close() error { return nil }

// Bindings returns all interceptors as they are now.
func (h *host) Bindings() []chain.Binding {
	list := h.e.registry.Load().list
	out := make([]chain.Binding, len(list))
	for i, r := range list {
		out[i] = r.binding()
	}
	return out
}

// Watch has changed called after each change.
func (h *host) Watch(changed func()) (stop func()) {
	return h.e.watch(changed)
}

func (e *Extension) watch(changed func()) (stop func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mine := &changed
	e.watchers = append(e.watchers, mine)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.watchers = slices.DeleteFunc(e.watchers, func(w *func()) bool { return w == mine })
	}
}
