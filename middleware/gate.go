package middleware

import (
	"context"
	"crypto/rand"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A gate applies a chain to the messages of one side. It keeps no state between
// messages but the queues of notifications.
type gate struct {
	chain   *chain.Chain
	opts    Options
	logger  *slog.Logger
	sending bool // messages that this peer sends; otherwise those it receives
	// peer handles requests that a result carries for this peer; nil leaves
	// them to whoever gets the result. It is set on clients before traffic.
	peer    *handlerBox
	scratch scratches // of encoders: no handler ever sees it
	shapes  shapes
	notes   noteQueues
	embeds  atomic.Pointer[embeds]
	offers  offers
	key     [32]byte // of embedded ids

	versions []string // that this SDK speaks
}

func newGate(ch *chain.Chain, opts *Options, sending bool) *gate {
	g := &gate{chain: ch, sending: sending, shapes: newShapes(), versions: mcp.SupportedProtocolVersions()}
	if opts != nil {
		g.opts = *opts
	}
	g.logger = g.opts.Logger
	if g.logger == nil {
		g.logger = slog.New(slog.DiscardHandler)
	}
	_, _ = rand.Read(g.key[:]) // never fails (crypto/rand)
	g.notes.waiting = map[mcp.Session][]note{}
	g.offers.add(core.EventToolsCall, g.opts.Tools...)
	g.offers.add(core.EventPromptsGet, g.opts.Prompts...)
	return g
}

// direction is that of the requests; their responses go the other way.
func (g *gate) direction(phase core.Phase) core.Direction {
	if g.sending == (phase == core.PhaseRequest) {
		return core.Sending
	}
	return core.Receiving
}

// middleware returns the gate as go-sdk wants it.
func (g *gate) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		return g.pass(ctx, method, req, next)
	}
}

func (g *gate) pass(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	snap := g.chain.Snapshot()
	request, response := snap.HookedPhases(method)
	rounds := manyRounds(method) && (g.peer != nil || g.embedsHooked(snap))
	note := core.IsNotification(method)
	if !request && !response && !rounds && !snap.Observed() {
		return g.handle(ctx, method, req, next, note)
	}
	m := &message{
		gate: g, snapshot: snap, method: method, req: req, next: next,
		note: note, request: request, response: response, rounds: rounds,
	}
	if note && request && !g.sending && (snap.Blocks(method, core.PhaseRequest) || g.notes.busy(req.GetSession())) {
		g.notes.add(ctx, m)
		return nil, nil
	}
	res, err := m.run(ctx)
	if note && m.end.Phase != "" {
		return nil, nil // a notification that was stopped is dropped: nobody waits for an answer
	}
	return res, err
}

// embedsHooked reports whether anything is hooked on what a result or params
// may carry. The answer is kept for as long as the policy is.
func (g *gate) embedsHooked(snap *chain.Snapshot) bool {
	if known := g.embeds.Load(); known != nil && known.snapshot == snap {
		return known.hooked
	}
	known := &embeds{snapshot: snap, hooked: embedsHooked(snap)}
	g.embeds.Store(known)
	return known.hooked
}

// embeds says whether a policy has hooks on embedded requests.
type embeds struct {
	snapshot *chain.Snapshot
	hooked   bool
}

// handle calls the next handler, contains its panics and refuses results that
// would take the process down when the SDK touches them.
func (g *gate) handle(ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler, note bool) (res mcp.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			g.logger.Error("handler panicked", "method", method, "panic", v, "stack", string(debug.Stack()))
			res, err = nil, errPanicked
		}
	}()
	res, err = next(ctx, method, req)
	switch {
	case err != nil && isNil(err):
		// A nil pointer in the interface: the SDK would die of asking it.
		g.logger.Error("handler returned a nil error that is not nil", "method", method)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textInternal}
	case err != nil:
		return nil, err
	}
	if note {
		return nil, nil
	}
	if isNil(res) {
		g.logger.Error("handler returned neither a result nor an error", "method", method)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textInternal}
	}
	return res, nil
}

// errPanicked is what the caller of a handler that panicked is told.
var errPanicked = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: textInternal}
