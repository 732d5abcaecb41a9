package middleware

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options configures [Receiving] and [Sending]. The zero value is ready to use.
type Options struct {
	// ContextProvider says on whose behalf a message travels. It is called
	// once per intercepted message and must judge by req alone: its token,
	// headers and session. go-sdk's contexts carry the values of whatever opened
	// the session, for ever, so ctx shows values only where there is no session
	// (stateless HTTP) and on clients. A zero Timestamp and an empty SessionID are filled
	// in. If it panics, each interceptor of the message fails.
	//
	// Nil means: the principal is the user of the request's verified bearer
	// token, if there is one.
	ContextProvider func(ctx context.Context, req mcp.Request) core.InvocationContext
	// AllowRetarget lets mutators change a request's name or uri; the
	// validators then run once more on the new payload. Without it such a
	// change is a failure of the mutator.
	AllowRetarget bool
	// ScrubErrors replaces the text and data of errors that the server's own
	// handlers return with a fixed text; codes stay. Responses that are errors
	// are not shown to interceptors, so their text passes otherwise.
	ScrubErrors bool
	// Tools and Prompts are names that the server is known to have from the
	// start, so that observers may tell them from whatever clients ask for.
	// Others become known when they are listed, or when a call succeeds.
	Tools, Prompts []string
	// Logger takes what callers are not told: who blocked, what failed, and
	// the stacks of panics. Nil logs nothing.
	Logger *slog.Logger
}

// provide fills the invocation context of a message.
func (g *gate) provide(ctx context.Context, req mcp.Request, start time.Time) (c core.InvocationContext, err error) {
	defer func() {
		if v := recover(); v != nil {
			g.logger.Error("context provider panicked", "panic", v, "stack", string(debug.Stack()))
			c, err = core.InvocationContext{}, errors.New("context provider panicked")
		}
	}()
	if g.opts.ContextProvider != nil {
		c = g.opts.ContextProvider(ctx, req)
	} else if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil && extra.TokenInfo.UserID != "" {
		c.Principal = &core.Principal{Type: "user", ID: extra.TokenInfo.UserID}
	}
	if c.Timestamp.IsZero() {
		c.Timestamp = start
	}
	if c.SessionID == "" {
		c.SessionID = sessionID(req)
	}
	return c, nil
}

// sessionID returns the id of the request's session; empty if it has none.
func sessionID(req mcp.Request) string {
	switch s := req.GetSession().(type) {
	case *mcp.ServerSession:
		if s != nil {
			return s.ID()
		}
	case *mcp.ClientSession:
		if s != nil {
			return s.ID()
		}
	}
	return ""
}

// firstModern is the first version that each request names in its _meta. It
// has no session that could have agreed on another.
const firstModern = "2026-07-28"

// protocolVersion returns the MCP version that the request speaks; empty if
// that is not known for sure. A client may claim any version: what counts is
// what the SDK acts on, which is _meta's word if it is a version without
// sessions that this SDK knows, or else the version that the session asked
// for, if that is one that could be agreed on.
func (g *gate) protocolVersion(req mcp.Request) string {
	if params := req.GetParams(); !isNil(params) {
		v, _ := metaOf(params)[mcp.MetaKeyProtocolVersion].(string)
		if v >= firstModern && slices.Contains(g.versions, v) {
			return v
		}
	}
	var v string
	switch s := req.GetSession().(type) {
	case *mcp.ServerSession:
		if s != nil && s.InitializeParams() != nil {
			v = s.InitializeParams().ProtocolVersion
		}
	case *mcp.ClientSession:
		if s != nil && s.InitializeResult() != nil {
			v = s.InitializeResult().ProtocolVersion
		}
	}
	if !slices.Contains(g.versions, v) {
		return ""
	}
	return v
}

// metaOf returns the params' _meta, or nil where asking for it panics, as it
// does for params whose embedded base is a nil pointer.
func metaOf(params mcp.Params) (meta map[string]any) {
	defer func() { _ = recover() }()
	return params.GetMeta()
}

// stale reports whether the context's values may be those of another request.
// On a server they are, unless the request is known to have come alone: on a
// session they belong to whoever opened it.
func stale(req mcp.Request) bool {
	s, ok := req.GetSession().(*mcp.ServerSession)
	return ok && (s == nil || s.ID() != "" || req.GetExtra() == nil)
}

// cleaned returns ctx without stale values. What a server starts while it
// handles a request keeps what interceptors and observers of that request saw.
func cleaned(ctx context.Context) valuesOf {
	if clean, ok := ctx.Value(cleanKey{}).(context.Context); ok {
		return valuesOf{ctx, clean}
	}
	return valuesOf{ctx, context.Background()}
}

// valuesOf is a context with the values of another.
type valuesOf struct {
	context.Context
	values context.Context
}

// Value returns the other context's value. What middleware outside this one
// put there for this very message is seen through it.
func (c valuesOf) Value(key any) any {
	if _, ok := key.(chain.MessageKey); ok {
		return c.Context.Value(key)
	}
	return c.values.Value(key)
}

// both is a context with the values of the one in it and, where that has none,
// of another: the SDK's handlers need what the SDK put there.
type both struct {
	context.Context
	behind context.Context
}

// cleanKey finds the context in a both.
type cleanKey struct{}

// Value returns the context's value, or the one behind it.
func (c both) Value(key any) any {
	if key == (cleanKey{}) {
		return c.Context
	}
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.behind.Value(key)
}
