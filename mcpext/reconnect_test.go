package mcpext_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quickly are options under which a test need not wait long.
func quickly() *mcpext.DialOptions {
	return &mcpext.DialOptions{
		DialTimeout: 5 * time.Second, MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, CheckEvery: 50 * time.Millisecond,
	}
}

// dialClient opens a session over a transport.
func dialClient(ctx context.Context, transport mcp.Transport) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	if err := mcpext.RegisterSendingMethods(client); err != nil {
		return nil, err
	}
	return client.Connect(ctx, transport, nil)
}

// A chain over a host that is dialled.
func dialled(t *testing.T, dial mcpext.Dialer, opts *mcpext.DialOptions) *chain.Chain {
	t.Helper()
	h, err := mcpext.DialHost(context.Background(), dial, opts)
	require.NoError(t, err)
	ch := newChain(t, nil)
	require.NoError(t, ch.AddHost(context.Background(), "far", h))
	return ch
}

// passes waits until a call passes, and denies wants none of them to pass
// that should not.
func passes(t *testing.T, ch *chain.Chain) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := ch.Execute(context.Background(), call()); return err == nil }, 20*time.Second, 5*time.Millisecond)
}

// A stdio host that is killed in the middle of a call fails that call once, fails
// closed while it is away, and is started again.
func TestStdioHostIsStartedAgain(t *testing.T) {
	var mu sync.Mutex
	var processes []*exec.Cmd
	ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		cmd := child(stdioHost, "sometimes")
		mu.Lock()
		processes = append(processes, cmd)
		mu.Unlock()
		return dialClient(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Second})
	}, quickly())
	last := func() *exec.Cmd {
		mu.Lock()
		defer mu.Unlock()
		return processes[len(processes)-1]
	}
	passes(t, ch)
	for range 3 {
		under := make(chan error, 1)
		go func() {
			req := call()
			req.Payload = []byte(`{"wait":true}`)
			_, err := ch.Execute(context.Background(), req)
			under <- err
		}()
		time.Sleep(20 * time.Millisecond) // on its way; either way it must fail
		require.NoError(t, last().Process.Signal(syscall.SIGKILL))
		abort := abortOf(t, <-under)
		assert.Equal(t, chain.ReasonError, abort.Reason)
		passes(t, ch)
	}
	mu.Lock()
	defer mu.Unlock()
	assert.GreaterOrEqual(t, len(processes), 4)
}

// While a host is away its guards stay and fail at once: an active one stops
// messages, one that fails open does not.
func TestHostThatIsDown(t *testing.T) {
	server := func() *mcp.Server {
		_, s := host(t, nil, ct.Validator("closed", ct.Allow), ct.Validator("open", ct.Allow, ct.FailOpen, ct.On(core.PhaseRequest, core.EventPromptsGet)))
		return s
	}
	var serving atomic.Pointer[mcp.ServerSession]
	var away atomic.Bool
	ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		if away.Load() {
			return nil, errors.New("nobody there")
		}
		ce, se := mcp.NewInMemoryTransports()
		ss, err := server().Connect(context.Background(), se, nil)
		if err != nil {
			return nil, err
		}
		serving.Store(ss)
		return dialClient(ctx, ce)
	}, quickly())
	passes(t, ch)
	away.Store(true)
	require.NoError(t, serving.Load().Close())
	require.Eventually(t, func() bool { return ch.Entries()[0].Health.Host != nil }, 10*time.Second, time.Millisecond)
	start := time.Now()
	_, err := ch.Execute(context.Background(), call())
	require.ErrorIs(t, err, mcpext.ErrHostDown)
	assert.Less(t, time.Since(start), time.Second, "at once")
	open := call()
	open.Event = core.EventPromptsGet
	_, err = ch.Execute(context.Background(), open)
	require.NoError(t, err)
	assert.Len(t, ch.Entries(), 2)
	away.Store(false)
	passes(t, ch)
	assert.NoError(t, ch.Entries()[0].Health.Host)
}

// What a host has when it comes back, or at a check, is what runs.
func TestHostIsListedAgain(t *testing.T) {
	ext, server := host(t, nil, ct.Validator("first", ct.Allow))
	ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		ce, se := mcp.NewInMemoryTransports()
		if _, err := server.Connect(context.Background(), se, nil); err != nil {
			return nil, err
		}
		return dialClient(ctx, ce)
	}, quickly())
	require.Equal(t, []string{"first"}, entryNames(ch))
	require.NoError(t, ext.AddInterceptor(ct.Validator("second", ct.Deny)))
	require.Eventually(t, func() bool { return len(ch.Entries()) == 2 }, 10*time.Second, time.Millisecond)
	abort := abortOf(t, func() error { _, err := ch.Execute(context.Background(), call()); return err }())
	assert.Equal(t, "second", abort.Interceptor)
}

// An HTTP host in another process that goes away and comes back at its address.
func TestWebHostComesBack(t *testing.T) {
	for _, kind := range []string{statelessHost, statefulHost} {
		t.Run(kind, func(t *testing.T) {
			address, stop := startProcess(t, kind)
			proxy := newProxy(t, address)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
				return dialClient(ctx, &mcp.StreamableClientTransport{
					Endpoint: "http://" + proxy.addr() + "/sometimes", HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1, DisableStandaloneSSE: true,
				})
			}, quickly())
			passes(t, ch)
			proxy.cut()
			stop()
			require.Eventually(t, func() bool { return ch.Entries()[0].Health.Host != nil }, 20*time.Second, time.Millisecond)
			_, err := ch.Execute(context.Background(), call())
			require.Error(t, err)
			again, stopAgain := startProcess(t, kind)
			defer stopAgain()
			proxy.lead(again)
			passes(t, ch)
			require.NoError(t, ch.Close())
			proxy.close()
		})
	}
}

// A host that cannot be reached at first is an error, and nothing is left of the
// attempt.
func TestHostThatWasNeverThere(t *testing.T) {
	_, err := mcpext.DialHost(context.Background(), func(context.Context) (*mcp.ClientSession, error) { return nil, errors.New("nobody there") }, nil)
	require.ErrorContains(t, err, "nobody there")
}

// waitsIfAsked waits for the end of its context where the payload says so.
func waitsIfAsked() core.Interceptor {
	return ct.Validator("x", func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		if strings.Contains(string(inv.Payload), `"wait":true`) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return core.Allow(), nil
	})
}

// A proxy leads connections to an address, which can change, and cuts them.
type proxy struct {
	t  *testing.T
	ln net.Listener

	mu    sync.Mutex
	to    string // empty for nowhere
	conns []net.Conn
	done  sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, ln: ln, to: to}
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		to := p.to
		p.mu.Unlock()
		out, err := net.Dial("tcp", to)
		if to == "" || err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		pipe := func(a, b net.Conn) {
			buf := make([]byte, 32<<10)
			for {
				n, err := a.Read(buf)
				if n > 0 {
					if _, err := b.Write(buf[:n]); err != nil {
						break
					}
				}
				if err != nil {
					break
				}
			}
			_ = a.Close()
			_ = b.Close()
		}
		p.done.Go(func() { pipe(in, out) })
		p.done.Go(func() { pipe(out, in) })
	}
}

// cut ends all connections, and leads new ones nowhere.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = ""
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *proxy) close() {
	_ = p.ln.Close()
	p.cut()
	p.done.Wait()
}

// A host whose interceptor panics has answered: it is not down.
func TestPanicElsewhereIsNoLostHost(t *testing.T) {
	_, server := host(t, nil, ct.Validator("v", func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("x") }))
	ch := dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		ce, se := mcp.NewInMemoryTransports()
		if _, err := server.Connect(context.Background(), se, nil); err != nil {
			return nil, err
		}
		return dialClient(ctx, ce)
	}, quickly())
	_, err := ch.Execute(context.Background(), call())
	abort := abortOf(t, err)
	assert.Equal(t, chain.ReasonPanic, abort.Reason)
	assert.NotErrorIs(t, err, mcpext.ErrHostDown)
}
