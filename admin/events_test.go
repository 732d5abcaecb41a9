package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A listener is a stream of events over a connection in memory.
type listener struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	in     *bufio.Reader
	status int
	header http.Header
	pipe   *io.PipeReader
}

// A pipeWriter answers into a pipe.
type pipeWriter struct {
	w      *io.PipeWriter
	header http.Header
	once   sync.Once
	ready  chan int
}

func (p *pipeWriter) Header() http.Header { return p.header }

func (p *pipeWriter) WriteHeader(status int) { p.once.Do(func() { p.ready <- status }) }

func (p *pipeWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.w.Write(b)
}

func (p *pipeWriter) Flush() {}

// listen opens a stream; after is the last event that the client has, if any.
func (r *rig) listen(query, after, secret string) *listener {
	r.t.Helper()
	x := exchange{method: "GET", path: "/v1/events" + query, secret: secret, header: http.Header{}}
	if after != "" {
		x.header.Set("Last-Event-ID", after)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	w := &pipeWriter{w: in, header: http.Header{}, ready: make(chan int, 1)}
	l := &listener{t: r.t, cancel: cancel, done: make(chan struct{}), pipe: out, in: bufio.NewReader(out)}
	req := x.request()
	handler := r.plane.Handler()
	go func() {
		defer close(l.done)
		handler.ServeHTTP(w, req.WithContext(ctx))
		_ = in.Close()
	}()
	l.status, l.header = <-w.ready, w.header
	r.t.Cleanup(l.close)
	return l
}

func (l *listener) close() {
	l.cancel()
	_ = l.pipe.Close()
	<-l.done
}

// An incoming event is one block of a stream: its fields, and comments under the
// empty name.
type incoming map[string]string

func beat() incoming { return incoming{"": "beat"} }

// next reads one block; nil at the end of the stream.
func (l *listener) next() incoming {
	e := incoming{}
	for {
		line, err := l.in.ReadString('\n')
		if err != nil {
			return nil
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return e
		}
		field, value, _ := strings.Cut(line, ": ")
		e[field] = value
	}
}

// want reads a block that is an event of this type.
func (l *listener) want(kind string) incoming {
	l.t.Helper()
	e := l.next()
	require.Equal(l.t, kind, e["event"], "%v", e)
	return e
}

// begun reads the block that each stream begins with.
func (l *listener) begun() *listener {
	l.t.Helper()
	require.Equal(l.t, http.StatusOK, l.status)
	require.Equal(l.t, "2000", l.next()["retry"])
	return l
}

func TestEventsOfAFlip(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		l := r.listen("", "", readSecret).begun()
		assert.Equal(t, "text/event-stream", l.header.Get("Content-Type"))
		assert.Equal(t, []string{"no", "no-store"}, []string{l.header.Get("X-Accel-Buffering"), l.header.Get("Cache-Control")})
		synctest.Wait()
		require.EqualValues(t, 1, r.metric("headgate_admin_event_streams"))
		go r.flip("guard", `{"mode":"audit","ttl":"20m",`+why+`}`)
		e := l.want("change")
		require.Equal(t, "2", e["id"], "after the start")
		var record map[string]any
		require.NoError(t, jsonInto([]byte(e["data"]), &record))
		require.Equal(t, []any{"override.set", "guard", "audit"}, []any{record["action"], record["target"], record["after"]})
		for range 25 { // heartbeats until the first warning
			if e = l.next(); e["event"] != "" {
				break
			}
			require.Equal(t, beat(), e)
		}
		require.Equal(t, "override.expiring", e["event"])
		require.Empty(t, e["id"], "it is not in the history")
	})
}

// Without anything to tell there is a beat every fifteen seconds.
func TestHeartbeat(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		l := r.listen("", "", readSecret).begun()
		for range 3 {
			began := time.Now()
			require.Equal(t, beat(), l.next())
			require.Equal(t, 15*time.Second, time.Since(began))
		}
	})
}

// timeout is a body that differs from those of other numbers.
func timeout(i int) string { return fmt.Sprintf(`{"timeoutMs":%d,%s}`, 1+i, why) }

func TestExpiryIsTold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		l := r.listen("?types=override.expired&interceptor=guard", "", readSecret).begun()
		r.flip("guard", `{"mode":"audit","ttl":"5s",`+why+`}`)
		e := l.want("override.expired")
		require.Equal(t, "3", e["id"])
		synctest.Wait() // it is written down, then told, then applied
		r.flip("guard", `{"mode":"audit","ttl":"5s",`+why+`}`)
		l.close()
		pass(10 * time.Second)
		again := r.listen("?types=override.expired", e["id"], readSecret).begun()
		require.Equal(t, "5", again.want("override.expired")["id"], "one that was missed is told when the client is back")
	})
}

// A client that comes back gets what it missed, once, and then what is new.
func TestResuming(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		for i := range 4 {
			r.flip("guard", timeout(i))
		}
		require.Equal(t, "forbidden", r.put("guard", readSecret, auditBody).problem(), "refusals are no events")
		l := r.listen("", "2", readSecret)
		for i := range 3 { // which it hears of twice: it listens already, and looks back only then
			r.flip("guard", timeout(10+i))
		}
		l.begun()
		var ids []string
		for range 6 {
			ids = append(ids, l.want("change")["id"])
		}
		require.Equal(t, []string{"3", "4", "5", "7", "8", "9"}, ids)
		require.Equal(t, beat(), l.next(), "nothing twice")
	})
}

// What a client has may be from before a restart that forgot: it is told to begin
// anew, and gets what is new.
func TestResumingFromTheFuture(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		l := r.listen("", "500", readSecret).begun()
		l.want("reset")
		go r.flip("guard", auditBody)
		require.Equal(t, "2", l.want("change")["id"])
	})
}

// What is kept no more cannot be told: the client is to read the state anew.
func TestResumingTooLate(t *testing.T) {
	r := newRig(t, admin.Options{Tokens: manyTokens(t)}, guard())
	for i := range 4200 {
		r.do(exchange{
			method: "PUT", path: item("guard") + "/override", secret: manySecret(i), header: http.Header{"If-Match": {"*"}},
			body: timeout(i),
		})
	}
	l := r.listen("", "1", readSecret).begun()
	e := l.want("reset")
	require.JSONEq(t, `{"state":"state"}`, e["data"])
	require.Equal(t, "change", l.next()["event"])
}

// One that does not read is told that it was too slow and cut off; the others go
// on, and so does the plane.
func TestSlowReaders(t *testing.T) {
	inBubble(t, func(o *admin.Options) { o.Tokens = manyTokens(t) }, func(t *testing.T, r *rig) {
		slow := r.listen("", "", readSecret).begun()
		for i := range 300 {
			a := r.do(exchange{
				method: "PUT", path: item("guard") + "/override", secret: manySecret(i), header: http.Header{"If-Match": {"*"}},
				body: timeout(i),
			})
			require.Equal(t, http.StatusOK, a.status)
		}
		var last incoming
		for e := slow.next(); e != nil; e = slow.next() {
			last = e
		}
		require.Equal(t, "overflow", last["event"])
		synctest.Wait()
		require.Zero(t, r.metric("headgate_admin_event_streams"))
	})
}

func TestListenersAreBounded(t *testing.T) {
	r := newRig(t, admin.Options{Tokens: manyTokens(t)}, guard())
	var first *listener
	for i := range admin.MaxListeners {
		l := r.listen("", "", manySecret(i)).begun()
		if first == nil {
			first = l
		}
	}
	a := r.do(exchange{method: "GET", path: "/v1/events", secret: readSecret})
	require.Equal(t, []any{"too-many", "10"}, []any{a.problem(), a.header.Get("Retry-After")})
	first.close()
	r.listen("", "", readSecret).begun()
}

// One actor cannot take all the room there is.
func TestListenersOfOneActorAreBounded(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for range admin.MaxOfOne {
		r.listen("", "", readSecret).begun()
	}
	require.Equal(t, "too-many", r.do(exchange{method: "GET", path: "/v1/events", secret: readSecret}).problem())
	r.listen("", "", operateSecret).begun()
}

// A stream ends with the token that it was opened with, and with the plane.
func TestStreamsEnd(t *testing.T) {
	t.Run("when the token is taken away", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			l := r.listen("", "", readSecret).begun()
			require.NoError(t, r.plane.SetTokens([]admin.Token{token(t, "other", admin.RoleRead, operateSecret)}))
			began := time.Now()
			require.Nil(t, l.next())
			require.LessOrEqual(t, time.Since(began), 15*time.Second)
		})
	})
	t.Run("when the plane does", func(t *testing.T) {
		for range 20 { // either of two channels may be seen first
			inBubble(t, nil, func(t *testing.T, r *rig) {
				l := r.listen("", "", readSecret).begun()
				r.stop()
				require.Nil(t, l.next(), "nobody was too slow")
				a := r.do(exchange{method: "GET", path: "/v1/events", secret: readSecret})
				require.Equal(t, "too-many", a.problem())
			})
		}
	})
}

// Decisions are told to those who ask for them, without what the message said.
func TestDecisionsAreTold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		quiet := r.listen("", "", readSecret).begun()
		l := r.listen("?types=decision&interceptor=guard", "", readSecret).begun()
		synctest.Wait()
		send := r.messages()
		send(`{"name":"canary-4711"}`)
		e := l.want("decision")
		require.Contains(t, e["data"], `"interceptor":"guard"`)
		require.NotContains(t, e["data"], "canary-4711")
		go r.flip("guard", auditBody)
		require.Equal(t, "change", quiet.next()["event"])
	})
}

// Over a real connection a stream outlives the time that a request may take to be
// read, and each event goes out at once.
func TestStreamsOverAConnection(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	short := r.plane.Server()
	short.ReadTimeout, short.ReadHeaderTimeout = 150*time.Millisecond, 100*time.Millisecond
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() { _ = short.Serve(ln); close(served) }()
	t.Cleanup(func() { _ = short.Close(); <-served })
	req, err := http.NewRequest(http.MethodGet, "http://"+ln.Addr().String()+"/v1/events", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+readSecret)
	res, err := client(t, nil).Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	l := &listener{t: t, in: bufio.NewReader(res.Body), status: res.StatusCode}
	l.begun()
	<-time.After(400 * time.Millisecond) // real time, since the server's timeouts are the kernel's
	go r.flip("guard", auditBody)
	require.Equal(t, "2", l.want("change")["id"])
}

// A request for events that is in the contract: it ends at once.
func TestEventsInTheContract(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	x := exchange{method: "GET", path: "/v1/events?types=change", secret: readSecret, header: http.Header{"Last-Event-Id": {"1"}}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	req := x.request()
	r.plane.Handler().ServeHTTP(w, req.WithContext(ctx))
	require.Equal(t, "retry: 2000\n\n", w.Body.String())
	note(t, &x, req, &answer{status: w.Code, header: w.Header(), raw: w.Body.String()})
}
