package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A confusedHost lists what it is told to, and answers invokes as if they were for
// a message of its choice.
type confusedHost struct {
	list    atomic.Pointer[[]json.RawMessage]
	message atomic.Pointer[string]
	invokes atomic.Int64
}

func (h *confusedHost) server(t *testing.T) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "confused", Version: "1"}, nil)
	require.NoError(t, errors.Join(
		mcp.AddReceivingCustomMethod(s, core.MethodList, func(context.Context, *mcp.ServerSession, *mcpext.ListParams) (*mcpext.ListResult, error) {
			return &mcpext.ListResult{Interceptors: *h.list.Load()}, nil
		}),
		mcp.AddReceivingCustomMethod(s, core.MethodInvoke, func(_ context.Context, _ *mcp.ServerSession, p *mcpext.InvokeParams) (*mcpext.InvokeResult, error) {
			h.invokes.Add(1)
			res := &mcpext.InvokeResult{InvokeResult: core.InvokeResult{
				Interceptor: p.Name, Type: core.TypeValidation, Phase: p.Phase, Answer: core.Answer{Validation: core.Allow()},
			}}
			if id := h.message.Load(); id != nil {
				res.Meta = mcp.Meta{"io.github.headgate-mcp/messageId": *id}
			}
			return res, nil
		}),
	))
	return s
}

func (h *confusedHost) chain(t *testing.T) *chain.Chain {
	server := h.server(t)
	return dialled(t, func(ctx context.Context) (*mcp.ClientSession, error) {
		ce, se := mcp.NewInMemoryTransports()
		if _, err := server.Connect(context.Background(), se, nil); err != nil {
			return nil, err
		}
		return dialClient(ctx, ce)
	}, quickly())
}

const guardEntry = `{"name":"guard","type":"validation","hooks":[{"events":["tools/call"],"phase":"request"}]}`

// A list that cannot be read to its end does not turn off what was listed before:
// nobody could tell that from a guard that was taken out.
func TestListThatCannotBeReadTurnsNothingOff(t *testing.T) {
	for name, list := range map[string][]json.RawMessage{
		"none at all":        nil,
		"another type":       {json.RawMessage(`{"name":"guard","type":"sink"}`)},
		"no entry":           {json.RawMessage(`7`)},
		"an entry of no use": {json.RawMessage(`{"name":"guard","type":"validation","hooks":7}`)},
		"among others":       {json.RawMessage(`{"name":"other","type":"validation","hooks":[{"events":["ping"],"phase":"request"}]}`), json.RawMessage(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			h := &confusedHost{}
			h.list.Store(&[]json.RawMessage{json.RawMessage(guardEntry)})
			ch := h.chain(t)
			require.Equal(t, []string{"guard"}, entryNames(ch))
			h.list.Store(&list)
			require.NoError(t, ch.RefreshHost(context.Background(), "far"))
			require.Contains(t, entryNames(ch), "guard")
			_, err := ch.Execute(context.Background(), call())
			require.NoError(t, err)
			require.EqualValues(t, 1, h.invokes.Load(), "it was asked")
		})
	}
	t.Run("a list that can be read does", func(t *testing.T) {
		h := &confusedHost{}
		h.list.Store(&[]json.RawMessage{json.RawMessage(guardEntry)})
		ch := h.chain(t)
		h.list.Store(&[]json.RawMessage{})
		require.NoError(t, ch.RefreshHost(context.Background(), "far"))
		require.Eventually(t, func() bool { return len(ch.Entries()) == 0 }, 10*time.Second, time.Millisecond)
	})
}

// A pass that says which message it is for is a pass for no other.
func TestAnswerToAnotherMessage(t *testing.T) {
	h := &confusedHost{}
	h.list.Store(&[]json.RawMessage{json.RawMessage(guardEntry)})
	ch := h.chain(t)
	execute := func(says *string) error {
		h.message.Store(says)
		req := call()
		req.MessageID = "mine"
		_, err := ch.Execute(context.Background(), req)
		return err
	}
	mine, other := "mine", "another"
	require.NoError(t, execute(&mine))
	require.NoError(t, execute(nil), "hosts of other makes say nothing")
	abort := abortOf(t, execute(&other))
	assert.Equal(t, chain.ReasonProtocol, abort.Reason)
}

// Headgate's own hosts say it.
func TestAnswersSayWhichMessageTheyAreFor(t *testing.T) {
	_, server := host(t, nil, named("v"))
	p := dial(t, server, legacy)
	got := p.result(p.ask("interceptor/invoke",
		`{"name":"v","event":"tools/call","phase":"request","payload":{},"context":{"io.github.headgate-mcp/messageId":"m-1"}}`))
	assert.Contains(t, got, `"_meta":{"io.github.headgate-mcp/messageId":"m-1"}`)
}
