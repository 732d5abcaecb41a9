package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the server sections of testdata/wire")

// meta stands for what the newer era wants in each request's _meta.
var meta = strings.NewReplacer("$META", `"io.modelcontextprotocol/protocolVersion":"`+modern+
	`","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`)

// Conversations, byte for byte. A file's comment says which clause or bug it
// pins; a client section is what a client sends, line by line, and the server
// section after it is all that comes back. The time is synctest's, so that
// durations are exact.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			synctest.Test(t, func(t *testing.T) {
				got := converse(t, txtar.Parse(want))
				if *update {
					require.NoError(t, os.WriteFile(file, got, 0o644))
					return
				}
				require.Equal(t, string(want), string(got))
			})
		})
	}
}

// converse says the client's lines to a server and returns the archive with
// what that answers.
func converse(t *testing.T, a *txtar.Archive) []byte {
	require.NotEmpty(t, bytes.TrimSpace(a.Comment), "a file says what it pins")
	t.Cleanup(func() { time.Sleep(time.Minute) }) // conf/slow, which is deaf, ends
	notes := &notes{}
	c := protect(t, setup{
		interceptors: wireInterceptors(), server: wireServer(notes),
		chain:         chain.Options{InvokeTimeout: 2 * time.Second},
		serverOptions: &mcp.ServerOptions{ProgressNotificationHandler: notes.add, CompletionHandler: noCompletion},
	}).raw(t)
	out := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if f.Name != "client" {
			continue
		}
		var answers bytes.Buffer
		for line := range strings.Lines(string(f.Data)) {
			for _, answer := range c.exchange(meta.Replace(line)) {
				fmt.Fprintln(&answers, answer)
			}
		}
		out.Files = append(out.Files, f, txtar.File{Name: "server", Data: answers.Bytes()})
	}
	return txtar.Format(out)
}

// exchange sends a line and returns all that comes back. An answer to a
// request is waited for, however long that takes.
func (c *rawClient) exchange(line string) (answers []string) {
	c.t.Helper()
	var msg struct{ ID any }
	require.NoError(c.t, json.Unmarshal([]byte(line), &msg), line)
	c.send(strings.TrimSpace(line))
	if msg.ID != nil {
		answers = append(answers, c.read())
	}
	synctest.Wait()
	for len(c.lines) > 0 {
		answers = append(answers, c.read())
	}
	return answers
}

// notes are the progress notifications that got through to the server. They
// come one after another.
type notes struct{ got []float64 }

func (n *notes) add(_ context.Context, req *mcp.ProgressNotificationServerRequest) {
	n.got = append(n.got, req.Params.Progress)
}

func noCompletion(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
}

func wireServer(n *notes) func(*mcp.Server) {
	return func(s *mcp.Server) {
		echo(s)
		rawTool(s, "contact", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res := text("mail <ann@example.com>")
			res.StructuredContent = json.RawMessage(`{"seq":9007199254740993,"mail":"ann@example.com"}`)
			return res, nil
		})
		rawTool(s, "delete_records", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			panic("it must not be reached")
		})
		rawTool(s, "leak", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text(secret), nil })
		rawTool(s, "fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res := &mcp.CallToolResult{}
			res.SetError(errors.New("no such record"))
			return res, nil
		})
		rawTool(s, "notes", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(fmt.Sprint(n.got)), nil
		})
		s.AddPrompt(&mcp.Prompt{Name: "p"}, nil)
		s.AddResource(&mcp.Resource{URI: "a://1", Name: "one"}, readResource)
	}
}

// wireInterceptors are the ones of all conversations, named as in the SEP's
// examples.
func wireInterceptors() []core.Interceptor {
	request, response := core.PhaseRequest, core.PhaseResponse
	return []core.Interceptor{
		ct.Validator("conf/allow-all", ct.Allow),
		ct.Validator("conf/deny-all", denyAll, ct.On(request, "prompts/get")),
		ct.Validator("conf/deny-audit", denyAll, ct.On(core.PhaseBoth, "*"), ct.Audit),
		ct.Validator("conf/deny-destructive", denyIf(`"name":"delete_records"`), ct.On(request, "tools/call")),
		ct.Validator("conf/deny-secrets", denyIf("vault"), ct.On(response, "tools/call")),
		ct.Validator("conf/deny-progress", denyIf(`"progress":2`), ct.On(request, "notifications/progress")),
		ct.Validator("conf/warn", warn, ct.On(request, "tools/list")),
		ct.Validator("conf/slow", ct.Deaf(3*time.Second), ct.On(request, "resources/read")),
		ct.Validator("conf/fails", ct.Fail(errors.New(secret)), ct.On(request, "resources/list")),
		ct.Mutator("conf/stamp", swap(`"arguments":{"`, `"arguments":{"by":"conf","`), ct.On(request, "tools/call"), ct.Priority(core.NewPriority(-10))),
		ct.Mutator("conf/redact", swap("ann@example.com", "[redacted]"), ct.On(response, "tools/call"), ct.Priority(core.ResponsePriority(-1000))),
		ct.Mutator("conf/hide", hide("delete_records"), ct.On(response, "tools/list")),
		ct.Mutator("conf/mutation-fails", func(context.Context, *core.Invocation) (*core.MutationResult, error) {
			return nil, errors.New(secret)
		}, ct.On(request, "completion/complete")),
		ct.Mutator("conf/misfit", ct.Set(`{"prompts":7}`), ct.On(response, "prompts/list"), func(m *core.Metadata) {
			m.ConfigSchema = json.RawMessage(`{"type":"object","properties":{"max":{"type":"integer"}}}`)
		}),
	}
}

func denyAll(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
	r := core.Deny("denied by policy")
	r.Suggestions = []core.Suggestion{{Path: "name", Value: "q"}}
	r.Info = map[string]any{"mode": inv.Mode}
	return r, nil
}

func denyIf(part string) ct.ValidatorFunc {
	return func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		if strings.Contains(string(inv.Payload), part) {
			return core.Deny(secret), nil
		}
		return core.Allow(), nil
	}
}

// warn finds something that does not stop a message, after 1.5 ms.
func warn(context.Context, *core.Invocation) (*core.ValidationResult, error) {
	time.Sleep(1500 * time.Microsecond)
	return &core.ValidationResult{Severity: core.SeverityWarn, Messages: []core.Message{{Path: "cursor", Message: "old", Severity: core.SeverityWarn}}}, nil
}

func swap(old, replacement string) ct.MutatorFunc {
	return func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		if !bytes.Contains(inv.Payload, []byte(old)) {
			return core.Unchanged(), nil
		}
		return core.Replace(bytes.ReplaceAll(inv.Payload, []byte(old), []byte(replacement))), nil
	}
}

// hide takes a tool out of a list.
func hide(name string) ct.MutatorFunc {
	return func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		var res map[string]json.RawMessage
		var tools []map[string]any
		if err := errors.Join(inv.Decode(&res), core.Decode(res["tools"], &tools)); err != nil {
			return nil, err
		}
		tools = slices.DeleteFunc(tools, func(tool map[string]any) bool { return tool["name"] == name })
		var err error
		if res["tools"], err = core.Encode(tools); err != nil {
			return nil, err
		}
		out, err := core.Encode(res)
		return core.Replace(out), err
	}
}
