package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A script is an interceptor server that says what a test wants said.
type script struct {
	name   string
	list   func(cursor string) (*mcpext.ListResult, error)
	invoke func(ctx context.Context, p *mcpext.InvokeParams) (*mcpext.InvokeResult, error)
}

func (s *script) server(t testing.TB) *mcp.Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: s.name, Version: "1"}, nil)
	if s.list != nil {
		require.NoError(t, mcp.AddReceivingCustomMethod(server, core.MethodList,
			func(_ context.Context, _ *mcp.ServerSession, p *mcpext.ListParams) (*mcpext.ListResult, error) {
				return s.list(p.Cursor)
			}))
	}
	if s.invoke != nil {
		require.NoError(t, mcp.AddReceivingCustomMethod(server, core.MethodInvoke,
			func(ctx context.Context, _ *mcp.ServerSession, p *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
				return s.invoke(ctx, p)
			}))
	}
	return server
}

func (s *script) session(t testing.TB) *mcp.ClientSession {
	t.Helper()
	cs, _ := connectTo(t, modern, s.server(t))
	return cs
}

// descriptor is a validator hooked on requests of tools/call.
func descriptor(name string) string {
	return `{"name":"` + name + `","type":"validation","hooks":[{"events":["tools/call"],"phase":"request"}]}`
}

func page(next string, entries ...string) *mcpext.ListResult {
	res := &mcpext.ListResult{NextCursor: next}
	for _, e := range entries {
		res.Interceptors = append(res.Interceptors, json.RawMessage(e))
	}
	return res
}

// lists returns a server that lists one page of validators that pass.
func lists(server string, names ...string) *script {
	var entries []string
	for _, n := range names {
		entries = append(entries, descriptor(n))
	}
	return &script{
		name:   server,
		list:   func(string) (*mcpext.ListResult, error) { return page("", entries...), nil },
		invoke: func(context.Context, *mcpext.InvokeParams) (*mcpext.InvokeResult, error) { return passed(), nil },
	}
}

func passed() *mcpext.InvokeResult {
	res := &mcpext.InvokeResult{}
	res.InvokeResult = core.InvokeResult{Type: core.TypeValidation, Phase: core.PhaseRequest, Answer: core.Answer{Validation: core.Allow()}}
	return res
}

func entryNames(ch *chain.Chain) []string {
	names := []string{}
	for _, e := range ch.Entries() {
		names = append(names, e.Name)
	}
	return names
}

func newChain(t testing.TB, opts *chain.Options) *chain.Chain {
	t.Helper()
	ch, err := chain.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ch.Close()) })
	return ch
}

// call is a request of tools/call as a server gets it.
func call() *chain.Request {
	return &chain.Request{
		Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: json.RawMessage(`{"name":"echo"}`),
	}
}

func abortOf(t testing.TB, err error) *chain.AbortError {
	t.Helper()
	var abort *chain.AbortError
	require.ErrorAs(t, err, &abort)
	return abort
}

func TestSessionHostLists(t *testing.T) {
	refused := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "not today"}
	tests := map[string]struct {
		list   func(cursor string) (*mcpext.ListResult, error)
		want   []string
		err    string
		logged string
	}{
		"all pages are drained": {
			list: func(cursor string) (*mcpext.ListResult, error) {
				switch cursor {
				case "":
					return page("2", descriptor("a"), descriptor("b")), nil
				case "2":
					return page("3"), nil
				}
				return page("", descriptor("c")), nil
			},
			want: []string{"a", "b", "c"},
		},
		"a cursor that repeats": {
			list: func(cursor string) (*mcpext.ListResult, error) {
				if cursor == "2" {
					return page("3", descriptor("b")), nil
				}
				return page("2", descriptor("a")), nil
			},
			err: "does not come to an end",
		},
		"a page that fails": {
			list: func(cursor string) (*mcpext.ListResult, error) {
				if cursor == "" {
					return page("2", descriptor("a")), nil
				}
				return nil, refused
			},
			err: "not today",
		},
		"no such method": {err: "method not found"},
		"an unknown type is skipped with a warning": {
			list: func(string) (*mcpext.ListResult, error) {
				return page("", descriptor("a"), strings.Replace(descriptor("sunk"), "validation", "sink", 1), descriptor("b")), nil
			},
			want: []string{"a", "b"}, logged: "sink",
		},
		"a hint that is none": {
			list: func(string) (*mcpext.ListResult, error) {
				return page("", strings.Replace(descriptor("odd"), "{", `{"priorityHint":2147483648,`, 1), descriptor("b")), nil
			},
			want: []string{"b"}, logged: "priority",
		},
		"what is no descriptor": {
			list: func(string) (*mcpext.ListResult, error) { return page("", `7`, `{}`, `null`, descriptor("b")), nil },
			want: []string{"b"}, logged: "interceptor skipped",
		},
		"a name that is none": {
			list: func(string) (*mcpext.ListResult, error) {
				return page("", descriptor(strings.Repeat("n", 129)), descriptor("b")), nil
			},
			want: []string{"b"}, logged: "name",
		},
		"a name twice": {
			list: func(string) (*mcpext.ListResult, error) { return page("", descriptor("a"), descriptor("a")), nil },
			err:  "name is taken",
		},
		"an empty list": {
			list: func(string) (*mcpext.ListResult, error) { return page(""), nil },
			want: []string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			log := &logBuffer{}
			ch := newChain(t, nil)
			session := (&script{name: "s", list: tt.list}).session(t)
			err := ch.AddHost(t.Context(), "s", mcpext.NewSessionHost(session, &mcpext.SessionOptions{
				Logger: slog.New(slog.NewTextHandler(log, nil)),
			}))
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				assert.Empty(t, ch.Entries(), "nothing is added")
				assert.Empty(t, ch.Hosts())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, entryNames(ch))
			assert.Contains(t, log.String(), tt.logged)
			assert.Equal(t, tt.logged != "", log.String() != "")
		})
	}
}

// A list without an end is cut off even if each of its cursors is new.
func TestSessionHostListWithoutEnd(t *testing.T) {
	pages := 0
	s := &script{name: "s", list: func(cursor string) (*mcpext.ListResult, error) {
		pages++
		return page(cursor + "x"), nil
	}}
	_, err := mcpext.NewSessionHost(s.session(t), nil).List(t.Context())
	require.ErrorContains(t, err, "does not come to an end")
	assert.Equal(t, 1000, pages)
}

func TestRefreshReadsAgain(t *testing.T) {
	ext, server := host(t, nil, ct.Validator("first", ct.Allow))
	session, _ := connectTo(t, modern, server)
	ch := over(t, nil, session)
	require.NoError(t, ext.AddInterceptor(ct.Validator("second", ct.Deny)))
	assert.Equal(t, []string{"first"}, entryNames(ch), "nobody has told the chain")
	require.NoError(t, ch.Refresh(t.Context()))
	assert.Equal(t, []string{"first", "second"}, entryNames(ch))
	_, err := ch.Execute(t.Context(), call())
	assert.Equal(t, "second", abortOf(t, err).Interceptor)
	require.True(t, ext.RemoveInterceptor("second"))
	_, err = ch.Execute(t.Context(), call())
	assert.Equal(t, chain.ReasonError, abortOf(t, err).Reason, "row 74: gone, so it fails closed")
	require.NoError(t, ch.Refresh(t.Context()))
	_, err = ch.Execute(t.Context(), call())
	require.NoError(t, err)
	require.NoError(t, session.Close())
	require.Error(t, ch.Refresh(t.Context()))
	assert.Equal(t, []string{"first"}, entryNames(ch), "what was listed last stays guarded")
}

// Row 71: an invoke carries a name alone, so one name on two hosts is refused,
// unless the operator has told them apart.
func TestOneNameOnTwoHosts(t *testing.T) {
	ch := newChain(t, nil)
	require.NoError(t, mcpext.AddMCPServer(t.Context(), ch, lists("one", "x").session(t)))
	two := lists("two", "y", "x")
	var sent []string
	two.invoke = func(_ context.Context, p *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
		sent = append(sent, p.Name)
		return passed(), nil
	}
	session := two.session(t)
	err := mcpext.AddMCPServer(t.Context(), ch, session)
	require.ErrorContains(t, err, `"x": name is taken by host "one"`)
	assert.Equal(t, []string{"x"}, entryNames(ch), "y has not come alone")
	assert.Equal(t, []string{"one"}, ch.Hosts())

	require.NoError(t, ch.AddHost(t.Context(), "two", mcpext.NewSessionHost(session, &mcpext.SessionOptions{Prefix: "two/"})))
	assert.Equal(t, []string{"x", "two/y", "two/x"}, entryNames(ch))
	req := call()
	req.Interceptors = []string{"two/x"}
	res, err := ch.Execute(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, "two/x", res.Results[0].Entry.Name, "what operators see")
	assert.Equal(t, []string{"x"}, sent, "what the peer is sent")
	require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"two/x": {Off: true}}))
}

// A prefix makes a new name, which has to be one.
func TestPrefixThatMakesNamesTooLong(t *testing.T) {
	ch := newChain(t, nil)
	h := mcpext.NewSessionHost(lists("s", "x").session(t), &mcpext.SessionOptions{Prefix: strings.Repeat("p", 128)})
	require.NoError(t, ch.AddHost(t.Context(), "s", h))
	assert.Empty(t, ch.Entries())
}

func TestTwoServersOfOneName(t *testing.T) {
	ch := newChain(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, mcpext.AddMCPServer(t.Context(), ch, lists("guards", name).session(t)))
	}
	assert.Equal(t, []string{"guards", "guards#2", "guards#3"}, ch.Hosts())
	assert.Equal(t, []string{"a", "b", "c"}, entryNames(ch))
}

// The peer is told its time, and waited for a little longer, so that its own
// word on a timeout arrives; without one the invoke is given up (row 89).
func TestTimeoutIsPassedOn(t *testing.T) {
	const headRoom = 500 * time.Millisecond
	honours := func(ctx context.Context, p *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
		select {
		case <-time.After(p.Timeout):
			return nil, &jsonrpc.Error{Code: -32000, Message: "interceptor timeout"}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ignores := func(ctx context.Context, _ *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	tests := map[string]struct {
		opts      chain.Options
		peer      func(context.Context, *mcpext.InvokeParams) (*mcpext.InvokeResult, error)
		told      time.Duration
		took      time.Duration
		abandoned bool
	}{
		"a peer that honours it":        {chain.Options{InvokeTimeout: 2 * time.Second}, honours, 2 * time.Second, 2 * time.Second, false},
		"the default":                   {chain.Options{}, honours, 5 * time.Second, 5 * time.Second, false},
		"a peer that does not":          {chain.Options{InvokeTimeout: 2 * time.Second}, ignores, 2 * time.Second, 2*time.Second + headRoom, true},
		"none, so that none is assumed": {chain.Options{InvokeTimeout: -1, Timeout: -1}, honours, core.MaxTimeout, core.MaxTimeout, false},
		"a fraction of a millisecond":   {chain.Options{InvokeTimeout: 1500 * time.Microsecond}, honours, 1500 * time.Microsecond, 1500 * time.Microsecond, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := lists("s", "x")
				told := make(chan time.Duration, 1)
				s.invoke = func(ctx context.Context, p *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
					told <- p.Timeout
					return tt.peer(ctx, p)
				}
				ch := over(t, &tt.opts, s.session(t))
				res, err := ch.Execute(t.Context(), call())
				abort := abortOf(t, err)
				assert.Equal(t, "x", abort.Interceptor)
				assert.Equal(t, chain.ReasonTimeout, abort.Reason)
				if tt.opts.InvokeTimeout >= 0 {
					assert.Equal(t, tt.told, abort.Timeout, "the configured one")
				}
				assert.Equal(t, tt.told, <-told)
				assert.Equal(t, tt.took, res.TotalDuration)
				assert.Equal(t, tt.abandoned, res.Results[0].Abandoned)
			})
		})
	}
}

// Of what a peer says of a failure one word is taken, and nothing is believed
// that makes less of it.
func TestWordsOfFailures(t *testing.T) {
	tests := map[string]struct {
		err  error
		want chain.Reason
	}{
		"crashed":          {&jsonrpc.Error{Code: -32603, Data: json.RawMessage(`{"reason":"crashed"}`)}, chain.ReasonPanic},
		"overloaded":       {&jsonrpc.Error{Code: -32603, Data: json.RawMessage(`{"reason":"overloaded"}`)}, chain.ReasonOverload},
		"malformed":        {&jsonrpc.Error{Code: -32603, Data: json.RawMessage(`{"reason":"malformed result"}`)}, chain.ReasonProtocol},
		"another word":     {&jsonrpc.Error{Code: -32603, Data: json.RawMessage(`{"reason":"denied"}`)}, chain.ReasonError},
		"data of no shape": {&jsonrpc.Error{Code: -32603, Data: json.RawMessage(`[{"reason":"crashed"}]`)}, chain.ReasonError},
		"no data":          {&jsonrpc.Error{Code: -32602}, chain.ReasonError},
		"a plain error":    {errors.New("boom"), chain.ReasonError},
		"timeout":          {&jsonrpc.Error{Code: -32000}, chain.ReasonTimeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := lists("s", "x")
			s.invoke = func(context.Context, *mcpext.InvokeParams) (*mcpext.InvokeResult, error) { return nil, tt.err }
			_, err := over(t, nil, s.session(t)).Execute(t.Context(), call())
			assert.Equal(t, tt.want, abortOf(t, err).Reason)
		})
	}
}

// Answers of another type, or of none, are failures.
func TestAnswersThatDoNotFit(t *testing.T) {
	for name, body := range map[string]string{
		"a mutation":       `{"type":"mutation","phase":"request","modified":true,"payload":{}}`,
		"no verdict":       `{"type":"validation","phase":"request"}`,
		"no type":          `{"valid":true}`,
		"an unknown level": `{"type":"validation","phase":"request","valid":true,"severity":"fatal"}`,
	} {
		t.Run(name, func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			require.NoError(t, mcp.AddReceivingCustomMethod(server, core.MethodList,
				func(context.Context, *mcp.ServerSession, *mcpext.ListParams) (*mcpext.ListResult, error) {
					return page("", descriptor("x")), nil
				}))
			require.NoError(t, mcp.AddReceivingCustomMethod(server, core.MethodInvoke,
				func(context.Context, *mcp.ServerSession, *mcpext.InvokeParams) (*rawResult, error) {
					return &rawResult{body: body}, nil
				}))
			cs, _ := connectTo(t, legacy, server)
			_, err := over(t, nil, cs).Execute(t.Context(), call())
			assert.Equal(t, chain.ReasonProtocol, abortOf(t, err).Reason)
		})
	}
}

// A rawResult is a result byte for byte.
type rawResult struct {
	mcp.ResultBase
	body string
}

func (r *rawResult) MarshalJSON() ([]byte, error) { return []byte(r.body), nil }

// A stuckTransport does not let its session end.
type stuckTransport struct {
	mcp.Transport
	release chan struct{}
}

type stuckConnection struct {
	mcp.Connection
	release chan struct{}
}

func (s *stuckTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := s.Transport.Connect(ctx)
	return &stuckConnection{conn, s.release}, err
}

func (s *stuckConnection) Close() error {
	<-s.release
	return s.Connection.Close()
}

// A peer that has gone silent does not keep the chain from closing.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientEnd, serverEnd := mcp.NewInMemoryTransports()
		ss, err := lists("s", "x").server(t).Connect(t.Context(), serverEnd, nil)
		require.NoError(t, err)
		stuck := &stuckTransport{clientEnd, make(chan struct{})}
		cs, err := newClient(t).Connect(t.Context(), stuck, nil)
		require.NoError(t, err)
		ch, err := chain.New(nil)
		require.NoError(t, err)
		require.NoError(t, mcpext.AddMCPServer(t.Context(), ch, cs))
		start := time.Now()
		require.ErrorContains(t, ch.Close(), "does not close")
		assert.Equal(t, 16*time.Second, time.Since(start))
		close(stuck.release)
		require.NoError(t, cs.Close())
		require.NoError(t, ss.Wait())
	})
}

// Ten thousand messages at once, each with what is its own.
func TestManyInvokesOnOneSession(t *testing.T) {
	echo := ct.Mutator("x", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		var v map[string]any
		if err := inv.Decode(&v); err != nil {
			return nil, err
		}
		v["id"] = inv.MessageID
		out, err := core.Encode(v)
		return core.Replace(out), err
	})
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(echo))
	local, err := ext.LocalChain(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, local.Close()) }()
	for name, ch := range map[string]*chain.Chain{
		"LocalChain": local,
		"in memory":  over(t, nil, connect(t, legacy, ext)),
	} {
		t.Run(name, func(t *testing.T) {
			const messages, workers = 10_000, 64
			ids := make(chan string)
			var busy sync.WaitGroup
			for range workers {
				busy.Go(func() {
					for id := range ids {
						req := call()
						req.MessageID = id
						res, err := ch.Execute(context.Background(), req)
						if assert.NoError(t, err) {
							assert.Equal(t, `{"id":"`+id+`","name":"echo"}`, string(res.FinalPayload))
						}
					}
				})
			}
			for n := range messages {
				ids <- "m-" + string(rune('a'+n%26)) + time.Duration(n).String()
			}
			close(ids)
			busy.Wait()
		})
	}
}

// An answer to something else is no answer.
func TestForeignAnswers(t *testing.T) {
	for name, edit := range map[string]func(*mcpext.InvokeResult){
		"another interceptor": func(r *mcpext.InvokeResult) { r.Interceptor = "other" },
		"another phase":       func(r *mcpext.InvokeResult) { r.Phase = core.PhaseResponse },
	} {
		t.Run(name, func(t *testing.T) {
			s := lists("a", "x")
			s.invoke = func(context.Context, *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
				r := passed()
				edit(r)
				return r, nil
			}
			_, err := over(t, nil, s.session(t)).Execute(t.Context(), call())
			require.ErrorIs(t, err, core.ErrMalformed)
		})
	}
}

// A name without the prefix is nobody's.
func TestNamesWithoutThePrefix(t *testing.T) {
	h := mcpext.NewSessionHost(lists("a", "x").session(t), &mcpext.SessionOptions{Prefix: "long/"})
	defer h.Close()
	for _, name := range []string{"x", "other/x"} {
		_, err := h.Invoke(t.Context(), name, &core.Invocation{Event: core.EventToolsCall, Phase: core.PhaseRequest})
		require.ErrorIs(t, err, mcpext.ErrNotFound)
	}
}
