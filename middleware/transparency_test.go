package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oddRequests are lines that a bare server answers one way or the other: odd
// spacing, vendor members, empty lists, null, escapes, big numbers, errors.
var oddRequests = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"act","arguments":{"b":1,"a":9007199254740993,"s":"a<b && c>d é \u00e9 \ud83d\ude00"}}}`,
	`{ "jsonrpc" : "2.0" , "id" : 2 , "method" : "tools/call" , "params" : { "name" : "act" , "arguments" : { } } }`,
	`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"act","arguments":{"list":[],"null":null,"f":0.10,"e":1e400}}}`,
	`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"act","arguments":{"a":1,"a":2},"vendor/tier":"gold","_meta":{"progressToken":9007199254740993,"k":[1,{"x":null}]}}}`,
	`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"act"}}`,
	`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"fails"}}`,
	`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"is error"}}`,
	`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"unknown"}}`,
	`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":7}}`,
	`{"jsonrpc":"2.0","id":10,"method":"tools/call"}`,
	`{"jsonrpc":"2.0","id":"s-11","method":"tools/list"}`,
	`{"jsonrpc":"2.0","id":12,"method":"tools/list","params":null}`,
	`{"jsonrpc":"2.0","id":13,"method":"tools/list","params":{"cursor":""}}`,
	`{"jsonrpc":"2.0","id":14,"method":"tools/list","params":{"cursor":"nonsense"}}`,
	`{"jsonrpc":"2.0","id":15,"method":"prompts/list","params":{}}`,
	`{"jsonrpc":"2.0","id":16,"method":"prompts/get","params":{"name":"p","arguments":{"a":"<&>"}}}`,
	`{"jsonrpc":"2.0","id":17,"method":"prompts/get","params":{"name":"unknown"}}`,
	`{"jsonrpc":"2.0","id":18,"method":"resources/list","params":{}}`,
	`{"jsonrpc":"2.0","id":19,"method":"resources/templates/list"}`,
	`{"jsonrpc":"2.0","id":20,"method":"resources/read","params":{"uri":"a://1"}}`,
	`{"jsonrpc":"2.0","id":21,"method":"resources/read","params":{"uri":"b://%2e%2e"}}`,
	`{"jsonrpc":"2.0","id":22,"method":"resources/read","params":{"uri":"c://none"}}`,
	`{"jsonrpc":"2.0","id":23,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}}`,
	`{"jsonrpc":"2.0","id":24,"method":"logging/setLevel","params":{"level":"debug"}}`,
	`{"jsonrpc":"2.0","id":25,"method":"ping"}`,
	`{"jsonrpc":"2.0","id":26,"method":"ping","params":{"_meta":{}}}`,
	`{"jsonrpc":"2.0","id":27,"method":"no/such/method","params":{}}`,
	`{"jsonrpc":"2.0","id":28,"method":"resources/subscribe","params":{"uri":"a://1"}}`,
	`{"jsonrpc":"2.0","id":29,"method":"tools/call","params":{"name":"act","arguments":"not an object"}}`,
	`{"jsonrpc":"2.0","id":30,"method":"tools/call","params":{"name":"act","arguments":[[[[{}]]]]}}`,
}

// modernise gives a request the members that the newer era wants.
func modernise(line string) string {
	var msg map[string]json.RawMessage
	if json.Unmarshal([]byte(line), &msg) != nil {
		return line
	}
	triple := `"io.modelcontextprotocol/protocolVersion":"` + modern + `","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
	params := strings.TrimSpace(string(msg["params"]))
	switch {
	case params == "" || params == "null":
		msg["params"] = json.RawMessage(`{"_meta":{` + triple + `}}`)
	case strings.Contains(params, `"_meta":{}`):
		msg["params"] = json.RawMessage(strings.Replace(params, `"_meta":{`, `"_meta":{`+triple, 1))
	case strings.Contains(params, `"_meta":{`):
		msg["params"] = json.RawMessage(strings.Replace(params, `"_meta":{`, `"_meta":{`+triple+`,`, 1))
	case params == "{}" || params == "{ }":
		msg["params"] = json.RawMessage(`{"_meta":{` + triple + `}}`)
	default:
		msg["params"] = json.RawMessage(strings.Replace(params, "{", `{"_meta":{`+triple+`},`, 1))
	}
	out, err := core.Encode(msg)
	if err != nil {
		return line
	}
	return string(out)
}

func odd(s *mcp.Server) {
	everything(s)
	rawTool(s, "fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("plain")
	})
	rawTool(s, "is error", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := text("")
		r.SetError(errors.New("tool"))
		return r, nil
	})
}

// transcript sends the lines one after another and returns all answers.
func transcript(t testing.TB, p *protected, lines []string, version string) []string {
	c := p.raw(t)
	if version == legacy {
		c.handshake()
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		if version == modern {
			line = modernise(line)
		}
		out[i] = c.ask(line)
	}
	return out
}

// F07: what no interceptor touches is byte for byte what the bare server sends.
func TestIdleTrafficIsIdentical(t *testing.T) {
	for _, version := range []string{legacy, modern} {
		want := transcript(t, protect(t, setup{bare: true, server: odd}), oddRequests, version)
		setups := map[string]setup{
			"nothing registered": {},
			"observed":           {chain: chain.Options{Observer: endObserver{}}},
			"active validators and mutators that do nothing": {interceptors: []core.Interceptor{
				ct.Validator("v", ct.Allow, ct.On(core.PhaseBoth, "*", "ping")), ct.Mutator("m", ct.Keep, ct.On(core.PhaseBoth, "*", "ping")),
			}},
		}
		for name, s := range setups {
			t.Run(name+" "+version, func(t *testing.T) {
				s.server = odd
				got := transcript(t, protect(t, s), oddRequests, version)
				for i := range want {
					require.Equal(t, want[i], got[i], oddRequests[i])
				}
			})
		}
	}
}

// hostile draws an interceptor that misbehaves in audit mode.
func hostile(rt *rapid.T, name string) core.Interceptor {
	payload := rapid.SampledFrom([]string{`{}`, `{"name":"evil"}`, `null`, `[]`, `{"content":[]}`, `{{`, ``, `"x"`, `{"tools":[],"x":` + strings.Repeat("1", 5000) + `}`}).Draw(rt, "payload")
	behaviour := rapid.SampledFrom([]string{"deny", "error", "panic", "hang", "goexit", "scribble", "nil", "replace", "fatal"}).Draw(rt, "behaviour")
	misbehave := func(ctx context.Context, inv *core.Invocation) error {
		switch behaviour {
		case "panic":
			panic(name)
		case "error":
			return errors.New(name)
		case "hang":
			<-ctx.Done()
			return ctx.Err()
		case "goexit":
			runtime.Goexit()
		case "scribble":
			for i := range inv.Payload {
				inv.Payload[i] = '!'
			}
		}
		return nil
	}
	edits := []ct.Edit{
		ct.Audit, ct.On(rapid.SampledFrom([]core.Phase{core.PhaseRequest, core.PhaseResponse, core.PhaseBoth}).Draw(rt, "phase"), "*", "ping"),
		func(m *core.Metadata) {
			m.FailOpen, m.Inline = rapid.Bool().Draw(rt, "failOpen"), rapid.Bool().Draw(rt, "inline")
		},
		ct.Priority(core.NewPriority(rapid.Int32().Draw(rt, "priority"))),
	}
	if rapid.Bool().Draw(rt, "mutator") {
		return ct.Mutator(name, func(ctx context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			if err := misbehave(ctx, inv); err != nil || behaviour == "nil" {
				return nil, err
			}
			return core.Replace(json.RawMessage(payload)), nil
		}, edits...)
	}
	return ct.Validator(name, func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		if err := misbehave(ctx, inv); err != nil || behaviour == "nil" {
			return nil, err
		}
		if behaviour == "fatal" {
			return &core.ValidationResult{Valid: true, Severity: "fatal"}, nil
		}
		return core.Deny("no"), nil
	}, edits...)
}

// An audit interceptor, however hostile, leaves the client's bytes equal to
// those without it. Seen to fail when judge let an audit denial block, when
// mutate took an audit mutator's payload, and when hand-over shared its buffer
// with the message (scribble).
func TestHostileAuditIsTransparent(t *testing.T) {
	want := map[string][]string{}
	for _, version := range []string{legacy, modern} {
		want[version] = transcript(t, protect(t, setup{bare: true, server: odd}), oddRequests, version)
	}
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.SampledFrom([]string{legacy, modern}).Draw(rt, "version")
		var list []core.Interceptor
		for i := range rapid.IntRange(1, 4).Draw(rt, "interceptors") {
			list = append(list, hostile(rt, fmt.Sprint("x", i)))
		}
		pick := rapid.SliceOfN(rapid.IntRange(0, len(oddRequests)-1), 1, 6).Draw(rt, "requests")
		lines := make([]string, len(pick))
		for i, n := range pick {
			lines[i] = oddRequests[n]
		}
		inline := rapid.Bool().Draw(rt, "inline audit")
		timeout := 20 * time.Millisecond
		sub := &cleanups{TB: t}
		defer sub.run()
		p := protect(sub, setup{
			interceptors: list, server: odd,
			chain:   chain.Options{InlineAudit: inline, AuditTimeout: timeout},
			options: middleware.Options{AllowRetarget: rapid.Bool().Draw(rt, "retarget")},
		})
		got := transcript(sub, p, lines, version)
		for i, n := range pick {
			if want[version][n] != got[i] {
				rt.Fatalf("%s:\nwant %s\ngot  %s", lines[i], want[version][n], got[i])
			}
		}
	})
}

// cleanups runs what a part of a test has registered, before the test ends.
type cleanups struct {
	testing.TB
	list []func()
}

func (c *cleanups) Cleanup(f func()) { c.list = append(c.list, f) }

func (c *cleanups) run() {
	for i := len(c.list) - 1; i >= 0; i-- {
		c.list[i]()
	}
}
