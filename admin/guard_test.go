package admin_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A page whose name was made to point here has another name (A01). It applies to
// reads and to health too.
func TestHosts(t *testing.T) {
	r := newRig(t, admin.Options{Hosts: []string{"Gate.Example.", "10.1.2.3"}}, guard())
	for host, ok := range map[string]bool{
		"127.0.0.1:9901": true, "127.0.0.1": true, "127.0.0.2:80": true, "localhost": true, "localhost:1": true,
		"localhost.": true, "localhost.:9901": true, "LOCALHOST": true, "LocalHost:9901": true,
		"[::1]:9901": true, "[::1]": true, "::1": true, "[0:0:0:0:0:0:0:1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"gate.example": true, "GATE.example.:8443": true, "10.1.2.3:9901": true,

		"evil.example:9000": false, "evil.example": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false,
		"localhost..": false, "xlocalhost": false, "gate.example.evil": false, "x.gate.example": false, "10.1.2.4": false,
		"0.0.0.0:9901": false, "[::]:9901": false, "@": false, "localhost@evil.example": false, "evil@localhost": false,
		"localhost:x": false, "localhost:123456": false, "localhost:80:80": false, "[::1": false, "[::1]x": false, "[127.0.0.1]": false,
		"localhost/x": false, "localhost,evil": false, "127.1": false, "0x7f000001": false, "2130706433": false, "017700000001": false,
		" localhost": false, "localhost\x00": false, "%6cocalhost": false, "ⓛocalhost": false,
	} {
		for _, path := range []string{"/livez", "/v1/whoami"} {
			a := r.do(exchange{method: "GET", path: path, secret: adminSecret, host: host})
			if ok {
				assert.Equal(t, http.StatusOK, a.status, host)
			} else {
				assert.Equal(t, "host-refused", a.problem(), host)
				assert.Equal(t, http.StatusMisdirectedRequest, a.status)
			}
		}
	}
	req := (&exchange{method: "GET", path: "/livez"}).request()
	req.Host = ""
	w := httptest.NewRecorder()
	r.plane.Handler().ServeHTTP(w, req)
	assert.Equal(t, http.StatusMisdirectedRequest, w.Code, "none at all")
	assert.True(t, r.denied())
}

// What a browser says about where a request comes from (A02).
func TestOtherSitesPages(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for name, tt := range map[string]struct {
		header http.Header
		ok     bool
	}{
		"no browser":              {nil, true},
		"this plane's own page":   {http.Header{"Origin": {"http://127.0.0.1:9901"}, "Sec-Fetch-Site": {"same-origin"}}, true},
		"an address bar":          {http.Header{"Sec-Fetch-Site": {"none"}}, true},
		"upper case":              {http.Header{"Origin": {"HTTP://127.0.0.1:9901"}}, true},
		"null":                    {http.Header{"Origin": {"null"}}, false},
		"empty":                   {http.Header{"Origin": {""}}, false},
		"another site":            {http.Header{"Origin": {"http://evil.example"}}, false},
		"another port":            {http.Header{"Origin": {"http://127.0.0.1:9902"}}, false},
		"another scheme, no port": {http.Header{"Origin": {"https://127.0.0.1"}}, false},
		"another name of here":    {http.Header{"Origin": {"http://localhost:9901"}}, false},
		"a name that begins so":   {http.Header{"Origin": {"http://127.0.0.1:9901.evil.example"}}, false},
		"a user of that name":     {http.Header{"Origin": {"http://127.0.0.1:9901@evil.example"}}, false},
		"two, both good":          {http.Header{"Origin": {"http://127.0.0.1:9901", "http://127.0.0.1:9901"}}, false},
		"two, one bad":            {http.Header{"Origin": {"http://127.0.0.1:9901", "http://evil.example"}}, false},
		"a list":                  {http.Header{"Origin": {"http://127.0.0.1:9901 http://evil.example"}}, false},
		"cross-site":              {http.Header{"Sec-Fetch-Site": {"cross-site"}}, false},
		"same-site":               {http.Header{"Sec-Fetch-Site": {"same-site"}}, false},
		"a site of the future":    {http.Header{"Sec-Fetch-Site": {"elsewhere"}}, false},
		"two sites":               {http.Header{"Sec-Fetch-Site": {"same-origin", "cross-site"}}, false},
		"both, one bad":           {http.Header{"Origin": {"http://127.0.0.1:9901"}, "Sec-Fetch-Site": {"cross-site"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			read := r.do(exchange{method: "GET", path: "/v1/state", secret: adminSecret, header: tt.header})
			header := tt.header.Clone()
			if header == nil {
				header = http.Header{}
			}
			header.Set("If-Match", "*")
			write := r.do(exchange{method: "PUT", path: item("guard") + "/override", secret: adminSecret, header: header, body: `{"mode":"active",` + why + `}`})
			if tt.ok {
				assert.Equal(t, []int{200, 200}, []int{read.status, write.status})
				return
			}
			assert.Equal(t, []string{"origin-refused", "origin-refused"}, []string{read.problem(), write.problem()})
		})
	}
}

// Bodies that a page can send without asking first are not taken, and neither is
// none (A02).
func TestBodiesOfPages(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for name, tt := range map[string]struct {
		kind []string
		body string
		slug string
	}{
		"text":              {[]string{"text/plain"}, auditBody, "unsupported-media"},
		"a form":            {[]string{"application/x-www-form-urlencoded"}, "mode=audit", "unsupported-media"},
		"a form of parts":   {[]string{"multipart/form-data; boundary=x"}, auditBody, "unsupported-media"},
		"no type":           {[]string{}, auditBody, "unsupported-media"},
		"an empty type":     {[]string{""}, auditBody, "unsupported-media"},
		"another charset":   {[]string{"application/json; charset=utf-16"}, auditBody, "unsupported-media"},
		"a type like it":    {[]string{"application/jsonx"}, auditBody, "unsupported-media"},
		"a patch":           {[]string{"application/merge-patch+json"}, auditBody, "unsupported-media"},
		"no body":           {[]string{"application/json"}, "", "malformed"},
		"no body, no type":  {[]string{}, "", "unsupported-media"},
		"with its charset":  {[]string{"application/json; charset=UTF-8"}, `{}`, "malformed"},
		"too large (A08)":   {[]string{"application/json"}, `{"reason":"` + strings.Repeat("x", 200<<10) + `"}`, "too-large"},
		"spaces, too large": {[]string{"application/json"}, strings.Repeat(" ", 65<<10) + auditBody, "too-large"},
	} {
		a := r.do(exchange{
			method: "PUT", path: item("guard") + "/override", secret: adminSecret, body: tt.body,
			header: http.Header{"If-Match": {"*"}, "Content-Type": tt.kind},
		})
		assert.Equal(t, tt.slug, a.problem(), name)
		assert.True(t, r.denied(), name)
	}
}

// A body of just 64 KiB is read.
func TestTheLargestBody(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	body := auditBody + strings.Repeat(" ", 64<<10-len(auditBody))
	require.Equal(t, http.StatusOK, r.put("guard", operateSecret, body).status)
	require.Equal(t, "too-large", r.put("guard", operateSecret, body+" ").problem())
}

// Only PUT and DELETE change anything (A02): no other method is taken, and a GET
// with all that a write has is a read.
func TestMethods(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for path, allow := range map[string]string{
		item("guard") + "/override": "PUT, DELETE", "/v1/break-glass": "GET, PUT, DELETE", "/v1/state": "GET",
		item("a/b") + "/override": "PUT, DELETE",
	} {
		for _, method := range []string{"OPTIONS", "POST", "PATCH", "HEAD", "TRACE"} {
			a := r.do(exchange{method: method, path: path, secret: adminSecret, body: auditBody, header: http.Header{"X-Http-Method-Override": {"PUT"}}})
			assert.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
			assert.Equal(t, allow, a.header.Get("Allow"), "%s %s", method, path)
		}
	}
	for _, path := range []string{"/v1/state", "/v1/break-glass", item("guard"), "/v1/interceptors?mode=audit", item("guard") + "?dryRun=false"} {
		r.do(exchange{method: "GET", path: path, secret: adminSecret, body: auditBody, header: http.Header{"If-Match": {"*"}}})
	}
	require.True(t, r.denied())
	require.Zero(t, r.metric("headgate_control_revision"))
}

// Headers that say where a request comes from are not believed (A07).
func TestForwardingHeadersChangeNothing(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	header := func() http.Header {
		return http.Header{
			"X-Real-Ip": {"127.0.0.1"}, "X-Forwarded-For": {"127.0.0.1"}, "Forwarded": {"for=127.0.0.1;host=localhost"},
			"X-Forwarded-Host": {"localhost"}, "True-Client-Ip": {"127.0.0.1"}, "If-Match": {"*"},
		}
	}
	a := r.do(exchange{method: "GET", path: "/livez", host: "evil.example", header: header()})
	assert.Equal(t, "host-refused", a.problem())
	a = r.do(exchange{method: "GET", path: "/v1/state", header: header()})
	assert.Equal(t, "unauthenticated", a.problem())
	a = r.do(exchange{
		method: "PUT", path: item("guard") + "/override", secret: operateSecret, body: auditBody, header: header(), remote: "192.0.2.7:1234",
	})
	require.Equal(t, http.StatusOK, a.status)
	assert.Equal(t, "192.0.2.7:1234", r.last()["actor"].(map[string]any)["remote"])
	bad := exchange{method: "GET", path: "/v1/state", header: header(), remote: "192.0.2.8:1"}
	for range 10 {
		r.do(bad)
	}
	bad.header.Set("X-Forwarded-For", "192.0.2.99")
	assert.Equal(t, "too-many", r.do(bad).problem(), "a bucket is the peer's")
}

// What others could reach is not listened on without TLS and tokens (A04).
func TestListenRefusesToBeExposed(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	secure := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, addr := range []string{":0", ":9000", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		_, err := r.plane.Listen(addr, nil)
		require.ErrorIs(t, err, admin.ErrExposed, addr)
	}
	ln, err := r.plane.Listen("0.0.0.0:0", secure)
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		ln, err := r.plane.Listen(addr, nil)
		require.NoError(t, err, addr)
		require.NoError(t, ln.Close())
	}
	for _, addr := range []string{"nonsense", "127.0.0.1:port-that-is-none"} {
		_, err = r.plane.Listen(addr, nil)
		require.Error(t, err)
	}
	open := newRig(t, admin.Options{Anonymous: admin.RoleRead}, guard())
	_, err = open.plane.Listen("0.0.0.0:0", secure)
	require.ErrorIs(t, err, admin.ErrExposed, "TLS alone tells nobody apart")
	require.NoError(t, r.plane.SetTokens(nil))
	_, err = r.plane.Listen("0.0.0.0:0", secure)
	require.ErrorIs(t, err, admin.ErrExposed)
}

// serve serves the plane until the test ends.
func (r *rig) serve(ln net.Listener) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.plane.Serve(ctx, ln) }()
	r.t.Cleanup(func() {
		cancel()
		require.NoError(r.t, <-done)
	})
}

// client is one that leaves nothing behind.
func client(t *testing.T, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	tr := &http.Transport{DialContext: dial}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// A socket is its owner's alone, and no browser reaches it: any Host is good
// there, and there alone.
func TestUnixSocket(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	dir, err := os.MkdirTemp("", "hg") // a path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := r.plane.Listen("unix:"+path, nil)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	r.serve(ln)
	web := client(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
	res, err := web.Get("http://anything.example/livez")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)

	tcp, err := r.plane.Listen("127.0.0.1:0", nil)
	require.NoError(t, err)
	r.serve(tcp)
	req, err := http.NewRequest(http.MethodGet, "http://"+tcp.Addr().String()+"/livez", nil)
	require.NoError(t, err)
	req.Host = "evil.example"
	res, err = client(t, nil).Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusMisdirectedRequest, res.StatusCode, "the other listener has its hosts still")
	_, err = r.plane.Listen("unix:"+filepath.Join(dir, "no", "folder"), nil)
	require.Error(t, err)
}

// The server has all timeouts but that of writing, which would cut off streams
// (A08).
func TestServerIsBounded(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	s := r.plane.Server()
	assert.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second, time.Minute, 0},
		[]time.Duration{s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout, s.WriteTimeout})
	assert.LessOrEqual(t, s.MaxHeaderBytes, 16<<10)
}

// Over a real connection: large headers and bodies are cut off, and a body that
// trickles holds nobody up.
func TestServe(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	ln, err := r.plane.Listen("127.0.0.1:0", nil)
	require.NoError(t, err)
	r.serve(ln)
	addr := ln.Addr().String()
	slow, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer slow.Close()
	_, err = io.WriteString(slow, "PUT /v1/interceptors/guard/override HTTP/1.1\r\nHost: "+addr+"\r\nContent-Length: 60000\r\n"+
		"Content-Type: application/json\r\nIf-Match: *\r\nAuthorization: Bearer "+operateSecret+"\r\n\r\n{")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.flip("guard", auditBody).status, "it holds no lock")

	web := client(t, nil)
	send := func(edit func(*http.Request), body io.Reader) int {
		req, err := http.NewRequest(http.MethodPut, "http://"+addr+item("guard")+"/override", body)
		require.NoError(t, err)
		req.Header = http.Header{"Authorization": {"Bearer " + operateSecret}, "If-Match": {"*"}, "Content-Type": {"application/json"}}
		edit(req)
		res, err := web.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	nothing := func(*http.Request) {}
	assert.Equal(t, http.StatusRequestEntityTooLarge, send(nothing, strings.NewReader(strings.Repeat(" ", 200<<10))))
	assert.Equal(t, http.StatusRequestEntityTooLarge, send(func(q *http.Request) { q.ContentLength = -1 }, strings.NewReader(strings.Repeat(" ", 200<<10))))
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, send(func(q *http.Request) { q.Header.Set("X", strings.Repeat("x", 40<<10)) }, http.NoBody))
	assert.Equal(t, http.StatusOK, send(nothing, strings.NewReader(auditBody)))
}
