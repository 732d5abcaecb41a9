package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate-mcp/headgate/admin/control"
)

// A problem is an answer that says what is wrong (RFC 9457). Its texts are fixed,
// or of this package's making: nothing from inside is in them.
type problem struct {
	status int
	slug   string
	title  string

	detail       string
	errors       []control.Fault
	requiredRole Role
	currentETag  string
	current      any
	allow        string
	retryAfter   int // seconds
	reason       string
	similar      []string
}

// Error is the title, for logs.
func (p *problem) Error() string { return p.title }

// problemTypes are the problems that there are, by slug.
func problemTypes() map[string]problem {
	return map[string]problem{
		"malformed":             {status: http.StatusBadRequest, title: "The request is malformed"},
		"unauthenticated":       {status: http.StatusUnauthorized, title: "A valid token is wanted"},
		"forbidden":             {status: http.StatusForbidden, title: "The role does not allow this"},
		"origin-refused":        {status: http.StatusForbidden, title: "Requests of other sites' pages are refused"},
		"pinned":                {status: http.StatusForbidden, title: "The interceptor is pinned"},
		"not-found":             {status: http.StatusNotFound, title: "There is no such thing"},
		"method-not-allowed":    {status: http.StatusMethodNotAllowed, title: "The method does not fit"},
		"incompatible":          {status: http.StatusConflict, title: "The change does not fit the interceptor"},
		"stale":                 {status: http.StatusPreconditionFailed, title: "It has been changed meanwhile"},
		"too-large":             {status: http.StatusRequestEntityTooLarge, title: "The body is too large"},
		"unsupported-media":     {status: http.StatusUnsupportedMediaType, title: "The body is not application/json"},
		"host-refused":          {status: http.StatusMisdirectedRequest, title: "This host name is not served here"},
		"invalid":               {status: http.StatusUnprocessableEntity, title: "The request makes no sense"},
		"precondition-required": {status: http.StatusPreconditionRequired, title: "If-Match is wanted"},
		"too-many":              {status: http.StatusTooManyRequests, title: "Too many requests"},
		"store-unavailable":     {status: http.StatusServiceUnavailable, title: "The store cannot be written"},
		"host-unavailable":      {status: http.StatusBadGateway, title: "The host cannot be reached"},
		"internal":              {status: http.StatusInternalServerError, title: "Something went wrong here"},
	}
}

// newProblem returns a problem of a type.
func newProblem(slug, detail string) *problem {
	p := problemTypes()[slug]
	p.slug, p.detail = slug, detail
	return &p
}

// problemOf returns the problem that an error is. What is not one of ours is
// internal, and its text stays here.
func problemOf(err error) *problem {
	var p *problem
	var faults control.Faults
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &faults):
		return problemOfFaults(faults)
	}
	return newProblem("internal", "")
}

func problemOfFaults(f control.Faults) *problem {
	slug := map[control.Kind]string{
		control.Malformed: "malformed", control.Invalid: "invalid", control.Incompatible: "incompatible",
		control.Pinned: "pinned", control.Forbidden: "forbidden",
	}[f.Kind()]
	p := newProblem(slug, f.Error())
	p.errors = f
	for _, x := range f {
		if x.Role != "" {
			p.requiredRole = Role(x.Role)
		}
	}
	if slug == "incompatible" {
		p.reason = "hooks"
	}
	return p
}

// problemPrefix makes slugs into the URIs that types are.
const problemPrefix = "urn:headgate:problem:"

// problemView is a problem on the wire.
type problemView struct {
	Type         string          `json:"type"`
	Title        string          `json:"title"`
	Status       int             `json:"status"`
	Detail       string          `json:"detail,omitempty"`
	Instance     string          `json:"instance,omitempty"`
	Errors       []control.Fault `json:"errors,omitempty"`
	RequiredRole Role            `json:"requiredRole,omitempty"`
	CurrentETag  string          `json:"currentETag,omitempty"`
	Current      any             `json:"current,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	Similar      []string        `json:"similar,omitempty"`
}

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter, requestID string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(problemView{
		Type: problemPrefix + p.slug, Title: p.title, Status: p.status, Detail: p.detail, Instance: "urn:headgate:request:" + requestID,
		Errors: p.errors, RequiredRole: p.requiredRole, CurrentETag: p.currentETag, Current: p.current,
		Reason: p.reason, Similar: p.similar,
	})
}
