package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// messages returns a function that has a call go through the chain as a server's
// middleware would, and returns its id.
func (r *rig) messages() func(payload string) string {
	return func(payload string) string { return r.message(core.EventToolsCall, payload, nil) }
}

// message has a request go through the chain as a server's middleware would, and
// returns its id.
func (r *rig) message(event, payload string, meta map[string]any) string {
	snap := r.chain.Snapshot()
	m := chain.Message{
		ID: r.chain.NewMessageID(), Method: event, Target: payload, Meta: meta, Policy: snap.Number(), Start: time.Now(), Direction: core.Receiving,
	}
	ctx := snap.MessageStart(context.Background(), &m)
	_, err := snap.Execute(ctx, &chain.Request{
		Event: m.Method, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: json.RawMessage(payload), MessageID: m.ID,
	})
	end := chain.MessageEnd{Message: &m, Outcome: chain.MessageOK, Duration: time.Since(m.Start)}
	if err != nil {
		end.Outcome, end.Phase = chain.MessageDenied, core.PhaseRequest
	}
	snap.MessageEnd(ctx, &end)
	return m.ID
}

// connect has a client talk to a server behind the chain. Its one tool is echo.
func connect(t testing.TB, ch *chain.Chain, tool mcp.ToolHandler) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, tool)
	server.AddReceivingMiddleware(middleware.Receiving(ch, nil))
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), serverEnd, nil)
	require.NoError(t, err)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(context.Background(), clientEnd, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cs.Close()
		_ = ss.Wait()
	})
	return cs
}

func echo(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
}

func call(cs *mcp.ClientSession, tool string, args any) error {
	_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	return err
}

// modes notes the modes that each message was seen in.
type modes struct {
	mu   sync.Mutex
	seen map[string]map[string]int // by message, then by mode
}

func (m *modes) validator(name string) core.Interceptor {
	return ct.Validator(name, func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.seen[inv.MessageID] == nil {
			m.seen[inv.MessageID] = map[string]int{}
		}
		m.seen[inv.MessageID][string(inv.Mode)]++
		return core.Allow(), nil
	}, ct.Inline)
}

// A flip a hundred times a second under traffic: every message sees one mode, in
// both of its phases, and none fails. (Seen to fail with a middleware that takes a
// snapshot for each phase.)
func TestFlipsUnderTraffic(t *testing.T) {
	m := &modes{seen: map[string]map[string]int{}}
	r := &rig{t: t}
	r.ext, r.chain = newChain(t, &chain.Options{InlineAudit: true}, m.validator("guard"))
	r.begin(admin.Options{Tokens: manyTokens(t)})
	sessions := []*mcp.ClientSession{connect(t, r.chain, echo), connect(t, r.chain, echo)}
	stop := make(chan struct{})
	var calls atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				assert.NoError(t, call(sessions[i%2], "echo", map[string]any{"n": 1}))
				calls.Add(1)
			}
		})
	}
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := range 200 {
		mode := []string{"audit", "active"}[i%2]
		a := r.do(exchange{
			method: "PUT", path: item("guard") + "/override", secret: manySecret(i), body: `{"mode":"` + mode + `",` + why + `}`,
			header: http.Header{"If-Match": {"*"}},
		})
		require.Equal(t, http.StatusOK, a.status, a.raw)
		<-pace.C
	}
	close(stop)
	group.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	both := map[string]int{}
	for id, seen := range m.seen {
		require.Len(t, seen, 1, "message %s saw two modes", id)
		for mode, n := range seen {
			both[mode]++
			require.Equal(t, 2, n, "both phases of %s", id)
		}
	}
	require.EqualValues(t, calls.Load(), len(m.seen))
	require.Len(t, both, 2, "there was traffic under both: %v", both)
}

// What a flip says of messages that are under way is true.
func TestDraining(t *testing.T) {
	r := newRig(t, admin.Options{}, ct.Validator("guard", ct.Allow))
	entered, leave := make(chan bool), make(chan bool)
	cs := connect(t, r.chain, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		entered <- true
		<-leave
		return echo(ctx, req)
	})
	done := make(chan error)
	go func() { done <- call(cs, "echo", nil) }()
	<-entered
	require.EqualValues(t, 1, r.flip("guard", auditBody).at("draining"))
	go func() { done <- call(cs, "echo", nil) }()
	<-entered
	stats := r.get(item("guard") + "/stats")
	require.EqualValues(t, 1, stats.at("draining"), "the second one runs under the new policy")
	require.Nil(t, stats.at("drainedAt"))
	leave <- true
	leave <- true
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	drained := func() bool { return r.get(item("guard")+"/stats").at("drainedAt") != nil }
	require.Eventually(t, drained, waiting, 50*time.Millisecond)
	stats = r.get(item("guard") + "/stats")
	require.Zero(t, stats.at("draining"))
	require.GreaterOrEqual(t, stats.at("drainedAt"), stats.at("flippedAt"))
	require.Zero(t, r.flip("guard", `{"mode":"off",`+why+`}`).at("draining"))
}

// Of writers that have seen the same, one wins; the others are told what is now.
func TestOneWriterWins(t *testing.T) {
	r := newRig(t, admin.Options{Tokens: manyTokens(t), StateDir: t.TempDir()}, guard())
	for round := range 5 {
		tag := r.get(item("guard")).etag()
		answers := make(chan answer)
		const writers = 16
		for i := range writers {
			go func() {
				answers <- r.do(exchange{
					method: "PUT", path: item("guard") + "/override", secret: manySecret(i), header: http.Header{"If-Match": {tag}},
					body: fmt.Sprintf(`{"timeoutMs":%d,%s}`, 1+round*writers+i, why),
				})
			}()
		}
		won := 0
		for range writers {
			switch a := <-answers; a.status {
			case http.StatusOK:
				won++
			default:
				assert.Equal(t, "stale", a.problem())
				assert.NotEqual(t, tag, a.at("currentETag"))
			}
		}
		require.Equal(t, 1, won)
	}
	require.EqualValues(t, 5, r.metric("headgate_control_revision"))
}

// A hundred flip and a hundred read (A11): what each reads is one state, and all
// agree at the end.
func TestFlipsAndReadsAtOnce(t *testing.T) {
	r := newRig(t, admin.Options{Tokens: manyTokens(t)}, guard(), named("b"))
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			body := `{"action":"audit-all",` + why + `}`
			x := exchange{method: "PUT", path: "/v1/break-glass", secret: glassSecret, body: body}
			if i%2 == 0 {
				x = exchange{method: "DELETE", path: "/v1/break-glass", secret: manySecret(i)}
			}
			assert.Equal(t, http.StatusOK, r.do(x).status)
		})
		group.Go(func() {
			a := r.do(exchange{method: "GET", path: "/v1/state", secret: manySecret(i)})
			glass := a.at("breakGlass") != nil
			for _, it := range a.list("interceptors") {
				mode := it["effective"].(map[string]any)["mode"]
				assert.Equal(t, map[bool]string{true: "audit", false: "active"}[glass], mode, "all of a state is one moment")
			}
			_, err := r.metrics.Gather()
			assert.NoError(t, err)
			r.denied()
		})
	}
	group.Wait()
	glass := r.get("/v1/break-glass").at("active") == true
	require.Equal(t, map[bool]string{true: "audit", false: "active"}[glass], r.mode("guard"))
	require.Equal(t, !glass, r.denied())
}

// Why a message was stopped: what ran in both phases, with the trace that it is
// found under, and nothing of what it said.
func TestWhy(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tel, err := telemetry.New(&telemetry.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	require.NoError(t, err)
	r := &rig{t: t}
	r.ext, r.chain = newChain(t, &chain.Options{Observer: tel},
		ct.Validator("first", ct.Allow), ct.Validator("late", ct.Deny, ct.On(core.PhaseResponse, core.EventToolsCall)),
		ct.Validator("watching", ct.Deny, ct.Audit, ct.On(core.PhaseResponse, core.EventToolsCall)))
	r.begin(admin.Options{})
	cs := connect(t, r.chain, echo)
	require.Error(t, call(cs, "echo", map[string]any{"secret": "canary-4711"}))
	steps := func() []map[string]any {
		list := r.get(item("late") + "/decisions").list("decisions")
		if len(list) == 0 {
			return nil
		}
		d := r.get("/v1/decisions/" + list[0]["id"].(string))
		require.NotContains(t, d.raw, "canary-4711")
		return d.list("steps")
	}
	require.Eventually(t, func() bool { return len(steps()) == 4 }, waiting, 50*time.Millisecond, "the audit run comes after the end")
	got := map[string]string{}
	for _, s := range steps() {
		got[fmt.Sprint(s["interceptor"], " ", s["phase"])] = fmt.Sprint(s["mode"], " ", s["verdict"], " ", s["action"])
	}
	require.Equal(t, map[string]string{
		"first request": "active allow proceed", "first response": "active allow proceed",
		"late response": "active deny block", "watching response": "audit deny proceed",
	}, got)
	d := r.get(item("late") + "/decisions?verdict=deny&mode=active&limit=1").list("decisions")[0]
	require.Equal(t, []any{"denied", "response", "tools/call", "main"}, []any{d["outcome"], d["phase"], d["method"], d["chain"]})
	trace := ""
	for _, s := range spans.Ended() {
		if strings.HasPrefix(s.Name(), "tools/call") {
			trace = s.SpanContext().TraceID().String()
		}
	}
	require.Equal(t, trace, d["traceId"])
	require.Equal(t, d["id"], r.get("/v1/decisions/"+trace).at("id"), "it is found by its trace too")
	require.Empty(t, r.get(item("late")+"/decisions?mode=audit").list("decisions"))
	require.Empty(t, r.get(item("late")+"/decisions?since=2999-01-01T00:00:00Z").list("decisions"))
	require.Equal(t, "not-found", r.do(exchange{method: "GET", path: "/v1/decisions/none", secret: readSecret}).problem())
}

// What clients made up is not shown as if it were a name: the method is _OTHER
// and the target is left out.
func TestAClientsOwnWords(t *testing.T) {
	r := newRig(t, admin.Options{}, ct.Validator("guard", ct.Deny, ct.On(core.PhaseRequest, "custom/canary-4711", core.EventToolsCall)))
	cs := connect(t, r.chain, echo)
	require.Error(t, call(cs, "canary-4711", nil))
	a := r.get(item("guard") + "/decisions")
	require.Len(t, a.list("decisions"), 1)
	require.NotContains(t, a.raw, "canary-4711")

	snap := r.chain.Snapshot()
	m := chain.Message{ID: "id-1", Method: "custom/canary-4711", Policy: snap.Number(), Start: time.Now(), Direction: core.Receiving}
	ctx := snap.MessageStart(t.Context(), &m)
	_, err := snap.Execute(ctx, &chain.Request{Event: m.Method, Phase: core.PhaseRequest, Direction: core.Receiving, Payload: []byte(`{}`), MessageID: m.ID})
	require.Error(t, err)
	snap.MessageEnd(ctx, &chain.MessageEnd{Message: &m, Outcome: chain.MessageDenied, Phase: core.PhaseRequest})
	require.Equal(t, "_OTHER", r.get("/v1/decisions/id-1").at("method"))
	_, err = cs.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Error(t, call(cs, "echo", nil))
	d := r.get(item("guard") + "/decisions?limit=1").list("decisions")[0]
	require.Equal(t, "echo", d["target"], "the server has it")
}

// The ring forgets the oldest, and plain passes are not kept at all.
func TestDecisionsAreBounded(t *testing.T) {
	r := newRig(t, admin.Options{Decisions: 3}, guard(ct.Inline))
	send := r.messages()
	var ids []string
	for range 5 {
		ids = append(ids, send(`{}`))
	}
	var kept []string
	for _, d := range r.get(item("guard") + "/decisions").list("decisions") {
		kept = append(kept, d["id"].(string))
	}
	require.Equal(t, []string{ids[4], ids[3], ids[2]}, kept)
	r.flip("guard", `{"mode":"off",`+why+`}`)
	send(`{}`)
	require.Len(t, r.get(item("guard")+"/decisions").list("decisions"), 3)
}

// What was denied is not driven out by what was only changed.
func TestDenialsOutliveChanges(t *testing.T) {
	r := newRig(t, admin.Options{Decisions: 3}, guard(ct.Inline, ct.On(core.PhaseRequest, core.EventToolsCall)),
		ct.Mutator("stamp", ct.Set(`{"a":1}`), ct.Inline, ct.On(core.PhaseRequest, core.EventResourcesRead)))
	send := r.messages()
	denied := send(`{}`)
	r.flip("guard", `{"mode":"off",`+why+`}`)
	for range 10 {
		r.message(core.EventResourcesRead, `{}`, nil)
	}
	require.Len(t, r.get(item("stamp")+"/decisions").list("decisions"), 3)
	require.Equal(t, denied, r.get("/v1/decisions/"+denied).at("id"))
}

// Clients choose traces, and may use one for many messages: the one that was
// denied is what is asked for, and the others are named.
func TestWhyOfATraceWithSeveralMessages(t *testing.T) {
	tel, err := telemetry.New(&telemetry.Options{NoMetrics: true, TracerProvider: sdktrace.NewTracerProvider()})
	require.NoError(t, err)
	r := &rig{t: t}
	r.ext, r.chain = newChain(t, &chain.Options{Observer: tel}, guard(),
		ct.Mutator("stamp", ct.Set(`{"a":1}`), ct.On(core.PhaseRequest, core.EventPromptsGet)))
	r.begin(admin.Options{})
	trace := strings.Repeat("ab", 16)
	meta := map[string]any{"traceparent": "00-" + trace + "-" + strings.Repeat("12", 8) + "-01"}
	for _, event := range []string{core.EventToolsCall, core.EventPromptsGet, core.EventPromptsGet} {
		r.message(event, `{}`, meta)
	}
	d := r.get("/v1/decisions/" + trace)
	require.Equal(t, core.EventToolsCall, d.at("method"))
	require.Len(t, d.at("sameTrace"), 2)
}

// Numbers are since the flip, in all and of the last minute.
func TestStats(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		send := r.messages()
		send(`{}`)
		synctest.Wait()
		stats := r.get(item("guard") + "/stats")
		require.Nil(t, stats.at("flippedAt"))
		require.EqualValues(t, 1, stats.at("total", "active", "denials"))
		pass(10 * time.Second)
		r.flip("guard", auditBody)
		for range 3 {
			send(`{}`)
		}
		synctest.Wait()
		stats = r.get(item("guard") + "/stats")
		require.EqualValues(t, 3, stats.at("sinceFlip", "audit", "denials"), stats.raw)
		require.Zero(t, stats.at("sinceFlip", "active", "denials"))
		require.EqualValues(t, 1, stats.at("total", "active", "denials"))
		require.NotNil(t, stats.at("flippedAt"))
		require.NotNil(t, stats.at("lastRanAt"))
		pass(2 * time.Minute)
		stats = r.get(item("guard") + "/stats")
		require.Zero(t, stats.at("recent", "audit", "denials"))
		require.EqualValues(t, 3, stats.at("total", "audit", "denials"))
	})
}

// A secret in arguments, headers, configuration and tokens is in nothing that the
// plane says, logs, counts or keeps (A16).
func TestCanary(t *testing.T) {
	const canary = "canary-0815-canary-0815-canary-0815"
	dir := t.TempDir()
	ran := make(chan any, 16)
	r := newRig(t, admin.Options{
		StateDir: dir, Tokens: append(tokens(t), token(t, "canary-bearer", admin.RoleOperate, canary)),
		Configured: configured(t, `{"interceptors":{"guard":{"config":{"key":"`+canary+`"}}}}`),
	}, schemaGuard(ran))
	stream := r.listen("?types=change,decision", "", readSecret).begun()
	told := make(chan string)
	go func() {
		var b strings.Builder
		for e := stream.next(); e != nil; e = stream.next() {
			fmt.Fprintln(&b, e)
		}
		told <- b.String()
	}()
	cs := connect(t, r.chain, echo)
	require.Error(t, call(cs, "echo", map[string]any{"password": canary, canary: 1}))
	require.Error(t, call(cs, canary, nil))
	header := http.Header{"X-Canary": {canary}, "Cookie": {canary}, "If-Match": {"*"}, "Traceparent": {canary}}
	write := func(body string) answer {
		return r.do(exchange{method: "PUT", path: item("guard") + "/override", secret: canary, body: body, header: header.Clone()})
	}
	require.Equal(t, http.StatusOK, write(auditBody).status)
	for _, body := range []string{
		`{"mode":"` + canary + `",` + why + `}`, `{"ttl":"` + canary + `","mode":"audit",` + why + `}`, canary, `{"mode":"audit","reason":"` + canary + `\n"}`,
		`{"mode":"audit","expiresAt":"` + canary + `",` + why + `}`, `{"mode":"audit","hooks":[{"events":["` + canary + `"],"phase":"` + canary + `"}],` + why + `}`,
	} {
		require.NotEqual(t, http.StatusOK, write(body).status, body)
	}
	require.Error(t, r.plane.Configure(configured(t, `{"interceptors":{"guard":{"config":{"`+canary+`":1}}}}`)))
	for _, path := range []string{"/v1/state", item("guard"), item("guard") + "/stats", item("guard") + "/decisions", "/v1/changes", "/v1/coverage", "/v1/overrides"} {
		r.get(path)
	}
	metrics := r.exposition()
	r.stop()
	for name, text := range map[string]string{
		"answers": r.received.String(), "log": r.log.String(), "metrics": metrics, "files": readAll(t, dir), "events": <-told,
	} {
		require.NotEmpty(t, text, name)
		at := strings.Index(text, "canary-0815")
		require.Negative(t, at, "%s: ...%s...", name, text[max(0, at-200):max(0, at)])
	}
	require.Equal(t, canary, <-ran, "it did get where it belongs")
}
