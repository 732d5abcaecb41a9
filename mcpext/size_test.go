package mcpext_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const large = 17 << 20 // more than the SDK's transports take in one frame

// deep returns an object that nests so many levels deep.
func deep(levels int) string {
	return `{"d":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func wide(size int) string { return `{"w":"` + strings.Repeat("x", size) + `"}` }

// sizeInterceptors pass what they are given, or make something too large of
// it, fail-closed and fail-open.
func sizeInterceptors() []core.Interceptor {
	grow := func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		var v struct {
			Deep int `json:"deep"`
			Wide int `json:"wide"`
		}
		if err := json.Unmarshal(inv.Payload, &v); err != nil {
			return nil, err
		}
		if v.Deep > 0 {
			return core.Replace(json.RawMessage(deep(v.Deep))), nil
		}
		return core.Replace(json.RawMessage(wide(v.Wide))), nil
	}
	inform := func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		m, err := grow(nil, inv)
		if err != nil {
			return nil, err
		}
		return &core.ValidationResult{Valid: true, Info: map[string]any{"info": m.Payload}}, nil
	}
	in := func(event string) ct.Edit { return ct.On(core.PhaseRequest, event) }
	return []core.Interceptor{
		ct.Validator("see-closed", ct.Allow, in("see/closed")), ct.Validator("see-open", ct.Allow, in("see/open"), ct.FailOpen),
		ct.Mutator("keep-closed", ct.Keep, in("keep/closed")), ct.Mutator("keep-open", ct.Keep, in("keep/open"), ct.FailOpen),
		ct.Mutator("grow-closed", grow, in("grow/closed")), ct.Mutator("grow-open", grow, in("grow/open"), ct.FailOpen),
		ct.Validator("inform-closed", inform, in("inform/closed")), ct.Validator("inform-open", inform, in("inform/open"), ct.FailOpen),
	}
}

// patience is for the SDK, which takes seconds to read what is large, the more
// so under the race detector.
func patience() *chain.Options {
	return &chain.Options{InvokeTimeout: time.Minute, Timeout: time.Minute, FailOpenBudget: -1}
}

// TestPayloadsThatSessionsCannotCarry sends what would end a session, in the
// request and in the result. The invoke fails, failOpen decides, and the next
// message finds session and chain alive (rows 27 and 107).
func TestPayloadsThatSessionsCannotCarry(t *testing.T) {
	ext := mcpext.New(nil)
	require.NoError(t, ext.AddInterceptor(sizeInterceptors()...))
	patient := patience()
	local, err := ext.LocalChain(t.Context(), patient)
	require.NoError(t, err)
	defer func() { assert.NoError(t, local.Close()) }()
	stateless, stateful := startWeb(t, statelessHost), startWeb(t, statefulHost)
	messages := []struct {
		name, event, payload string
		carried              bool // by sessions
		carriedLocally       bool
	}{
		{"997 levels", "see", deep(997), true, true},
		{"997 levels, there and back", "keep", deep(997), true, true},
		{"as deep as they come", "see", deep(998), true, true},
		{"as deep as they come, there and back", "keep", deep(998), true, true},
		{"one level more", "see", deep(999), false, true},
		{"one level more, there and back", "keep", deep(999), false, true},
		{"deeper than any transport hands over", "see", deep(1000), false, false},
		{"far too deep", "see", deep(20_000), false, false},
		{"a large one", "see", wide(large), false, true},
		{"a large one, there and back", "keep", wide(large), false, true},
		{"a result as deep as they come", "grow", `{"deep":998}`, true, true},
		{"a result one level deeper", "grow", `{"deep":999}`, false, true},
		{"a result far too deep", "grow", `{"deep":9000}`, false, false},
		{"a large result", "grow", fmt.Sprintf(`{"wide":%d}`, large), false, true},
		{"deep info", "inform", `{"deep":1200}`, false, false},
	}
	for name, ch := range map[string]*chain.Chain{
		"LocalChain":          local,
		"in memory " + modern: over(t, patient, connect(t, modern, ext)),
		"in memory " + legacy: over(t, patient, connect(t, legacy, ext)),
		"stdio":               over(t, patient, dialStdio(t, modern, "sizes")),
		"HTTP " + modern:      over(t, patient, dialWeb(t, stateless, modern, "sizes")),
		"HTTP " + legacy:      over(t, patient, dialWeb(t, stateful, legacy, "sizes")),
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range messages {
				if ch == local && strings.Contains(m.name, "large") && (raced || m.event != "keep") {
					continue // LocalChain carries it, if slowly: once is enough
				}
				for _, policy := range []string{"closed", "open"} {
					if ch == local && m.carriedLocally && policy == "open" {
						continue // nothing for it to decide
					}
					t.Run(m.name+", "+policy, func(t *testing.T) {
						req := call()
						req.Event, req.Payload = m.event+"/"+policy, json.RawMessage(m.payload)
						res, err := ch.Execute(t.Context(), req)
						carried := m.carried
						if ch == local {
							carried = m.carriedLocally
						}
						switch {
						case carried:
							require.NoError(t, err)
							assert.Equal(t, chain.VerdictAllow, allowed(res), "%v", res.Results[0].Err)
						case policy == "closed":
							abort := abortOf(t, err)
							assert.Equal(t, m.event+"-closed", abort.Interceptor)
							assert.NotEqual(t, chain.ReasonTimeout, abort.Reason)
						default:
							require.NoError(t, err)
							assert.Equal(t, chain.ActionFailOpen, res.Results[0].Action)
						}
						res, err = ch.Execute(t.Context(), &chain.Request{
							Event: "see/closed", Phase: core.PhaseRequest, Direction: core.Receiving,
						})
						require.NoError(t, err, "all goes on")
						assert.Equal(t, chain.VerdictAllow, res.Results[0].Verdict)
					})
				}
			}
		})
	}
}

// allowed returns the verdict, a change being as good as a pass.
func allowed(res *chain.Result) chain.Verdict {
	if v := res.Results[0].Verdict; v != chain.VerdictModify {
		return v
	}
	return chain.VerdictAllow
}

// What is beside the payload counts as well.
func TestContextAndConfigAreMeasured(t *testing.T) {
	var nested any = 1.0
	for range 1200 {
		nested = []any{nested}
	}
	for name, change := range map[string]func(*chain.Request){
		"deep claims":   func(r *chain.Request) { r.Context.Principal = &core.Principal{Claims: map[string]any{"c": nested}} },
		"large claims":  func(r *chain.Request) { r.Context.Principal = &core.Principal{ID: strings.Repeat("x", 4<<20)} },
		"a deep config": func(r *chain.Request) { r.Config = map[string]map[string]any{"see-closed": {"c": nested}} },
	} {
		t.Run(name, func(t *testing.T) {
			ext := mcpext.New(nil)
			require.NoError(t, ext.AddInterceptor(sizeInterceptors()...))
			ch := over(t, patience(), connect(t, modern, ext))
			req := &chain.Request{Event: "see/closed", Phase: core.PhaseRequest, Direction: core.Receiving}
			change(req)
			_, err := ch.Execute(t.Context(), req)
			require.ErrorIs(t, err, mcpext.ErrPayloadTooLarge)
			_, err = ch.Execute(t.Context(), &chain.Request{Event: "see/closed", Phase: core.PhaseRequest, Direction: core.Receiving})
			require.NoError(t, err)
		})
	}
}

// A peer of another make may answer what the SDK's client does not take. That
// ends the session, which nobody on this side can prevent; what follows are
// failures, and failOpen decides.
func TestResultThatEndsTheSession(t *testing.T) {
	for name, info := range map[string]string{"deep": deep(1200), "large": wide(large)} {
		t.Run(name, func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			require.NoError(t, mcp.AddReceivingCustomMethod(server, core.MethodList,
				func(context.Context, *mcp.ServerSession, *mcpext.ListParams) (*mcpext.ListResult, error) {
					open := strings.Replace(strings.Replace(descriptor("open"), "{", `{"failOpen":true,`, 1), "tools/call", "tools/list", 1)
					return page("", descriptor("closed"), open), nil
				}))
			require.NoError(t, mcp.AddReceivingCustomMethod(server, core.MethodInvoke,
				func(context.Context, *mcp.ServerSession, *mcpext.InvokeParams) (*rawResult, error) {
					return &rawResult{body: `{"type":"validation","phase":"request","valid":true,"info":` + info + `}`}, nil
				}))
			cs, _ := connectTo(t, modern, server)
			ch := over(t, patience(), cs)
			for range 3 {
				_, err := ch.Execute(t.Context(), call())
				abort := abortOf(t, err)
				assert.Equal(t, "closed", abort.Interceptor)
				assert.Equal(t, chain.ReasonError, abort.Reason)
				req := call()
				req.Event = core.EventToolsList
				res, err := ch.Execute(t.Context(), req)
				require.NoError(t, err)
				assert.Equal(t, chain.ActionFailOpen, res.Results[0].Action)
			}
		})
	}
}
