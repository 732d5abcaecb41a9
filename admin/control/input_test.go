package control_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)

// guard is an active validator on two events in both phases.
func guard() control.Layers {
	return control.Of(&core.Descriptor{Metadata: core.Metadata{
		Name: "guard", Hooks: []core.Hook{{Events: []string{"tools/call", "prompts/get"}, Phase: core.PhaseBoth}},
	}}, 5*time.Second)
}

// override asks for an override of the guard as it is configured.
func override(t *testing.T, body string, admin bool, edit ...func(*control.Layers)) (*control.Override, error) {
	t.Helper()
	in, err := control.ParseOverride([]byte(body))
	if err != nil {
		return nil, err
	}
	l := guard()
	for _, e := range edit {
		e(&l)
	}
	return in.Override(&l, control.Limits{}.WithDefaults(), now, admin)
}

const why = `"reason":"INC-1 good traffic"`

// Sloppy input is refused as what it is (A09): each of these could be meant in
// more than one way, or in none.
func TestMalformedOverrides(t *testing.T) {
	for _, body := range []string{
		``, `null`, `[]`, `"audit"`, `{`, `{}`, `{` + why + `}`,
		`{"mode":"audit",` + why + `}{"mode":"active"}`, `{"mode":"audit",` + why + `} x`,
		`{"mode":"audit","mode":"active",` + why + `}`, `{"mode":"active","Mode":"audit",` + why + `}`, `{"MODE":"audit",` + why + `}`,
		`{"mod":"audit",` + why + `}`, `{"mode":"AUDIT",` + why + `}`, `{"mode":"",` + why + `}`, `{"mode":null,` + why + `}`,
		`{"mode":"audit ",` + why + `}`, `{"mode":1,` + why + `}`, `{"failOpen":"true",` + why + `}`, `{"failOpen":null,"mode":"audit",` + why + `}`,
		`{"timeoutMs":1.5,` + why + `}`, `{"timeoutMs":"1",` + why + `}`, `{"priorityHint":"high",` + why + `}`, `{"priorityHint":{"Request":1},` + why + `}`,
		`{"hooks":[{"events":[],"phase":"request"}],` + why + `}`, `{"hooks":[{"events":["tools/call"],"phase":"never"}],` + why + `}`,
		`{"hooks":{},` + why + `}`, `{"hooks":[{"event":"tools/call","phase":"request"}],` + why + `}`,
		`{"mode":"audit","onExpiry":"never",` + why + `}`, `{"mode":"audit","expiresAt":"tomorrow",` + why + `}`,
	} {
		_, err := override(t, body, true)
		var faults control.Faults
		require.ErrorAs(t, err, &faults, body)
		assert.Equal(t, control.Malformed, faults.Kind(), "%s: %v", body, err)
	}
}

// What is well formed and makes no sense.
func TestInvalidOverrides(t *testing.T) {
	for name, body := range map[string]string{
		"no reason":                  `{"mode":"audit"}`,
		"a short reason":             `{"mode":"audit","reason":"because"}`,
		"a reason of spaces":         `{"mode":"audit","reason":"              x"}`,
		"a long reason":              `{"mode":"audit","reason":"` + strings.Repeat("x", 501) + `"}`,
		"a reason of two lines":      `{"mode":"audit","reason":"one line\nanother one"}`,
		"an escape in a reason":      `{"mode":"audit","reason":"red \u001b[31m letters"}`,
		"a long ticket":              `{"mode":"audit","ticket":"` + strings.Repeat("x", 201) + `",` + why + `}`,
		"a ttl of nothing":           `{"mode":"audit","ttl":"0s",` + why + `}`,
		"a ttl that is over":         `{"mode":"audit","ttl":"-1h",` + why + `}`,
		"a ttl in words":             `{"mode":"audit","ttl":"soon",` + why + `}`,
		"a ttl of years":             `{"mode":"audit","ttl":"900d",` + why + `}`,
		"a ttl over a week":          `{"mode":"audit","ttl":"169h",` + why + `}`,
		"an end that is over":        `{"mode":"audit","expiresAt":"2026-12-01T02:59:59Z",` + why + `}`,
		"an end far off":             `{"mode":"audit","expiresAt":"2027-12-01T02:59:59Z",` + why + `}`,
		"two ends":                   `{"mode":"audit","ttl":"1h","expiresAt":"2026-12-01T04:00:00Z",` + why + `}`,
		"a timeout below 0":          `{"timeoutMs":-1,` + why + `}`,
		"a timeout of an hour":       `{"timeoutMs":3600000,` + why + `}`,
		"an active one that is over": `{"mode":"active","ttl":"-1s",` + why + `}`,
	} {
		_, err := override(t, body, true)
		var faults control.Faults
		require.ErrorAs(t, err, &faults, name)
		assert.Equal(t, control.Invalid, faults.Kind(), "%s: %v", name, err)
	}
}

// Weakening has an end; strengthening needs none.
func TestEnds(t *testing.T) {
	audit := func(l *control.Layers) { l.Configured = &control.Settings{Mode: control.Audit} }
	hours := func(h int) *time.Time { at := now.Add(time.Duration(h) * time.Hour); return &at }
	for name, tt := range map[string]struct {
		body string
		edit []func(*control.Layers)
		want *time.Time
	}{
		"audit, by default":             {`{"mode":"audit",` + why + `}`, nil, hours(4)},
		"off, by default":               {`{"mode":"off",` + why + `}`, nil, hours(4)},
		"to fail open":                  {`{"failOpen":true,` + why + `}`, nil, hours(4)},
		"narrower hooks":                {`{"hooks":[{"events":["tools/call"],"phase":"both"}],` + why + `}`, nil, hours(4)},
		"no hooks":                      {`{"hooks":[],` + why + `}`, nil, hours(4)},
		"as asked":                      {`{"mode":"audit","ttl":"2h",` + why + `}`, nil, hours(2)},
		"in days":                       {`{"mode":"audit","ttl":"2d",` + why + `}`, nil, hours(48)},
		"at a time":                     {`{"mode":"audit","expiresAt":"2026-12-01T04:00:00Z",` + why + `}`, nil, hours(1)},
		"at a time elsewhere":           {`{"mode":"audit","expiresAt":"2026-12-01T05:00:00+01:00",` + why + `}`, nil, hours(1)},
		"active is no weakening":        {`{"mode":"active",` + why + `}`, nil, nil},
		"enforce is active":             {`{"mode":"enforce",` + why + `}`, nil, nil},
		"all hooks are no weakening":    {`{"hooks":[{"events":["tools/call","prompts/get"],"phase":"both"}],` + why + `}`, nil, nil},
		"from audit to active":          {`{"mode":"active",` + why + `}`, []func(*control.Layers){audit}, nil},
		"audit where it is configured":  {`{"mode":"audit",` + why + `}`, []func(*control.Layers){audit}, nil},
		"off where audit is configured": {`{"mode":"off",` + why + `}`, []func(*control.Layers){audit}, hours(4)},
		"a timeout is neither":          {`{"timeoutMs":100,` + why + `}`, nil, nil},
		"a priority is neither":         {`{"priorityHint":{"request":-5},` + why + `}`, nil, nil},
		"active for a while":            {`{"mode":"active","ttl":"1h",` + why + `}`, nil, hours(1)},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := override(t, tt.body, false, tt.edit...)
			require.NoError(t, err)
			assert.Equal(t, tt.want, o.ExpiresAt)
			assert.Equal(t, control.Revert, o.OnExpiry)
		})
	}
}

// What is not allowed, to whom, and what does not fit.
func TestRefusedOverrides(t *testing.T) {
	pinned := func(l *control.Layers) { l.Pinned = true }
	for name, tt := range map[string]struct {
		body  string
		admin bool
		edit  []func(*control.Layers)
		want  control.Kind
	}{
		"for ever, by an operator":     {`{"mode":"audit","ttl":"none",` + why + `}`, false, nil, control.Forbidden},
		"a pinned one to audit":        {`{"mode":"audit",` + why + `}`, true, []func(*control.Layers){pinned}, control.Pinned},
		"a pinned one to fail open":    {`{"failOpen":true,` + why + `}`, true, []func(*control.Layers){pinned}, control.Pinned},
		"wider hooks":                  {`{"hooks":[{"events":["resources/read"],"phase":"request"}],` + why + `}`, true, nil, control.Incompatible},
		"wider hooks, by a pattern":    {`{"hooks":[{"events":["*"],"phase":"request"}],` + why + `}`, true, nil, control.Incompatible},
		"an invalid one is that first": {`{"mode":"audit","ttl":"900h","hooks":[{"events":["*"],"phase":"request"}],` + why + `}`, true, nil, control.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := override(t, tt.body, tt.admin, tt.edit...)
			var faults control.Faults
			require.ErrorAs(t, err, &faults)
			assert.Equal(t, tt.want, faults.Kind(), err)
		})
	}
	_, err := override(t, `{"mode":"audit","ttl":"none",`+why+`}`, true)
	require.NoError(t, err, "an admin may")
	_, err = override(t, `{"mode":"active",`+why+`}`, false, pinned)
	require.NoError(t, err, "to strengthen a pinned one is no weakening")
	_, err = override(t, `{"mode":"active","ttl":"none",`+why+`}`, false)
	require.NoError(t, err, "strengthening may last")
}

func TestBreakGlassInput(t *testing.T) {
	parse := func(body string) (*control.BreakGlass, error) {
		in, err := control.ParseBreakGlass([]byte(body))
		if err != nil {
			return nil, err
		}
		return in.BreakGlass(control.Limits{}.WithDefaults(), now)
	}
	b, err := parse(`{"action":"audit-all",` + why + `}`)
	require.NoError(t, err)
	assert.Equal(t, now.Add(time.Hour), b.ExpiresAt)
	b, err = parse(`{"action":"off-all","ttl":"5m","except":["a/b"],` + why + `}`)
	require.NoError(t, err)
	assert.Equal(t, now.Add(5*time.Minute), b.ExpiresAt)
	for _, body := range []string{
		`{}`, `{"action":"audit-all"}`, `{"action":"all",` + why + `}`, `{"action":"audit-all","ttl":"61m",` + why + `}`,
		`{"action":"audit-all","ttl":"none",` + why + `}`, `{"action":"audit-all","except":[""],` + why + `}`, `{"action":"audit-all","except":null,` + why + `}`,
		`{"action":"audit-all","expiresAt":"2026-12-01T02:00:00Z",` + why + `}`, `{"action":"audit-all","mode":"off",` + why + `}`,
	} {
		_, err := parse(body)
		assert.Error(t, err, body)
	}
}

func TestConfiguration(t *testing.T) {
	c, err := control.ParseConfiguration([]byte(`{"interceptors":{"a/b":{"mode":"audit","failOpen":true,"timeoutMs":50,"pinned":true,
		"config":{"secret":"x"},"hooks":[{"events":["tools/call"],"phase":"both"}],"priorityHint":7}}}`))
	require.NoError(t, err)
	got := c.Interceptors["a/b"]
	assert.Equal(t, control.Audit, got.Mode)
	assert.True(t, got.Pinned)
	assert.Len(t, got.Hooks, 2, "a hook for each phase")
	assert.Equal(t, map[string]any{"secret": "x"}, got.Config)
	require.NoError(t, c.Check(map[string][]core.Hook{"a/b": {{Events: []string{"*"}, Phase: core.PhaseBoth}}}))
	require.Error(t, c.Check(map[string][]core.Hook{"a/b": {{Events: []string{"tools/call"}, Phase: core.PhaseRequest}}}))
	require.NoError(t, c.Check(nil), "of interceptors that are not there yet nothing is known")
	for _, body := range []string{
		``, `{"interceptor":{}}`, `{"interceptors":{"a":{"mode":"on"}}}`, `{"interceptors":{"a":{"mod":"audit"}}}`, `{"interceptors":{"":{}}}`,
		`{"interceptors":{"a":{},"a":{}}}`, `{"interceptors":{"a":{"ttl":"4h","mode":"audit"}}}`, `{"interceptors":{"a":{"timeoutMs":-1}}}`,
		`{"interceptors":{"a":{"Pinned":true}}}`, `{"interceptors":{"a":{"mode":"audit","mode":"off"}}}`,
	} {
		_, err := control.ParseConfiguration([]byte(body))
		var faults control.Faults
		assert.True(t, errors.As(err, &faults), body)
	}
}

func FuzzOverride(f *testing.F) {
	f.Add([]byte(`{"mode":"audit","ttl":"4h",` + why + `}`))
	f.Add([]byte(`{"hooks":[{"events":["tools/call"],"phase":"both"}],"priorityHint":{"request":1},` + why + `}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := control.ParseOverride(body)
		if err != nil {
			return
		}
		l := guard()
		o, err := in.Override(&l, control.Limits{}.WithDefaults(), now, false)
		if err != nil {
			return
		}
		base := l.Base()
		l.Override = o
		e := l.At(now)
		if control.Weakens(&base, &e) && (o.ExpiresAt == nil || o.ExpiresAt.Sub(now) > 7*24*time.Hour) {
			t.Fatalf("weaker without an end: %s", body)
		}
		if len(control.Widens(l.Declared.Hooks, e.Hooks)) > 0 {
			t.Fatalf("wider: %s", body)
		}
	})
}

// What break-glass asks for has an end, or is refused.
func FuzzBreakGlass(f *testing.F) {
	f.Add([]byte(`{"action":"audit-all","ttl":"15m",` + why + `}`))
	f.Add([]byte(`{"action":"off-all","except":["a","b"],"expiresAt":"2030-01-02T03:04:05Z",` + why + `}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := control.ParseBreakGlass(body)
		if err != nil {
			return
		}
		b, err := in.BreakGlass(control.Limits{}.WithDefaults(), now)
		if err == nil && (b.Over(now) || !b.Over(now.Add(8*24*time.Hour))) {
			t.Fatalf("no end, or over already: %s", body)
		}
	})
}

// A configuration is read whole or refused, and has nothing that only overrides
// may have.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"interceptors":{"a":{"mode":"audit","pinned":true,"config":{"k":[1,{}]}},"b":{"failOpen":true,"timeoutMs":5}}}`))
	f.Add([]byte(`{"interceptors":{"a":{"mode":"audit","mode":"off"}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := control.ParseConfiguration(body)
		if (err == nil) != (c != nil) {
			t.Fatalf("%v and %v: %s", c, err, body)
		}
		if c == nil {
			return
		}
		for name := range c.Interceptors {
			if core.CheckName(name) != nil {
				t.Fatalf("a name: %q", name)
			}
		}
	})
}
