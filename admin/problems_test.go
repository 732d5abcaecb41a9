package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A brittle store takes nothing.
type brittle struct {
	store.Memory

	mu  sync.Mutex
	err error
}

func (b *brittle) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *brittle) Commit(ctx context.Context, c store.Commit) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	return b.Memory.Commit(ctx, c)
}

// Each type of problem comes about, is what its number says, and tells nothing
// from inside: no payload, and no text of Go's.
func TestProblems(t *testing.T) {
	const canary = "canary-4711"
	pinned := &control.Configuration{Interceptors: map[string]control.Configuring{"pin": {Pinned: true}}}
	failing := &brittle{}
	r := newRig(t, admin.Options{Configured: pinned, Store: failing, Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(canary)
	})}, guard(), named("pin"))
	failing.fail(store.ErrUnavailable)
	away := &far{Interceptor: ct.Validator("elsewhere", ct.Allow)}
	require.NoError(t, r.chain.AddHost(context.Background(), "away", away))
	away.lose(errors.New(canary))
	put := func(name, secret, body string, header http.Header) exchange {
		return exchange{method: "PUT", path: item(name) + "/override", secret: secret, body: body, header: header}
	}
	always := http.Header{"If-Match": {"*"}}
	seen := map[string]bool{}
	for slug, x := range map[string]struct {
		exchange
		status int
	}{
		"malformed":             {put("guard", operateSecret, `{"unknown":"`+canary+`"}`, always), 400},
		"unauthenticated":       {exchange{method: "GET", path: "/v1/state"}, 401},
		"forbidden":             {put("guard", readSecret, auditBody, always), 403},
		"origin-refused":        {exchange{method: "GET", path: "/v1/state", secret: readSecret, header: http.Header{"Origin": {"null"}}}, 403},
		"pinned":                {put("pin", adminSecret, auditBody, always), 403},
		"not-found":             {put(canary, operateSecret, auditBody, always), 404},
		"method-not-allowed":    {exchange{method: "POST", path: "/v1/state", secret: readSecret, body: canary}, 405},
		"incompatible":          {put("guard", operateSecret, `{"hooks":[{"events":["prompts/get"],"phase":"request"}],`+why+`}`, always), 409},
		"stale":                 {put("guard", operateSecret, auditBody, http.Header{"If-Match": {`"1-77"`}}), 412},
		"too-large":             {put("guard", operateSecret, strings.Repeat(canary, 10_000), always), 413},
		"unsupported-media":     {put("guard", operateSecret, canary, http.Header{"If-Match": {"*"}, "Content-Type": {"text/" + canary}}), 415},
		"host-refused":          {exchange{method: "GET", path: "/livez", host: canary}, 421},
		"invalid":               {put("guard", operateSecret, `{"mode":"audit","reason":"`+canary+`","ttl":"400d"}`, always), 422},
		"precondition-required": {put("guard", operateSecret, auditBody, nil), 428},
		"store-unavailable":     {put("guard", operateSecret, auditBody, always), 503},
		"host-unavailable":      {exchange{method: "POST", path: "/v1/hosts/away:refresh", secret: operateSecret}, 502},
		"internal":              {exchange{method: "GET", path: "/metrics", secret: readSecret}, 500},
	} {
		a := r.do(x.exchange)
		require.Equal(t, slug, a.problem(), a.raw)
		seen[slug] = true
		assert.Equal(t, x.status, a.status, slug)
		assert.EqualValues(t, x.status, a.at("status"), slug)
		assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"), slug)
		assert.Equal(t, "urn:headgate:request:"+a.header.Get("X-Request-Id"), a.at("instance"), slug)
		for _, no := range []string{canary, "json:", "goroutine", "cannot unmarshal", "store:", ".go:", "invalid character"} {
			assert.NotContains(t, a.raw, no, slug)
		}
	}
	for range 200 {
		if a := r.do(exchange{method: "GET", path: "/v1/whoami", secret: adminSecret}); a.problem() != "" {
			seen[a.problem()] = true
			assert.Equal(t, "1", a.header.Get("Retry-After"))
			break
		}
	}
	for _, slug := range admin.ProblemSlugs() {
		assert.True(t, seen[slug], "nothing makes a %s", slug)
	}
	require.True(t, r.denied(), "nothing was changed")
}

// Sloppy bodies are refused, and change nothing (A09). What is sloppy stands in
// the tests of package control; here it is the way there.
func TestSloppyBodies(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for _, body := range []string{
		`{"mode":"active","Mode":"audit",` + why + `}`, `{"mode":"AUDIT",` + why + `}`, `{"mode":"",` + why + `}`, `{}`, `null`, `[]`,
		auditBody + `{"mode":"active"}`, `{"mod":"audit",` + why + `}`, `{"mode":"audit","mode":"audit",` + why + `}`, "\x00", `{"mode":"audit"`,
		strings.Repeat(`{"mode":`, 5000), strings.Repeat(`[`, 60_000), `{"` + strings.Repeat("x", 60_000) + `":1}`,
		`{"mode":"audit","expiresAt":"canary-4711",` + why + `}`, `{"mode":"audit","expiresAt":4711,` + why + `}`,
		`{"mode":"audit","priorityHint":"canary-4711",` + why + `}`, `{"mode":"audit","hooks":"canary-4711",` + why + `}`,
	} {
		a := r.put("guard", operateSecret, body)
		told := strings.ReplaceAll(a.raw, a.header.Get("X-Request-Id"), "") // which is drawn, and may have any digits
		assert.NotContains(t, told, "4711")
		assert.NotContains(t, told, "Time")
		assert.Less(t, len(a.raw), 1000)
		assert.Equal(t, "malformed", a.problem(), "%.40s", body)
		assert.NotEmpty(t, a.list("errors"), "%.40s", body)
	}
	for _, query := range []string{"?dryRun=yes", "?dryRun=true&dryRun=true", "?dryrun=true", "?x=1", "?%zz"} {
		a := r.do(exchange{
			method: "PUT", path: item("guard") + "/override" + query, secret: operateSecret, body: auditBody, header: http.Header{"If-Match": {"*"}},
		})
		assert.Equal(t, "malformed", a.problem(), query)
	}
	require.True(t, r.denied())
	require.Zero(t, r.metric("headgate_control_revision"))
}

func TestSloppyQueries(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for _, path := range []string{
		"/v1/interceptors?limit=0", "/v1/interceptors?limit=1001", "/v1/interceptors?limit=x", "/v1/interceptors?modes=audit",
		"/v1/changes?after=-1", "/v1/changes?after=x", "/v1/changes?limit=", "/v1/pipeline", "/v1/pipeline?event=tools/call",
		"/v1/pipeline?event=tools/call&phase=both", "/v1/interceptors/guard/decisions?since=yesterday", "/v1/state?x=1", "/v1/overrides?x",
		"/v1/events?type=change", "/readyz?verbos", "/v1/interceptors/guard/decisions?limit=1e3",
	} {
		a := r.do(exchange{method: "GET", path: path, secret: readSecret})
		assert.Equal(t, "malformed", a.problem(), path)
	}
	a := r.do(exchange{method: "GET", path: "/v1/events", secret: readSecret, header: http.Header{"Last-Event-Id": {"x"}}})
	assert.Equal(t, "malformed", a.problem())
}

// What If-Match may say, and what comes of it.
func TestIfMatch(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for range 2 {
		r.flip("guard", auditBody)
	}
	try := func(tags ...string) answer {
		return r.do(exchange{
			method: "PUT", path: item("guard") + "/override?dryRun=true", secret: operateSecret, body: auditBody, header: http.Header{"If-Match": tags},
		})
	}
	tag := r.get(item("guard")).etag()
	require.Regexp(t, `^"1-2-[0-9a-f]{12}"$`, tag)
	for _, tags := range [][]string{{tag}, {`"1-1", ` + tag}, {`"1-1"`, tag}, {" " + tag + " "}, {"*"}} {
		assert.Equal(t, http.StatusOK, try(tags...).status, "%q", tags)
	}
	for _, tags := range [][]string{{`"1-1"`}, {`"2-2"`}, {`"1-3"`}, {`"1-02"`}, {`"1-1","1-9"`}, {`"1-2"`}, {`"1-2-000000000000"`}} {
		a := try(tags...)
		assert.Equal(t, "stale", a.problem(), "%q", tags)
		assert.Equal(t, tag, a.at("currentETag"))
		assert.Equal(t, "audit", a.at("current", "effective", "mode"))
	}
	for _, tags := range [][]string{
		{"W/" + tag},
		{""},
		{"1-2"},
		{`"`},
		{`""`},
		{`"1-"`},
		{`"1"`},
		{`"1-2`},
		{`"x-y"`},
		{"*, *"},
		{tag + ","},
		{"* " + tag},
		{strings.Repeat(tag+",", 16) + tag},
		{`"1--2"`},
		{`"1-+2"`},
		{`"1-2-xyz"`},
		{`"1-2-00-11"`},
		{`"1-99999999999999999999"`},
		{`*`, tag},
	} {
		assert.Equal(t, "malformed", try(tags...).problem(), "%q", tags)
	}
	a := r.do(exchange{method: "DELETE", path: item("guard") + "/override", secret: operateSecret})
	assert.Equal(t, "precondition-required", a.problem())
	assert.Equal(t, tag, a.at("currentETag"))
	require.Equal(t, http.StatusOK, r.clear("guard", operateSecret).status)
	assert.Equal(t, true, r.last()["unconditional"], "* is taken, and written down")
}

// What has not changed is not sent again.
func TestIfNoneMatch(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	r.flip("guard", auditBody)
	for _, path := range []string{item("guard"), "/v1/state", "/v1/break-glass"} {
		tag := r.get(path).etag()
		for header, status := range map[string]int{
			tag: 304, "W/" + tag: 304, `"1-77", ` + tag: 304, "*": 304, `"1-77"`: 200, "": 200, "nonsense": 200,
		} {
			a := r.do(exchange{method: "GET", path: path, secret: readSecret, header: http.Header{"If-None-Match": {header}}})
			assert.Equal(t, status, a.status, "%s %q", path, header)
			assert.Equal(t, tag, a.etag())
			assert.Equal(t, status == 304, a.raw == "")
		}
	}
}

// Health says yes or no to strangers, and how things are to who may read (A16).
func TestHealth(t *testing.T) {
	r := newRig(t, admin.Options{StateDir: t.TempDir()}, guard())
	for _, path := range []string{"/livez", "/readyz", "/readyz?verbose"} {
		a := r.do(exchange{method: "GET", path: path})
		require.Equal(t, http.StatusOK, a.status)
		require.Len(t, a.json, 1, "%s: %s", path, a.raw)
	}
	a := r.get("/readyz?verbose")
	require.Equal(t, "file", a.at("store", "kind"))
	require.Equal(t, map[string]any{}, a.at("degraded"))
	require.NotNil(t, a.at("history", "head", "seq"))
	a = r.do(exchange{method: "GET", path: "/openapi.json"})
	require.Equal(t, "3.1.0", a.at("openapi"), a.raw[:40])
	require.Equal(t, "not-found", r.do(exchange{method: "GET", path: "/metrics", secret: readSecret}).problem())
	require.Equal(t, "not-found", r.do(exchange{method: "GET", path: "/debug/pprof/", secret: adminSecret}).problem())
}

// Names of interceptors as authors give them, and what else could be read as them.
func oddNames() []string {
	return []string{
		"a", "a b", "a/b", "a%2Fb", "a%252Fb", "acme/no-deletes", `"quoted"`, "..", ".", "../state", "%", "ünï/çødé", "a?b", "a#b", "a;b", "a+b",
		"a\\b", "override", "a:b", "日本", " ", "a//b", "/", "a/", "/a", "{name}", "*",
	}
}

func named(name string) core.Interceptor {
	v := guard().(core.Validator)
	v.Name = name
	return v
}

// A path is exactly one interceptor or nothing (A15), whatever the plane is
// mounted under.
func TestNamesInPaths(t *testing.T) {
	var list []core.Interceptor
	for _, n := range oddNames() {
		list = append(list, named(n))
	}
	r := newRig(t, admin.Options{Tokens: manyTokens(t)}, list...)
	for mount, handler := range mounts(r.plane.Handler()) {
		t.Run("mounted at "+mount, func(t *testing.T) {
			for i, name := range oddNames() {
				ask := func(method, path, body string) map[string]any {
					req := (&exchange{method: method, path: mount + path, body: body, secret: manySecret(i), header: http.Header{"If-Match": {"*"}}}).request()
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, req)
					require.Equal(t, http.StatusOK, w.Code, "%s %s: %s", method, path, w.Body)
					var out map[string]any
					require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
					return out
				}
				require.Equal(t, name, ask("GET", segment(name), "")["name"])
				require.Equal(t, name, ask("PUT", segment(name)+"/override", auditBody)["name"])
				require.Equal(t, name, ask("GET", segment(name)+"/stats", "")["name"])
				require.Equal(t, name, ask("DELETE", segment(name)+"/override", "")["name"])
			}
		})
	}
}

// segment is the path of a name, with all that could be taken for something else
// escaped.
func segment(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		const hex = "0123456789ABCDEF"
		b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
	}
	return "/v1/interceptors/" + b.String()
}

func TestPathsThatAreNoName(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), named("guard/x"))
	for _, path := range []string{
		"/v1/interceptors/", "/v1/interceptors//override", "/v1/interceptors/guar", "/v1/interceptors/guardx", "/v1/interceptors/GUARD",
		"/v1/interceptors/guard/", "/v1/interceptors/guard/x", "/v1/interceptors/guard%2Fx%2F", "/v1/interceptors/guard%252Fx", "/v1/interceptors/guard%00",
		"/v1/interceptors/x/../guard", "/v1/interceptors/./guard", "//v1/interceptors/guard", "/v1//interceptors/guard", "/V1/interceptors/guard", "/v1%2Finterceptors/guard",
		"/v1/interceptors/%20guard", "/v1/interceptors/guard%20", "/v1/interceptors/guard;x", "/", "", "/v1", "/v1/", "/v1/changes/", "/v1/decisions/", "/v1/changes/none",
	} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			a := r.do(exchange{method: method, path: path, secret: adminSecret, body: auditBody, header: http.Header{"If-Match": {"*"}}})
			assert.Contains(t, []int{404, 405}, a.status, "%s %s: %s", method, path, a.raw)
		}
	}
	a := r.do(exchange{method: "GET", path: item("gaurd"), secret: readSecret})
	require.Equal(t, []any{"guard"}, a.at("similar"), "near matches for those who may read")
	a = r.do(exchange{method: "GET", path: item("gaurd")})
	require.NotContains(t, a.raw, "guard")
	require.True(t, r.denied())
}
