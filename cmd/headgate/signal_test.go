//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignals runs the binary, since a signal meets a process.
func TestSignals(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "headgate")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	for name, sig := range map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			p := startBinary(t, binary)
			require.NoError(t, ping(t, connect(t, p.url, newProtocol)))
			began := time.Now()
			require.NoError(t, p.cmd.Process.Signal(sig))
			rest, err := io.ReadAll(p.lines)
			require.NoError(t, err)
			require.NoError(t, p.cmd.Wait(), "exit code 0; %s", &p.stderr)
			assert.Less(t, time.Since(began), patience)
			assert.Contains(t, string(rest), "\nrequests ")
		})
	}

	t.Run("a second signal", func(t *testing.T) {
		p := startBinary(t, binary)
		defer halfRequest(t, p.url)()
		ended := make(chan error, 1)
		go func() {
			_, _ = io.Copy(io.Discard, p.lines)
			ended <- p.cmd.Wait()
		}()
		// The request holds the demo back, so one of these meets it on its way out.
		assert.Eventually(t, func() bool {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			return len(ended) > 0
		}, patience, 20*time.Millisecond)
		var exit *exec.ExitError
		require.ErrorAs(t, <-ended, &exit)
		assert.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal())
	})
}

// TestStuckHosts closes hosts that do not want to end: the demo's five seconds
// hold for them, too.
func TestStuckHosts(t *testing.T) {
	t.Run("a child that is stopped", func(t *testing.T) {
		r, ch := &remotes{stderr: io.Discard, logger: discardLogger()}, newTestChain(t)
		require.NoError(t, r.add(t.Context(), ch, []remote{{flag: "stdio:", command: []string{buildRemote(t)}}}))
		require.NoError(t, r.children[0].Process.Signal(syscall.SIGSTOP))
		began := time.Now()
		r.close(ch)
		assert.Less(t, time.Since(began), closePatience)
		require.NotNil(t, r.children[0].ProcessState, "it is gone")
		assert.False(t, r.children[0].ProcessState.Success())
	})
	t.Run("a web server that does not answer", func(t *testing.T) {
		release := make(chan struct{})
		url := stuckHost(t, release)
		r, ch := &remotes{stderr: io.Discard, logger: discardLogger()}, newTestChain(t)
		require.NoError(t, r.add(t.Context(), ch, []remote{{flag: url}}))
		child := exec.Command("sleep", "60") // one whose turn to be closed does not come
		require.NoError(t, child.Start())
		r.children = append(r.children, child)
		began := time.Now()
		r.close(ch)
		assert.Less(t, time.Since(began), 2*time.Second)
		require.EqualError(t, child.Wait(), "signal: killed")
		close(release)
		require.NoError(t, ch.Close())
	})
}

// stuckHost serves interceptors over HTTP, with sessions that end only when
// they are released.
func stuckHost(t *testing.T, release <-chan struct{}) string {
	t.Helper()
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(stampResponse(time.Now)))
	server := mcp.NewServer(&mcp.Implementation{Name: "stuck", Version: "1"}, nil)
	require.NoError(t, ext.Install(server))
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			<-release
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL
}

func newTestChain(t *testing.T) *chain.Chain {
	t.Helper()
	ch, err := chain.New(nil)
	require.NoError(t, err)
	return ch
}

// A process is a demo that runs in a process of its own.
type process struct {
	cmd    *exec.Cmd
	url    string
	lines  *bufio.Reader
	stderr bytes.Buffer
}

func startBinary(t *testing.T, binary string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), binary, "demo", "--mcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0")}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.lines = bufio.NewReader(stdout)
	first, err := p.lines.ReadString('\n')
	require.NoError(t, err)
	p.url = strings.TrimSpace(strings.TrimPrefix(first, "MCP server at "))
	return p
}
