package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
)

// The guard denies what has this word in it, on the way in and on the way out.
const forbidden = "forbidden"

const guardName = "guard"

// guardTimeout is what an interceptor has for an invoke.
const guardTimeout = 250 * time.Millisecond

// newGuard returns the validator that no message may get past.
func newGuard() core.Validator {
	return core.Validator{
		Metadata: core.Metadata{Name: guardName, Hooks: []core.Hook{{Events: []string{"*"}, Phase: core.PhaseBoth}}},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			if strings.Contains(string(inv.Payload), forbidden) {
				return core.Deny("there it is"), nil
			}
			return core.Allow(), nil
		},
	}
}

// newGuardServer returns an interceptor server that has the guard.
func newGuardServer() (*mcp.Server, error) {
	ext := mcpext.New(nil)
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	return server, errors.Join(ext.AddInterceptor(newGuard()), ext.Install(server))
}

// A stand is a server behind a guard that lives elsewhere, with all that watches
// it, and the account that its client keeps.
type stand struct {
	t        testing.TB
	pace     time.Duration // of looking after the guard's host
	chain    *chain.Chain
	plane    *admin.Plane
	store    *goneStore
	registry *prometheus.Registry
	server   *mcp.Server
	clients  []*mcp.ClientSession
	closers  []func()

	weak    atomic.Bool // an operator has weakened the guard
	reached atomic.Int64
	leaked  atomic.Int64
	passed  atomic.Int64
	mu      sync.Mutex
	stopped map[int64]int // by code
	acks    []any         // changes that were acknowledged
}

// newStand makes one. dial is the way to the guard.
func newStand(t testing.TB, d dice, pace time.Duration, dial mcpext.Dialer) *stand {
	t.Helper()
	s := &stand{t: t, pace: pace, store: &goneStore{Memory: store.NewMemory(nil)}, registry: prometheus.NewRegistry(), stopped: map[int64]int{}}
	tel, err := telemetry.New(&telemetry.Options{Registerer: s.registry, TracerProvider: noop.NewTracerProvider()})
	require.NoError(t, err)
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(d.bystanders()...))
	s.chain, err = ext.Chain(&chain.Options{Observer: tel, InvokeTimeout: guardTimeout, Timeout: 8 * guardTimeout, AuditTimeout: guardTimeout})
	require.NoError(t, err)
	s.closers = append(s.closers, func() { _ = s.chain.Close() })
	host, err := mcpext.DialHost(context.Background(), dial, &mcpext.DialOptions{
		DialTimeout: 4 * guardTimeout, MinBackoff: 20 * time.Millisecond, MaxBackoff: s.pace, CheckEvery: s.pace,
	})
	require.NoError(t, err)
	require.NoError(t, s.chain.AddHost(context.Background(), "far", host))
	token, err := admin.NewToken("operator", admin.RoleOperate, operator)
	require.NoError(t, err)
	s.plane, err = admin.New(&admin.Options{
		Chains: map[string]*chain.Chain{"main": s.chain}, Tokens: []admin.Token{token}, Store: s.store, Registerer: s.registry,
	})
	require.NoError(t, err)
	s.closers = append(s.closers, func() { _ = s.plane.Close() })
	s.serve()
	return s
}

const operator = "operator-operator-operator-operator"

// serve puts the chain in front of a server, and connects clients of both eras.
func (s *stand) serve() {
	server := mcp.NewServer(&mcp.Implementation{Name: "stand", Version: "1"}, nil)
	addTool(server, "act", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return textResult(s.handle(string(req.Params.Arguments))), nil
	})
	server.AddPrompt(&mcp.Prompt{Name: "p"}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: s.handle(req.Params.Arguments["say"])}, nil
	})
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "a://{id}", Name: "a"}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: s.handle(req.Params.URI)}}}, nil
	})
	server.AddReceivingMiddleware(middleware.Receiving(s.chain, nil))
	s.server = server
	for range 2 {
		ce, se := mcp.NewInMemoryTransports()
		ss, err := server.Connect(context.Background(), se, nil)
		require.NoError(s.t, err)
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(context.Background(), ce, nil)
		require.NoError(s.t, err)
		s.clients = append(s.clients, cs)
		s.closers = append(s.closers, func() { _, _ = cs.Close(), ss.Wait() })
	}
}

// handle is what the server does with words of a client's.
func (s *stand) handle(words string) string {
	if strings.Contains(words, forbidden) && !s.weak.Load() {
		s.reached.Add(1)
	}
	if strings.Contains(words, "out") {
		return forbidden
	}
	return "fine"
}

// send sends one message and books how it ended.
func (s *stand) send(client int, method, words string) {
	s.sendOver(s.clients[client%len(s.clients)], method, words)
}

func (s *stand) sendOver(cs *mcp.ClientSession, method, words string) {
	ctx := context.Background()
	var res any
	var err error
	switch method {
	case core.EventToolsCall:
		res, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "act", Arguments: map[string]any{"say": words}})
	case core.EventPromptsGet:
		res, err = cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p", Arguments: map[string]string{"say": words}})
	default:
		res, err = cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "a://" + words})
	}
	var wire *jsonrpc.Error
	switch {
	case err == nil:
		s.passed.Add(1)
		raw, err := json.Marshal(res)
		require.NoError(s.t, err)
		if strings.Contains(string(raw), forbidden) && !s.weak.Load() {
			s.leaked.Add(1)
		}
	case errors.As(err, &wire):
		s.mu.Lock()
		s.stopped[wire.Code]++
		s.mu.Unlock()
	default:
		s.t.Errorf("no answer: %v", err)
	}
}

// batch sends messages of all kinds at once.
func (s *stand) batch(d dice, n int) {
	var all sync.WaitGroup
	for i := range n {
		method := pick(d, core.EventToolsCall, core.EventToolsCall, core.EventPromptsGet, core.EventResourcesRead)
		words := pick(d, "fine", "fine", forbidden, forbidden, "out", "out", "moody", "moody"+forbidden)
		all.Go(func() { s.send(i, method, words) })
	}
	all.Wait()
}

// ask sends a request to the admin plane.
func (s *stand) ask(method, path, body string) (status int, answer map[string]any) {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Host = "localhost"
	req.Header.Set("Authorization", "Bearer "+operator)
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("If-Match", "*")
	}
	w := httptest.NewRecorder()
	s.plane.Handler().ServeHTTP(w, req)
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return w.Code, answer
}

// flip sets an override; it reports whether that was acknowledged.
func (s *stand) flip(name, mode string, ttl time.Duration) bool {
	body := fmt.Sprintf(`{"mode":%q,"reason":"to see what holds","ttl":%q}`, mode, ttl)
	if mode == "active" {
		body = `{"mode":"active","reason":"to see what holds"}`
	}
	status, answer := s.ask(http.MethodPut, "/v1/interceptors/"+name+"/override", body)
	if change, ok := answer["change"].(map[string]any); ok && change["id"] != nil {
		s.acks = append(s.acks, change["id"])
	}
	return status == http.StatusOK
}

// account holds what client, metrics and admin plane know against each other.
func (s *stand) account() {
	s.t.Helper()
	require.Zero(s.t, s.reached.Load(), "messages got past the guard to the handler")
	require.Zero(s.t, s.leaked.Load(), "results got past the guard to the client")
	all := 0
	for code, n := range s.stopped {
		require.Contains(s.t, []int64{-32602, -32603, -32000}, code)
		all += n
	}
	aborts := s.count(semconv.MetricAborts, "", "")
	require.EqualValues(s.t, all, aborts, "messages that were stopped, and the metric; the client saw %v", s.stopped)
	require.EqualValues(s.t, s.stopped[-32602], s.count(semconv.MetricAborts, semconv.LabelReason, string(chain.ReasonValidation)), "denials")
	told := map[any]bool{}
	for _, name := range []string{guardName, "moody", "open"} {
		_, list := s.ask(http.MethodGet, "/v1/interceptors/"+name+"/decisions?limit=1000", "")
		for _, entry := range list["decisions"].([]any) {
			if d := entry.(map[string]any); d["phase"] != nil {
				told[d["id"]] = true
			}
		}
	}
	require.Len(s.t, told, all, "messages that were stopped, and the admin plane's decisions")
	_, changes := s.ask(http.MethodGet, "/v1/changes?limit=1000", "")
	var written []any
	for _, c := range changes["changes"].([]any) {
		written = append(written, c.(map[string]any)["id"])
	}
	require.Subset(s.t, written, s.acks, "flips that were acknowledged, and the history")
}

// count sums a metric, over those of its series that have a label's value.
func (s *stand) count(metric, label, value string) (sum float64) {
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			fits := label == ""
			for _, l := range m.GetLabel() {
				fits = fits || l.GetName() == label && l.GetValue() == value
			}
			if fits {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func (s *stand) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

// bystanders are interceptors of this process: audits that do their worst, an
// active one with moods, and one that fails open.
func (d dice) bystanders() []core.Interceptor {
	moods := []string{"deny", "fail", "panic", "hang", "nil", "unknown severity", "exit"}
	moody := func(name string, open bool) core.Interceptor {
		h := &hostile{name: name, act: pick(d, moods...), payload: json.RawMessage(`{}`)}
		return core.Validator{
			Metadata: core.Metadata{Name: name, FailOpen: open, Hooks: []core.Hook{{Events: []string{"*"}, Phase: pick(d, core.PhaseRequest, core.PhaseResponse)}}},
			Handler: func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
				if !strings.Contains(string(inv.Payload), "moody") {
					return core.Allow(), nil
				}
				return h.validate(ctx, inv)
			},
		}
	}
	list := []core.Interceptor{moody("moody", false), moody("open", true)}
	for i := range d.IntN(3) {
		h := d.hostile(fmt.Sprint("audit", i))
		h.metadata.Mode, h.metadata.Inline = core.ModeAudit, false
		if h.act == "deaf" {
			h.act = "hang"
		}
		list = append(list, core.Mutator{Metadata: h.metadata, Handler: h.mutate})
	}
	return list
}

// A goneStore is a store that cannot be reached at times.
type goneStore struct {
	*store.Memory
	gone atomic.Bool
}

func (g *goneStore) Load(ctx context.Context) (store.Contents, error) {
	if g.gone.Load() {
		return store.Contents{}, fmt.Errorf("load: %w", store.ErrUnavailable)
	}
	return g.Memory.Load(ctx)
}

func (g *goneStore) Commit(ctx context.Context, c store.Commit) (uint64, error) {
	if g.gone.Load() {
		return 0, fmt.Errorf("commit: %w", store.ErrUnavailable)
	}
	return g.Memory.Commit(ctx, c)
}
