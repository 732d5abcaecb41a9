package core_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/require"
)

// sameAsStandard holds Valid, Compact and Spaced against encoding/json.
func sameAsStandard(t *testing.T, data []byte) {
	t.Helper()
	before := bytes.Clone(data)
	require.Equal(t, json.Valid(data), core.Valid(data), "%q", data)
	var want bytes.Buffer
	err := json.Compact(&want, data)
	got, gotErr := core.Compact(data)
	require.Equal(t, err == nil, gotErr == nil, "%q", data)
	require.Equal(t, before, data, "must not be written to")
	if err == nil {
		require.Equal(t, want.String(), string(got))
		require.Equal(t, want.Len() != len(data), core.Spaced(data), "%q", data)
	}
}

func TestValid(t *testing.T) {
	cases := []string{
		``, ` `, `{}`, ` {} `, `[]`, `[ ]`, `{"a":1}`, `{"a" :1}`, `{"a": 1}`, `{"a":1 }`, `{ "a":1}`, `{"a":1,}`, `{,}`, `{"a"}`,
		`{"a":1,"b":[1,2,{"c":null}]}`, `[1,]`, `[,1]`, `[1 ,2]`, `[1, 2]`, `[1`, `{"a":1`, `{"a`, `"`, `""`, `"\`, `"\"`, `"\\"`, `"\u12"`,
		`"\u12aF"`, `"\u12ag"`, `"\x"`, "\"a\nb\"", "\"a\x00b\"", "\"1234567\x1f\"", "\"12345678\x1f\"", `"12345678\"`, `"1234567\\"`, "\"\xff\xfe\"", "\"é\u2028\"",
		`"plain text, rather long"`, `"more <plain> & text, ümlaut and all, of some length"`, `0`, `-0`, `-`, `01`, `1.`, `1.0`, `.1`, `1e`, `1e+`, `1e5`, `1E-5`, `1e+05`, `1.5e3`, `-1.5e-3`, `0x1`, `+1`, `1 2`,
		`true`, `tru`, `truex`, `false`, `null`, `nul`, `NaN`, `{"a":true }`, "\t[\r\n]\n", "\v1", `{1:2}`, `{"a":1 "b":2}`, `["a" "b"]`, `]`, `}`, `:`, `,`,
		strings.Repeat("[", 10000) + strings.Repeat("]", 10000), strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
	}
	for _, c := range cases {
		sameAsStandard(t, []byte(c))
	}
}

// Seen red with ' ' as '!' in plainPrefix, with the check of hex digits gone,
// and with digits that may be none.
func FuzzValid(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5e+3,"x\u00e9\n",true,null],"b":{}}`))
	f.Add([]byte("\"plain text of some length, with a \x1f in it\""))
	f.Fuzz(func(t *testing.T, data []byte) { sameAsStandard(t, data) })
}

// BenchmarkValid is a large string, which most large payloads are.
func BenchmarkValid(b *testing.B) {
	data := []byte(`{"text":"` + strings.Repeat("x", 64<<10) + `"}`)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		core.Valid(data)
	}
}
