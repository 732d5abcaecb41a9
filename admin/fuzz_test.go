package admin_test

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What If-Match says is a few strong tags, or *, or refused.
func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{`"1-2"`, `"1-2", "1-3"`, "*", `W/"1-2"`, "", ",", `"1-2",`, `""`, `"1-"`, "*,*"} {
		f.Add(s)
	}
	strong := regexp.MustCompile(`^"[0-9]+-[0-9]+"$`)
	f.Fuzz(func(t *testing.T, s string) {
		tags, any, err := admin.IfMatch(http.Header{"If-Match": {s}})
		if err != nil {
			assert.Empty(t, tags)
			return
		}
		assert.Equal(t, strings.TrimSpace(s) == "*", any)
		assert.Equal(t, any, len(tags) == 0)
		assert.LessOrEqual(t, len(tags), 16)
		for _, tag := range tags {
			assert.Regexp(t, strong, tag)
			assert.Contains(t, s, tag)
		}
	})
}

// A host is read as it is compared: to read it again changes nothing, and nothing
// is read as this machine that a browser would take elsewhere.
func FuzzHost(f *testing.F) {
	for _, s := range []string{
		"localhost", "LOCALHOST.:80", "[::1]:9901", "127.0.0.1", "::1", "evil.example:9000", "@", "", "[fe80::1%25lo]", "127.0.0.1.", "fe80::1%lo", "a:b:c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := admin.CanonicalHost(s)
		if name == "" {
			return
		}
		assert.NotContains(t, name, "@")
		assert.NotContains(t, name, "/")
		again := name
		if addr, err := netip.ParseAddr(name); err == nil && addr.Is6() {
			again = "[" + name + "]"
		}
		assert.Equal(t, strings.TrimSuffix(name, "."), strings.TrimSuffix(admin.CanonicalHost(again), "."), "%q", s)
		if name == "localhost" {
			assert.True(t, strings.HasPrefix(strings.ToLower(s), "localhost"), "%q", s)
		}
	})
}

// A secret comes in one header of one form, or not at all.
func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{"Bearer x", "bearer x", "Basic x", "Bearer", "Bearer ", "Bearer  x", "Bearer x ", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		secret, err := admin.Bearer(&http.Request{Header: http.Header{"Authorization": {s}}})
		if err != nil {
			assert.Empty(t, secret)
			assert.NotContains(t, []string{"", s}, err.Error(), "a reason is of a closed set")
			return
		}
		require.True(t, strings.EqualFold(s, "Bearer "+secret))
		require.NotContains(t, secret, " ")
		_, err = admin.Bearer(&http.Request{Header: http.Header{"Authorization": {s, s}}})
		require.Error(t, err)
	})
}

// A file of tokens is read whole or refused, and what is wrong is said without its
// secrets.
func FuzzTokens(f *testing.F) {
	long := strings.Repeat("s", 40)
	for _, s := range []string{
		"alice operate " + long, "# x\n\nalice read sha256:" + strings.Repeat("ab", 32) + " 2030-01-02T03:04:05Z", "alice root " + long, "a\x00b read " + long,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := admin.ParseTokens(strings.NewReader(s))
		if err != nil {
			require.Empty(t, list)
			for _, field := range strings.Fields(s) {
				if len(field) >= 32 {
					require.NotContains(t, err.Error(), field)
				}
			}
			return
		}
		require.NotEmpty(t, list)
		for _, tok := range list {
			require.True(t, tok.Role.Includes(admin.RoleRead))
			require.NotEmpty(t, tok.ID)
		}
	})
}
