package admin

import (
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/headgate-mcp/headgate/admin/history"
)

type httpHandler = http.Handler

// A route is one thing that can be asked for. What is not in the table is not
// there.
type route struct {
	method, pattern string
	// role is what it takes; empty for nothing.
	role Role
	// action names a write in the history; empty for reads.
	action string
	serve  func(p *Plane, w http.ResponseWriter, r *call) error
}

// path is the pattern as chi has it. What follows a name in its segment is left
// to [call.name]: chi would end the name at its first colon.
func (rt *route) path() string {
	path, _, _ := strings.Cut(rt.pattern, "}:")
	if path != rt.pattern {
		path += "}"
	}
	return path
}

// routes is the table. A segment {name} is an interceptor's or a host's,
// percent-encoded.
func routes() []route {
	const get, put, del, post = http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPost
	return []route{
		{get, "/livez", "", "", (*Plane).getLive},
		{get, "/readyz", "", "", (*Plane).getReady},
		{get, "/openapi.json", "", "", (*Plane).getOpenAPI},
		{get, "/metrics", RoleRead, "", (*Plane).getMetrics},
		{get, "/v1/whoami", RoleRead, "", (*Plane).getWhoami},
		{get, "/v1/state", RoleRead, "", (*Plane).getState},
		{get, "/v1/interceptors", RoleRead, "", (*Plane).getInterceptors},
		{get, "/v1/interceptors/{name}", RoleRead, "", (*Plane).getInterceptor},
		{get, "/v1/interceptors/{name}/stats", RoleRead, "", (*Plane).getStats},
		{get, "/v1/interceptors/{name}/decisions", RoleRead, "", (*Plane).getDecisions},
		{put, "/v1/interceptors/{name}/override", RoleOperate, "override.set", (*Plane).putOverride},
		{del, "/v1/interceptors/{name}/override", RoleOperate, "override.clear", (*Plane).deleteOverride},
		{post, "/v1/interceptors/{name}/breaker:reset", RoleOperate, "breaker.reset", (*Plane).resetBreaker},
		{get, "/v1/hosts", RoleRead, "", (*Plane).getHosts},
		{post, "/v1/hosts/{name}:refresh", RoleOperate, "host.refresh", (*Plane).refreshHost},
		{get, "/v1/decisions/{id}", RoleRead, "", (*Plane).getDecision},
		{get, "/v1/pipeline", RoleRead, "", (*Plane).getPipeline},
		{get, "/v1/coverage", RoleRead, "", (*Plane).getCoverage},
		{get, "/v1/overrides", RoleRead, "", (*Plane).getOverrides},
		{get, "/v1/break-glass", RoleRead, "", (*Plane).getBreakGlass},
		{put, "/v1/break-glass", RoleBreakGlass, "break-glass.set", (*Plane).putBreakGlass},
		{del, "/v1/break-glass", RoleOperate, "break-glass.clear", (*Plane).deleteBreakGlass},
		{get, "/v1/changes", RoleRead, "", (*Plane).getChanges},
		{get, "/v1/changes/{id}", RoleRead, "", (*Plane).getChange},
		{get, "/v1/events", RoleRead, "", (*Plane).getEvents},
	}
}

// newHandler builds the router from the table.
func (p *Plane) newHandler() http.Handler {
	r := chi.NewRouter()
	table := routes()
	for i := range table {
		r.Method(table[i].method, table[i].path(), p.wrap(&table[i]))
	}
	r.NotFound(p.wrap(&route{serve: func(*Plane, http.ResponseWriter, *call) error {
		return newProblem("not-found", "")
	}}).ServeHTTP)
	r.MethodNotAllowed(p.wrap(&route{serve: func(_ *Plane, _ http.ResponseWriter, c *call) error {
		bad := newProblem("method-not-allowed", "")
		bad.allow = allowed(r, c.Request)
		return bad
	}}).ServeHTTP)
	return r
}

// allowed returns the methods that a path takes, for the header Allow.
func allowed(r chi.Routes, req *http.Request) string {
	path := req.URL.Path
	if req.URL.RawPath != "" {
		path = req.URL.RawPath
	}
	if ctx := chi.RouteContext(req.Context()); ctx != nil && ctx.RoutePath != "" {
		path = ctx.RoutePath // mounted in another router
	}
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPost} {
		if r.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}

// Handler returns the plane's HTTP interface. It can be mounted under any prefix
// with [http.StripPrefix], or in a chi router. Whoever serves it sees to timeouts
// and TLS; [Plane.Serve] does.
func (p *Plane) Handler() http.Handler { return p.handler }

// wrap puts around a route what all have in common: whatever happens is
// answered, counted, and stays here.
func (p *Plane) wrap(rt *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, id: history.NewID(time.Now()), route: rt}
		out := &response{ResponseWriter: w}
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				p.opts.Logger.Error("admin handler panicked", "panic", v, "stack", string(debug.Stack()), "request_id", c.id)
				p.answer(out, c, newProblem("internal", ""))
			}
			p.metrics.request(rt, r.Method, out.status)
		}()
		harden(w.Header(), c.id)
		if err := p.admit(c); err != nil {
			p.answer(out, c, err)
			return
		}
		if err := rt.serve(p, out, c); err != nil {
			p.answer(out, c, err)
		}
	})
}

// harden sets the headers that all answers have.
func harden(h http.Header, id string) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Request-Id", id)
}

// A response remembers its status.
type response struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write notes that there is a body.
func (r *response) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach the writer below.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// answer tells the caller what is wrong, unless something was said already, and
// writes attempts down that were refused.
func (p *Plane) answer(w *response, c *call, err error) {
	bad := problemOf(err)
	if bad.slug == "internal" {
		p.opts.Logger.Error("admin request failed", "err", err, "request_id", c.id)
	}
	if c.route.action != "" || bad.status == http.StatusUnauthorized || bad.status == http.StatusForbidden {
		p.refuse(c, bad)
	}
	if w.status == 0 {
		bad.write(w, c.id)
	}
}

// refuse writes a refused attempt down, as far as there is room.
func (p *Plane) refuse(c *call, bad *problem) {
	p.opts.Logger.Warn("admin request refused", "problem", bad.slug, "method", c.Method, "route", c.route.pattern,
		"actor", c.who.Name, "remote", c.RemoteAddr, "request_id", c.id)
	r := p.newRecord(c)
	r.Outcome, r.Problem = history.Rejected, bad.slug
	if r.Action == "" {
		r.Action = "request"
	}
	p.metrics.changed(&r)
	ok, unseen := p.refused.take(time.Now())
	if !ok {
		return
	}
	if unseen > 0 {
		r.Unrecorded = unseen
	}
	p.write.Lock()
	defer p.write.Unlock()
	p.record(r, false)
}

// admit says why a request is not let through.
func (p *Plane) admit(c *call) error {
	if !p.hosts.allows(c.Request) {
		return newProblem("host-refused", "")
	}
	if crossSite(c.Request) {
		return newProblem("origin-refused", "")
	}
	who, err := p.authenticate(c.Request)
	open := c.route.role == ""
	if err != nil && !open {
		return p.unauthenticated(c, err)
	}
	if err == nil {
		c.who = who
	} else if !errors.Is(err, errNoToken) {
		p.metrics.failed(err) // whoever guesses at an open route guesses all the same
	}
	if open {
		return nil
	}
	if !c.who.Role.Includes(c.route.role) {
		bad := newProblem("forbidden", "")
		bad.requiredRole = c.route.role
		return bad
	}
	if c.route.action != "break-glass.set" && !p.limits.actor(c.who.Name) {
		bad := newProblem("too-many", "")
		bad.retryAfter = 1
		return bad
	}
	return nil
}

func (p *Plane) unauthenticated(c *call, err error) error {
	p.metrics.failed(err)
	if !p.limits.failed(c.Request) {
		bad := newProblem("too-many", "")
		bad.retryAfter = 10
		return bad
	}
	return newProblem("unauthenticated", "")
}

// authenticate says who sends a request.
func (p *Plane) authenticate(r *http.Request) (Principal, error) {
	if p.opts.Authenticator != nil {
		who, err := p.opts.Authenticator.Authenticate(r)
		if err != nil {
			p.opts.Logger.Info("not authenticated", "err", err, "remote", r.RemoteAddr)
			return Principal{}, errHook
		}
		return who, nil
	}
	secret, err := bearer(r)
	if errors.Is(err, errNoToken) && p.opts.Anonymous != "" {
		return Principal{Name: "anonymous", Role: p.opts.Anonymous, Method: "none"}, nil
	}
	if err != nil {
		return Principal{}, err
	}
	return match(*p.tokens.Load(), secret, time.Now())
}

// begin returns the change that a request asks for.
func (p *Plane) beginChange(c *call) (*change, error) {
	ch := &change{record: p.newRecord(c), admin: c.who.Role.Includes(RoleAdmin)}
	var err error
	if ch.match, err = parseIfMatch(c.Header); err != nil {
		return nil, err
	}
	if ch.dryRun, err = c.dryRun(); err != nil {
		return nil, err
	}
	ch.record.Unconditional = ch.match != nil && ch.match.any
	ch.record.TraceID = traceOf(c.Header)
	return ch, nil
}
