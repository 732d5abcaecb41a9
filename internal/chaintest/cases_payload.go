package chaintest

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// orderCases say what runs before what.
func orderCases() []Case {
	// A guard that wants to see the log that mutators write, or wants not to.
	wants := func(log string) ValidatorFunc {
		return func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			var v struct {
				Log json.RawMessage `json:"log"`
			}
			if err := inv.Decode(&v); err != nil {
				return nil, err
			}
			if string(v.Log) != log {
				return core.Deny("saw " + string(v.Log)), nil
			}
			return core.Allow(), nil
		}
	}
	object := json.RawMessage(`{}`)
	directions := []struct {
		name  string
		phase core.Phase
		dir   core.Direction
		saw   string
	}{
		{"row 45: a client sending a request mutates, then validates", core.PhaseRequest, core.Sending, `["m"]`},
		{"row 46: a server receiving a request validates, then mutates", core.PhaseRequest, core.Receiving, ``},
		{"row 47: a server sending a response mutates, then validates", core.PhaseResponse, core.Sending, `["m"]`},
		{"row 47: a client receiving a response validates, then mutates", core.PhaseResponse, core.Receiving, ``},
	}
	var cases []Case
	for _, d := range directions {
		cases = append(cases, Case{
			Name:         d.name,
			Interceptors: []core.Interceptor{Mutator("m", Append("m")), Validator("v", wants(d.saw))},
			Request:      chain.Request{Phase: d.phase, Direction: d.dir, Payload: object},
			Check:        becomes(`{"log":["m"]}`),
		})
	}
	return append(cases,
		Case{
			Name: "mutators run by priority, ties by name in byte order (row 50)",
			Interceptors: []core.Interceptor{
				Mutator("b-1", Append("b-1")), Mutator("b_1", Append("b_1")), Mutator("B", Append("B")),
				Mutator("last", Append("last"), Priority(core.NewPriority(7))),
				Mutator("first", Append("first"), Priority(core.NewPriority(-1000))),
			},
			Request: chain.Request{Payload: object},
			Check:   becomes(`{"log":["first","B","b-1","b_1","last"]}`),
		},
		Case{
			Name: "row 52: a hint for the request phase counts 0 in the response phase",
			Interceptors: []core.Interceptor{
				Mutator("z", Append("z"), Priority(core.RequestPriority(-1000))), Mutator("a", Append("a")),
			},
			Request: chain.Request{Payload: object, Phase: core.PhaseResponse, Direction: core.Sending},
			Check:   becomes(`{"log":["a","z"]}`),
		},
		Case{
			Name:         "row 54: a priority on a validator is ignored",
			Interceptors: []core.Interceptor{Validator("z", Deny, Priority(core.NewPriority(-5))), Validator("a", Deny)},
			Check:        denied("a"),
		},
		Case{
			Name:         "row 55: a hook on * runs for every event of its phase",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "*"))},
			Request:      chain.Request{Event: "acme/custom"},
			Check:        denied("v"),
		},
		Case{
			Name:         "row 55: and in no other phase",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "*"))},
			Request:      chain.Request{Phase: core.PhaseResponse, Direction: core.Sending},
			Check:        passes,
		},
		Case{
			Name:         "a glob matches its namespace",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "tools/*"))},
			Check:        denied("v"),
		},
		Case{
			Name:         "a glob matches nothing else",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "tools/*"))},
			Request:      chain.Request{Event: "toolsx/call"},
			Check:        passes,
		},
		Case{
			Name:         "row 56: * does not cover ping",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "*"))},
			Request:      chain.Request{Event: "ping"},
			Check:        passes,
		},
		Case{
			Name:         "row 56: ping by name",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "ping"))},
			Request:      chain.Request{Event: "ping"},
			Check:        denied("v"),
		},
		Case{
			Name:         "row 56: the handshake is never intercepted",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "*", "server/discover", "interceptor/invoke"))},
			Request:      chain.Request{Event: "server/discover"},
			Check:        passes,
		},
		Case{
			Name:         "row 60: event names are case-sensitive",
			Interceptors: []core.Interceptor{Validator("v", Deny, On(core.PhaseRequest, "Tools/Call"))},
			Check:        passes,
		},
	)
}

// payloadCases say what becomes of payloads.
func payloadCases() []Case {
	boom := func(context.Context, *core.Invocation) (*core.MutationResult, error) { return nil, errors.New("boom") }
	scribble := func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
		for i := range inv.Payload {
			inv.Payload[i] = 'x'
		}
		return core.Unchanged(), nil
	}
	none := func(t *T, res *chain.Result, err error) {
		fails("m2", chain.StatusMutationFailed)(t, res, err)
		assert.False(t, res.Mutated)
	}
	return []Case{
		{
			Name:         "row 28: mutator 2 of 3 fails closed and none applies",
			Interceptors: []core.Interceptor{Mutator("m1", Append("1")), Mutator("m2", boom), Mutator("m3", Append("3"))},
			Check:        none,
		},
		{
			Name:         "mutator 2 of 3 fails open and is left out alone",
			Interceptors: []core.Interceptor{Mutator("m1", Append("1")), Mutator("m2", boom, FailOpen), Mutator("m3", Append("3"))},
			Request:      chain.Request{Payload: json.RawMessage(`{}`)},
			Check:        becomes(`{"log":["1","3"]}`),
		},
		{
			Name:         "row 29: a later denial undoes a mutation",
			Interceptors: []core.Interceptor{Mutator("m", Append("1")), Validator("v", Deny)},
			Request:      chain.Request{Direction: core.Sending, Phase: core.PhaseResponse},
			Check: func(t *T, res *chain.Result, err error) {
				denied("v")(t, res, err)
				assert.False(t, res.Mutated)
			},
		},
		{
			Name: "row 34: modified:false with another payload changes nothing",
			Interceptors: []core.Interceptor{Mutator("m", func(context.Context, *core.Invocation) (*core.MutationResult, error) {
				return &core.MutationResult{Payload: json.RawMessage(`{"evil":1}`)}, nil
			})},
			Check: passes,
		},
		{
			Name:         "an equal payload is no change",
			Interceptors: []core.Interceptor{Mutator("m", Set(payload))},
			Check:        passes,
		},
		{
			Name:         "payloads are compacted, digits and key order are kept (row 39)",
			Interceptors: []core.Interceptor{Mutator("m", Set(`{ "z": 9007199254740993, "a": 0.10, "s": "a<b && c>d" }`))},
			Check:        becomes(`{"z":9007199254740993,"a":0.10,"s":"a<b && c>d"}`),
		},
		{
			Name: "row 39: a payload helper keeps big integers",
			Interceptors: []core.Interceptor{Mutator("m", func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
				var v map[string]any
				if err := inv.Decode(&v); err != nil {
					return nil, err
				}
				v["region"] = "eu"
				out, err := core.Encode(v)
				return core.Replace(out), err
			})},
			Request: chain.Request{Payload: json.RawMessage(`{"entry":9007199254740993,"fee":0.10,"seq":18446744073709551615}`)},
			Check:   becomes(`{"entry":9007199254740993,"fee":0.10,"region":"eu","seq":18446744073709551615}`),
		},
		{
			Name:    "row 42: an empty chain hands on what it was given",
			Request: chain.Request{Payload: json.RawMessage(`{"a":1}`)},
			Check: func(t *T, res *chain.Result, err error) {
				require.NoError(t, err)
				assert.Equal(t, `{"a":1}`, string(res.FinalPayload))
				assert.Empty(t, res.Results)
			},
		},
		{
			Name: "row 38: no params are seen as an empty object",
			Interceptors: []core.Interceptor{Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
				if string(inv.Payload) != "{}" {
					return core.Deny(string(inv.Payload)), nil
				}
				return core.Allow(), nil
			})},
			Request: chain.Request{Payload: json.RawMessage(`null`)},
			Check: func(t *T, res *chain.Result, err error) {
				require.NoError(t, err)
				assert.Equal(t, "null", string(res.FinalPayload))
			},
		},
		{
			Name:         "row 22: a mutator that scribbles on its copy changes nothing",
			Interceptors: []core.Interceptor{Mutator("m1", scribble), Mutator("m2", Keep)},
			Check:        passes,
		},
		{
			Name: "each mutator sees what the previous one made",
			Interceptors: []core.Interceptor{
				Mutator("m1", Set(`{"a":1}`)),
				Mutator("m2", scribble),
				Mutator("m3", Append("x")),
			},
			Check: becomes(`{"a":1,"log":["x"]}`),
		},
	}
}
