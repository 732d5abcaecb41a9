package main

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildRemote compiles the example and returns the path of the binary.
func buildRemote(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "remote")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../examples/remote").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// serveRemote runs the example as a web server and returns its address.
func serveRemote(t *testing.T, binary string) (url string, stop func()) {
	t.Helper()
	return serveRemoteAt(t, binary, "127.0.0.1:0")
}

func serveRemoteAt(t *testing.T, binary, at string) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command(binary, "--http", at)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	stop = func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }
	t.Cleanup(stop)
	url = regexp.MustCompile(`http://[\d.:]+`).FindString(line)
	require.NotEmpty(t, url, line)
	return url, stop
}

// TestDemoWithRemoteHosts runs the example's interceptors beside the demo's
// own, in a process that the demo starts and in one that it only knows by its
// address.
func TestDemoWithRemoteHosts(t *testing.T) {
	binary := buildRemote(t)
	t.Run("stdio", func(t *testing.T) { meetsRemote(t, "stdio:"+binary) })
	t.Run("HTTP", func(t *testing.T) {
		url, _ := serveRemote(t, binary)
		meetsRemote(t, url)
	})
}

func meetsRemote(t *testing.T, host string) {
	d := startDemo(t, "--traffic", "0", "--host", host)
	session := connect(t, d.url, newProtocol)
	echo := func(text string) (string, error) {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
		if err != nil {
			return "", err
		}
		return res.Content[0].(*mcp.TextContent).Text, nil
	}
	text, err := echo("  spaced out\n")
	require.NoError(t, err)
	assert.Equal(t, "spaced out", text)
	_, err = echo("-----BEGIN RSA PRIVATE KEY-----")
	var answer *jsonrpc.Error
	require.ErrorAs(t, err, &answer)
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, answer.Code)
	assert.Contains(t, string(answer.Data), `"interceptor":"remote/no-private-keys"`)
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_records", Arguments: map[string]any{"table": "t"}})
	assertDenied(t, err)
	require.NoError(t, session.Close())

	began := time.Now()
	code, stdout, stderr := d.stop()
	assert.Less(t, time.Since(began), patience)
	assert.Equal(t, exitOK, code, stderr)
	assert.Empty(t, stderr)
	assert.Regexp(t, `remote/no-private-keys +validation +active +`+regexp.QuoteMeta(host)+` +request of tools/call`, stdout)
	assert.Regexp(t, `remote/trim-text +mutation +active +`+regexp.QuoteMeta(host)+` +request of tools/call`, stdout)
	assert.Contains(t, stdout, "by remote/no-private-keys, request")
	assert.Contains(t, stdout, "block-destructive", "its own are there")
}

// A host that dies takes its interceptors' messages with it, until it is back.
func TestDemoWhoseHostDies(t *testing.T) {
	url, stop := serveRemote(t, buildRemote(t))
	d := startDemo(t, "--traffic", "0", "--host", url)
	session := connect(t, d.url, newProtocol)
	require.NoError(t, ping(t, session))
	stop()
	require.Error(t, ping(t, session), "fails closed")
	code, stdout, _ := d.stop()
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, "by remote/no-private-keys")
}

func TestDemoWithHostsThatAreNone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + ln.Addr().String()
	require.NoError(t, ln.Close())
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	tools := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	noList := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	defer noList.Close()
	binary := buildRemote(t)
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nobody there":            {[]string{nobody}, exitFailure, "connection refused"},
		"no MCP server":           {[]string{web.URL}, exitFailure, "Not Found"},
		"no interceptors/list":    {[]string{noList.URL}, exitFailure, "interceptors/list"},
		"no such program":         {[]string{"stdio:no-such-program"}, exitFailure, "executable file not found"},
		"a program that ends":     {[]string{"stdio:go version"}, exitFailure, "host stdio:go version"},
		"a program that is mute":  {[]string{"stdio:go help"}, exitFailure, "host stdio:go help"},
		"one that fails to start": {[]string{"stdio:" + binary + " --http nowhere"}, exitFailure, "nowhere"},
		"the same names twice":    {[]string{"stdio:" + binary, "stdio:" + binary + " "}, exitFailure, "name is taken"},
		"no command":              {[]string{"stdio: "}, exitUsage, "no command"},
		"another scheme":          {[]string{"ftp://127.0.0.1/"}, exitUsage, "neither"},
		"no URL":                  {[]string{"remote"}, exitUsage, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"demo", "--mcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--traffic", "0", "--for", "1ms"}
			for _, host := range tt.args {
				args = append(args, "--host", host)
			}
			var stdout bytes.Buffer
			var stderr lockedBuffer
			code := run(t.Context(), args, &stdout, &stderr)
			assert.Equal(t, tt.code, code)
			assert.Contains(t, stderr.String(), tt.says)
			assert.Empty(t, stdout.String(), "nothing is served unguarded")
			if tt.code == exitFailure {
				assert.Contains(t, stderr.String(), "host "+strings.TrimSpace(tt.args[len(tt.args)-1]))
			}
		})
	}
}
