package mcpext

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	// MaxPayload bounds what one invoke sends, in bytes: the payload, nearly
	// always, with configuration and context. The peer may end the session over
	// a message that is too large for it. Zero means 3 MiB, which leaves room
	// below the 4 MiB that go-sdk's HTTP servers take.
	MaxPayload int
	// Logger takes warnings about what is skipped in a list. Nil logs nothing.
	Logger *slog.Logger
}

const defaultSessionPayload = 3 << 20

// Errors of a session host.
var (
	// ErrPayloadTooLarge is wrapped by failures of invokes that were not sent
	// since they are larger or nest deeper than the session can carry.
	ErrPayloadTooLarge = errors.New("payload too large for the session")

	errBadList    = errors.New("interceptors/list does not come to an end")
	errHostClosed = errors.New("the session was closed on this side")
	errStillOpen  = errors.New("mcpext: the session does not close")
)

// maxPages bounds a list that never ends.
const maxPages = 1000

// A sessionHost is an interceptor server at the other end of a session.
type sessionHost struct {
	session *mcp.ClientSession
	opts    SessionOptions
	logger  *slog.Logger
	// local says that the other end is in this process and believes this one.
	local bool

	life context.Context // ended by Close
	end  context.CancelFunc
}

var _ interface {
	chain.Host
	chain.RemoteHost
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
	return newSessionHost(session, opts)
}

func newSessionHost(session *mcp.ClientSession, opts *SessionOptions) *sessionHost {
	h := &sessionHost{session: session}
	h.life, h.end = context.WithCancel(context.Background())
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
// chain closes the session when it is closed, or when [chain.Chain.RemoveHost]
// takes the server out; after an error the session is still the caller's. Its
// client must have been given to [RegisterSendingMethods].
//
// An entry of the list that cannot be read is a guard that is missing, so it
// is logged: to [slog.Default], unless options name another logger. At most
// one set of options may be given.
func AddMCPServer(ctx context.Context, ch *chain.Chain, session *mcp.ClientSession, opts ...*SessionOptions) error {
	o := &SessionOptions{Logger: slog.Default()}
	if len(opts) > 0 && opts[0] != nil {
		o = opts[0]
	}
	name := "mcp"
	if res := session.InitializeResult(); res != nil && res.ServerInfo != nil && core.CheckName(res.ServerInfo.Name) == nil {
		name = res.ServerInfo.Name
	}
	return ch.AddHost(ctx, unusedName(ch.Hosts(), name), NewSessionHost(session, o))
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
	list, _, err := h.list(ctx)
	return list, err
}

// list reports too whether all of the list could be read.
func (h *sessionHost) list(ctx context.Context) (out []core.Descriptor, whole bool, err error) {
	out, whole = []core.Descriptor{}, true
	seen := map[string]bool{}
	for cursor, page := "", 0; page < maxPages; page++ {
		res, err := mcp.CallCustomMethod[*ListParams, *ListResult](ctx, h.session, core.MethodList, &ListParams{Cursor: cursor})
		if err != nil {
			return nil, false, fmt.Errorf("mcpext: %s: %w", core.MethodList, err)
		}
		whole = whole && res.Interceptors != nil
		for _, raw := range res.Interceptors {
			d, ok := h.read(raw)
			if ok {
				out = append(out, d)
			}
			whole = whole && ok
		}
		if cursor = res.NextCursor; cursor == "" {
			return out, whole, nil
		}
		if seen[cursor] {
			break
		}
		seen[cursor] = true
	}
	return nil, false, fmt.Errorf("mcpext: %w", errBadList)
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
	params, err := h.params(ctx, name, inv)
	if err != nil {
		return core.Answer{}, err
	}
	// The SDK's Close waits for calls under way; ours ends them.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	res, err := mcp.CallCustomMethod[*InvokeParams, *InvokeResult](ctx, h.session, core.MethodInvoke, params)
	if err != nil {
		return core.Answer{}, h.failure(err)
	}
	if !answers(res, params) {
		return core.Answer{}, fmt.Errorf("%w: not the answer to this invoke", core.ErrMalformed)
	}
	return res.Answer, nil
}

// answers reports whether a result is to the invoke that it came for, as far as
// it says: a host or a gateway may confuse requests, and a pass for one message
// must not be taken for another's.
func answers(res *InvokeResult, params *InvokeParams) bool {
	id, said := res.Meta[metaMessage]
	return (res.Interceptor == "" || res.Interceptor == params.Name) && (res.Phase == "" || res.Phase == params.Phase) &&
		(!said || id == params.MessageID || len(params.MessageID) > maxMessageID)
}

// params returns what an invoke sends, for this call alone: the SDK writes
// _meta into it. It is written here, so that all of it can be measured.
func (h *sessionHost) params(ctx context.Context, name string, inv *core.Invocation) (*InvokeParams, error) {
	if len(inv.Payload) > h.opts.MaxPayload { // not worth writing
		return nil, tooLarge(len(inv.Payload), h.opts.MaxPayload)
	}
	bare, ok := strings.CutPrefix(name, h.opts.Prefix)
	if !ok {
		return nil, fmt.Errorf("mcpext: %q: %w", name, ErrNotFound)
	}
	p := &InvokeParams{InvokeRequest: core.InvokeRequest{
		Name: bare, Timeout: peerTimeout(ctx), Invocation: *inv,
	}}
	p.Meta = chain.TraceMeta(ctx)
	if who := inv.Context.Principal; h.local && who != nil && who.Asserted {
		if p.Meta == nil {
			p.Meta = mcp.Meta{}
		}
		p.Meta[metaAsserted] = true
	}
	var err error
	if p.body, err = p.InvokeRequest.MarshalJSON(); err != nil {
		return nil, err
	}
	levels := maxDepth
	if h.local {
		levels++ // frames are not read as such
	}
	switch {
	case len(p.body) > h.opts.MaxPayload:
		return nil, tooLarge(len(p.body), h.opts.MaxPayload)
	case core.Depth(p.body) > levels:
		return nil, fmt.Errorf("%w: more than %d levels deep", ErrPayloadTooLarge, levels)
	}
	return p, nil
}

func tooLarge(size, most int) error {
	return fmt.Errorf("%w: %d bytes, at most %d", ErrPayloadTooLarge, size, most)
}

// failure returns what a call's error means for the chain. Of what the peer
// says, one word counts.
func (h *sessionHost) failure(err error) error {
	if h.life.Err() != nil {
		return errHostClosed
	}
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		return err
	}
	err = &chain.RemoteError{Code: wire.Code, Err: err}
	if wire.Code == codeTimeout {
		return fmt.Errorf("%w: %w", chain.ErrTimeout, err)
	}
	var data errorData
	if json.Unmarshal(wire.Data, &data) != nil {
		return err
	}
	switch data.Reason {
	case reasonMalformed:
		return fmt.Errorf("%w: %w", core.ErrMalformed, err)
	case reasonOverload:
		return fmt.Errorf("%w: %w", chain.ErrTooManyAbandoned, err)
	case reasonCrash:
		return &chain.PanicError{Value: err}
	}
	return err
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

// maxDepth is how deep the params or the result of a message may nest: go-sdk
// reads frames of 1,000 levels, and these stand one level down.
const maxDepth = 1000 - 1

// closePatience bounds Close. The SDK gives a child process 15 s to end.
const closePatience = 16 * time.Second

// Close ends the invokes under way and closes the session. It does not wait
// for ever on a peer that has gone silent.
func (h *sessionHost) Close() error {
	h.end()
	closed := make(chan error, 1)
	go func() { closed <- h.session.Close() }()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return errStillOpen
	}
}
