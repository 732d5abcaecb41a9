package admin

import (
	"io"
	"net/http"
)

// What the tests of this package reach into it for.
var (
	CanonicalHost = canonicalHost
	ParseTokens   = func(in io.Reader) ([]Token, error) { return parseTokens(in) }
	Bearer        = bearer
	MaxListeners  = maxListeners
	MaxOfOne      = maxOfOne
)

// IfMatch parses the header: the tags, or any, or neither for none.
func IfMatch(h http.Header) (tags []string, any bool, err error) {
	p, err := parseIfMatch(h)
	if p == nil || err != nil {
		return nil, false, err
	}
	return p.tags, p.any, nil
}

// ProblemSlugs are all types of problems.
func ProblemSlugs() (slugs []string) {
	for slug := range problemTypes() {
		slugs = append(slugs, slug)
	}
	return slugs
}

// Server returns the server that Serve serves with.
func (p *Plane) Server() *http.Server { return p.server() }
