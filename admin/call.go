package admin

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
)

// A call is a request on its way through.
type call struct {
	*http.Request
	id    string
	who   Principal
	route *route
}

// newRecord begins the record of a request.
func (p *Plane) newRecord(c *call) history.Record {
	name, _ := c.name()
	return history.Record{
		Time: time.Now(), Surface: "api", Action: c.route.action, Target: clip(name), RequestID: c.id,
		Actor: history.Actor{
			Name: c.who.Name, Role: string(c.who.Role), Method: c.who.Method, Remote: c.RemoteAddr,
			Claim: clip(c.Header.Get("X-On-Behalf-Of")),
		},
	}
}

// maxTarget bounds what a record keeps of a path.
const maxTarget = 128

func clip(s string) string {
	if len(s) > maxTarget {
		s = s[:maxTarget]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// name returns the name in the path: the segment as it was sent,
// unescaped once. chi's own parameter does not tell a%2Fb and a%252Fb apart.
func (c *call) name() (string, error) {
	pattern := strings.Split(c.route.pattern, "/")
	segments := strings.Split(c.URL.EscapedPath(), "/")
	for i := range pattern { // from the end, since what it is mounted under is unknown
		if at := len(pattern) - 1 - i; strings.HasPrefix(pattern[at], "{") && i < len(segments) {
			_, verb, _ := strings.Cut(pattern[at], "}")
			segment, ok := strings.CutSuffix(segments[len(segments)-1-i], verb)
			name, err := url.PathUnescape(segment)
			if err != nil || name == "" || !ok {
				return "", newProblem("not-found", "")
			}
			return name, nil
		}
	}
	return "", nil
}

// maxBody bounds what is read of a body.
const maxBody = 64 << 10

// body reads the body of a write.
func (c *call) body(w http.ResponseWriter) ([]byte, error) {
	kind, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return nil, newProblem("unsupported-media", "")
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, c.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, newProblem("too-large", "at most 64 KiB are taken")
	case err != nil:
		return nil, newProblem("malformed", "the body did not come to an end")
	}
	return raw, nil
}

// dryRun reads the query of a write, which has no other member.
func (c *call) dryRun() (bool, error) {
	q, err := c.query("dryRun")
	if err != nil {
		return false, err
	}
	switch v := q.Get("dryRun"); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, newProblem("malformed", "dryRun is neither true nor false")
}

// query returns the query, if it has these members and no others, each once.
func (c *call) query(known ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, newProblem("malformed", "the query cannot be read")
	}
	for key, values := range q {
		ok := len(values) == 1
		found := false
		for _, k := range known {
			found = found || k == key
		}
		if !ok || !found {
			return nil, newProblem("malformed", "the query has a member that is unknown, or one twice")
		}
	}
	return q, nil
}

// reply writes a value as JSON.
func reply(w http.ResponseWriter, status int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n'))
	return nil
}

// traceOf returns the trace id in a traceparent header (W3C Trace Context),
// if there is one.
func traceOf(h http.Header) string {
	parts := strings.Split(h.Get("traceparent"), "-")
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return parts[1]
}
