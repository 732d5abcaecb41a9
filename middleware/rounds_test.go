package middleware_test

//lint:file-ignore SA1019 Sampling and roots: They are deprecated and still have to be judged.

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asking adds a tool that wants something from the client before it answers,
// by way of its result; on the older era the SDK asks the client directly.
func asking(s *mcp.Server, request mcp.InputRequest) {
	rawTool(s, "ask", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, ok := req.Params.InputResponses["q"]
		if !ok {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": request}, RequestState: "state"}, nil
		}
		raw, err := core.Encode(answer)
		return text(string(raw)), err
	})
}

// An askable client answers what servers ask for, and notes what it was asked.
type askable struct {
	mu    sync.Mutex
	asked []string
}

func (a *askable) note(v any) {
	raw, _ := core.Encode(v)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, string(raw))
}

func (a *askable) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.asked, "\n")
}

func (a *askable) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			a.note(req.Params)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"word": "answer"}}, nil
		},
		CreateMessageHandler: func(_ context.Context, req *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			a.note(req.Params)
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "answer"}}, nil
		},
	}
}

// inputs are the three things that a server can ask a client for.
var inputs = map[string]mcp.InputRequest{
	core.EventElicitation: &mcp.ElicitParams{Message: "question", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}}}`)},
	core.EventSampling: &mcp.CreateMessageParams{MaxTokens: 9, Messages: []*mcp.SamplingMessage{
		{Role: "user", Content: &mcp.TextContent{Text: "question"}},
	}},
	core.EventRoots: &mcp.ListRootsParams{},
}

// replacing returns a mutator that puts one word in another's place.
func replacing(name string, phase core.Phase, event, from, to string, edits ...ct.Edit) core.Interceptor {
	return ct.Mutator(name, func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		return core.Replace(json.RawMessage(strings.ReplaceAll(string(inv.Payload), from, to))), nil
	}, append([]ct.Edit{ct.On(phase, event)}, edits...)...)
}

// ask runs the asking tool between a server and a client, one of which is
// protected by the interceptors.
func ask(t *testing.T, event, version, side string, observer chain.Observer, interceptors ...core.Interceptor) (answer string, asked *askable, err error) {
	t.Helper()
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(interceptors...))
	ch, err := ext.Chain(&chain.Options{Observer: observer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })

	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	asking(server, inputs[event])
	asked = &askable{}
	opts := asked.options()
	if side == "client" {
		opts.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, opts)
	client.AddRoots(&mcp.Root{URI: "file:///answer", Name: "root"})
	if side == "client" {
		middleware.Client(client, ch, nil)
	} else {
		middleware.Server(server, ch, nil)
	}
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), serverEnd, nil)
	require.NoError(t, err)
	cs, err := client.Connect(context.Background(), clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cs.Close(); _ = ss.Wait() })
	answer, err = call(t, cs, "ask", map[string]any{})
	return answer, asked, err
}

// Rows 48 and 99: what a server asks its client for passes the same gates on
// both eras, on either side, in both phases.
func TestServersAskClients(t *testing.T) {
	for event := range inputs {
		for _, version := range []string{legacy, modern} {
			for _, side := range []string{"server", "client"} {
				t.Run(event+" "+version+" "+side, func(t *testing.T) {
					answer, asked, err := ask(t, event, version, side, nil)
					require.NoError(t, err)
					require.Contains(t, answer, "answer")
					require.Equal(t, event != core.EventRoots, asked.String() != "", "the SDK answers for roots itself")

					for _, phase := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
						_, asked, err = ask(t, event, version, side, nil, ct.Validator("guard", ct.Deny, ct.On(phase, event)))
						wireError(t, err, -32602)
						if phase == core.PhaseRequest {
							assert.Empty(t, asked.String(), "what is denied is not asked")
						}
						answer, _, err = ask(t, event, version, side, nil, ct.Validator("audit", ct.Deny, ct.On(phase, event), ct.Audit))
						require.NoError(t, err)
						assert.Contains(t, answer, "answer")
					}

					answer, _, err = ask(t, event, version, side, nil, replacing("m", core.PhaseResponse, event, "answer", "changed"))
					require.NoError(t, err)
					assert.Contains(t, answer, "changed")
					assert.NotContains(t, answer, "answer")

					if event == core.EventRoots {
						return // nothing in its params to change
					}
					_, asked, err = ask(t, event, version, side, nil, replacing("m", core.PhaseRequest, event, "question", "changed"))
					require.NoError(t, err)
					assert.Contains(t, asked.String(), "changed")
					assert.NotContains(t, asked.String(), "question")
				})
			}
		}
	}
}

// The payloads of the newer era are those of the older one.
func TestEmbeddedPayloadsAreThoseOfTheOlderEra(t *testing.T) {
	for event := range inputs {
		for _, side := range []string{"server", "client"} {
			seen := map[string][]string{}
			for _, version := range []string{legacy, modern} {
				var mu sync.Mutex
				_, _, err := ask(t, event, version, side, nil, ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
					mu.Lock()
					defer mu.Unlock()
					seen[version] = append(seen[version], inv.Event+" "+string(inv.Phase)+" "+string(inv.Payload))
					return core.Allow(), nil
				}, ct.On(core.PhaseBoth, event)))
				require.NoError(t, err)
			}
			assert.Len(t, seen[modern], 2)
			assert.Equal(t, seen[legacy], seen[modern], "%s on the %s", event, side)
		}
	}
}

// Row 100: a retry is told apart, and its result is the only one.
func TestRetriesAreToldApart(t *testing.T) {
	var mu sync.Mutex
	var requests, responses []bool
	var embedded []string
	var messages []bool
	observer := endObserver{onEnd: func(e *chain.MessageEnd) {
		if e.Message.Method == core.EventToolsCall {
			messages = append(messages, e.Message.Retry)
		}
	}}
	count := ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case inv.Event == core.EventElicitation:
			embedded = append(embedded, inv.MessageID)
		case inv.Phase == core.PhaseRequest:
			requests = append(requests, inv.Retry)
		default:
			responses = append(responses, inv.Retry)
		}
		return core.Allow(), nil
	}, ct.On(core.PhaseBoth, core.EventToolsCall, core.EventElicitation))
	_, _, err := ask(t, core.EventElicitation, modern, "server", observer, count)
	require.NoError(t, err)
	assert.Equal(t, []bool{false, true}, requests)
	assert.Equal(t, []bool{true}, responses, "a result that only asks is not the method's result")
	assert.Equal(t, []bool{false, true}, messages)
	require.Len(t, embedded, 2)
	assert.NotEmpty(t, embedded[0])
	assert.Equal(t, embedded[0], embedded[1], "a request and its answer share an id")
	assert.NotContains(t, embedded[0], "state")
}

// A change that does not fit is a failure, and nothing of it is sent.
func TestUnfitEmbeddedChanges(t *testing.T) {
	for _, side := range []string{"server", "client"} {
		for _, phase := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
			_, asked, err := ask(t, core.EventElicitation, modern, side, nil,
				ct.Mutator("m", ct.Set(`{"message":7,"action":7}`), ct.On(phase, core.EventElicitation)))
			wireError(t, err, -32603)
			if phase == core.PhaseRequest {
				assert.Empty(t, asked.String())
			}
		}
	}
}

// A server that asks without end does not keep a client for ever.
func TestRoundsAreBounded(t *testing.T) {
	ext := mcpext.New(nil)
	ch, err := ext.Chain(nil)
	require.NoError(t, err)
	defer ch.Close()
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	rounds := 0
	rawTool(server, "ask", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		rounds++
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": inputs[core.EventRoots]}}, nil
	})
	rawTool(server, "busy", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		rounds++
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{}}, nil
	})
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}})
	middleware.Client(client, ch, nil)
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), serverEnd, nil)
	require.NoError(t, err)
	cs, err := client.Connect(context.Background(), clientEnd, nil)
	require.NoError(t, err)
	defer func() { _ = cs.Close(); _ = ss.Wait() }()
	for tool, most := range map[string]int{"ask": 10, "busy": 3} {
		rounds = 0
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
		require.ErrorContains(t, err, "without end")
		assert.Equal(t, most, rounds)
	}
}
