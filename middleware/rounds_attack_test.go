package middleware_test

//lint:file-ignore SA1019 Roots: They are deprecated and still have to be judged.

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func plainServer() *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
}

func newClient(opts *mcp.ClientOptions) *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, opts)
}

// counting is a client that counts the forbidden questions that reach its user.
func counting(n *int) *mcp.ClientOptions {
	return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if req.Params.Message == "forbidden" {
			*n++
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
	}}
}

func forbidding() core.Interceptor {
	return ct.Validator("guard", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		var p struct {
			Message string `json:"message"`
		}
		if err := inv.Decode(&p); err != nil || p.Message == "forbidden" {
			return core.Deny("no"), err
		}
		return core.Allow(), nil
	}, ct.On(core.PhaseRequest, core.EventElicitation))
}

func question(text string) mcp.InputRequestMap {
	return mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: text}}
}

// answering puts a handler of its own in front of a server's tools.
func answering(s *mcp.Server, answer func(p *mcp.CallToolParamsRaw) *mcp.CallToolResult) {
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok {
				if res := answer(p); res != nil {
					return res, nil
				}
			}
			return next(ctx, method, req)
		}
	})
}

// Clients act on the requests in a result, whatever it calls itself; so does
// the guard.
func TestRequestsInUnlabelledResults(t *testing.T) {
	servers := map[string]func(*mcp.Server){
		"a tool that asks twice": func(s *mcp.Server) {
			rawTool(s, "echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if req.Params.InputResponses["a"] != nil {
					return &mcp.CallToolResult{InputRequests: question("forbidden")}, nil
				}
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"a": &mcp.ElicitParams{Message: "fine"}}}, nil
			})
		},
		"middleware that asks": func(s *mcp.Server) {
			echo(s)
			answering(s, func(p *mcp.CallToolParamsRaw) *mcp.CallToolResult {
				if p.InputResponses == nil {
					return &mcp.CallToolResult{InputRequests: question("forbidden")}
				}
				return nil
			})
		},
	}
	for name, add := range servers {
		for _, version := range []string{legacy, modern} {
			t.Run(name+" "+version, func(t *testing.T) {
				server, n := plainServer(), 0
				add(server)
				middleware.Server(server, newChain(t, forbidding()), nil)
				_, err := call(t, pair(t, newClient(counting(&n)), server, version), "echo", nil)
				require.Error(t, err)
				assert.Zero(t, n, "asked past the guard")
			})
		}
	}
}

// A result that says it only asks is judged for what else is in it.
func TestContentBesideRequests(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		server := plainServer()
		echo(server)
		answering(server, func(*mcp.CallToolParamsRaw) *mcp.CallToolResult {
			r := new(mcp.CallToolResult)
			_ = json.Unmarshal([]byte(`{"content":[{"type":"text","text":"evil"}],"resultType":"input_required"}`), r)
			return r
		})
		client := newClient(&mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
		client.AddSendingMiddleware(middleware.Sending(newChain(t, ct.Validator("guard", ct.Deny, ct.On(core.PhaseResponse, core.EventToolsCall))), nil))
		_, err := call(t, pair(t, client, server, version), "echo", nil)
		wireError(t, err, -32602)
	}
}

// Answers that a caller of a protected client brings along are judged too.
func TestClientJudgesAnswersOfItsCaller(t *testing.T) {
	server, got := plainServer(), false
	rawTool(server, "t", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		got = req.Params.InputResponses["q"] != nil
		return text("x"), nil
	})
	client := newClient(&mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
	middleware.Client(client, newChain(t, ct.Validator("guard", ct.Deny, ct.On(core.PhaseResponse, core.EventElicitation))), nil)
	_, err := pair(t, client, server, modern).CallTool(t.Context(), &mcp.CallToolParams{Name: "t", InputResponses: mcp.InputResponseMap{"q": &mcp.ElicitResult{Action: "accept"}}})
	wireError(t, err, -32602)
	assert.False(t, got)
}

// A mutator of the carrying message does not put in what guards of the carried
// events would have to see.
func TestMutatorsLeaveCarriedMessagesAlone(t *testing.T) {
	mutators := map[string]core.Interceptor{
		"requests in a result": ct.Mutator("m", ct.Set(`{"content":[],"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"forbidden","mode":"form"}}}}`),
			ct.On(core.PhaseResponse, core.EventToolsCall)),
		"a result that only asks": ct.Mutator("m", ct.Set(`{"content":[],"resultType":"input_required"}`), ct.On(core.PhaseResponse, core.EventToolsCall)),
		"answers in params":       ct.Mutator("m", ct.Set(`{"name":"t","arguments":{},"inputResponses":{"q":{"action":"accept"}}}`), ct.On(core.PhaseRequest, core.EventToolsCall)),
		"state in params":         ct.Mutator("m", ct.Set(`{"name":"t","arguments":{},"requestState":"forged"}`), ct.On(core.PhaseRequest, core.EventToolsCall)),
	}
	for name, m := range mutators {
		for _, version := range []string{legacy, modern} {
			t.Run(name+" "+version, func(t *testing.T) {
				server, n := plainServer(), 0
				rawTool(server, "t", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					assert.Empty(t, req.Params.InputResponses)
					assert.Empty(t, req.Params.RequestState)
					return text("x"), nil
				})
				middleware.Server(server, newChain(t, forbidding(), m), nil)
				_, err := call(t, pair(t, newClient(counting(&n)), server, version), "t", nil)
				assert.Contains(t, string(wireError(t, err, -32603).Data), `"failedInterceptor":"m"`)
				assert.Zero(t, n)
			})
		}
	}
}

// A client's own retries are messages like any other.
func TestClientsRetriesAreJudged(t *testing.T) {
	server := plainServer()
	asking(server, inputs[core.EventElicitation])
	opts := (&askable{}).options()
	opts.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
	client := newClient(opts)
	var retries []bool
	middleware.Client(client, newChain(t, ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		retries = append(retries, inv.Retry)
		return core.Allow(), nil
	}, ct.On(core.PhaseRequest, core.EventToolsCall))), nil)
	_, err := call(t, pair(t, client, server, modern), "ask", nil)
	require.NoError(t, err)
	assert.Equal(t, []bool{false, true}, retries)
}

// Row 33 holds for requests in results too.
func TestReservedMetaOfEmbeddedRequests(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		server := plainServer()
		asking(server, &mcp.ElicitParams{Meta: mcp.Meta{"traceparent": "tp"}, Message: "q"})
		var meta mcp.Meta
		client := newClient(&mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			meta = req.Params.Meta
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		}})
		middleware.Server(server, newChain(t, ct.Mutator("m", ct.Set(`{"message":"changed","mode":"form"}`), ct.On(core.PhaseRequest, core.EventElicitation))), nil)
		_, err := call(t, pair(t, client, server, version), "ask", nil)
		require.NoError(t, err)
		assert.Equal(t, "tp", meta["traceparent"], version)
	}
}

// A request that cannot be encoded is the failure of what is active on it, and
// as without Headgate where only audits are, or nothing is.
func TestUnreadableEmbeddedRequests(t *testing.T) {
	odd := &mcp.ElicitParams{Message: "q", RequestedSchema: func() {}} // cannot be encoded
	outcome := func(interceptors ...core.Interceptor) string {
		gate := middleware.Receiving(newChain(t, interceptors...), nil)
		handle := gate(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": odd}}, nil
		})
		res, err := handle(context.Background(), core.EventToolsCall, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "t"}})
		if err != nil {
			return err.Error()
		}
		if res.(*mcp.CallToolResult).InputRequests["q"] != odd {
			return "changed"
		}
		return "untouched"
	}
	on := ct.On(core.PhaseRequest, core.EventElicitation)
	assert.Equal(t, "untouched", outcome())
	assert.Equal(t, "untouched", outcome(ct.Validator("v", ct.Deny, on, ct.Audit)))
	assert.Equal(t, "untouched", outcome(ct.Validator("v", ct.Deny, on, ct.FailOpen)))
	assert.Equal(t, "interceptor failed", outcome(ct.Validator("v", ct.Allow, on)))
}
