//go:build e2e

package observe_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// make observe runs three servers. However it ends, none of them is left.
func TestObserveEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func(t *testing.T, s *script)
		code int
	}{
		"by Ctrl-C":            {func(_ *testing.T, s *script) { s.signal(-s.group, syscall.SIGINT) }, 130},
		"by a signal to it":    {func(_ *testing.T, s *script) { s.signal(s.group, syscall.SIGTERM) }, 143},
		"when one of them did": {func(t *testing.T, s *script) { s.signal(s.child(t, "prometheus"), syscall.SIGKILL) }, 1},
		"when it is killed":    {func(_ *testing.T, s *script) { s.signal(s.group, syscall.SIGKILL) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := runScript(t)
			tt.end(t, s)
			require.Equal(t, tt.code, s.wait(t), "%s", s.out.String())
			s.gone(t)
		})
	}
}

// A script is tools/observe on ports of its own.
type script struct {
	cmd   *exec.Cmd
	out   output
	group int
	ports []string
}

func runScript(t *testing.T) *script {
	t.Helper()
	s := &script{}
	path, err := filepath.Abs("../../tools/observe")
	require.NoError(t, err)
	s.cmd = exec.Command(path)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	for _, name := range []string{"MCP", "METRICS", "ADMIN", "PROMETHEUS", "JAEGER_QUERY", "JAEGER_GRPC", "JAEGER_OTLP"} {
		port := freePort(t)
		s.ports = append(s.ports, port)
		s.cmd.Env = append(s.cmd.Env, name+"_PORT="+port)
	}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.WaitDelay = patience // what is left would hold the output open
	require.NoError(t, s.cmd.Start())
	s.group = s.cmd.Process.Pid
	t.Cleanup(func() { _ = syscall.Kill(-s.group, syscall.SIGKILL) })
	require.Eventually(t, func() bool { return strings.Contains(s.out.String(), "Ctrl-C ends all of it.") }, patience, interval,
		"it does not say what to open")
	for _, what := range []string{"/mcp", "/metrics", "/classic/graph", "/api/traces", "export HEADGATE_ADMIN="} {
		require.Contains(t, s.out.String(), what)
	}
	return s
}

func (*script) signal(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

// child returns the process that it has started under that name.
func (s *script) child(t *testing.T, name string) int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.group))
	require.NoError(t, err)
	for _, child := range strings.Fields(string(children)) {
		comm, err := os.ReadFile("/proc/" + child + "/comm")
		require.NoError(t, err)
		if strings.TrimSpace(string(comm)) == name {
			pid, err := strconv.Atoi(child)
			require.NoError(t, err)
			return pid
		}
	}
	require.FailNow(t, "no such child", "%s: %s", name, children)
	return 0
}

// wait returns its exit code; -1 if a signal ended it.
func (s *script) wait(t *testing.T) int {
	t.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// gone checks that nobody of its group is left, nor listens.
func (s *script) gone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(-s.group, 0), syscall.ESRCH) }, patience, interval, "somebody is left")
	for _, port := range s.ports {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		require.Error(t, err, port)
	}
}
