package proof_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// A wire is a session of one client, seen as bytes.
type wire interface {
	// exchange sends a frame and returns all that comes back for it.
	exchange(f frame) string
	close()
}

// Lines are a wire of JSON lines, as over stdio.
type lines struct {
	t       testing.TB
	version string
	in      io.WriteCloser
	out     chan string // closed when the server has gone
	fences  int
	finish  func()
	over    bool
}

func newLines(t testing.TB, version string, in io.WriteCloser, out io.Reader, finish func()) *lines {
	l := &lines{t: t, version: version, in: in, out: make(chan string, 64)}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(l.out)
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 64<<20)
		for sc.Scan() {
			l.out <- sc.Text()
		}
	})
	l.finish = func() {
		_ = in.Close()
		for range l.out { // or else the reader could not end
		}
		finish()
		reader.Wait()
	}
	if version == legacy {
		l.exchange(frame{id: `"init"`, text: `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + legacy +
			`","capabilities":{"elicitation":{},"roots":{}},"clientInfo":{"name":"raw","version":"1"}}}`})
		l.exchange(frame{text: `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
	}
	return l
}

// newPipe serves over JSON lines in memory.
func newPipe(t testing.TB, server *mcp.Server, version string) wire {
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	ss, err := server.Connect(context.Background(), &mcp.IOTransport{Reader: serverIn, Writer: serverOut}, nil)
	require.NoError(t, err)
	go func() {
		_ = ss.Wait()
		_ = serverOut.Close() // as the end of a process would
	}()
	return newLines(t, version, clientOut, clientIn, func() { _ = ss.Wait() })
}

// newProcess starts a process that serves over stdio.
func newProcess(t testing.TB, cmd *exec.Cmd, version string) wire {
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return newLines(t, version, in, out, func() { _ = cmd.Wait() })
}

// exchange collects lines until the frame's answer is there. A frame that has
// none is followed by one that has.
func (l *lines) exchange(f frame) string {
	l.t.Helper()
	if l.over {
		return "over\n"
	}
	l.send(f.text)
	got := ""
	id := f.id
	if id == "" {
		l.fences++
		id = fmt.Sprintf(`"fence-%d"`, l.fences)
		params := ""
		if l.version == modern {
			params = `,"params":{"_meta":{` + triple + `}}`
		}
		l.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"` + params + `}`)
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case line, ok := <-l.out:
			if !ok {
				l.over = true
				return got + "end of stream\n"
			}
			got += line + "\n"
			if l.read(line) == id {
				return got
			}
		case <-deadline.C:
			require.FailNow(l.t, "no answer", "to %.500s\nbut %s", f.text, got)
		}
	}
}

func (l *lines) send(text string) {
	_, err := io.WriteString(l.in, text+"\n")
	l.over = l.over || err != nil && l.out == nil
}

// read returns the id of what a line answers, and answers what it asks.
func (l *lines) read(line string) string {
	var msg struct {
		ID     json.RawMessage
		Method string
	}
	require.NoError(l.t, json.Unmarshal([]byte(line), &msg), "%q", line)
	if msg.Method == "" {
		return string(msg.ID)
	}
	if msg.ID != nil {
		l.send(`{"jsonrpc":"2.0","id":` + string(msg.ID) + `,"result":` + replies[msg.Method] + `}`)
	}
	return ""
}

// replies are what the client answers a server that asks for something.
var replies = map[string]string{
	"elicitation/create": `{"action":"accept","content":{"ok":true,"n":9007199254740993}}`, "roots/list": `{"roots":[]}`, "ping": `{}`,
}

func (l *lines) close() { l.finish() }

// A web is a wire of HTTP requests.
type web struct {
	t       testing.TB
	version string
	client  *http.Client
	site    *httptest.Server
	session string
}

func newWeb(t testing.TB, server *mcp.Server, version string, opts mcp.StreamableHTTPOptions) wire {
	if !opts.Stateless && !opts.JSONResponse {
		opts.EventStore = mcp.NewMemoryEventStore(nil)
	}
	w := &web{t: t, version: version, client: &http.Client{Transport: &http.Transport{}, Timeout: patience}}
	w.site = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &opts))
	if version == legacy && !opts.Stateless {
		res := w.post(frame{text: `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + legacy +
			`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`})
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		w.session = res.Header.Get("Mcp-Session-Id")
		w.exchange(frame{text: `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
	}
	return w
}

func (w *web) post(f frame) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.site.URL, strings.NewReader(f.text))
	require.NoError(w.t, err)
	for key, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": w.version, "Mcp-Session-Id": w.session,
	} {
		if value != "" {
			req.Header.Set(key, value)
		}
	}
	if w.version == modern && f.method != "" {
		req.Header.Set("Mcp-Method", f.method)
		if f.name != "" {
			req.Header.Set("Mcp-Name", f.name)
		}
	}
	res, err := w.client.Do(req)
	require.NoError(w.t, err)
	return res
}

var eventID = regexp.MustCompile(`(?m)^id: .*$`)

// exchange returns status, headers and body. The date and the ids of sessions
// and events are nobody's doing.
func (w *web) exchange(f frame) string {
	w.t.Helper()
	res := w.post(f)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	var headers []string
	for key, values := range res.Header {
		if key != "Date" && key != "Mcp-Session-Id" {
			headers = append(headers, key+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(headers)
	return fmt.Sprintf("%s\n%s\n\n%s\n", res.Status, strings.Join(headers, "\n"), eventID.ReplaceAllString(string(body), "id: X"))
}

func (w *web) close() {
	if w.session != "" {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, w.site.URL, nil)
		require.NoError(w.t, err)
		req.Header.Set("Mcp-Session-Id", w.session)
		res, err := w.client.Do(req)
		require.NoError(w.t, err)
		_ = res.Body.Close()
	}
	w.client.CloseIdleConnections()
	w.site.Close()
}
