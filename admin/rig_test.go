package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The test binary is also the process that is killed, and the one that wants a
// folder that another has.
func TestMain(m *testing.M) {
	if dir := os.Getenv(flipLoopDir); dir != "" {
		flipLoop(dir)
		return
	}
	if dir := os.Getenv(secondPlaneDir); dir != "" {
		secondPlane(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// Secrets of the roles, 32 characters or more each.
const (
	readSecret    = "read-read-read-read-read-read-read"
	operateSecret = "operate-operate-operate-operate-op"
	glassSecret   = "glass-glass-glass-glass-glass-glass"
	adminSecret   = "admin-admin-admin-admin-admin-admin"
)

func secrets() map[admin.Role]string {
	return map[admin.Role]string{
		admin.RoleRead: readSecret, admin.RoleOperate: operateSecret, admin.RoleBreakGlass: glassSecret, admin.RoleAdmin: adminSecret,
	}
}

func tokens(t testing.TB) []admin.Token {
	t.Helper()
	var list []admin.Token
	for role, secret := range secrets() {
		list = append(list, token(t, string(role)+"-token", role, secret))
	}
	return list
}

func token(t testing.TB, id string, role admin.Role, secret string) admin.Token {
	t.Helper()
	tok, err := admin.NewToken(id, role, secret)
	require.NoError(t, err)
	return tok
}

// A rig is a plane, the chains that it controls, and all that it tells.
type rig struct {
	t       testing.TB
	plane   *admin.Plane
	ext     *mcpext.Extension
	chain   *chain.Chain // the one called main
	log     *logBuffer
	metrics *prometheus.Registry

	mu       sync.Mutex
	received bytes.Buffer // all that was answered
}

// A logBuffer takes what is logged, from several goroutines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newRig makes a plane over a chain called main that has these interceptors, and
// over the chains that the options name.
func newRig(t testing.TB, opts admin.Options, interceptors ...core.Interceptor) *rig {
	t.Helper()
	r := &rig{t: t}
	r.ext, r.chain = newChain(t, nil, interceptors...)
	r.begin(opts)
	return r
}

// newChain makes a chain of an extension.
func newChain(t testing.TB, opts *chain.Options, interceptors ...core.Interceptor) (*mcpext.Extension, *chain.Chain) {
	t.Helper()
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	ch, err := ext.Chain(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	return ext, ch
}

// begin starts the plane, also anew after stop.
func (r *rig) begin(opts admin.Options) {
	r.t.Helper()
	chains := map[string]*chain.Chain{"main": r.chain}
	for name, ch := range opts.Chains {
		chains[name] = ch
	}
	opts.Chains = chains
	if opts.Tokens == nil {
		opts.Tokens = tokens(r.t)
	}
	r.log, r.metrics = &logBuffer{}, prometheus.NewRegistry()
	opts.Logger = slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts.Registerer = r.metrics
	plane, err := admin.New(&opts)
	require.NoError(r.t, err)
	r.plane = plane
	r.t.Cleanup(func() { _ = plane.Close() })
}

func (r *rig) stop() {
	r.t.Helper()
	require.NoError(r.t, r.plane.Close())
}

// An exchange is a request as a test makes it.
type exchange struct {
	method, path string
	secret       string
	body         string
	header       http.Header
	host         string // if not the usual one
	remote       string // if not one of its own
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	raw    string
	json   map[string]any
}

// at returns a member of the answer, by the names that lead to it.
func (a answer) at(path ...string) any {
	var v any = a.json
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// list returns a member that is a list of objects.
func (a answer) list(path ...string) (out []map[string]any) {
	items, _ := a.at(path...).([]any)
	for _, it := range items {
		m, _ := it.(map[string]any)
		out = append(out, m)
	}
	return out
}

// problem returns the type of problem that the answer is; empty for none.
func (a answer) problem() string {
	kind, _ := a.json["type"].(string)
	slug, _ := strings.CutPrefix(kind, "urn:headgate:problem:")
	return slug
}

func (a answer) etag() string { return a.header.Get("ETag") }

// do makes a request, as each request of these tests is made but for those over a
// real connection.
func (r *rig) do(x exchange) answer {
	r.t.Helper()
	req := x.request()
	w := httptest.NewRecorder()
	r.plane.Handler().ServeHTTP(w, req)
	a := answer{status: w.Code, header: w.Header(), raw: w.Body.String()}
	if strings.Contains(w.Header().Get("Content-Type"), "json") {
		require.NoError(r.t, json.Unmarshal(w.Body.Bytes(), &a.json), a.raw)
	}
	r.mu.Lock()
	fmt.Fprintf(&r.received, "%d %v %s\n", a.status, a.header, a.raw)
	r.mu.Unlock()
	note(r.t, &x, req, &a)
	return a
}

// remotes makes each request come from an address of its own, so that failing
// attempts do not add up.
var remotes atomic.Uint32

func (x *exchange) request() *http.Request {
	req := httptest.NewRequest(x.method, "/", strings.NewReader(x.body))
	path, query, _ := strings.Cut(x.path, "?")
	req.URL = &url.URL{RawQuery: query}
	if plain, err := url.PathUnescape(path); err == nil {
		req.URL.Path, req.URL.RawPath = plain, path
		if req.URL.EscapedPath() == (&url.URL{Path: plain}).EscapedPath() {
			req.URL.RawPath = "" // as net/http leaves it
		}
	}
	req.RequestURI = x.path
	n := remotes.Add(1)
	req.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:5000", n>>16&255, n>>8&255, n&255)
	if x.remote != "" {
		req.RemoteAddr = x.remote
	}
	req.Host = "127.0.0.1:9901"
	if x.host != "" {
		req.Host = x.host
	}
	for k, v := range x.header {
		req.Header[k] = v
	}
	if x.secret != "" {
		req.Header.Set("Authorization", "Bearer "+x.secret)
	}
	if x.body != "" && req.Header["Content-Type"] == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// exchangesDir names the folder that exchanges are written into, for the module
// that holds them against openapi.json.
const exchangesDir = "HEADGATE_EXCHANGES"

// note writes an exchange down, if that is asked for.
func note(t testing.TB, x *exchange, req *http.Request, a *answer) {
	dir := os.Getenv(exchangesDir)
	if dir == "" {
		return
	}
	line, err := json.Marshal(map[string]any{
		"test": t.Name(), "method": x.method, "url": "http://127.0.0.1:9901" + req.URL.RequestURI(), "requestHeader": req.Header,
		"requestBody": x.body, "status": a.status, "header": a.header, "body": a.raw,
	})
	require.NoError(t, err)
	noting.Lock()
	defer noting.Unlock()
	f, err := os.OpenFile(filepath.Join(dir, "exchanges.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.Write(append(line, '\n'))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

var noting sync.Mutex

// get reads, and wants it to be there.
func (r *rig) get(path string) answer {
	r.t.Helper()
	a := r.do(exchange{method: "GET", path: path, secret: readSecret})
	require.Equal(r.t, http.StatusOK, a.status, a.raw)
	return a
}

// item is the path of an interceptor.
func item(name string) string { return "/v1/interceptors/" + url.PathEscape(name) }

// put sets an override under the ETag of this moment.
func (r *rig) put(name, secret, body string) answer {
	r.t.Helper()
	now := r.do(exchange{method: "GET", path: item(name), secret: readSecret})
	return r.do(exchange{
		method: "PUT", path: item(name) + "/override", secret: secret, body: body, header: http.Header{"If-Match": {now.etag()}},
	})
}

// clear takes an override off.
func (r *rig) clear(name, secret string) answer {
	r.t.Helper()
	return r.do(exchange{
		method: "DELETE", path: item(name) + "/override", secret: secret, header: http.Header{"If-Match": {"*"}},
	})
}

// flip sets an override, and wants it to hold.
func (r *rig) flip(name, body string) answer {
	r.t.Helper()
	a := r.put(name, operateSecret, body)
	require.Equal(r.t, http.StatusOK, a.status, a.raw)
	return a
}

// glass sets break-glass.
func (r *rig) glass(body string) answer {
	r.t.Helper()
	return r.do(exchange{method: "PUT", path: "/v1/break-glass", secret: glassSecret, body: body})
}

// why is a reason that is long enough.
const why = `"reason":"INC-1 it blocks good traffic"`

const auditBody = `{"mode":"audit",` + why + `}`

// denied reports whether the chain stops a call.
func (r *rig) denied() bool { return denies(r.chain) }

func denies(ch *chain.Chain) bool {
	_, err := ch.Execute(context.Background(), &chain.Request{
		Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: []byte(`{"name":"x"}`),
	})
	return err != nil
}

// mode returns the mode that an interceptor is in by every way to ask for it, and
// wants them to agree.
func (r *rig) mode(name string) string {
	r.t.Helper()
	mode, _ := r.get(item(name)).at("effective", "mode").(string)
	for _, it := range r.get("/v1/interceptors").list("interceptors") {
		if it["name"] == name {
			require.Equal(r.t, mode, it["effective"].(map[string]any)["mode"], "the list")
		}
	}
	for _, m := range []string{"active", "audit", "off"} {
		want := 0.0
		if m == mode {
			want = 1
		}
		require.Equal(r.t, want, r.metric("headgate_interceptor_mode", "interceptor", name, "mode", m), "the metric for %s", m)
	}
	return mode
}

// metric returns the value of the series that has these labels; -1 for none.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			fits := true
			for i := 0; i < len(labels); i += 2 {
				fits = fits && has[labels[i]] == labels[i+1]
			}
			if fits {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// changes returns the history, the oldest first.
func (r *rig) changes(query string) []map[string]any {
	r.t.Helper()
	return r.get("/v1/changes?limit=1000" + query).list("changes")
}

// last returns the newest record.
func (r *rig) last() map[string]any {
	r.t.Helper()
	all := r.changes("")
	require.NotEmpty(r.t, all)
	return all[len(all)-1]
}

// exposition is all metrics as text.
func (r *rig) exposition() string {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	var b strings.Builder
	for _, f := range families {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// guard is a validator that stops every call while it is active.
func guard(edits ...ct.Edit) core.Interceptor { return ct.Validator("guard", ct.Deny, edits...) }

// readAll reads all files of a folder as one text.
func readAll(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		_, err = io.Copy(&b, f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return b.String()
}

func chainsOf(ch *chain.Chain) map[string]*chain.Chain { return map[string]*chain.Chain{"main": ch} }

// manyTokens are tokens of operators, for tests that ask more than one of them
// may.
func manyTokens(t testing.TB) (list []admin.Token) {
	for i := range 64 {
		list = append(list, token(t, fmt.Sprintf("many-%d", i), admin.RoleOperate, manySecret(i)))
	}
	return append(list, tokens(t)...)
}

func manySecret(i int) string { return fmt.Sprintf("many-many-many-many-many-many-%d", 100+i%64) }

// mounts are ways to put the plane into a mux of one's own, by prefix.
func mounts(h http.Handler) map[string]http.Handler {
	router := chi.NewRouter()
	router.Mount("/ops/gate", h)
	deep := chi.NewRouter()
	deep.Route("/a", func(in chi.Router) { in.Mount("/b", h) })
	return map[string]http.Handler{"": h, "/strip": http.StripPrefix("/strip", h), "/ops/gate": router, "/a/b": deep}
}

// Where a plane is mounted changes nothing of what it takes.
func TestMounted(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for mount, h := range mounts(r.plane.Handler()) {
		req := (&exchange{method: "POST", path: mount + "/v1/break-glass", secret: adminSecret}).request()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, mount)
		require.Equal(t, "GET, PUT, DELETE", w.Header().Get("Allow"), mount)
		req = (&exchange{method: "GET", path: mount + "/v1/nothing", secret: adminSecret}).request()
		w = httptest.NewRecorder()
		h.ServeHTTP(w, req)
		require.Equal(t, http.StatusNotFound, w.Code, mount)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), mount)
	}
}

// How long a test waits at most for what the plane does by itself, and how often
// it looks.
const (
	waiting = 20 * time.Second
	tickle  = 2 * time.Millisecond
)
