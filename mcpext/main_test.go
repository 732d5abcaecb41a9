package mcpext_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(hostKind); kind != "" {
		if err := serveProcess(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	modern = "2026-07-28" // server/discover, no session
	legacy = "2025-11-25" // initialize

	// secret is what a caller must never read.
	secret = "dial vault.internal: key k-77"
)

// host returns an extension with the interceptors, and a server that it is
// installed on.
func host(t testing.TB, opts *mcpext.Options, interceptors ...core.Interceptor) (*mcpext.Extension, *mcp.Server) {
	t.Helper()
	ext := mcpext.New(opts)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	server := mcp.NewServer(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	require.NoError(t, ext.Install(server))
	return ext, server
}

// A peer speaks JSON lines to a server, so that nothing is read or written
// that the test does not spell out. Only one goroutine may use it.
type peer struct {
	t       testing.TB
	version string
	in      io.Writer
	lines   chan string
	calls   int
}

// dial opens a session of one era. The older one's handshake is done.
func dial(t testing.TB, server *mcp.Server, version string) *peer {
	t.Helper()
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	ss, err := server.Connect(context.Background(), &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, nil)
	require.NoError(t, err)
	p := &peer{t: t, version: version, in: clientOut, lines: make(chan string, 64)}
	var reader sync.WaitGroup
	reader.Go(func() { p.read(clientIn) })
	t.Cleanup(func() {
		_ = clientOut.Close()
		_ = ss.Close()
		_ = ss.Wait()
		_ = clientIn.Close()
		reader.Wait()
	})
	if version == legacy {
		p.result(p.ask("initialize", `{"protocolVersion":"`+legacy+`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`))
		p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return p
}

func (p *peer) read(r io.Reader) {
	defer close(p.lines)
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		p.lines <- sc.Text()
	}
}

func (p *peer) send(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(p.t, err)
}

// triple is what the newer era wants in the _meta of each request.
const triple = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern + `",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// begin sends a request; empty params are left out in the older era.
func (p *peer) begin(method, params string) {
	p.t.Helper()
	p.calls++
	if p.version == modern {
		rest := strings.TrimPrefix(strings.TrimSpace(params), "{")
		if rest == "" || rest == "}" {
			params = `{` + triple + `}`
		} else {
			params = `{` + triple + `,` + rest
		}
	}
	if params != "" {
		params = `,"params":` + params
	}
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q%s}`, p.calls, method, params))
}

// ask sends a request and returns the line that answers it.
func (p *peer) ask(method, params string) string {
	p.t.Helper()
	p.begin(method, params)
	line, ok := <-p.lines
	require.True(p.t, ok, "the session ended")
	return line
}

// result wants an answer to be a result and returns it byte for byte.
func (p *peer) result(line string) string {
	p.t.Helper()
	var msg struct{ Result json.RawMessage }
	require.NoError(p.t, json.Unmarshal([]byte(line), &msg))
	require.NotNil(p.t, msg.Result, line)
	return string(msg.Result)
}

// refusal wants an answer to be an error.
func (p *peer) refusal(line string) *jsonrpc.Error {
	p.t.Helper()
	var msg struct{ Error *jsonrpc.Error }
	require.NoError(p.t, json.Unmarshal([]byte(line), &msg))
	require.NotNil(p.t, msg.Error, line)
	return msg.Error
}

// refused wants an answer to be an error with this code and data, which may be
// empty, and with nothing from inside.
func (p *peer) refused(line string, code int, data string) {
	p.t.Helper()
	e := p.refusal(line)
	assert.EqualValues(p.t, code, e.Code, line)
	if data == "" {
		assert.Empty(p.t, e.Data, line)
	} else {
		assert.JSONEq(p.t, data, string(e.Data))
	}
	assert.NotContains(p.t, line, "vault")
}

var took = regexp.MustCompile(`"durationMs":[^,}]+`)

// timeless sets the durations in an answer to 0.
func timeless(s string) string { return took.ReplaceAllString(s, `"durationMs":0`) }

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
