package admin

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A Token lets its bearer in. Only the digest of the secret is kept.
type Token struct {
	// ID names the token, and whoever bears it, in history and logs.
	ID string
	// Role says what the bearer may do.
	Role Role
	// SHA256 is the digest of the secret.
	SHA256 [sha256.Size]byte
	// ExpiresAt is when it ends; zero for never.
	ExpiresAt time.Time
}

// minToken is how long a secret must be, in characters.
const minToken = 32

// NewToken returns a token for a secret of 32 characters or more.
func NewToken(id string, role Role, secret string) (Token, error) {
	t := Token{ID: id, Role: role, SHA256: sha256.Sum256([]byte(secret))}
	if len(secret) < minToken {
		return Token{}, fmt.Errorf("admin: token %q is shorter than %d characters", id, minToken)
	}
	return t, t.check()
}

// NewSecret returns a secret that nobody guesses.
func NewSecret() string {
	var b [minToken]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

func (t *Token) check() error {
	if core.CheckName(t.ID) != nil || t.Role.rank() == 0 {
		return fmt.Errorf("admin: token %q: a name and one of the roles %v are wanted", t.ID, roles())
	}
	return nil
}

// ReadTokens reads a file of tokens: on each line an id, a role and the secret or
// sha256: and its digest in hex, and optionally when it expires, in the form of RFC
// 3339. Lines that begin with # are comments. A file that others than its owner
// can read is refused.
func ReadTokens(path string) ([]Token, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("admin: tokens: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("admin: tokens: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("admin: tokens: %s can be read by others than its owner (mode %#o, 0600 is wanted)", path, info.Mode().Perm())
	}
	return parseTokens(file)
}

// maxTokens bounds what each request is held against.
const maxTokens = 256

func parseTokens(in io.Reader) ([]Token, error) {
	var tokens []Token
	sc := bufio.NewScanner(in)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t, err := parseToken(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("admin: tokens, line %d: %w", n, err)
		}
		if tokens = append(tokens, t); len(tokens) > maxTokens {
			return nil, fmt.Errorf("admin: more than %d tokens", maxTokens)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("admin: tokens: %w", err)
	}
	if len(tokens) == 0 {
		return nil, errors.New("admin: tokens: the file has none")
	}
	return tokens, nil
}

var errBadToken = fmt.Errorf("an id that is a name, one of the roles %v and a secret of %d characters or more are wanted", roles(), minToken)

// parseToken reads the fields of a line. Its errors do not quote them.
func parseToken(fields []string) (Token, error) {
	if len(fields) < 3 || len(fields) > 4 {
		return Token{}, errors.New("id, role and secret are wanted, and perhaps when it expires")
	}
	t := Token{ID: fields[0], Role: Role(fields[1])}
	if digest, ok := strings.CutPrefix(fields[2], "sha256:"); ok {
		raw, err := hex.DecodeString(digest)
		if err != nil || len(raw) != sha256.Size {
			return Token{}, errors.New("the digest is not 64 hex digits")
		}
		t.SHA256 = [sha256.Size]byte(raw)
	} else {
		var err error
		if t, err = NewToken(t.ID, t.Role, fields[2]); err != nil {
			return Token{}, errBadToken // whose secret may stand in the place of the id
		}
	}
	if len(fields) == 4 {
		at, err := time.Parse(time.RFC3339, fields[3])
		if err != nil {
			return Token{}, errors.New("the expiry is not in the form of RFC 3339")
		}
		t.ExpiresAt = at
	}
	if t.check() != nil {
		return Token{}, errBadToken
	}
	return t, nil
}

// A Principal is who sends a request, as far as that was proved.
type Principal struct {
	// Name is the actor's in history and logs.
	Name string
	Role Role
	// Method is how it was proved, such as token or mtls.
	Method string
}

// An Authenticator says who sends a request. It is for embedders that have
// client certificates, OIDC or a gateway in front.
type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
}

// Errors of authentication; their texts are reasons in a metric.
var (
	errNoToken      = errors.New("missing")
	errBadHeader    = errors.New("malformed")
	errUnknownToken = errors.New("unknown")
	errExpiredToken = errors.New("expired")
	errHook         = errors.New("authenticator")
)

// maxHeader bounds the header that a secret comes in.
const maxHeader = 4096

// bearer returns the secret in the Authorization header (RFC 6750, 2.1).
func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	switch {
	case len(values) == 0:
		return "", errNoToken
	case len(values) > 1 || len(values[0]) > maxHeader:
		return "", errBadHeader
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" || strings.ContainsAny(secret, " \t") {
		return "", errBadHeader
	}
	return secret, nil
}

// match finds the token of a secret. All are compared, in constant time, so that
// time tells nothing.
func match(tokens []Token, secret string, now time.Time) (Principal, error) {
	digest := sha256.Sum256([]byte(secret))
	found := -1
	for i := range tokens {
		if subtle.ConstantTimeCompare(tokens[i].SHA256[:], digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Principal{}, errUnknownToken
	}
	t := &tokens[found]
	if !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt) {
		return Principal{}, errExpiredToken
	}
	return Principal{Name: t.ID, Role: t.Role, Method: "token"}, nil
}
