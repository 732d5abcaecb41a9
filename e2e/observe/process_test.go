//go:build e2e

package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	patience = 30 * time.Second       // for what another process does in its own time
	interval = 100 * time.Millisecond // between looks at it
)

// A process is a program under test. It ends with the test, however that ends.
type process struct {
	name        string
	cmd         *exec.Cmd
	out, errors output
	told        bool          // to end
	done        chan struct{} // closed when it has ended
	err         error         // how; to be read after done
}

// start starts a program with no environment but the given one: a developer's
// own OTEL_* or HTTP_PROXY would change what is tested.
func start(t *testing.T, name string, env []string, argv ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env = append([]string{}, env...) // nil would be this process's own
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
	p.cmd.WaitDelay = patience
	// A group of its own, so that what it starts ends with it; and the kernel
	// ends it if this process dies without a cleanup, as at a test's timeout.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// To the kernel, the parent is the thread: it must live as long.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
		}
	}()
	require.NoError(t, <-started, "%s does not start", name)
	t.Cleanup(func() { p.end(t) })
	return p
}

// end ends the process and all it has started. What it said is shown if the
// test has failed.
func (p *process) end(t *testing.T) {
	select {
	case <-p.done:
		if !p.told {
			t.Errorf("%s ended before the test did", p.name)
		}
	default:
		p.stop(t)
	}
	if p.err != nil {
		t.Errorf("%s ended with: %v", p.name, p.err)
	}
	if t.Failed() {
		t.Logf("%s, standard output:\n%s\n%s, standard error:\n%s", p.name, p.out.String(), p.name, p.errors.String())
	}
}

// stop tells the process to end, and waits until it has.
func (p *process) stop(t *testing.T) {
	p.told = true
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%s does not end when told to", p.name)
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // fails if nobody is left
	<-p.done
}

// await waits until ok, which may look at the process from outside. It fails at
// once when the process ends.
func (p *process) await(t *testing.T, what string, ok func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(interval) {
		if err = ok(); err == nil {
			return
		}
		select {
		case <-p.done:
			require.FailNow(t, p.name+" ended", "while it was waited for until %s: %v", what, p.err)
		default:
		}
	}
	require.FailNow(t, p.name+" takes too long", "until %s: %v", what, err)
}

// An output takes what a process says while a test reads it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// freePort returns a port that nobody has. It lies below those that systems
// give to outgoing connections, so that none of these takes it meanwhile.
func freePort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	for range 100 {
		port := strconv.Itoa(20000 + rand.IntN(12000))
		if ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
			require.NoError(t, ln.Close())
			return port
		}
	}
	require.FailNow(t, "no free port")
	return ""
}

// get reads a URL. accept may be empty.
func get(ctx context.Context, url, accept string) (body []byte, contentType string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.300s", url, res.Status, body)
	}
	return body, res.Header.Get("Content-Type"), err
}

// getJSON reads a URL into v.
func getJSON(ctx context.Context, url string, v any) error {
	body, _, err := get(ctx, url, "")
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
