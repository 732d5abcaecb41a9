package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-mcp/headgate/core"
)

// schema is the version of what an ETag stands for.
const schema = 1

// etag returns the strong entity tag of what has a revision (RFC 9110, 8.8.3). The
// print stands for what changes without one: what hosts declare. It may be empty.
func etag(revision uint64, print string) string {
	tag := fmt.Sprintf("%d-%d", schema, revision)
	if print != "" {
		tag += "-" + print
	}
	return strconv.Quote(tag)
}

// fingerprint returns a short digest of what values say.
func fingerprint(values ...any) string {
	h := sha256.New()
	for _, v := range values {
		raw, err := core.Encode(v)
		if err != nil {
			raw = []byte(err.Error()) // of our own types: it does not come to that
		}
		h.Write(append(raw, 0))
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// A precondition is what If-Match says.
type precondition struct {
	any  bool // *: whatever it is now
	tags []string
}

// maxTags bounds the tags of one header.
const maxTags = 16

// parseIfMatch reads the header (RFC 9110, 13.1.1). Weak tags are refused: they
// never match. It is nil if the header is not there.
func parseIfMatch(h http.Header) (*precondition, error) {
	values := h.Values("If-Match")
	if len(values) == 0 {
		return nil, nil
	}
	text := strings.TrimSpace(strings.Join(values, ","))
	if text == "*" {
		return &precondition{any: true}, nil
	}
	p := &precondition{}
	for _, part := range strings.Split(text, ",") {
		tag := strings.TrimSpace(part)
		if !isTag(tag) || len(p.tags) == maxTags {
			return nil, newProblem("malformed", "If-Match holds neither * nor strong entity tags in quotes")
		}
		p.tags = append(p.tags, tag)
	}
	return p, nil
}

// isTag reports whether a text is one of the tags that this plane gives out.
func isTag(s string) bool {
	inner, ok := strings.CutPrefix(s, `"`)
	if !ok {
		return false
	}
	inner, ok = strings.CutSuffix(inner, `"`)
	major, rest, found := strings.Cut(inner, "-")
	minor, print, _ := strings.Cut(rest, "-")
	return ok && found && isNumber(major) && isNumber(minor) && strings.Trim(print, "0123456789abcdef") == ""
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil && s == strings.TrimLeft(s, "+")
}

// check returns why a write must not be made to what has this tag.
func (p *precondition) check(now string, current any) error {
	if p == nil {
		bad := newProblem("precondition-required", "send If-Match with the ETag that you have seen, or *")
		bad.currentETag = now
		return bad
	}
	if p.any {
		return nil
	}
	for _, tag := range p.tags {
		if tag == now {
			return nil
		}
	}
	bad := newProblem("stale", "read it again and decide anew")
	bad.currentETag, bad.current = now, current
	return bad
}

// fresh reports whether If-None-Match has the tag (RFC 9110, 13.1.2), so that
// there is nothing to send.
func fresh(h http.Header, tag string) bool {
	for _, part := range strings.Split(strings.Join(h.Values("If-None-Match"), ","), ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if part == tag || part == "*" {
			return true
		}
	}
	return false
}
