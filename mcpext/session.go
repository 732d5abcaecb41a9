package mcpext

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SessionOptions configures [NewSessionHost]. The zero value is ready to use.
type SessionOptions struct {
	// Prefix is put before the names that the host lists, so that two hosts
	// can have interceptors of the same name. Empty keeps names as they are.
	Prefix string
	// MaxPayload bounds the payload of one invoke in bytes: the peer may end
	// the session over a message that is too large for it. Zero means 3 MiB,
	// which leaves room below the 4 MiB that go-sdk's HTTP servers take.
	MaxPayload int
	// Logger takes warnings about what is skipped in a list. Nil logs nothing.
	Logger *slog.Logger
}

const defaultSessionPayload = 3 << 20

// Errors of a session host.
var (
	// ErrPayloadTooLarge is wrapped by failures of invokes that were not sent
	// since their payload is larger or deeper than the session can carry.
	ErrPayloadTooLarge = errors.New("payload too large for the session")

	errBadList = errors.New("interceptors/list does not come to an end")
)

// maxPages bounds a list that never ends.
const maxPages = 1000

// A sessionHost is an interceptor server at the other end of a session.
type sessionHost struct {
	session *mcp.ClientSession
	opts    SessionOptions
	logger  *slog.Logger
}

var _ interface {
	chain.Host
	chain.HeadRoomer
} = (*sessionHost)(nil)

// NewSessionHost returns a host over a session with an interceptor server, on
// any transport. The session's client must have been given to
// [RegisterSendingMethods]. Closing the host closes the session.
//
// An invoke is sent with its timeout, and waited for a little longer, so that
// the peer's own timeout is reported rather than a lost call.
// Payloads that could end the session are refused before they are sent, and
// whatever goes wrong on the way is a failure of the interceptor.
func NewSessionHost(session *mcp.ClientSession, opts *SessionOptions) chain.Host {
	h := &sessionHost{session: session}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.MaxPayload <= 0 {
		h.opts.MaxPayload = defaultSessionPayload
	}
	h.logger = h.opts.Logger
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	return h
}

// AddMCPServer lists the interceptors of the server at the other end of the
// session and adds them to the chain, under the server's own name. A server
// that cannot be listed, and a name that another host has, are errors. The
// chain closes the session when it is closed. For a prefix or other limits use
// [NewSessionHost] with [chain.Chain.AddHost].
func AddMCPServer(ctx context.Context, ch *chain.Chain, session *mcp.ClientSession) error {
	name := "mcp"
	if res := session.InitializeResult(); res != nil && res.ServerInfo != nil && core.CheckName(res.ServerInfo.Name) == nil {
		name = res.ServerInfo.Name
	}
	return ch.AddHost(ctx, unusedName(ch.Hosts(), name), NewSessionHost(session, nil))
}

// unusedName tells servers of the same name apart.
func unusedName(taken []string, name string) string {
	for n, candidate := 2, name; ; n++ {
		free := true
		for _, t := range taken {
			free = free && t != candidate
		}
		if free {
			return candidate
		}
		candidate = fmt.Sprintf("%s#%d", name, n)
	}
}

// List drains all pages. An entry that is of an unknown type, or that cannot
// be read, is skipped with a warning and does not take the rest with it.
func (h *sessionHost) List(ctx context.Context) ([]core.Descriptor, error) {
	out := []core.Descriptor{}
	seen := map[string]bool{}
	for cursor, page := "", 0; page < maxPages; page++ {
		res, err := mcp.CallCustomMethod[*ListParams, *ListResult](ctx, h.session, core.MethodList, &ListParams{Cursor: cursor})
		if err != nil {
			return nil, fmt.Errorf("mcpext: %s: %w", core.MethodList, err)
		}
		for _, raw := range res.Interceptors {
			if d, ok := h.read(raw); ok {
				out = append(out, d)
			}
		}
		if cursor = res.NextCursor; cursor == "" {
			return out, nil
		}
		if seen[cursor] {
			break
		}
		seen[cursor] = true
	}
	return nil, fmt.Errorf("mcpext: %w", errBadList)
}

func (h *sessionHost) read(raw json.RawMessage) (core.Descriptor, bool) {
	var d core.Descriptor
	if err := json.Unmarshal(raw, &d); err != nil {
		h.logger.Warn("interceptor skipped", "err", err)
		return d, false
	}
	d.Name = h.opts.Prefix + d.Name
	if err := core.CheckName(d.Name); err != nil {
		h.logger.Warn("interceptor skipped", "name", d.Name, "err", err)
		return d, false
	}
	return d, true
}

// Invoke sends interceptor/invoke.
func (h *sessionHost) Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error) {
	if err := h.carries(inv.Payload); err != nil {
		return core.Answer{}, err
	}
	// Params of its own for each call: the SDK writes _meta into them.
	params := &InvokeParams{InvokeRequest: core.InvokeRequest{
		Name: name[len(h.opts.Prefix):], Timeout: peerTimeout(ctx), Invocation: *inv,
	}}
	res, err := mcp.CallCustomMethod[*InvokeParams, *InvokeResult](ctx, h.session, core.MethodInvoke, params)
	var wire *jsonrpc.Error
	switch {
	case errors.As(err, &wire) && wire.Code == codeTimeout:
		return core.Answer{}, fmt.Errorf("%w: %w", chain.ErrTimeout, err)
	case err != nil:
		return core.Answer{}, err
	}
	return res.Answer, nil
}

// headRoom is how much longer than its timeout an invoke is waited for.
const headRoom = 500 * time.Millisecond

// HeadRoom is what the chain waits beyond the timeout that the peer is told.
func (h *sessionHost) HeadRoom() time.Duration { return headRoom }

// peerTimeout returns the time that the peer is told it has.
func peerTimeout(ctx context.Context) time.Duration {
	timeout, ok := chain.InvokeTimeout(ctx)
	if !ok {
		deadline, bounded := ctx.Deadline()
		if !bounded {
			return 0
		}
		timeout = max(time.Until(deadline), time.Millisecond)
	}
	if timeout <= 0 {
		return core.MaxTimeout // or else the peer's default would hold
	}
	return min(timeout, core.MaxTimeout)
}

// Frames that go-sdk reads nest at most 1,000 deep; the payload stands two
// levels down in one.
const maxDepth = 1000 - 2

// carries says whether a payload can be sent without harm to the session.
func (h *sessionHost) carries(payload []byte) error {
	if len(payload) > h.opts.MaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrPayloadTooLarge, len(payload), h.opts.MaxPayload)
	}
	if core.Depth(payload) > maxDepth {
		return fmt.Errorf("%w: more than %d levels deep", ErrPayloadTooLarge, maxDepth)
	}
	return nil
}

// Close closes the session.
func (h *sessionHost) Close() error { return h.session.Close() }
