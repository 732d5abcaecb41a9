package admin_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/headgate-mcp/headgate/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// open is the role of a route that asks for none.
const openToAll admin.Role = ""

// wantedRoles is what each route takes. A route that is not in it fails the
// test: whoever adds one decides here who may use it.
func wantedRoles() map[string]admin.Role {
	return map[string]admin.Role{
		"GET /livez":                                 openToAll,
		"GET /readyz":                                openToAll,
		"GET /openapi.json":                          openToAll,
		"GET /metrics":                               admin.RoleRead,
		"GET /v1/whoami":                             admin.RoleRead,
		"GET /v1/state":                              admin.RoleRead,
		"GET /v1/interceptors":                       admin.RoleRead,
		"GET /v1/interceptors/{name}":                admin.RoleRead,
		"GET /v1/interceptors/{name}/stats":          admin.RoleRead,
		"GET /v1/interceptors/{name}/decisions":      admin.RoleRead,
		"PUT /v1/interceptors/{name}/override":       admin.RoleOperate,
		"DELETE /v1/interceptors/{name}/override":    admin.RoleOperate,
		"POST /v1/interceptors/{name}/breaker:reset": admin.RoleOperate,
		"GET /v1/hosts":                              admin.RoleRead,
		"POST /v1/hosts/{name}":                      admin.RoleOperate, // and :refresh
		"GET /v1/decisions/{id}":                     admin.RoleRead,
		"GET /v1/pipeline":                           admin.RoleRead,
		"GET /v1/coverage":                           admin.RoleRead,
		"GET /v1/overrides":                          admin.RoleRead,
		"GET /v1/break-glass":                        admin.RoleRead,
		"PUT /v1/break-glass":                        admin.RoleBreakGlass,
		"DELETE /v1/break-glass":                     admin.RoleOperate,
		"GET /v1/changes":                            admin.RoleRead,
		"GET /v1/changes/{id}":                       admin.RoleRead,
		"GET /v1/events":                             admin.RoleRead,
	}
}

// bearers are ways to say who one is, with the rank of the role that each has;
// 0 for none.
func bearers() map[string]struct {
	header []string
	rank   int
} {
	type b = struct {
		header []string
		rank   int
	}
	return map[string]b{
		"no token":           {nil, 0},
		"an empty header":    {[]string{""}, 0},
		"no secret":          {[]string{"Bearer "}, 0},
		"two headers":        {[]string{"Bearer " + adminSecret, "Bearer " + adminSecret}, 0},
		"another scheme":     {[]string{"Basic " + adminSecret}, 0},
		"no scheme":          {[]string{adminSecret}, 0},
		"a trailing space":   {[]string{"Bearer " + adminSecret + " "}, 0},
		"two spaces":         {[]string{"Bearer  " + adminSecret}, 0},
		"a tab":              {[]string{"Bearer\t" + adminSecret}, 0},
		"a list":             {[]string{"Bearer " + adminSecret + ", Bearer " + adminSecret}, 0},
		"5 KB":               {[]string{"Bearer " + strings.Repeat("x", 5<<10)}, 0},
		"an unknown token":   {[]string{"Bearer " + strings.Repeat("x", 32)}, 0},
		"half a token":       {[]string{"Bearer " + adminSecret[:16]}, 0},
		"an expired token":   {[]string{"Bearer " + expiredSecret}, 0},
		"read":               {[]string{"Bearer " + readSecret}, 1},
		"operate":            {[]string{"Bearer " + operateSecret}, 2},
		"break-glass":        {[]string{"Bearer " + glassSecret}, 3},
		"admin":              {[]string{"bearer " + adminSecret}, 4}, // schemes know no case
		"one that ends soon": {[]string{"Bearer " + endingSecret}, 1},
	}
}

const (
	expiredSecret = "expired-expired-expired-expired-ex"
	endingSecret  = "ending-ending-ending-ending-ending"
)

func ranks() map[admin.Role]int {
	return map[admin.Role]int{openToAll: 0, admin.RoleRead: 1, admin.RoleOperate: 2, admin.RoleBreakGlass: 3, admin.RoleAdmin: 4}
}

func exposeNothing(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte("# nothing\n"))
}

// accessRig knows a token that has ended, one that is about to, and those of the
// roles.
func accessRig(t *testing.T) *rig {
	t.Helper()
	expired := token(t, "expired", admin.RoleAdmin, expiredSecret)
	expired.ExpiresAt = time.Now().Add(-time.Second)
	ending := token(t, "ending", admin.RoleRead, endingSecret)
	ending.ExpiresAt = time.Now().Add(time.Hour)
	return newRig(t, admin.Options{Tokens: append(tokens(t), expired, ending), Metrics: http.HandlerFunc(exposeNothing)}, guard())
}

// Each route answers who has the role, and nobody else.
func TestRoutesByRole(t *testing.T) {
	r := accessRig(t)
	seen := map[string]bool{}
	routes, ok := r.plane.Handler().(chi.Routes)
	require.True(t, ok)
	err := chi.Walk(routes, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		name := method + " " + pattern
		role, listed := wantedRoles()[name]
		require.True(t, listed, "%s is a route that this test does not know", name)
		seen[name] = true
		if pattern == "/v1/events" {
			return nil // it does not end; its roles are in TestEventsTakeARole
		}
		t.Run(name, func(t *testing.T) { r.as(t, method, pattern, ranks()[role]) })
		return nil
	})
	require.NoError(t, err)
	for name := range wantedRoles() {
		assert.True(t, seen[name], "%s is gone", name)
	}
}

// as asks a route as everybody.
func (r *rig) as(t *testing.T, method, pattern string, rank int) {
	path := strings.NewReplacer("{name}", "guard", "{id}", "none").Replace(pattern)
	if path == "/v1/hosts/guard" {
		path += ":refresh"
	}
	for who, b := range bearers() {
		x := exchange{method: method, path: path, header: http.Header{"If-Match": {"*"}}}
		if b.header != nil {
			x.header["Authorization"] = b.header
		}
		if method == http.MethodPut {
			x.body = `{}`
		}
		a := r.do(x)
		switch {
		case rank > 0 && b.rank == 0:
			assert.Equal(t, "unauthenticated", a.problem(), who)
			assert.Equal(t, `Bearer realm="headgate"`, a.header.Get("WWW-Authenticate"), who)
		case b.rank < rank:
			assert.Equal(t, "forbidden", a.problem(), who)
			assert.NotEmpty(t, a.at("requiredRole"), who)
		default:
			assert.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, "%s: %s", who, a.raw)
		}
		assert.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
		assert.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
	}
}

func TestEventsTakeARole(t *testing.T) {
	r := accessRig(t)
	for who, b := range bearers() {
		if b.rank > 0 {
			continue
		}
		a := r.do(exchange{method: "GET", path: "/v1/events", header: http.Header{"Authorization": b.header}})
		assert.Equal(t, http.StatusUnauthorized, a.status, who)
	}
}

// What was tried as a secret is in no log, record or answer.
func TestSecretsOfTokensAreNowhere(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, admin.Options{StateDir: dir}, guard())
	tried := strings.Repeat("secret", 8)
	for _, h := range [][]string{{"Bearer " + tried}, {"Basic " + tried}, {tried}, {"Bearer " + tried, "x"}} {
		r.do(exchange{method: "PUT", path: item("guard") + "/override", body: auditBody, header: http.Header{"Authorization": h}})
	}
	r.flip("guard", auditBody)
	require.Equal(t, http.StatusForbidden, r.put("guard", readSecret, auditBody).status)
	told := r.log.String() + r.exposition() + readAll(t, dir) + r.received.String() + r.get("/v1/changes").raw
	for _, secret := range []string{tried, readSecret, operateSecret, adminSecret} {
		assert.NotContains(t, told, secret)
	}
}

// An address that fails too often is told to wait; a valid token is never refused
// for what others did.
func TestFailingAttemptsAreSlowedDown(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	bad := exchange{method: "GET", path: "/v1/state", remote: "192.0.2.1:1000"}
	for range 10 {
		require.Equal(t, "unauthenticated", r.do(bad).problem())
	}
	a := r.do(bad)
	require.Equal(t, "too-many", a.problem())
	require.NotEmpty(t, a.header.Get("Retry-After"))
	good := bad
	good.secret = readSecret
	require.Equal(t, http.StatusOK, r.do(good).status)
	bad.remote = "192.0.2.2:1000"
	require.Equal(t, "unauthenticated", r.do(bad).problem())
}

// An actor has a bucket of its own; break-glass is exempt, for it is for
// emergencies.
func TestAnActorHasABucket(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	var a answer
	for range 200 {
		if a = r.do(exchange{method: "GET", path: "/v1/whoami", secret: glassSecret}); a.status != http.StatusOK {
			break
		}
	}
	require.Equal(t, "too-many", a.problem())
	require.Equal(t, http.StatusOK, r.glass(`{"action":"audit-all",`+why+`}`).status)
	require.Equal(t, "operate-token", r.do(exchange{method: "GET", path: "/v1/whoami", secret: operateSecret}).at("name"))
}

func TestSetTokens(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	one := token(t, "one", admin.RoleRead, readSecret)
	for name, list := range map[string][]admin.Token{
		"a name twice":     {one, one},
		"no role":          {{ID: "x", Role: "root"}},
		"no name":          {{Role: admin.RoleRead}},
		"a name of two":    {{ID: "a\nb", Role: admin.RoleRead}},
		"too many of them": make([]admin.Token, 300),
	} {
		require.Error(t, r.plane.SetTokens(list), name)
	}
	r.get("/v1/whoami") // those before are still good
	require.NoError(t, r.plane.SetTokens([]admin.Token{token(t, "two", admin.RoleRead, operateSecret)}))
	require.Equal(t, http.StatusUnauthorized, r.do(exchange{method: "GET", path: "/v1/whoami", secret: readSecret}).status)
	a := r.do(exchange{method: "GET", path: "/v1/whoami", secret: operateSecret})
	require.Equal(t, []any{"two", "read", "token"}, []any{a.at("name"), a.at("role"), a.at("method")})
}

type authenticator func(*http.Request) (admin.Principal, error)

func (f authenticator) Authenticate(r *http.Request) (admin.Principal, error) { return f(r) }

// An Authenticator stands in for tokens; its error stays inside.
func TestAuthenticator(t *testing.T) {
	r := newRig(t, admin.Options{Authenticator: authenticator(func(q *http.Request) (admin.Principal, error) {
		switch q.Header.Get("X-Cert") {
		case "alice":
			return admin.Principal{Name: "alice", Role: admin.RoleOperate, Method: "mtls"}, nil
		case "ghost":
			return admin.Principal{Name: "ghost", Role: "root"}, nil
		}
		return admin.Principal{}, errors.New("no certificate of ours: 0xdead")
	})}, guard())
	as := func(who string) answer {
		return r.do(exchange{
			method: "PUT", path: item("guard") + "/override", body: auditBody, secret: adminSecret,
			header: http.Header{"X-Cert": {who}, "If-Match": {"*"}, "X-On-Behalf-Of": {"bob"}},
		})
	}
	require.Equal(t, http.StatusOK, as("alice").status)
	a := r.do(exchange{method: "GET", path: "/v1/changes", header: http.Header{"X-Cert": {"alice"}}})
	records := a.list("changes")
	actor := records[len(records)-1]["actor"].(map[string]any)
	require.Equal(t, []any{"alice", "mtls", "bob"}, []any{actor["name"], actor["method"], actor["claim"]}, "a claim is no actor")
	require.Equal(t, "forbidden", as("ghost").problem(), "what is no role may do nothing")
	require.Equal(t, "unauthenticated", as("mallory").problem(), "a token is not asked for")
	require.NotContains(t, r.received.String(), "0xdead")
	require.Contains(t, r.log.String(), "0xdead")
}

func TestAnonymousHasTheRoleThatItIsGiven(t *testing.T) {
	r := newRig(t, admin.Options{Anonymous: admin.RoleRead}, guard())
	require.Equal(t, "anonymous", r.do(exchange{method: "GET", path: "/v1/whoami"}).at("name"))
	require.Equal(t, "forbidden", r.do(exchange{method: "PUT", path: item("guard") + "/override", body: auditBody}).problem())
	bad := exchange{method: "GET", path: "/v1/whoami", secret: strings.Repeat("x", 40)}
	require.Equal(t, "unauthenticated", r.do(bad).problem(), "a wrong token is not none")
}

func TestNobodyToLetInIsAnError(t *testing.T) {
	_, ch := newChain(t, nil, guard())
	chains := chainsOf(ch)
	for name, opts := range map[string]*admin.Options{
		"nothing":                 {},
		"nobody":                  {Chains: chains},
		"an anonymous of no role": {Chains: chains, Anonymous: "root"},
		"no chains":               {Tokens: tokens(t)},
		"a token of no role":      {Chains: chains, Tokens: []admin.Token{{ID: "x"}}},
	} {
		_, err := admin.New(opts)
		require.Error(t, err, name)
	}
	_, err := admin.New(nil)
	require.Error(t, err)
}

func TestReadTokens(t *testing.T) {
	long := strings.Repeat("s", 40)
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		n    int // of tokens; 0 for an error
	}{
		"several":                {"# ours\n\nalice operate " + long + "\nci read sha256:" + strings.Repeat("ab", 32) + " 2030-01-02T03:04:05Z\n", 0o600, 2},
		"readable by a group":    {"alice operate " + long, 0o640, 0},
		"readable by all":        {"alice operate " + long, 0o604, 0},
		"none":                   {"# nothing\n", 0o600, 0},
		"a short secret":         {"alice operate " + long[:31], 0o600, 0},
		"no such role":           {"alice root " + long, 0o600, 0},
		"two fields":             {"alice " + long, 0o600, 0},
		"five fields":            {"alice operate " + long + " 2030-01-02T03:04:05Z x", 0o600, 0},
		"a short digest":         {"alice operate sha256:abcd", 0o600, 0},
		"a digest that is not":   {"alice operate sha256:" + strings.Repeat("xy", 32), 0o600, 0},
		"an end that is no time": {"alice operate " + long + " tomorrow", 0o600, 0},
		"a line without end":     {"alice operate " + strings.Repeat("s", 70_000), 0o600, 0},
		"too many":               {strings.Repeat("a read "+long+"\n", 257), 0o600, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			require.NoError(t, os.WriteFile(path, []byte(tt.text), 0o600))
			require.NoError(t, os.Chmod(path, tt.mode))
			list, err := admin.ReadTokens(path)
			require.Len(t, list, tt.n)
			if tt.n == 0 {
				require.Error(t, err)
				require.NotContains(t, err.Error(), long[:31], "errors quote no secrets")
			}
		})
	}
	_, err := admin.ReadTokens(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.GreaterOrEqual(t, len(admin.NewSecret()), 32)
	require.NotEqual(t, admin.NewSecret(), admin.NewSecret())
}
