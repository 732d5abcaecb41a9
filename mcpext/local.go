package mcpext

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// LocalChain returns a chain that reaches the extension's interceptors through
// MCP in memory: it lists them with interceptors/list and invokes each with
// interceptor/invoke, on a private server that none of the user's middleware
// stands in front of. It behaves as [Extension.Chain] does and costs more; it
// is there for those who want each invoke to be a message. It follows later
// changes. Close ends its session; ctx bounds the set-up only.
func (e *Extension) LocalChain(ctx context.Context, opts *chain.Options) (*chain.Chain, error) {
	h, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := newChain(opts)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := ch.AddHost(ctx, "local", h); err != nil {
		return nil, errors.Join(err, h.Close(), ch.Close())
	}
	return ch, nil
}

// A localHost is an extension behind a session in memory.
type localHost struct {
	chain.Host // over the session
	extension  *Extension
	server     *mcp.ServerSession

	mu       sync.Mutex
	bindings []chain.Binding
}

var _ chain.Binder = (*localHost)(nil)

// dial serves the extension on a private server and connects to it. There is
// nobody to authorize and nothing to limit: the only client is here.
func (e *Extension) dial(ctx context.Context) (*localHost, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: "headgate-local", Version: "1"}, nil)
	private := &service{extension: e, maxPayload: math.MaxInt, maxInvokes: math.MaxInt64}
	if err := private.register(server); err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "headgate-local", Version: "1"}, nil)
	if err := RegisterSendingMethods(client); err != nil {
		return nil, err
	}
	clientEnd, serverEnd := newPipes()
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
		Host:      NewSessionHost(cs, &SessionOptions{MaxPayload: math.MaxInt, Logger: e.opts.Logger}),
		extension: e, server: ss,
	}
	if err := h.relist(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// relist reads the list over the session. The lock is held meanwhile, so that
// of two changes at once the later one's list is the one that stays.
func (h *localHost) relist(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, err := h.List(ctx)
	if err != nil {
		return err
	}
	h.bindings = make([]chain.Binding, len(list))
	for i, d := range list {
		h.bindings[i] = chain.Binding{
			Descriptor: d,
			Invoke: func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
				return h.Invoke(ctx, d.Name, inv)
			},
			CheckConfig: h.extension.checkConfig(d.Name),
			HeadRoom:    headRoom,
		}
	}
	return nil
}

// checkConfig returns the check of an interceptor's configurations; nil for
// one that is gone.
func (e *Extension) checkConfig(name string) func(map[string]any) error {
	if r := e.registry.Load().byName[name]; r != nil {
		return r.checkConfig
	}
	return nil
}

// Bindings returns what was listed last.
func (h *localHost) Bindings() []chain.Binding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bindings
}

// Watch lists again after each change of the extension.
func (h *localHost) Watch(changed func()) (stop func()) {
	return h.extension.watch(func() {
		if err := h.relist(context.Background()); err != nil {
			h.extension.logger.Warn("local interceptors not listed", "err", err)
		}
		changed()
	})
}

// Close ends the session from both ends.
func (h *localHost) Close() error {
	return errors.Join(h.Host.Close(), h.server.Wait())
}
