//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// A process is a demo that runs in a process of its own.
type process struct {
	cmd    *exec.Cmd
	url    string
	lines  *bufio.Reader
	stderr bytes.Buffer
}

func startBinary(t *testing.T, binary string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), binary, "demo", "--mcp", "127.0.0.1:0")}
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
