package mcpext

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// LocalChain returns a chain that reaches the extension's interceptors through
// MCP in memory: it lists them with interceptors/list and invokes each with
// interceptor/invoke, on a private server that none of the user's middleware
// stands in front of. It behaves as [Extension.Chain] does and costs more; it
// is there for those who want each invoke to be a message. It follows later
// changes. Close ends its session; ctx bounds the set-up only.
func (e *Extension) LocalChain(ctx context.Context, opts *chain.Options) (*chain.Chain, error) {
	return e.localChain(ctx, opts, nil)
}

// localChain is LocalChain with a tap on the messages to and from the private
// server.
func (e *Extension) localChain(ctx context.Context, opts *chain.Options, tap func(jsonrpc.Message)) (*chain.Chain, error) {
	h, err := e.dial(ctx, tap)
	if err != nil {
		return nil, err
	}
	ch, err := newChain(opts)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	h.service.extract = ch.Extract // before the first invoke
	if err := ch.AddHost(ctx, "local", h); err != nil {
		return nil, errors.Join(err, h.Close(), ch.Close())
	}
	e.own(ch)
	return ch, nil
}

// A localHost is an extension behind a session in memory.
type localHost struct {
	*sessionHost
	extension *Extension
	service   *service
	server    *mcp.ServerSession
	unwatch   func()

	mu       sync.Mutex
	bindings []chain.Binding

	watchMu sync.Mutex // serialises calls of changed
	changed func()     // the chain's; nil if there is none
}

var _ chain.Binder = (*localHost)(nil)

// dial serves the extension on a private server and connects to it. There is
// nobody to authorize and nothing to limit: the only client is here.
func (e *Extension) dial(ctx context.Context, tap func(jsonrpc.Message)) (*localHost, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: "headgate-local", Version: "1"}, nil)
	private := &service{extension: e, private: true, maxPayload: math.MaxInt, maxInvokes: math.MaxInt64}
	if err := private.register(server); err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "headgate-local", Version: "1"}, nil)
	if err := RegisterSendingMethods(client); err != nil {
		return nil, err
	}
	clientEnd, serverEnd := newPipes(tap)
	// The session outlives the call that opens it, and handlers must not find
	// that call's values in their contexts.
	ss, err := server.Connect(context.Background(), serverEnd, nil)
	if err != nil {
		return nil, fmt.Errorf("mcpext: local server: %w", err)
	}
	// The older era has no _meta to be written and read with each message.
	cs, err := client.Connect(context.Background(), clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return nil, fmt.Errorf("mcpext: local client: %w", errors.Join(err, ss.Close()))
	}
	h := &localHost{
		sessionHost: newSessionHost(cs, &SessionOptions{MaxPayload: math.MaxInt, Logger: e.opts.Logger}),
		extension:   e, service: private, server: ss,
	}
	h.local = true
	// Watched before it is listed, so that no change falls in between.
	h.unwatch = e.watch(h.follow)
	if err := h.relist(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// follow lists again after a change of the extension and passes it on. What
// cannot be listed is bound all the same, to be present and failing.
func (h *localHost) follow() {
	if err := h.relist(context.Background()); err != nil {
		h.logger.Warn("local interceptors not listed", "err", err)
	}
	h.watchMu.Lock()
	defer h.watchMu.Unlock()
	if h.changed != nil {
		h.changed()
	}
}

// relist reads the list over the session. The lock is held meanwhile, so that
// of two changes at once the later one's list is the one that stays.
func (h *localHost) relist(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, err := h.List(ctx)
	if err != nil {
		list, _ = (&host{h.extension}).List(ctx) // never fails
	}
	h.bindings = make([]chain.Binding, len(list))
	for i, d := range list {
		h.bindings[i] = h.bind(d)
	}
	return err
}

// bind returns the binding of a listed interceptor. One that is gone meanwhile
// has nothing to check and fails.
func (h *localHost) bind(d core.Descriptor) chain.Binding {
	b := chain.Binding{
		Descriptor: d, HeadRoom: headRoom, Remote: true,
		Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
			return h.Invoke(ctx, d.Name, inv)
		},
	}
	if r := h.extension.registry.Load().byName[d.Name]; r != nil {
		b.CheckConfig, b.Guard = r.checkConfig, &r.guard
	}
	return b
}

// Bindings returns what was listed last.
func (h *localHost) Bindings() []chain.Binding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bindings
}

// Watch has changed called after each change of the extension, when the list
// has been read again.
func (h *localHost) Watch(changed func()) (stop func()) {
	h.watchMu.Lock()
	defer h.watchMu.Unlock()
	h.changed = changed
	return func() {
		h.watchMu.Lock()
		defer h.watchMu.Unlock()
		h.changed = nil
	}
}

// Close ends the session from both ends.
func (h *localHost) Close() error {
	h.unwatch()
	err := h.sessionHost.Close()
	// It can only say that the pipe was closed before its last answers were
	// written, which nobody waits for any more.
	_ = h.server.Wait()
	return err
}
