package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	modern = "2026-07-28" // server/discover, no session
	legacy = "2025-11-25" // initialize
)

// A setup says what a protected server is made of. Its zero value has no
// interceptors and no tools.
type setup struct {
	interceptors []core.Interceptor
	chain        chain.Options
	options      middleware.Options
	server       func(*mcp.Server)
	bare         bool // without Headgate

	serverOptions *mcp.ServerOptions
}

// A protected server, and what it logged.
type protected struct {
	server *mcp.Server
	chain  *chain.Chain
	ext    *mcpext.Extension
	log    *logBuffer
}

func protect(t testing.TB, s setup) *protected {
	t.Helper()
	p := &protected{log: &logBuffer{}, ext: mcpext.New(nil)}
	p.server = mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, s.serverOptions)
	if s.server != nil {
		s.server(p.server)
	}
	if s.bare {
		return p
	}
	require.NoError(t, p.ext.AddInterceptor(s.interceptors...))
	require.NoError(t, p.ext.Install(p.server))
	var err error
	p.chain, err = p.ext.Chain(&s.chain)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.chain.Close() })
	if s.options.Logger == nil {
		s.options.Logger = slog.New(slog.NewTextHandler(p.log, nil))
	}
	p.server.AddReceivingMiddleware(middleware.Receiving(p.chain, &s.options))
	return p
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// client connects a go-sdk client in memory.
func (p *protected) client(t testing.TB, version string) *mcp.ClientSession {
	t.Helper()
	ct, st := mcp.NewInMemoryTransports()
	ss, err := p.server.Connect(context.Background(), st, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	require.NoError(t, mcpext.RegisterSendingMethods(client))
	cs, err := client.Connect(context.Background(), ct, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cs.Close(); _ = ss.Wait() })
	return cs
}

// A rawClient speaks JSON lines, so that nothing is read or written that the
// test does not spell out.
type rawClient struct {
	t     testing.TB
	in    io.WriteCloser
	lines chan string
}

func (p *protected) raw(t testing.TB) *rawClient {
	t.Helper()
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	ss, err := p.server.Connect(context.Background(), &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, nil)
	require.NoError(t, err)
	c := &rawClient{t: t, in: clientOut, lines: make(chan string, 64)}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(c.lines)
		sc := bufio.NewScanner(clientIn)
		sc.Buffer(nil, 32<<20)
		for sc.Scan() {
			c.lines <- sc.Text()
		}
	})
	t.Cleanup(func() {
		_ = clientOut.Close()
		_ = serverOut.Close()
		_ = ss.Close()
		_ = ss.Wait()
		_ = clientIn.Close()
		reader.Wait()
	})
	return c
}

func (c *rawClient) send(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.in, line+"\n")
	require.NoError(c.t, err)
}

func (c *rawClient) read() string {
	c.t.Helper()
	line, ok := <-c.lines
	require.True(c.t, ok, "the session ended")
	return line
}

// ask sends a request and returns the line that answers it.
func (c *rawClient) ask(line string) string {
	c.t.Helper()
	c.send(line)
	return c.read()
}

// handshake opens a session of the older era.
func (c *rawClient) handshake() {
	c.t.Helper()
	c.ask(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + legacy + `","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// rawTool adds a tool whose arguments reach the handler as they came.
func rawTool(s *mcp.Server, name string, handler mcp.ToolHandler) {
	s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, handler)
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// echo adds a tool that answers with the arguments that it got.
func echo(s *mcp.Server) {
	rawTool(s, "echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(req.Params.Arguments)), nil
	})
}

// call calls a tool and returns its first text.
func call(t testing.TB, cs *mcp.ClientSession, name string, args any) (string, error) {
	t.Helper()
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	require.NotEmpty(t, res.Content)
	return res.Content[0].(*mcp.TextContent).Text, nil
}

// wireError wants err to be a JSON-RPC error with the code.
func wireError(t testing.TB, err error, code int64) *jsonrpc.Error {
	t.Helper()
	var wire *jsonrpc.Error
	require.ErrorAs(t, err, &wire)
	require.EqualValues(t, code, wire.Code, wire.Message)
	return wire
}
