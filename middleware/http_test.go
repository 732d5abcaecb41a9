package middleware_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The ways in which go-sdk serves HTTP.
var (
	stateful      = mcp.StreamableHTTPOptions{}
	statefulJSON  = mcp.StreamableHTTPOptions{JSONResponse: true}
	stateless     = mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}
	statelessJSON = mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}

	transports = map[string]mcp.StreamableHTTPOptions{
		"stateful, SSE": stateful, "stateful, JSON": statefulJSON, "stateless, SSE": stateless, "stateless, JSON": statelessJSON,
	}
)

// A site is a protected server at an address.
type site struct {
	t   testing.TB
	url string
}

func (p *protected) site(t testing.TB, opts mcp.StreamableHTTPOptions, wrap ...func(http.Handler) http.Handler) *site {
	t.Helper()
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return p.server }, &opts)
	for _, w := range wrap {
		h = w(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &site{t, s.URL}
}

// A header is put on each request of a client.
type header map[string]string

func (h header) set(req *http.Request) {
	for k, v := range h {
		req.Header.Set(k, v)
	}
}

func (h header) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	h.set(req)
	return http.DefaultTransport.RoundTrip(req)
}

// client connects a go-sdk client.
func (s *site) client(version string, h header, opts *mcp.ClientOptions) *mcp.ClientSession {
	s.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, opts)
	require.NoError(s.t, mcpext.RegisterSendingMethods(client))
	transport := &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: h}}
	cs, err := client.Connect(context.Background(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(s.t, err)
	require.Equal(s.t, version, cs.InitializeResult().ProtocolVersion)
	s.t.Cleanup(func() { _ = cs.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	return cs
}

// post sends one body and returns the status, the messages that answer it, one
// a line, and the session.
func (s *site) post(body string, h header) (status int, answer, session string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	require.NoError(s.t, err)
	header{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}.set(req)
	h.set(req)
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer res.Body.Close()
	s.t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return res.StatusCode, messages(s.t, res), res.Header.Get("Mcp-Session-Id")
}

func messages(t testing.TB, res *http.Response) string {
	t.Helper()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(body)
	}
	var out []string
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok && data != "" {
			out = append(out, data)
		}
	}
	return strings.Join(out, "\n")
}

// open starts a session of an older version and returns the headers that
// belong to it.
func (s *site) open(version string, h header) header {
	s.t.Helper()
	status, answer, session := s.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+
		`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`, h)
	require.Equal(s.t, http.StatusOK, status, answer)
	mine := header{"Mcp-Protocol-Version": version}
	if session != "" {
		mine["Mcp-Session-Id"] = session
		s.t.Cleanup(func() { s.end(mine, h) })
	}
	return mine
}

func (s *site) end(hs ...header) {
	req, err := http.NewRequest(http.MethodDelete, s.url, nil)
	require.NoError(s.t, err)
	for _, h := range hs {
		h.set(req)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	_ = res.Body.Close()
}

func with(hs ...header) header {
	all := header{}
	for _, h := range hs {
		for k, v := range h {
			all[k] = v
		}
	}
	return all
}

const callWho = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"who","arguments":{}}}`

// A sighting is whom the places of one message took it to be from.
type sighting struct {
	provider, interceptor, handler any // by the context
	principal                      string
}

// sighted returns a setup that notes who is seen where, by the value that
// find takes from a context.
func sighted(seen *sighting, find func(context.Context) any, provider func(context.Context, mcp.Request) core.InvocationContext) setup {
	s := setup{
		interceptors: []core.Interceptor{ct.Validator("v", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			seen.interceptor, seen.principal = find(ctx), ""
			if inv.Context.Principal != nil {
				seen.principal = inv.Context.Principal.ID
			}
			return core.Allow(), nil
		})},
		server: func(s *mcp.Server) {
			rawTool(s, "who", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				seen.handler = find(ctx)
				return text("ok"), nil
			})
		},
	}
	if provider != nil {
		s.options.ContextProvider = func(ctx context.Context, req mcp.Request) core.InvocationContext {
			seen.provider = find(ctx)
			return provider(ctx, req)
		}
	}
	return s
}

type userKey struct{}

// userInContext is what an HTTP middleware for authentication does.
func userInContext(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("X-User"))))
	})
}

// B02: on a stateful session a context has the values of the request that
// opened it. A message is judged by its own request.
func TestIdentityComesFromTheRequestAtHand(t *testing.T) {
	byHeader := func(_ context.Context, req mcp.Request) core.InvocationContext {
		return core.InvocationContext{Principal: &core.Principal{Type: "user", ID: req.GetExtra().Header.Get("X-User")}}
	}
	for name, opts := range transports {
		t.Run(name, func(t *testing.T) {
			var seen sighting
			p := protect(t, sighted(&seen, func(ctx context.Context) any { return ctx.Value(userKey{}) }, byHeader))
			s := p.site(t, opts, userInContext)
			alice, bob := header{"X-User": "alice"}, header{"X-User": "bob"}
			session := s.open(legacy, alice)
			status, answer, _ := s.post(callWho, with(session, bob))
			require.Equal(t, http.StatusOK, status, answer)
			assert.Contains(t, answer, `"text":"ok"`)
			want := sighting{provider: "bob", interceptor: "bob", handler: "bob", principal: "bob"}
			if !opts.Stateless {
				want = sighting{handler: "alice", principal: "bob"} // the tool's context is the SDK's business
			}
			assert.Equal(t, want, seen)
		})
	}
}

// tokens says who a bearer token belongs to; "anonymous" is nobody's.
func tokens(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if token == "anonymous" {
		token = ""
	}
	return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
}

func bearer(token string) header { return header{"Authorization": "Bearer " + token} }

// Without a provider the principal is the user of this request's token.
func TestDefaultPrincipal(t *testing.T) {
	user := func(ctx context.Context) any {
		if info := auth.TokenInfoFromContext(ctx); info != nil {
			return "user " + info.UserID
		}
		return nil
	}
	for name, opts := range transports {
		t.Run(name, func(t *testing.T) {
			var seen sighting
			s := protect(t, sighted(&seen, user, nil)).site(t, opts, auth.RequireBearerToken(tokens, nil))
			session := s.open(legacy, bearer("anonymous"))
			for _, caller := range []string{"alice", "bob", ""} {
				token := caller
				if caller == "" {
					token = "anonymous"
				}
				status, answer, _ := s.post(callWho, with(session, bearer(token)))
				require.Equal(t, http.StatusOK, status, answer)
				want := sighting{interceptor: "user " + caller, handler: "user " + caller, principal: caller}
				if !opts.Stateless {
					want = sighting{handler: "user ", principal: caller}
				}
				assert.Equal(t, want, seen, caller)
			}
		})
	}
}

// F13: a payload is the params alone, so that a transport cannot show in it.
func TestPayloadsAreTheSameOverAllTransports(t *testing.T) {
	ways := map[string]func(*testing.T, *protected) *mcp.ClientSession{
		"in memory " + legacy: func(t *testing.T, p *protected) *mcp.ClientSession { return p.client(t, legacy) },
		"in memory " + modern: func(t *testing.T, p *protected) *mcp.ClientSession { return p.client(t, modern) },
		"stateless " + modern: func(t *testing.T, p *protected) *mcp.ClientSession {
			return p.site(t, stateless).client(modern, nil, nil)
		},
	}
	for name, opts := range transports {
		ways[name+" "+legacy] = func(t *testing.T, p *protected) *mcp.ClientSession { return p.site(t, opts).client(legacy, nil, nil) }
	}
	payloads := map[string][]string{}
	for name, connect := range ways {
		t.Run(name, func(t *testing.T) { payloads[name] = payloadsOf(t, connect) })
	}
	for name := range ways {
		version := name[strings.LastIndex(name, " ")+1:]
		assert.Equal(t, payloads["in memory "+version], payloads[name], name)
	}
	assert.Equal(t, []string{
		`{"_meta":{"progressToken":"p"},"name":"echo","arguments":{"seq":9007199254740993,"text":"<&>"}}`,
		`{"content":[{"type":"text","text":"{\"seq\":9007199254740993,\"text\":\"\u003c\u0026\u003e\"}"}]}`, // the SDK escapes text
	}, payloads["stateful, SSE "+legacy])
}

// payloadsOf calls a tool and returns what interceptors were shown.
func payloadsOf(t *testing.T, connect func(*testing.T, *protected) *mcp.ClientSession) (seen []string) {
	t.Helper()
	p := protect(t, setup{server: echo, interceptors: []core.Interceptor{
		ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			seen = append(seen, string(inv.Payload))
			return core.Allow(), nil
		}),
	}})
	params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "<&>", "seq": 9007199254740993}}
	params.SetProgressToken("p")
	_, err := connect(t, p).CallTool(t.Context(), params)
	require.NoError(t, err)
	return seen
}

// A denial keeps its code and data over HTTP, whatever its status there.
func TestDenialOverHTTP(t *testing.T) {
	for name, opts := range transports {
		for _, version := range []string{legacy, modern} {
			if version == modern && !opts.Stateless {
				continue // go-sdk serves the newer era without sessions only
			}
			for _, phase := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
				t.Run(name+" "+version+" "+string(phase), func(t *testing.T) {
					p := protect(t, setup{server: echo, interceptors: []core.Interceptor{ct.Validator("guard", ct.Deny, ct.On(phase, "tools/call"))}})
					cs := p.site(t, opts).client(version, nil, nil)
					_, err := call(t, cs, "echo", map[string]any{})
					wire := wireError(t, err, -32602)
					assert.JSONEq(t, `{"validationErrors":[{"interceptor":"guard","severity":"error","message":"blocked by policy"}]}`, string(wire.Data))
					_, err = cs.ListTools(t.Context(), nil)
					require.NoError(t, err, "the session goes on")
				})
			}
		}
	}
}

// A client that goes away ends the interceptor's context.
func TestCancellationOverHTTP(t *testing.T) {
	tests := map[string]struct {
		opts    mcp.StreamableHTTPOptions
		version string
	}{"stateless": {stateless, modern}, "stateful": {stateful, legacy}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan error, 1)
			p := protect(t, setup{
				server: echo, chain: chain.Options{InvokeTimeout: 15 * time.Second},
				interceptors: []core.Interceptor{ct.Validator("v", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
					close(began)
					<-ctx.Done()
					ended <- ctx.Err()
					return nil, ctx.Err()
				})},
			})
			cs := p.site(t, tt.opts).client(tt.version, nil, nil)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-began; cancel() }()
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
			require.ErrorIs(t, err, context.Canceled)
			select {
			case err := <-ended:
				require.ErrorIs(t, err, context.Canceled)
			case <-time.After(10 * time.Second):
				t.Error("the interceptor was not told")
			}
		})
	}
}

// L12: what a tool reports on its way arrives while it runs, though its result
// is intercepted: the tool here goes on only when the client has seen it.
func TestProgressArrivesWhileTheToolRuns(t *testing.T) {
	tests := map[string]struct {
		opts    mcp.StreamableHTTPOptions
		version string
	}{"stateless " + modern: {stateless, modern}, "stateless " + legacy: {stateless, legacy}, "stateful " + legacy: {stateful, legacy}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan float64)
			p := protect(t, setup{
				server: func(s *mcp.Server) { rawTool(s, "steps", steps(arrived)) },
				interceptors: []core.Interceptor{
					ct.Validator("v", ct.Allow, ct.On(core.PhaseBoth, "*")),
					ct.Mutator("m", ct.Set(`{"content":[{"type":"text","text":"mutated"}]}`), ct.On(core.PhaseResponse, "tools/call")),
				},
			})
			cs := p.site(t, tt.opts).client(tt.version, nil, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { arrived <- req.Params.Progress },
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			params := &mcp.CallToolParams{Name: "steps"}
			params.SetProgressToken("p")
			res, err := cs.CallTool(ctx, params)
			require.NoError(t, err)
			assert.Equal(t, "mutated", res.Content[0].(*mcp.TextContent).Text)
		})
	}
}

// steps reports three times and waits for each report to arrive.
func steps(arrived <-chan float64) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for want := range 3 {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(want),
			})
			if err != nil {
				return nil, err
			}
			select {
			case got := <-arrived:
				if got != float64(want) {
					return text("out of order"), nil
				}
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return text("done"), nil
	}
}

// B20: calls in a JSON-RPC batch are judged one by one; later versions have no
// batches.
func TestBatches(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	p := protect(t, setup{server: echo, interceptors: []core.Interceptor{
		ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(inv.Phase)+" "+string(inv.Payload))
			if strings.Contains(string(inv.Payload), "bad") {
				return core.Deny("bad"), nil
			}
			return core.Allow(), nil
		}, ct.On(core.PhaseRequest, "tools/call")),
	}})
	one := func(id, word string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"word":"` + word + `"}}}`
	}
	batch := `[` + one("1", "good") + `,` + one("2", "bad") + `]`
	for name, opts := range transports {
		t.Run(name, func(t *testing.T) {
			seen = nil
			s := p.site(t, opts)
			status, answer, _ := s.post(batch, s.open("2025-03-26", nil))
			require.Equal(t, http.StatusOK, status, answer)
			assert.ElementsMatch(t, []string{
				`request {"name":"echo","arguments":{"word":"good"}}`, `request {"name":"echo","arguments":{"word":"bad"}}`,
			}, seen)
			assert.Contains(t, answer, `"text":"{\"word\":\"good\"}"`)
			assert.Contains(t, answer, `"code":-32602,"message":"request blocked by policy"`)
			seen = nil
			status, _, _ = s.post(batch, s.open("2025-06-18", nil))
			assert.Equal(t, http.StatusBadRequest, status)
			assert.Empty(t, seen)
		})
	}
}
