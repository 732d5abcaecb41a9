package middleware

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// applying returns a message whose payload is original.
func applying(t testing.TB, req mcp.Request, original string) *message {
	ch, err := chain.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ch.Close() })
	g := newGate(ch, nil, false)
	m := &message{gate: g, snapshot: ch.Snapshot(), method: "tools/call", req: req, original: json.RawMessage(original)}
	m.begin(context.Background())
	return m
}

// Whatever a mutator returns is refused or applied whole: what goes on says
// all that the payload said, and what the protocol needs. Seen to fail when
// decodeFresh did not ask core.Missing, and when restore was left out.
func FuzzApplyResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"x"}]}`, `{"content":[],"structuredContent":{"a":9007199254740993}}`,
		`{"content":[{"type":"text","text":"x","lang":"no"}]}`, `{"isError":true}`, `null`, `[]`, `{"Content":[]}`,
		`{"content":[{"type":"resource","resource":{"uri":"a","blob":"AA=="}}],"_meta":{"k":1}}`, `{"resultType":"input_required"}`,
		`{"_meta":{"io.modelcontextprotocol/serverInfo":null}}`, `{"content":[{"type":"image","data":"!","mimeType":"a"}]}`,
	} {
		f.Add([]byte(seed))
	}
	const original = `{"_meta":{"io.modelcontextprotocol/x":1,"k":2},"content":[{"type":"text","text":"iban"}],"resultType":"complete"}`
	f.Fuzz(func(t *testing.T, payload []byte) {
		old := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "iban"}}}
		m := applying(t, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "t"}}, original)
		m.handled = old
		applied, err := m.applyResult(payload)
		require.Equal(t, "iban", old.Content[0].(*mcp.TextContent).Text)
		if err != nil {
			return
		}
		saysAll(t, m, payload, applied, protectedMembers)
		var got struct {
			Meta map[string]any `json:"_meta"`
		}
		require.NoError(t, json.Unmarshal(applied.Payload, &got))
		require.Contains(t, got.Meta, "io.modelcontextprotocol/x")
		again, err := m.encode(m.result, bySomebody)
		require.NoError(t, err)
		require.Equal(t, string(applied.Payload), string(again), "validators saw what leaves")
	})
}

// The same for params, whose target must not change either, and for what the
// tool is given. Seen to fail when decodeMeta did not ask core.Missing.
func FuzzApplyParams(f *testing.F) {
	for _, seed := range []string{
		`{"name":"t"}`, `{"name":"u"}`, `{"Name":"u"}`, `{"name":"t","name":"u"}`, `{"name":"t","arguments":{"a":9007199254740993,"b":"<"}}`,
		`{"name":"t","vendor":1}`, `{"name":"t","_meta":{"progressToken":"x"}}`, `{"name":"t","inputResponses":{"a":{}}}`, `null`, `7`,
		`{"name":"t","arguments":null}`, `{"name":"t","_meta":null}`, `{"name":"t","_meta":{"k":9007199254740993}}`,
	} {
		f.Add([]byte(seed))
	}
	const original = `{"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"t","arguments":{"a":1}}`
	f.Fuzz(func(t *testing.T, payload []byte) {
		params := &mcp.CallToolParamsRaw{Name: "t", Arguments: json.RawMessage(`{"a":1}`), Meta: mcp.Meta{
			"progressToken": 1.0, "io.modelcontextprotocol/protocolVersion": "2026-07-28",
		}}
		req := &mcp.CallToolRequest{Params: params}
		m := applying(t, req, original)
		applied, err := m.applyParams(payload)
		require.Same(t, params, req.Params)
		require.Equal(t, `{"a":1}`, string(params.Arguments))
		if err != nil {
			return
		}
		fresh := m.applied.(*mcp.CallToolRequest).Params
		require.NotSame(t, params, fresh)
		require.Equal(t, "t", fresh.Name)
		require.Contains(t, fresh.Meta, "progressToken")
		require.Contains(t, fresh.Meta, "io.modelcontextprotocol/protocolVersion")
		saysAll(t, m, payload, applied, nil)
		written, err := m.encode(fresh, bySomebody)
		require.NoError(t, err)
		path, missing := core.Missing(applied.Payload, written)
		require.False(t, missing, "%s of %s is not in what the tool is given, %s", path, applied.Payload, written)
	})
}

// saysAll wants what goes on to hold all that the payload held.
func saysAll(t *testing.T, m *message, payload []byte, applied chain.Applied, protected []string) {
	t.Helper()
	restored, err := restore(m.original, payload, protected)
	require.NoError(t, err)
	path, missing := core.Missing(restored, applied.Payload)
	require.False(t, missing, "%s of %s is not in %s", path, payload, applied.Payload)
}
