package proof_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// closeBudget is what Close may take with everything in flight: one second for
// audits that wait, and what a stdio host is given to end.
const closeBudget = 4 * time.Second

// Close with everything under way: handlers that hang, audits that wait, a remote
// host that was stopped. It ends within its budget, says what it cut off,
// refuses what comes after, and leaves neither goroutines nor processes nor file
// descriptors.
func TestShutdown(t *testing.T) {
	idle, open := runtime.NumGoroutine(), descriptors(t)
	hang := func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	hooks := []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}}
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(
		core.Validator{Metadata: core.Metadata{Name: "audit", Mode: core.ModeAudit, Hooks: hooks}, Handler: hang},
		core.Validator{Metadata: core.Metadata{Name: "open", FailOpen: true, Hooks: hooks}, Handler: hang},
	))
	ch, err := ext.Chain(&chain.Options{InvokeTimeout: 30 * time.Second, AuditTimeout: 30 * time.Second})
	require.NoError(t, err)
	far := &pipeGuard{spec: overPipes}
	host, err := mcpext.DialHost(context.Background(), far.dial, nil)
	require.NoError(t, err)
	require.NoError(t, ch.AddHost(context.Background(), "far", host))
	plane, err := admin.New(&admin.Options{Chains: map[string]*chain.Chain{"main": ch}, Anonymous: admin.RoleRead, StateDir: t.TempDir()})
	require.NoError(t, err)
	far.signal(syscall.SIGSTOP)
	defer far.signal(syscall.SIGKILL) // if it is still there
	var under sync.WaitGroup
	ended := make(chan error, 64)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 64 {
		under.Go(func() {
			_, err := ch.Execute(ctx, request())
			ended <- err
		})
	}
	time.Sleep(100 * time.Millisecond)

	start := time.Now()
	require.NoError(t, plane.Close())
	err = ch.Close()
	took := time.Since(start)
	t.Logf("closed in %v: %v", took.Round(time.Millisecond), err)
	require.Less(t, took, closeBudget)
	_, refused := ch.Execute(context.Background(), request())
	require.ErrorIs(t, refused, chain.ErrClosed)
	cancel()
	under.Wait()
	close(ended)
	for err := range ended {
		require.Error(t, err, "no message passes for its guard being closed")
	}
	require.Error(t, far.last.Load().Signal(syscall.Signal(0)), "the process has ended, and was waited for")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= idle+1 }, 10*time.Second, 20*time.Millisecond)
	require.LessOrEqual(t, descriptors(t), open)
}

func request() *chain.Request {
	return &chain.Request{Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: []byte(`{"name":"act"}`)}
}

func descriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// A local chain is closed with its sessions, however often.
func TestShutdownOfLocalChains(t *testing.T) {
	idle := runtime.NumGoroutine()
	for range 20 {
		ext := mcpext.New(nil)
		require.NoError(t, ext.AddInterceptor(newGuard()))
		require.NoError(t, ext.Install(mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)))
		ch, err := ext.LocalChain(context.Background(), nil)
		require.NoError(t, err)
		_, err = ch.Execute(context.Background(), request())
		require.NoError(t, err)
		require.NoError(t, ch.Close())
		require.NoError(t, ch.Close(), "twice is once")
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= idle+1 }, 5*time.Second, 10*time.Millisecond)
}

// The demo ends within its budget when it is told to, in the middle of its own
// traffic, and leaves no process behind.
func TestShutdownOfTheDemo(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "headgate")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/headgate")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	var log strings.Builder
	demo := exec.Command(binary, "demo", "--mcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--traffic", "100")
	demo.Stdout, demo.Stderr = &log, &log
	require.NoError(t, demo.Start())
	time.Sleep(time.Second)
	start := time.Now()
	require.NoError(t, demo.Process.Signal(syscall.SIGTERM))
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()
	select {
	case err := <-ended:
		require.NoError(t, err, "%s", log.String())
	case <-time.After(patience):
		_ = demo.Process.Kill()
		<-ended
		require.Fail(t, "the demo does not end", "%s", log.String())
	}
	t.Logf("the demo ended in %v", time.Since(start).Round(time.Millisecond))
	require.Less(t, time.Since(start), 2*closeBudget)
}
