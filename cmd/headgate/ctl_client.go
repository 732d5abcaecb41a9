package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/headgate-mcp/headgate/admin/history"
)

// An ask is what ctl asks the plane.
type ask struct {
	method string // empty for GET
	path   string
	body   any
	header http.Header
}

// maxReply bounds what is read of an answer.
const maxReply = 64 << 20

var errUnreachable = errors.New("the admin plane cannot be reached")

// A problemError is what the plane says is wrong (RFC 9457).
type problemError struct {
	Type    string   `json:"type"`
	Title   string   `json:"title"`
	Status  int      `json:"status"`
	Detail  string   `json:"detail"`
	Role    string   `json:"requiredRole"`
	Similar []string `json:"similar"`
}

// Error says it in one line.
func (p *problemError) Error() string {
	text := p.Title
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	if p.Role != "" {
		text += " (role " + p.Role + " is wanted)"
	}
	if len(p.Similar) > 0 {
		text += "; did you mean " + strings.Join(p.Similar, ", ") + "?"
	}
	return text
}

// open sends a request and returns the answer, if it is a good one.
func (c *ctl) open(ctx context.Context, r ask) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.commands.Addr, "/")+r.path, body)
	if err != nil {
		return nil, err
	}
	for key, values := range r.header {
		req.Header[key] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	// A redirect could lead the token elsewhere.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	bad := &problemError{Status: res.StatusCode}
	if json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(bad) != nil || bad.Title == "" {
		bad = &problemError{Status: res.StatusCode, Title: "answered " + res.Status + ": is that an admin plane?"}
	}
	return nil, bad
}

// authorize adds the token.
func (c *ctl) authorize(req *http.Request) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// token returns the token: what a flag says counts before the environment.
func (c *ctl) token() (string, error) {
	path := c.commands.TokenFile
	switch {
	case c.commands.Token != "":
		return c.commands.Token, nil
	case path == "" && os.Getenv("HEADGATE_ADMIN_TOKEN") != "":
		return os.Getenv("HEADGATE_ADMIN_TOKEN"), nil
	case path == "":
		path = os.Getenv("HEADGATE_ADMIN_TOKEN_FILE")
	}
	if path == "" {
		return "", nil
	}
	token, err := readSecret(path)
	if err == nil && strings.ContainsAny(token, " \t\n") {
		err = fmt.Errorf("%s holds more than a token: a client's file has the secret alone", path)
	}
	return token, err
}

// quietly reads an answer into v.
func (c *ctl) quietly(r ask, v any) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.commands.Timeout)
	defer cancel()
	res, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(io.LimitReader(res.Body, maxReply)).Decode(v)
}

// fetch reads an answer into v and, if JSON is wanted, prints it as it came.
func (c *ctl) fetch(r ask, v any) error {
	if !c.json {
		return c.quietly(r, v)
	}
	var raw json.RawMessage
	if err := c.quietly(r, &raw); err != nil {
		return err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, raw, "", "  "); err != nil {
		return err
	}
	fmt.Fprintln(c.out, escaped(pretty.String()))
	return json.Unmarshal(raw, v)
}

// escaped makes JSON fit for a terminal, and leaves it the same JSON: what does
// not print stands in strings alone, since JSON has only ASCII around them.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// show fetches, and draws for people.
func (c *ctl) show(r ask, v any, draw func(io.Writer)) error {
	if err := c.fetch(r, v); err != nil || c.json {
		return err
	}
	draw(c.out)
	return nil
}

// print writes what was not fetched, as JSON or drawn.
func (c *ctl) print(v any, draw func(io.Writer)) {
	if !c.json {
		draw(c.out)
		return
	}
	if raw, err := json.MarshalIndent(v, "", "  "); err == nil {
		fmt.Fprintln(c.out, escaped(string(raw)))
	}
}

// stateHead reads which record the state in a folder knows as the last; nil if
// there is no state.
func stateHead(dir string) (*history.Head, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		State struct {
			Note history.Head `json:"note"`
		} `json:"state"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("state.json cannot be read: %w", err)
	}
	return &file.State.Note, nil
}

// since writes how long ago, or until when, in a form for people.
func since(d time.Duration) string {
	if d < 0 {
		d = -d
	}
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Round(time.Minute).Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
