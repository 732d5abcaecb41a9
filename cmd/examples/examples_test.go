// Package examples_test runs the examples as clients do: as child processes.
package examples_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// build compiles an example and returns the path of the binary.
func build(t *testing.T, example string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), example)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./"+example).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// start runs a binary and connects to it in the given protocol revision.
func start(t *testing.T, protocol, binary string, args ...string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	require.NoError(t, mcpext.RegisterSendingMethods(client))
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command(binary, args...)},
		&mcp.ClientSessionOptions{ProtocolVersion: protocol})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close(), "the example ends well once its client is gone") })
	return session
}

func call(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (string, error) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", err
	}
	return res.Content[0].(*mcp.TextContent).Text, nil
}

func TestValidator(t *testing.T) {
	binary := build(t, "validator")
	for name, tt := range map[string]struct {
		protocol string
		args     []string
		denied   bool
	}{
		"a guest, old protocol":    {"2025-11-25", nil, true},
		"a guest, new protocol":    {"2026-07-28", nil, true},
		"the editor":               {"2026-07-28", []string{"-user", "editor"}, false},
		"an editor with a capital": {"2025-11-25", []string{"-user", "Editor"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, tt.protocol, binary, tt.args...)
			text, err := call(t, s, "read_note", nil)
			require.NoError(t, err)
			assert.Equal(t, "buy milk", text)
			text, err = call(t, s, "write_note", nil)
			if !tt.denied {
				require.NoError(t, err)
				assert.Equal(t, "written", text)
				return
			}
			var answer *jsonrpc.Error
			require.ErrorAs(t, err, &answer)
			assert.EqualValues(t, jsonrpc.CodeInvalidParams, answer.Code)
			assert.Contains(t, string(answer.Data), "example/editors-only")
		})
	}
}

func TestMutator(t *testing.T) {
	s := start(t, "2026-07-28", build(t, "mutator"))
	for count, want := range map[any]string{3: "***", 10: "**********", 11: "**********", 1e30: "**********", -1: ""} {
		text, err := call(t, s, "stars", map[string]any{"count": count})
		require.NoError(t, err)
		assert.Equal(t, want, text)
	}
	list, err := mcp.CallCustomMethod[*mcpext.ListParams, *mcpext.ListResult](t.Context(), s, core.MethodList, &mcpext.ListParams{})
	require.NoError(t, err)
	require.Len(t, list.Interceptors, 1)
	assert.Contains(t, string(list.Interceptors[0]), "example/cap-count")
}

func TestRemote(t *testing.T) {
	s := start(t, "2025-11-25", build(t, "remote"))
	list, err := mcp.CallCustomMethod[*mcpext.ListParams, *mcpext.ListResult](t.Context(), s, core.MethodList, &mcpext.ListParams{})
	require.NoError(t, err)
	require.Len(t, list.Interceptors, 2)
	invoke := func(name, payload string) core.Answer {
		t.Helper()
		params := &mcpext.InvokeParams{InvokeRequest: core.InvokeRequest{Name: name, Invocation: core.Invocation{
			Event: core.EventToolsCall, Phase: core.PhaseRequest, Payload: json.RawMessage(payload),
		}}}
		res, err := mcp.CallCustomMethod[*mcpext.InvokeParams, *mcpext.InvokeResult](t.Context(), s, core.MethodInvoke, params)
		require.NoError(t, err)
		return res.Answer
	}
	for payload, valid := range map[string]bool{
		`{"arguments":{"text":"-----BEGIN PRIVATE KEY-----"}}`:           false,
		`{"arguments":{"text":"-----BEGIN PRIV\u0041TE KEY\u002d----"}}`: false,
		`{"arguments":{"text":"a private key"}}`:                         true,
	} {
		assert.Equal(t, valid, invoke("remote/no-private-keys", payload).Validation.Valid, payload)
	}
	m := invoke("remote/trim-text", `{"name":"x","arguments":{"text":"\t a ","n":9007199254740993}}`).Mutation
	assert.True(t, m.Modified)
	assert.JSONEq(t, `{"name":"x","arguments":{"text":"a","n":9007199254740993}}`, string(m.Payload))
	for _, payload := range []string{`{"arguments":{"text":"a"}}`, `{"arguments":{"text":7}}`, `{}`, `{"arguments":[]}`} {
		assert.False(t, invoke("remote/trim-text", payload).Mutation.Modified, payload)
	}
}
