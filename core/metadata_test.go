package core_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

func TestCheckName(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want string // in the error; empty means none
	}{
		"a word":                   {"redactor", ""},
		"105: slashes":             {"conf/allow-all", ""},
		"blanks and other scripts": {"Prüfung 検査", ""},
		"percent signs":            {"a%2Fb", ""},
		"128 bytes":                {strings.Repeat("n", 128), ""},
		"empty":                    {"", "empty name"},
		"129 bytes":                {strings.Repeat("n", 129), "129 bytes"},
		"129 bytes of 43 signs":    {strings.Repeat("検", 43), "129 bytes"},
		"a newline":                {"a\nb", "control character"},
		"a NUL":                    {"a\x00", "control character"},
		"DEL":                      {"a\x7f", "control character"},
		"a C1 control":             {"a\u0085", "control character"},
		"broken UTF-8":             {"a\xff", "not valid UTF-8"},
		"half a character":         {"検"[:2], "not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			err := core.CheckName(tt.in)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestCompat(t *testing.T) {
	for name, tt := range map[string]struct {
		compat  *core.Compat
		version string
		want    bool
	}{
		"none allows all":               {nil, "2025-06-18", true},
		"open bounds allow all":         {&core.Compat{}, "2025-06-18", true},
		"the lower bound itself":        {&core.Compat{MinProtocol: "2025-06-18"}, "2025-06-18", true},
		"before the lower bound":        {&core.Compat{MinProtocol: "2025-06-18"}, "2025-03-26", false},
		"the upper bound itself":        {&core.Compat{MaxProtocol: "2025-11-25"}, "2025-11-25", true},
		"after the upper bound":         {&core.Compat{MaxProtocol: "2025-11-25"}, "2026-07-28", false},
		"between":                       {&core.Compat{MinProtocol: "2025-01-01", MaxProtocol: "2026-01-01"}, "2025-06-18", true},
		"an unknown version is allowed": {&core.Compat{MinProtocol: "2025-06-18"}, "", true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.compat.Allows(tt.version)) })
	}
}

func validMetadata() core.Metadata {
	return core.Metadata{Name: "n", Hooks: []core.Hook{{Events: []string{"tools/call"}, Phase: core.PhaseRequest}}}
}

func TestMetadataCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*core.Metadata)
		want   string // in the error; empty means none
	}{
		"fine":                       {func(*core.Metadata) {}, ""},
		"enforce":                    {func(m *core.Metadata) { m.Mode = "enforce" }, ""},
		"both phases":                {func(m *core.Metadata) { m.Hooks[0].Phase = core.PhaseBoth }, ""},
		"an event of 256 bytes":      {func(m *core.Metadata) { m.Hooks[0].Events[0] = strings.Repeat("e", 256) }, ""},
		"a schema":                   {func(m *core.Metadata) { m.ConfigSchema = []byte(` {"type":"object"}`) }, ""},
		"equal bounds":               {func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2", MaxProtocol: "2"} }, ""},
		"no name":                    {func(m *core.Metadata) { m.Name = "" }, "empty name"},
		"no hooks":                   {func(m *core.Metadata) { m.Hooks = nil }, "no hooks"},
		"a hook without events":      {func(m *core.Metadata) { m.Hooks[0].Events = nil }, "without events"},
		"an empty event":             {func(m *core.Metadata) { m.Hooks[0].Events[0] = "" }, "empty event"},
		"an event of 257 bytes":      {func(m *core.Metadata) { m.Hooks[0].Events[0] = strings.Repeat("e", 257) }, "257 bytes"},
		"an event with a newline":    {func(m *core.Metadata) { m.Hooks[0].Events[0] = "a\n" }, "control character"},
		"no phase":                   {func(m *core.Metadata) { m.Hooks[0].Phase = "" }, `unknown phase ""`},
		"a wrong phase":              {func(m *core.Metadata) { m.Hooks[0].Phase = "Request" }, "unknown phase"},
		"a wrong mode":               {func(m *core.Metadata) { m.Mode = "aduit" }, `unknown mode "aduit"`},
		"bounds the wrong way":       {func(m *core.Metadata) { m.Compat = &core.Compat{MinProtocol: "2", MaxProtocol: "1"} }, "maxProtocol"},
		"a schema that is no object": {func(m *core.Metadata) { m.ConfigSchema = []byte("true") }, "configSchema"},
		"a schema that is no JSON":   {func(m *core.Metadata) { m.ConfigSchema = []byte("{") }, "configSchema"},
	} {
		t.Run(name, func(t *testing.T) {
			m := validMetadata()
			tt.change(&m)
			err, errI := m.Check(), core.CheckInterceptor(core.Validator{Metadata: m, Handler: allow})
			if tt.want == "" {
				require.NoError(t, err)
				require.NoError(t, errI)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, errI, tt.want, "CheckInterceptor finds it too")
		})
	}
	t.Run("all faults are joined", func(t *testing.T) {
		m := core.Metadata{
			Mode: "off", Hooks: []core.Hook{{Phase: "x"}, {Events: []string{"", "\n"}, Phase: core.PhaseBoth}},
			Compat: &core.Compat{MinProtocol: "2", MaxProtocol: "1"}, ConfigSchema: []byte("1"),
		}
		err := core.CheckInterceptor(core.Mutator{Metadata: m})
		for _, want := range []string{
			"empty name", "unknown phase", "without events", "empty event", "control character", "unknown mode", "maxProtocol",
			"configSchema", "no handler",
		} {
			require.ErrorContains(t, err, want)
		}
	})
}

func allow(context.Context, *core.Invocation) (*core.ValidationResult, error) {
	return core.Allow(), nil
}

func unchanged(context.Context, *core.Invocation) (*core.MutationResult, error) {
	return core.Unchanged(), nil
}

func TestCheckInterceptor(t *testing.T) {
	for name, tt := range map[string]struct {
		i    core.Interceptor
		want string // in the error; empty means none
	}{
		"a validator":             {core.Validator{Metadata: validMetadata(), Handler: allow}, ""},
		"a mutator":               {core.Mutator{Metadata: validMetadata(), Handler: unchanged}, ""},
		"a pointer to one":        {&core.Mutator{Metadata: validMetadata(), Handler: unchanged}, ""},
		"nil":                     {nil, "nil interceptor"},
		"a nil validator":         {(*core.Validator)(nil), "nil interceptor"},
		"a nil mutator":           {(*core.Mutator)(nil), "nil interceptor"},
		"a nil that is embedded":  {struct{ core.Interceptor }{}, "nil interceptor"},
		"a validator, no handler": {core.Validator{Metadata: validMetadata()}, "no handler"},
		"a mutator, no handler":   {core.Mutator{Metadata: validMetadata()}, "no handler"},
	} {
		t.Run(name, func(t *testing.T) {
			err := core.CheckInterceptor(tt.i)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestDescribeSharesNothing(t *testing.T) {
	m := validMetadata()
	m.Hooks[0].Phase, m.Mode = core.PhaseBoth, "enforce"
	m.Compat, m.ConfigSchema = &core.Compat{MinProtocol: "1"}, json.RawMessage(`{}`)
	d := core.Validator{Metadata: m}.Describe()
	assert.Equal(t, core.TypeValidation, d.Type)
	assert.Equal(t, core.TypeMutation, core.Mutator{Metadata: m}.Describe().Type)
	assert.Equal(t, core.ModeActive, d.Mode)
	assert.Len(t, d.Hooks, 2)

	d.Hooks[0].Events[0], d.Compat.MinProtocol, d.ConfigSchema[0] = "changed", "changed", '!'
	assert.Equal(t, "tools/call", m.Hooks[0].Events[0])
	assert.Equal(t, "1", m.Compat.MinProtocol)
	assert.Equal(t, `{}`, string(m.ConfigSchema))
}

func TestMetadataMatches(t *testing.T) {
	m := core.Metadata{Hooks: []core.Hook{hook(request, "a"), hook(response, "b*")}}
	assert.True(t, m.Matches("a", request))
	assert.True(t, m.Matches("bc", response))
	assert.False(t, m.Matches("a", response))
	assert.False(t, (&core.Metadata{}).Matches("a", request))
}

// The shapes of doc/CONFORMANCE.md 2.1, byte for byte.
func TestDescriptorWrites(t *testing.T) {
	for name, tt := range map[string]struct {
		in   core.Descriptor
		want string
	}{
		"defaults are left out, both is expanded": {
			core.Descriptor{Type: core.TypeValidation, Metadata: core.Metadata{
				Name: "conf/allow-all", Mode: core.ModeActive, Hooks: []core.Hook{hook(core.PhaseBoth, "tools/call")},
				PriorityHint: core.NewPriority(0), Inline: true,
			}},
			`{"name":"conf/allow-all","type":"validation",` +
				`"hooks":[{"events":["tools/call"],"phase":"request"},{"events":["tools/call"],"phase":"response"}]}`,
		},
		"all that differs is written": {
			core.Descriptor{Type: core.TypeMutation, Metadata: core.Metadata{
				Name: "redactor", Hooks: []core.Hook{hook(request, "tools/call")}, Mode: core.ModeAudit, FailOpen: true,
				PriorityHint: core.RequestPriority(-1000), Compat: &core.Compat{MinProtocol: "2025-06-18"},
				ConfigSchema: json.RawMessage(`{"type": "object"}`),
			}},
			`{"name":"redactor","type":"mutation","hooks":[{"events":["tools/call"],"phase":"request"}],` +
				`"mode":"audit","failOpen":true,"priorityHint":{"request":-1000},` +
				`"compat":{"minProtocol":"2025-06-18"},"configSchema":{"type":"object"}}`,
		},
		"texts for people are not escaped": {
			core.Descriptor{Type: core.TypeMutation, Metadata: core.Metadata{
				Name: "m", Version: "1.2", Description: "<b> & more", Hooks: []core.Hook{hook(request, "*")}, Mode: "enforce",
			}},
			`{"name":"m","type":"mutation","version":"1.2","description":"<b> & more",` +
				`"hooks":[{"events":["*"],"phase":"request"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := core.Encode(tt.in)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
			var back core.Descriptor
			require.NoError(t, json.Unmarshal(got, &back))
			again, err := core.Encode(back)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(again))
		})
	}
	t.Run("a wrong mode is not written", func(t *testing.T) {
		_, err := core.Encode(core.Descriptor{Metadata: core.Metadata{Mode: "aduit"}})
		require.ErrorContains(t, err, "unknown mode")
	})
}

func TestDescriptorReads(t *testing.T) {
	const hooks = `"hooks":[{"events":["tools/call"],"phase":"both"}]`
	want := core.Descriptor{Type: core.TypeValidation, Metadata: core.Metadata{
		Name: "v", Mode: core.ModeActive, Hooks: []core.Hook{hook(request, "tools/call"), hook(response, "tools/call")},
	}}
	for name, in := range map[string]string{
		"58: both becomes two hooks":     `{"name":"v","type":"validation",` + hooks + `}`,
		"older Go":                       `{"name":"v","type":"validation",` + hooks + `,"priorityHint":0,"mode":""}`,
		"Python":                         `{"name":"v","type":"validation",` + hooks + `,"mode":"active","failOpen":false}`,
		"77: enforce":                    `{"name":"v","type":"validation",` + hooks + `,"mode":"enforce"}`,
		"a schema that is null":          `{"name":"v","type":"validation",` + hooks + `,"configSchema":null,"compat":null}`,
		"members from a later SEP":       `{"name":"v","type":"validation",` + hooks + `,"icons":[{"a":1}],"_meta":{}}`,
		"any order of members":           `{` + hooks + `,"type":"validation","name":"v"}`,
		"the SEP's form, two hooks each": `{"name":"v","type":"validation","hooks":[{"events":["tools/call"],"phase":"request"},{"events":["tools/call"],"phase":"response"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var got core.Descriptor
			require.NoError(t, json.Unmarshal([]byte(in), &got))
			got.PriorityHint = core.Priority{} // given as 0 or not given: TestPriorityJSON
			assert.Equal(t, want, got)
		})
	}
}

func TestDescriptorRefuses(t *testing.T) {
	const hooks = `"hooks":[{"events":["tools/call"],"phase":"request"}]`
	for name, tt := range map[string]struct{ in, want string }{
		"S11: a mode in capitals":     {`{"name":"v","type":"validation",` + hooks + `,"mode":"Active"}`, "unknown mode"},
		"S11: a mode misspelt":        {`{"name":"v","type":"validation",` + hooks + `,"mode":"aduit"}`, "unknown mode"},
		"a mode that is null":         {`{"name":"v","type":"validation",` + hooks + `,"mode":null}`, "mode is not a string"},
		"53: a hint of 2^31":          {`{"name":"v","type":"mutation",` + hooks + `,"priorityHint":2147483648}`, "priorityHint"},
		"53: a hint that is a string": {`{"name":"v","type":"mutation",` + hooks + `,"priorityHint":"1"}`, "priorityHint"},
		"no name":                     {`{"type":"validation",` + hooks + `}`, "empty name"},
		"no hooks":                    {`{"name":"v","type":"validation"}`, "no hooks"},
		"an unknown phase":            {`{"name":"v","type":"validation","hooks":[{"events":["a"],"phase":"x"}]}`, "unknown phase"},
		"failOpen that is a string":   {`{"name":"v","type":"validation",` + hooks + `,"failOpen":"false"}`, "failOpen"},
		"a key twice":                 {`{"name":"v","name":"w","type":"validation",` + hooks + `}`, "duplicate key"},
		"a key twice in a hook":       {`{"name":"v","type":"validation","hooks":[{"events":["a"],"events":["b"],"phase":"request"}]}`, "duplicate key"},
		"a key in another case":       {`{"name":"v","type":"validation",` + hooks + `,"FailOpen":true}`, "differs in case"},
		"a schema that is no object":  {`{"name":"v","type":"validation",` + hooks + `,"configSchema":1}`, "configSchema"},
		"no object":                   {`["v"]`, "descriptor"},
	} {
		t.Run(name, func(t *testing.T) {
			got := core.Descriptor{Type: "before"}
			require.ErrorContains(t, json.Unmarshal([]byte(tt.in), &got), tt.want)
			assert.Equal(t, core.Descriptor{Type: "before"}, got)
		})
	}
	for name, in := range map[string]string{
		"76: a sink":                         `{"name":"s","type":"sink",` + hooks + `}`,
		"76: a sink with members of its own": `{"name":"s","type":"sink","hooks":"all","mode":"fast","priorityHint":"high"}`,
		"no type":                            `{"name":"v",` + hooks + `}`,
		"a type in capitals":                 `{"name":"v","type":"Validation",` + hooks + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, json.Unmarshal([]byte(in), new(core.Descriptor)), core.ErrUnknownType)
		})
	}
}

// What is read has no fault, is written, and reads the same again; the written
// form has neither both nor enforce nor a default in it. Seen to fail with
// normalized leaving the hooks as they are, and with Check left out of
// UnmarshalJSON.
func FuzzDescriptor(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		var d core.Descriptor
		if json.Unmarshal(data, &d) != nil {
			return
		}
		require.NoError(t, d.Check())
		out, err := core.Encode(d)
		require.NoError(t, err)
		var back core.Descriptor
		require.NoError(t, json.Unmarshal(out, &back), "%s", out)
		again, err := core.Encode(back)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))

		var wire struct {
			Mode  string
			Hooks []struct{ Phase core.Phase }
		}
		require.NoError(t, json.Unmarshal(out, &wire))
		require.Contains(t, []string{"", "audit"}, wire.Mode)
		for _, h := range wire.Hooks {
			require.True(t, h.Phase.Valid(), h.Phase)
		}
	})
}
