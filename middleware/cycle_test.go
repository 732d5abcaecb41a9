package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

// The cross-boundary cycle as a conversation: what each interceptor was shown,
// in order, and what crossed the wire between the two protected peers. Each
// mutator adds a word, so that a file shows who saw which change.
func TestCycleConversation(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			file := filepath.Join("testdata", "cycle", version+".txtar")
			got := txtar.Format(&txtar.Archive{
				Comment: []byte("SEP-2624, Trust Boundary: the four stages of one exchange, spoken in " + version + ".\n\n"),
				Files:   cycle(t, version),
			})
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, got, 0o644))
				return
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}

func cycle(t *testing.T, version string) []txtar.File {
	var shown, wire bytes.Buffer
	side := func(name string) []core.Interceptor {
		show := func(what string, inv *core.Invocation) {
			fmt.Fprintf(&shown, "%s %s %s: %s\n", name, what, inv.Phase, inv.Payload)
		}
		return []core.Interceptor{
			ct.Validator(name+"-validator", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
				show("validates", inv)
				return core.Allow(), nil
			}),
			ct.Mutator(name+"-mutator", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
				show("mutates", inv)
				return core.Replace(json.RawMessage(strings.ReplaceAll(string(inv.Payload), `."`, " "+name+`."`))), nil
			}),
		}
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	rawTool(server, "greet", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintf(&shown, "tool: %s\n", req.Params.Arguments)
		return text("bye."), nil
	})
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
	middleware.Server(server, newChain(t, side("server")...), nil)
	middleware.Client(client, newChain(t, side("client")...), nil)

	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := server.Connect(context.Background(), serverEnd, nil)
	require.NoError(t, err)
	cs, err := client.Connect(context.Background(), &mcp.LoggingTransport{Transport: clientEnd, Writer: &wire}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	defer func() { _ = cs.Close(); _ = ss.Wait() }()
	wire.Reset() // the handshake is another conversation's
	reply, err := call(t, cs, "greet", map[string]any{"text": "hi."})
	require.NoError(t, err)
	fmt.Fprintf(&shown, "caller: %s\n", reply)
	// The transport notes a message after it has handed it over, so that the
	// answer may be noted first. Read and write sort the right way round backwards.
	lines := strings.SplitAfter(wire.String(), "\n")
	slices.Sort(lines)
	slices.Reverse(lines)
	return []txtar.File{{Name: "interceptors", Data: shown.Bytes()}, {Name: "wire", Data: []byte(strings.Join(lines, ""))}}
}
