package mcpext_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The test binary is its own interceptor server: run with hostKind set, it
// serves the interceptors of cases to the process that started it, over stdio
// those of the one case that hostCase names, over HTTP those of the case that
// the last element of the path names.
const (
	hostKind = "HEADGATE_TEST_HOST"
	hostCase = "HEADGATE_TEST_CASE"

	stdioHost     = "stdio"
	statelessHost = "stateless HTTP"
	statefulHost  = "stateful HTTP"

	// Methods of the server that change what it serves. The name of the
	// interceptor stands where a list's event does.
	methodAdd    = "test/add"
	methodRemove = "test/remove"
)

// serveProcess is what a child process does instead of tests.
func serveProcess(kind string) error {
	if kind == stdioHost {
		server, err := caseServer(os.Getenv(hostCase))
		if err != nil {
			return err
		}
		return server.Run(context.Background(), &mcp.StdioTransport{})
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: casesHandler(kind == statelessHost)}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		_ = web.Close()
	}()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// casesHandler serves each case at a path of its own.
func casesHandler(stateless bool) http.Handler {
	var mu sync.Mutex
	servers := map[string]*mcp.Server{}
	return mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		mu.Lock()
		defer mu.Unlock()
		name := path.Base(r.URL.Path)
		if servers[name] == nil {
			servers[name], _ = caseServer(name) // nil is answered with an error
		}
		return servers[name]
	}, &mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true})
}

// caseServer serves the interceptors of one case, or of a test in this package.
func caseServer(name string) (*mcp.Server, error) {
	interceptors, ok := chaintest.Interceptors(strings.ReplaceAll(name, "|", "/"))
	if !ok {
		if interceptors, ok = ownCases()[name]; !ok {
			return nil, fmt.Errorf("no case %q", name)
		}
	}
	ext := mcpext.New(nil)
	if err := ext.AddInterceptor(interceptors...); err != nil {
		return nil, err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "process", Version: "1"}, nil)
	change := func(method string, do func(name string) error) error {
		return mcp.AddReceivingCustomMethod(server, method,
			func(_ context.Context, _ *mcp.ServerSession, p *mcpext.ListParams) (*mcpext.ListResult, error) {
				return &mcpext.ListResult{}, do(p.Event)
			})
	}
	return server, errors.Join(
		ext.Install(server),
		change(methodAdd, func(string) error { return ext.AddInterceptor(chaintest.Spare()) }),
		change(methodRemove, func(name string) error {
			if !ext.RemoveInterceptor(name) {
				return mcpext.ErrNotFound
			}
			return nil
		}),
	)
}

// child returns a command that runs this binary as a host.
func child(kind, caseName string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// The race detector would make each process take a second to end.
	cmd.Env = append(os.Environ(), hostKind+"="+kind, hostCase+"="+caseName, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// startWeb starts a process that serves all cases over HTTP and returns its
// address. The process ends with the test.
func startWeb(t testing.TB, kind string) string {
	t.Helper()
	address, stop := startProcess(t, kind)
	t.Cleanup(stop)
	return address
}

func startProcess(t testing.TB, kind string) (address string, stop func()) {
	t.Helper()
	cmd := child(kind, "")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), sync.OnceFunc(func() {
		_ = stdin.Close()
		assert.NoError(t, cmd.Wait())
	})
}

// dialStdio starts a process of its own for the case.
func dialStdio(t testing.TB, version, caseName string) *mcp.ClientSession {
	t.Helper()
	return connectOver(t, &mcp.CommandTransport{Command: child(stdioHost, caseName), TerminateDuration: time.Second}, version)
}

// dialWeb connects to a process that startWeb has started.
func dialWeb(t testing.TB, address, version, caseName string) *mcp.ClientSession {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return connectOver(t, &mcp.StreamableClientTransport{
		Endpoint:   "http://" + address + "/" + url.PathEscape(strings.ReplaceAll(caseName, "/", "|")),
		HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1,
	}, version)
}

func stdioRig(version string) func(*testing.T, *chaintest.Case) *chaintest.Rig {
	return func(t *testing.T, c *chaintest.Case) *chaintest.Rig {
		return processRig(t, c, dialStdio(t, version, c.Name))
	}
}

func httpRig(address, version string) func(*testing.T, *chaintest.Case) *chaintest.Rig {
	return func(t *testing.T, c *chaintest.Case) *chaintest.Rig {
		return processRig(t, c, dialWeb(t, address, version, c.Name))
	}
}

func processRig(t *testing.T, c *chaintest.Case, session *mcp.ClientSession) *chaintest.Rig {
	ch := over(t, &c.Options, session)
	change := func(method, name string) error {
		_, err := mcp.CallCustomMethod[*mcpext.ListParams, *mcpext.ListResult](context.Background(), session, method, &mcpext.ListParams{Event: name})
		return errors.Join(err, ch.Refresh(context.Background()))
	}
	return &chaintest.Rig{
		Chain:  ch,
		Add:    func(i ...core.Interceptor) error { return change(methodAdd, i[0].Describe().Name) },
		Remove: func(name string) bool { return change(methodRemove, name) == nil },
	}
}

// ownCases are the interceptors of tests in this package, by a name that
// processes are told.
func ownCases() map[string][]core.Interceptor {
	return map[string][]core.Interceptor{"sizes": sizeInterceptors(), "waits": {waits()}, "sometimes": {waitsIfAsked()}}
}
