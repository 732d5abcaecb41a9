package mcpext_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An act is what the interceptors of the fuzz target do.
type act struct {
	how      uint16 // bits, see below
	valid    bool
	severity string
	text     string
	info     map[string]any
	payload  json.RawMessage
}

// Bits of act.how. The lowest three say how the validator fails, the next
// three how the mutator does; 0 and 1 are none.
const (
	failKinds   = 7
	mutatorBits = 3
	failOpenV   = 1 << 6
	failOpenM   = 1 << 7
	response    = 1 << 8
	sending     = 1 << 9
	audit       = 1 << 10
	editsOwn    = 1 << 11
	unmodified  = 1 << 12
	noMessages  = 1 << 13
)

// fail fails in one of the ways that there are, and reports whether it should
// answer nothing.
func fail(kind uint16, text string) (nothing bool, err error) {
	switch kind & failKinds {
	case 2:
		return false, errors.New(text)
	case 3:
		panic(text)
	case 4:
		runtime.Goexit()
	case 5:
		return true, nil
	case 6:
		return false, fmt.Errorf("%s: %w", text, context.DeadlineExceeded)
	case 7:
		return false, context.Canceled
	}
	return false, nil
}

func (a *act) validate() (*core.ValidationResult, error) {
	if nothing, err := fail(a.how, a.text); nothing || err != nil {
		return nil, err
	}
	r := &core.ValidationResult{Valid: a.valid, Severity: core.Severity(a.severity), Info: a.info}
	if a.how&noMessages == 0 {
		r.Severity = ""
		r.Messages = []core.Message{{Path: a.text, Message: a.text, Severity: core.Severity(a.severity)}}
		r.Suggestions = []core.Suggestion{{Path: a.text, Value: a.info["k"]}}
	}
	return r, nil
}

func (a *act) mutate(inv *core.Invocation) (*core.MutationResult, error) {
	if nothing, err := fail(a.how>>mutatorBits, a.text); nothing || err != nil {
		return nil, err
	}
	r := &core.MutationResult{Modified: a.how&unmodified == 0, Payload: a.payload, Info: a.info}
	if a.how&editsOwn == 0 {
		return r, nil
	}
	var err error
	r.Payload, err = core.SetMember(inv.Payload, a.text, json.RawMessage(`1`))
	return r, err
}

// FuzzDirectAgainstSession demands that interceptors behave alike by direct
// dispatch and over a session: whatever the payload is, and whatever they say
// or fail with. Exempt is what DESIGN.md lists.
func FuzzDirectAgainstSession(f *testing.F) {
	f.Add(`{"name":"echo","arguments":{"text":"hi"}}`, `{"a":1}`, `{"k":[1,2.50,9007199254740993]}`, "error", "why", true, uint16(0))
	f.Add(`{ "a" : 1e400, "b":"<\u2028>" }`, `{"a": 1.0, "a":2}`, `{}`, "", "", false, uint16(failOpenV|editsOwn))
	f.Add(`null`, `null`, `null`, "warn", "\xff", false, uint16(response|sending|noMessages))
	f.Add(`[1,2]`, `"x"`, `[]`, "fatal", "{}", true, uint16(2|failOpenV|3<<mutatorBits|failOpenM))
	f.Add(`{}`, ``, `{"k":null}`, "info", "x", true, uint16(audit|unmodified))
	f.Add(`"\ud800"`, `{"a":`, ``, "error", "n", true, uint16(4|failOpenV|5<<mutatorBits))

	var now atomic.Pointer[act]
	ext := mcpext.New(nil)
	v := func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
		return now.Load().validate()
	}
	m := func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		return now.Load().mutate(inv)
	}
	require.NoError(f, ext.AddInterceptor(
		ct.Validator("v", v, ct.On(core.PhaseBoth, "closed/*")), ct.Validator("v-open", v, ct.FailOpen, ct.On(core.PhaseBoth, "open/*")),
		ct.Mutator("m", m, ct.On(core.PhaseBoth, "*/closed")), ct.Mutator("m-open", m, ct.FailOpen, ct.On(core.PhaseBoth, "*/open")),
		ct.Mutator("z", ct.Append("z"), ct.FailOpen, ct.On(core.PhaseBoth, "*")),
	))
	opts := &chain.Options{InlineAudit: true}
	direct, err := ext.Chain(opts)
	require.NoError(f, err)
	local, err := ext.LocalChain(context.Background(), opts)
	require.NoError(f, err)
	session := over(f, opts, connect(f, modern, ext))
	f.Cleanup(func() { assert.NoError(f, errors.Join(direct.Close(), local.Close())) })

	f.Fuzz(func(t *testing.T, payload, mutated, info, severity, text string, valid bool, how uint16) {
		if !json.Valid([]byte(payload)) || max(core.Depth([]byte(payload)), core.Depth([]byte(mutated)), core.Depth([]byte(info))) > 900 {
			return // no payload; or what sessions do not carry
		}
		a := &act{how: how, valid: valid, severity: severity, text: text, payload: json.RawMessage(mutated)}
		_ = json.Unmarshal([]byte(info), &a.info)
		now.Store(a)
		req := request(payload, how)
		mode := map[string]chain.Overrides{}
		if how&audit != 0 {
			for _, name := range []string{"v", "m"} {
				mode[name] = chain.Overrides{Mode: core.ModeAudit}
			}
		}
		run := func(ch *chain.Chain) string {
			require.NoError(t, ch.SetOverrides(mode))
			mine := *req
			mine.Payload = json.RawMessage(payload)
			return ct.Render(ch.Execute(context.Background(), &mine))
		}
		want := run(direct)
		require.Equal(t, want, run(local), "LocalChain")
		require.Equal(t, want, run(session), "session")
	})
}

func request(payload string, how uint16) *chain.Request {
	words := map[bool]string{true: "open", false: "closed"}
	req := &chain.Request{
		Event: words[how&failOpenV != 0] + "/" + words[how&failOpenM != 0],
		Phase: core.PhaseRequest, Direction: core.Receiving, Payload: json.RawMessage(payload), MessageID: "m",
	}
	if how&response != 0 {
		req.Phase = core.PhaseResponse
	}
	if how&sending != 0 {
		req.Direction = core.Sending
	}
	return req
}
