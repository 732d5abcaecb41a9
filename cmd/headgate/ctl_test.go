package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A controlled demo: where it is, and what speaks to it.
type controlled struct {
	t     *testing.T
	mcp   string
	admin string
	token string
	out   *lockedBuffer
	err   *lockedBuffer
	stop  func()
}

// startControlled starts a demo with an admin plane and no traffic of its own.
func startControlled(t *testing.T, args ...string) *controlled {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := &controlled{t: t, out: &lockedBuffer{}, err: &lockedBuffer{}}
	code := make(chan int, 1)
	all := append([]string{"demo", "--mcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--traffic", "0"}, args...)
	go func() { code <- run(ctx, all, d.out, d.err) }()
	d.stop = func() {
		cancel()
		require.Equal(t, exitOK, <-code, d.err.String())
	}
	find := func(pattern string) string {
		at := regexp.MustCompile(pattern)
		require.Eventually(t, func() bool { return at.MatchString(d.out.String()) }, patience, 10*time.Millisecond, "%s", d.err)
		return at.FindStringSubmatch(d.out.String())[1]
	}
	d.mcp, d.admin = find(`MCP server at (\S+)`), find(`Admin at (\S+)`)
	if !strings.Contains(strings.Join(args, " "), "--admin-token-file") {
		d.token = find(`Admin token (\S+)`)
	}
	return d
}

// ctl runs headgate ctl and returns what it printed.
func (d *controlled) ctl(args ...string) (code int, stdout, stderr string) {
	d.t.Helper()
	var out, errs bytes.Buffer
	code = run(d.t.Context(), append([]string{"ctl", "--addr", d.admin, "--token", d.token}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// good runs headgate ctl and wants it to succeed.
func (d *controlled) good(args ...string) string {
	d.t.Helper()
	code, stdout, stderr := d.ctl(args...)
	require.Equal(d.t, exitOK, code, stderr)
	return stdout
}

// deletes reports whether the demo lets a dangerous call through.
func (d *controlled) deletes() bool {
	d.t.Helper()
	session := connect(d.t, d.mcp, newProtocol)
	defer session.Close()
	_, err := session.CallTool(d.t.Context(), &mcp.CallToolParams{Name: "delete_records", Arguments: map[string]any{"table": "orders"}})
	if err != nil {
		assertDenied(d.t, err)
	}
	return err == nil
}

// The way of an incident, from the first blocked call to the history of it, over
// a restart in the middle.
func TestIncident(t *testing.T) {
	state := t.TempDir()
	d := startControlled(t, "--state-dir", state)
	require.False(t, d.deletes(), "the policy blocks")
	why := regexp.MustCompile(`blocked .* trace (\w+)`)
	require.Eventually(t, func() bool { return why.MatchString(d.out.String()) }, patience, 10*time.Millisecond)
	assert.Regexp(t, `block-destructive +validation +active +deny +block`, d.good("why", why.FindStringSubmatch(d.out.String())[1]))

	out := d.good("mode", "block-destructive", "audit", "--ttl", "1h", "--reason", "it blocks good traffic")
	assert.Regexp(t, `block-destructive active -> audit, revision 1, ends .* \(in 60m\)\n$`, out)
	require.True(t, d.deletes(), "in audit it does not")
	assert.Regexp(t, `audit +1 +1 `, d.good("get", "block-destructive"), "it goes on judging")
	d.stop()

	d = startControlled(t, "--state-dir", state)
	require.True(t, d.deletes(), "the override has survived, before the first message")
	d.good("mode", "block-destructive", "audit", "--ttl", "1s", "--reason", "for a moment longer")
	require.Eventually(t, func() bool { return !d.deletes() }, 10*time.Second, 100*time.Millisecond, "its time is over")
	assert.Regexp(t, `system:ttl +override.expire +block-destructive +expired +audit -> active`, d.good("history"))
	d.stop()

	var verified bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"ctl", "history", "verify", state}, &verified, &verified))
	assert.Contains(t, verified.String(), "the chain holds")
	tampers(t, state)
}

// tampers edits a history in several ways, and wants each to be told.
func tampers(t *testing.T, state string) {
	t.Helper()
	path := filepath.Join(state, "history.jsonl")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(before), "\n"), "\n")
	for name, after := range map[string]string{
		"another reason": strings.Replace(string(before), "it blocks good traffic", "because I can do so", 1),
		"a line less":    strings.Join(append(append([]string{}, lines[:1]...), lines[2:]...), ""),
		"another order":  lines[1] + lines[0] + strings.Join(lines[2:], ""),
		"no end":         strings.Join(lines[:2], ""),
	} {
		require.NoError(t, os.WriteFile(path, []byte(after), 0o600))
		var out bytes.Buffer
		assert.Equal(t, exitBroken, run(t.Context(), []string{"ctl", "history", "verify", state}, &out, &out), name)
	}
	require.NoError(t, os.WriteFile(path, before, 0o600))
}

// A host that goes away is seen, dialled by hand, and back.
func TestCtlHosts(t *testing.T) {
	binary := buildRemote(t)
	where, stop := serveRemote(t, binary)
	d := startControlled(t, "--host", where)
	defer func() { d.stop() }()
	row := regexp.QuoteMeta(where) + ` +demo +2 +`
	assert.Regexp(t, row+`up `, d.good("hosts"))
	stop()
	require.False(t, d.deletes(), "fails closed")
	require.Eventually(t, func() bool { return strings.Contains(d.good("hosts"), "down: ") }, patience, 10*time.Millisecond)
	assert.Regexp(t, row+`down: unreachable .* 1 +.*connection refused`, d.good("hosts"))
	assert.Regexp(t, `remote/no-private-keys .*host away: unreachable`, d.good("ls"))
	assert.Regexp(t, `degraded: host `+regexp.QuoteMeta(where), d.waits("degraded: host", "status"))
	code, _, stderr := d.ctl("refresh", where)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "The host cannot be reached")

	serveRemoteAt(t, binary, strings.TrimPrefix(where, "http://"))
	out := d.good("refresh", where, "--reason", "the guards are back")
	assert.Regexp(t, row+`up `, out)
	assert.Contains(t, d.good("history"), "the guards are back")
	code, _, _ = d.ctl("refresh", "nobody")
	assert.Equal(t, exitNotFound, code)
	assert.Regexp(t, `circuit of block-destructive closed -> closed`, d.good("reset", "block-destructive", "--reason", "to be sure"))
}

// waits runs headgate ctl until it prints a text: the plane looks every few
// seconds.
func (d *controlled) waits(text string, args ...string) string {
	d.t.Helper()
	var out string
	require.Eventually(d.t, func() bool { out = d.good(args...); return strings.Contains(out, text) }, 3*patience, 50*time.Millisecond, text)
	return out
}

// What goes wrong ends with a number that says what.
func TestCtlExitCodes(t *testing.T) {
	d := startControlled(t)
	defer d.stop()
	for name, tt := range map[string]struct {
		args []string
		want int
	}{
		"all is well":             {[]string{"ls"}, exitOK},
		"as JSON":                 {[]string{"--json", "ls"}, exitOK},
		"who":                     {[]string{"whoami"}, exitOK},
		"help":                    {[]string{"--help"}, exitOK},
		"no command":              {nil, exitUsage},
		"an unknown command":      {[]string{"explode"}, exitUsage},
		"no reason":               {[]string{"mode", "redact-pii", "off"}, exitUsage},
		"a reason that is none":   {[]string{"mode", "redact-pii", "off", "--reason", "x"}, exitUsage},
		"an unknown mode":         {[]string{"mode", "redact-pii", "loud", "--reason", "a good reason"}, exitUsage},
		"nobody":                  {[]string{"get", "redact-pi"}, exitNotFound},
		"no such message":         {[]string{"why", "nothing"}, exitNotFound},
		"a dry run":               {[]string{"mode", "redact-pii", "off", "--dry-run", "--reason", "a good reason"}, exitOK},
		"break-glass for a day":   {[]string{"break-glass", "audit-all", "--ttl", "24h", "--reason", "a good reason"}, exitUsage},
		"another token":           {[]string{"--token", strings.Repeat("x", 40), "ls"}, exitRefused},
		"an address of nobody":    {[]string{"--addr", "http://127.0.0.1:1", "ls"}, exitUnreachable},
		"an address of the demo":  {[]string{"--addr", strings.TrimSuffix(d.mcp, endpoint), "ls"}, exitNotFound},
		"no folder of a history":  {[]string{"history", "verify", "/nonexistent"}, exitUsage},
		"a token file of nothing": {[]string{"--token", "", "--token-file", "/nonexistent", "ls"}, exitFailure},
	} {
		code, stdout, stderr := d.ctl(tt.args...)
		assert.Equal(t, tt.want, code, "%s: %s%s", name, stdout, stderr)
	}
	_, stdout, _ := d.ctl("--json", "ls")
	assert.True(t, json.Valid([]byte(stdout)), stdout)
	_, _, stderr := d.ctl("get", "redact-pi")
	assert.Contains(t, stderr, "did you mean redact-pii?")
}

// What a flag says of the token counts before the environment; a file holds the
// secret and nothing else.
func TestCtlToken(t *testing.T) {
	dir := t.TempDir()
	alone, line := filepath.Join(dir, "alone"), filepath.Join(dir, "line")
	require.NoError(t, os.WriteFile(alone, []byte("file\n"), 0o600))
	require.NoError(t, os.WriteFile(line, []byte("id admin secret\n"), 0o600))
	for _, tt := range []struct{ flag, file, env, envFile, want string }{
		{"flag", alone, "env", alone, "flag"},
		{"", alone, "env", "", "file"},
		{"", "", "env", alone, "env"},
		{"", "", "", alone, "file"},
		{"", "", "", "", ""},
	} {
		t.Setenv("HEADGATE_ADMIN_TOKEN", tt.env)
		t.Setenv("HEADGATE_ADMIN_TOKEN_FILE", tt.envFile)
		c := &ctl{commands: &ctlCommands{Token: tt.flag, TokenFile: tt.file}}
		got, err := c.token()
		require.NoError(t, err)
		assert.Equal(t, tt.want, got, "%+v", tt)
	}
	_, err := (&ctl{commands: &ctlCommands{TokenFile: line}}).token()
	require.ErrorContains(t, err, "more than a token")
}

// What is printed for scripts is harmless on a terminal, and the same JSON.
func TestEscaped(t *testing.T) {
	raw, err := json.Marshal(map[string]string{"x": "a\u0085\u009b31m\u202ebé\U000e0001😀\u007f"})
	require.NoError(t, err)
	safe := escaped(string(raw))
	for _, r := range safe {
		assert.True(t, unicode.IsPrint(r), "%U", r)
	}
	assert.Contains(t, safe, "é")
	assert.JSONEq(t, string(raw), safe)
}

// A watch goes on when the plane has been away.
func TestCtlWatchSurvivesARestart(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte("ops admin "+strings.Repeat("s", 40)+"\n"), 0o600))
	start := func() *controlled {
		d := startControlled(t, "--admin", addr, "--admin-token-file", secret)
		d.token = strings.Repeat("s", 40)
		return d
	}
	d := start()
	ctx, cancel := context.WithCancel(t.Context())
	var watched, errs lockedBuffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"ctl", "--addr", d.admin, "--token", d.token, "watch"}, &watched, &errs)
	}()
	flips := func() bool {
		d.good("mode", "stamp-response", "audit", "--ttl", "1h", "--reason", "to see whether it listens")
		d.good("clear", "stamp-response")
		return strings.Contains(watched.String(), "stamp-response")
	}
	require.Eventually(t, flips, patience, 300*time.Millisecond, "%s", &errs)
	d.stop()
	require.Eventually(t, func() bool { return strings.Contains(errs.String(), "away") }, patience, 20*time.Millisecond)
	watched.reset()
	d = start()
	defer d.stop()
	require.Eventually(t, flips, patience, 300*time.Millisecond, "%s", &errs)
	cancel()
	assert.Equal(t, exitOK, <-code)
	assert.Contains(t, d.good("status"), "ready true")
}

// What nobody would look at is refused.
func TestDemoFlagsOfNoPlane(t *testing.T) {
	for _, flag := range []string{"--config", "--state-dir", "--admin-token-file"} {
		var out bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), []string{"demo", "--admin", "", flag, "x"}, &out, &out))
		assert.Contains(t, out.String(), "--admin is empty")
	}
}

// Everything at once, and back; and what happens is there to follow.
func TestCtlBreakGlassAndWatch(t *testing.T) {
	d := startControlled(t)
	defer d.stop()
	ctx, cancel := context.WithCancel(t.Context())
	var watched, errs lockedBuffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"ctl", "--addr", d.admin, "--token", d.token, "watch"}, &watched, &errs)
	}()
	require.Eventually(t, func() bool { // until it listens
		d.good("mode", "stamp-response", "audit", "--reason", "to see whether it listens")
		return strings.Contains(watched.String(), "stamp-response")
	}, 10*time.Second, 20*time.Millisecond, "%s", &errs)

	assert.Contains(t, d.good("break-glass", "audit-all", "--reason", "everything is on fire"), "weakened: block-destructive, redact-pii")
	require.True(t, d.deletes())
	assert.Contains(t, d.good("break-glass", "end"), "break-glass is off")
	require.False(t, d.deletes())
	require.Eventually(t, func() bool { return strings.Contains(watched.String(), "break-glass.clear") }, 10*time.Second, 10*time.Millisecond)
	cancel()
	assert.Equal(t, exitOK, <-code)
	assert.Contains(t, d.good("clear", "stamp-response", "--reason", "it was a test"), "audit -> active")
}

// A token file is its owner's alone, and the configuration is read again on a
// hangup; a bad one changes nothing.
func TestDemoFiles(t *testing.T) {
	dir := t.TempDir()
	secret, config := filepath.Join(dir, "token"), filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(secret, []byte(strings.Repeat("s", 40)+"\n"), 0o644))
	require.NoError(t, os.WriteFile(config, []byte(`{"interceptors":{"redact-pii":{"mode":"audit"},"block-destructive":{"pinned":true}}}`), 0o600))
	var out, errs bytes.Buffer
	assert.Equal(t, exitFailure, run(t.Context(), []string{"demo", "--mcp", "127.0.0.1:0", "--metrics", "", "--admin", "127.0.0.1:0", "--admin-token-file", secret}, &out, &errs))
	assert.Contains(t, errs.String(), "chmod 600")

	require.NoError(t, os.Chmod(secret, 0o600))
	d := startControlled(t, "--admin-token-file", secret, "--config", config)
	defer d.stop()
	d.token = strings.Repeat("s", 40)
	assert.NotContains(t, d.out.String(), d.token)
	assert.Regexp(t, `redact-pii +mutation +audit +configured`, d.good("ls"))
	code, _, stderr := d.ctl("mode", "block-destructive", "audit", "--reason", "it blocks good traffic")
	assert.Equal(t, exitRefused, code)
	assert.Contains(t, stderr, "pinned")

	hangup := func(text string) {
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
		self, err := os.FindProcess(os.Getpid())
		require.NoError(t, err)
		require.NoError(t, self.Signal(syscall.SIGHUP))
	}
	hangup(`{"interceptors":{"redact-pii":{"mode":"loud"}}}`)
	require.Eventually(t, func() bool { return strings.Contains(d.err.String(), "the old one holds") }, patience, 10*time.Millisecond)
	assert.Regexp(t, `redact-pii +mutation +audit +configured`, d.good("ls"))
	hangup(`{"interceptors":{"redact-pi":{"mode":"audit"}}}`)
	require.Eventually(t, func() bool {
		return strings.Contains(d.good("status"), `degraded: configuration: no interceptor has the configured name "redact-pi"`)
	}, patience, 10*time.Millisecond)
	hangup(`{"interceptors":{}}`)
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`redact-pii +mutation +active +declared`).MatchString(d.good("ls"))
	}, patience, 10*time.Millisecond)
}
