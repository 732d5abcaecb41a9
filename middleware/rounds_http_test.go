package middleware_test

//lint:file-ignore SA1019 Roots: They are deprecated and still have to be judged.

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A user is who a client's requests are from; it may change within a session.
type user struct{ name atomic.Value }

func (u *user) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-User", u.name.Load().(string))
	return http.DefaultTransport.RoundTrip(req)
}

// What a server asks its client for over HTTP passes the gate, stateful (the
// older era) and stateless (the newer one), and sees nobody else's values.
func TestServersAskClientsOverHTTP(t *testing.T) {
	tests := map[string]struct {
		opts    mcp.StreamableHTTPOptions
		version string
		want    any // the value that interceptors find in the context
	}{
		"stateful, SSE":   {stateful, legacy, nil},
		"stateless, SSE":  {stateless, modern, "bob"},
		"stateless, JSON": {statelessJSON, modern, "bob"},
	}
	for name, tt := range tests {
		for event := range inputs {
			t.Run(name+" "+event, func(t *testing.T) {
				var seen []any
				p := &protected{ext: mcpext.New(nil), server: mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)}
				asking(p.server, inputs[event])
				middleware.Server(p.server, newChain(t,
					ct.Validator("v", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
						seen = append(seen, ctx.Value(userKey{}))
						return core.Allow(), nil
					}, ct.On(core.PhaseBoth, event)),
					replacing("m", core.PhaseResponse, event, "answer", "changed"),
				), nil)
				s := p.site(t, tt.opts, userInContext)

				who := &user{}
				who.name.Store("alice")
				asked := &askable{}
				client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, asked.options())
				client.AddRoots(&mcp.Root{URI: "file:///answer", Name: "root"})
				cs, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: who}}, &mcp.ClientSessionOptions{ProtocolVersion: tt.version})
				require.NoError(t, err)
				defer func() { _ = cs.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() }()

				who.name.Store("bob")
				answer, err := call(t, cs, "ask", map[string]any{})
				require.NoError(t, err)
				assert.Contains(t, answer, "changed")
				assert.NotContains(t, answer, "answer")
				assert.Equal(t, []any{tt.want, tt.want}, seen)
			})
		}
	}
}
