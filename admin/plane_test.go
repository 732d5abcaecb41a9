package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Secrets of the roles, 32 characters each.
const (
	readSecret    = "read-read-read-read-read-read-read"
	operateSecret = "operate-operate-operate-operate-op"
	glassSecret   = "glass-glass-glass-glass-glass-glass"
	adminSecret   = "admin-admin-admin-admin-admin-admin"
)

func tokens(t testing.TB) []admin.Token {
	t.Helper()
	var list []admin.Token
	for role, secret := range map[admin.Role]string{
		admin.RoleRead: readSecret, admin.RoleOperate: operateSecret, admin.RoleBreakGlass: glassSecret, admin.RoleAdmin: adminSecret,
	} {
		tok, err := admin.NewToken(string(role)+"-token", role, secret)
		require.NoError(t, err)
		list = append(list, tok)
	}
	return list
}

// A rig is a plane over one chain, and what serves it.
type rig struct {
	t     testing.TB
	plane *admin.Plane
	chain *chain.Chain
	ext   *mcpext.Extension
	log   *logBuffer
}

type logBuffer struct{ bytes.Buffer }

func newRig(t testing.TB, opts admin.Options, interceptors ...core.Interceptor) *rig {
	t.Helper()
	r := &rig{t: t, ext: mcpext.New(nil), log: &logBuffer{}}
	require.NoError(t, r.ext.AddInterceptor(interceptors...))
	var err error
	r.chain, err = r.ext.Chain(nil)
	require.NoError(t, err)
	opts.Chains = map[string]*chain.Chain{"main": r.chain}
	if opts.Tokens == nil {
		opts.Tokens = tokens(t)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	r.plane, err = admin.New(&opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.plane.Close())
		_ = r.chain.Close()
	})
	return r
}

// An exchange is a request as a test makes it.
type exchange struct {
	method, path string
	secret       string
	body         string
	header       http.Header
}

func (r *rig) do(x exchange) (int, http.Header, map[string]any) {
	r.t.Helper()
	req := httptest.NewRequest(x.method, x.path, bytes.NewReader([]byte(x.body)))
	req.Host = "127.0.0.1:9901"
	for k, v := range x.header {
		req.Header[k] = v
	}
	if x.secret != "" {
		req.Header.Set("Authorization", "Bearer "+x.secret)
	}
	if x.body != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	r.plane.Handler().ServeHTTP(w, req)
	var out map[string]any
	if w.Body.Len() > 0 {
		require.NoError(r.t, json.Unmarshal(w.Body.Bytes(), &out), w.Body.String())
	}
	return w.Code, w.Header(), out
}

// put sets an override under the ETag of this moment.
func (r *rig) put(name, secret, body string) (int, map[string]any) {
	r.t.Helper()
	_, h, _ := r.do(exchange{method: "GET", path: "/v1/interceptors/" + name, secret: readSecret})
	status, _, out := r.do(exchange{
		method: "PUT", path: "/v1/interceptors/" + name + "/override", secret: secret, body: body,
		header: http.Header{"If-Match": {h.Get("ETag")}},
	})
	return status, out
}

// denied reports whether the chain stops a call.
func (r *rig) denied() bool {
	_, err := r.chain.Execute(context.Background(), &chain.Request{
		Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: []byte(`{"name":"x"}`),
	})
	return err != nil
}

// The way of an incident: a policy blocks, is turned to audit, lets pass, and
// blocks again when the override is taken off.
func TestFlip(t *testing.T) {
	r := newRig(t, admin.Options{}, ct.Validator("guard", ct.Deny))
	require.True(t, r.denied())
	status, out := r.put("guard", operateSecret, `{"mode":"audit","ttl":"2h","reason":"it blocks good traffic"}`)
	require.Equal(t, http.StatusOK, status, out)
	require.Equal(t, "audit", out["effective"].(map[string]any)["mode"])
	require.Equal(t, "override", out["effective"].(map[string]any)["source"])
	require.False(t, r.denied())
	_, h, _ := r.do(exchange{method: "GET", path: "/v1/interceptors/guard", secret: readSecret})
	status, _, out = r.do(exchange{
		method: "DELETE", path: "/v1/interceptors/guard/override", secret: operateSecret, header: http.Header{"If-Match": {h.Get("ETag")}},
	})
	require.Equal(t, http.StatusOK, status, out)
	require.True(t, r.denied())
	_, _, out = r.do(exchange{method: "GET", path: "/v1/changes", secret: readSecret})
	raw, _ := json.MarshalIndent(out, "", " ")
	t.Log(string(raw))
}
