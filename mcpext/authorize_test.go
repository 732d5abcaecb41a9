package mcpext_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
)

var bothMethods = map[string]string{core.MethodList: `{}`, core.MethodInvoke: invocation(``)}

// B11: whoever may not call the methods learns nothing, and runs nothing.
func TestAuthorizeRefuses(t *testing.T) {
	type authorize = func(context.Context, *mcp.ServerSession, string) error
	tests := map[string]authorize{
		"by an error": func(context.Context, *mcp.ServerSession, string) error { return errors.New(secret) },
		"by a panic":  func(context.Context, *mcp.ServerSession, string) error { panic(secret) },
	}
	for name, authorize := range tests {
		for _, version := range []string{modern, legacy} {
			t.Run(name+" "+version, func(t *testing.T) {
				log, ran := &logBuffer{}, false
				_, server := host(t, &mcpext.Options{Authorize: authorize, Logger: slog.New(slog.NewTextHandler(log, nil))},
					ct.Validator("x", func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
						ran = true
						return core.Allow(), nil
					}))
				p := dial(t, server, version)
				want := `"error":{"code":-32600,"message":"not authorized"}`
				for method, params := range bothMethods {
					assert.Contains(t, p.ask(method, params), want)
					assert.Contains(t, log.String(), secret)
				}
				assert.Contains(t, p.ask(core.MethodInvoke, `{"name":"nobody"}`), want, "names cannot be tried out")
				assert.Contains(t, p.ask(core.MethodInvoke, `{"name":7}`), want)
				assert.False(t, ran)
			})
		}
	}
}

// Authorize is asked for each call, with the session that it came in on.
func TestAuthorizeIsAskedPerSessionAndMethod(t *testing.T) {
	var mu sync.Mutex
	var trusted *mcp.ServerSession
	var asked []string
	_, server := host(t, &mcpext.Options{Authorize: func(_ context.Context, ss *mcp.ServerSession, method string) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, method)
		if ss != trusted {
			return errors.New("a stranger")
		}
		return nil
	}}, named("x"))
	friend := dial(t, server, legacy)
	for ss := range server.Sessions() {
		mu.Lock()
		trusted = ss
		mu.Unlock()
	}
	stranger := dial(t, server, legacy)
	for method, params := range bothMethods {
		friend.result(friend.ask(method, params))
		stranger.refused(stranger.ask(method, params), -32600, "")
	}
	assert.ElementsMatch(t, []string{core.MethodList, core.MethodList, core.MethodInvoke, core.MethodInvoke}, asked)
	assert.Equal(t, declares(`["tools/call"]`), extensions(t, server, legacy), "handshakes are not asked about")
}
