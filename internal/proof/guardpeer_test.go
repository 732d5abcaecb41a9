package proof_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// guardPeer is a process that has the guard. What it is to be is one of these,
// and for a liar the seed of its lies.
const (
	guardPeer = "guard"

	overPipes = "stdio"
	liarPipes = "liar"
	overWeb   = "http"
	stateless = "stateless"
)

func serveGuard(spec string) error {
	server, err := newGuardServer()
	if err != nil {
		return err
	}
	kind, number, _ := strings.Cut(spec, " ")
	switch kind {
	case overPipes:
		return ignoreEnd(server.Run(context.Background(), &mcp.StdioTransport{}))
	case liarPipes:
		s, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return err
		}
		return ignoreEnd(server.Run(context.Background(), &liarTransport{dice: newDice(s, "lies")}))
	}
	return serveWeb(server, number == stateless)
}

func serves(server *mcp.Server) func(*http.Request) *mcp.Server {
	return func(*http.Request) *mcp.Server { return server }
}

// newWebHandler serves sessions over HTTP.
func newWebHandler(server *mcp.Server) http.Handler {
	return mcp.NewStreamableHTTPHandler(serves(server), nil)
}

// serveWeb prints its address and serves until its input ends.
func serveWeb(server *mcp.Server, stateless bool) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: mcp.NewStreamableHTTPHandler(serves(server), &mcp.StreamableHTTPOptions{Stateless: stateless})}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = web.Close()
	}()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A liarTransport is stdio on which every third answer is not what it should be.
type liarTransport struct {
	mcp.StdioTransport
	dice dice
}

func (t *liarTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.StdioTransport.Connect(ctx)
	return &liarConn{Connection: conn, dice: t.dice}, err
}

type liarConn struct {
	mcp.Connection
	mu      sync.Mutex
	dice    dice
	last    jsonrpc.ID
	answers int
}

func (c *liarConn) Write(ctx context.Context, m jsonrpc.Message) error {
	c.mu.Lock()
	lie := none
	if c.answers++; c.answers > 3 && c.dice.chance(3) { // not while the session begins
		lie = pick(c.dice, twice, stranger, wrongType, errs)
	}
	list := c.dice.tamper(lie, m, &c.last)
	c.mu.Unlock()
	for _, m := range list {
		if err := c.Connection.Write(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// A process is a peer that can be killed.
type process struct {
	cmd     *exec.Cmd
	address string
	input   io.Closer
	once    sync.Once
}

// startWeb starts a guard that is reached over HTTP.
func startWeb(t testing.TB, spec string) *process {
	p := &process{cmd: peer(guardPeer, spec)}
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.input = in
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	p.address = strings.TrimSpace(line)
	return p
}

// kill ends the process at once.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.input.Close()
		_ = p.cmd.Wait()
	})
}
