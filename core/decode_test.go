package core_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

type (
	leaf struct {
		K string `json:"k"`
		S any    `json:"s"`
	}
	base struct {
		Kind string `json:"kind"`
	}
	// A target has each kind of field that Decode looks through.
	target struct {
		base
		*Tail
		Name  string          `json:"name"`
		Leaf  leaf            `json:"leaf"`
		Ptr   *leaf           `json:"ptr"`
		List  []leaf          `json:"list"`
		Array [2]leaf         `json:"array"`
		Map   map[string]leaf `json:"map"`
		Any   any             `json:"any"`
		Raw   json.RawMessage `json:"raw"`
		Time  time.Time       `json:"time"`
		Skip  string          `json:"-"`
		Plain string
	}
	// A Tail is exported, since encoding/json sets embedded pointers only then.
	Tail struct {
		End leaf `json:"end"`
	}
)

func TestDecodeReads(t *testing.T) {
	const in = ` {"kind":"k","end":{"k":"e"},"name":"n","leaf":{"k":"l"},"ptr":{"k":"p"},"list":[{"k":"1"},null,{"k":"2"}],
		"array":[{"k":"a"}],"map":{"x":{"k":"m"},"X":{"k":"M"}},"any":{"n":[1,{"K":1,"k":2}]},"raw":{"a": 1, "a":2},
		"time":"2026-01-01T00:00:00Z","Plain":"p","other":{"Name":1},"skip":1,"-":2} `
	var got target
	require.NoError(t, core.Decode([]byte(in), &got))
	assert.Equal(t, target{
		base: base{"k"}, Tail: &Tail{End: leaf{K: "e"}}, Name: "n", Leaf: leaf{K: "l"}, Ptr: &leaf{K: "p"},
		List: []leaf{{K: "1"}, {}, {K: "2"}}, Array: [2]leaf{{K: "a"}}, Map: map[string]leaf{"x": {K: "m"}, "X": {K: "M"}},
		Any: map[string]any{"n": []any{json.Number("1"), map[string]any{"K": json.Number("1"), "k": json.Number("2")}}},
		Raw: json.RawMessage(`{"a": 1, "a":2}`), Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Plain: "p",
	}, got)
}

func TestDecodeRefusesKeysInAnotherCase(t *testing.T) {
	for name, in := range map[string]string{
		"of a field":               `{"Name":"n"}`,
		"beside the right one":     `{"name":"a","NAME":"b"}`,
		"spelt with an escape":     `{"N\u0061me":"n"}`,
		"of a field without tag":   `{"plain":"p"}`,
		"of an embedded field":     `{"Kind":"k"}`,
		"behind a pointer":         `{"End":{}}`,
		"within an embedded one":   `{"end":{"K":1}}`,
		"in an object":             `{"leaf":{"K":1}}`,
		"in a pointer":             `{"ptr":{"K":1}}`,
		"in a list":                `{"list":[{"k":"a"},{"K":1}]}`,
		"in an array":              `{"array":[{"K":1}]}`,
		"in a map":                 `{"map":{"a":{"K":1}}}`,
		"the Kelvin sign":          `{"leaf":{"` + "\u212a" + `":1}}`,
		"the Kelvin sign, escaped": `{"leaf":{"\u212A":1}}`,
		"the long s":               `{"leaf":{"` + "\u017f" + `":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, json.Unmarshal([]byte(in), new(map[string]any)))
			require.ErrorIs(t, core.Decode([]byte(in), new(target)), core.ErrKeyCase)
			require.NoError(t, core.Decode([]byte(in), new(any)), "a map has no fields")
		})
	}
	t.Run("an interface that holds a pointer", func(t *testing.T) {
		var v any = new(target)
		require.ErrorIs(t, core.Decode([]byte(`{"Name":"n"}`), &v), core.ErrKeyCase)
	})
	t.Run("letters that only look alike are other keys", func(t *testing.T) {
		require.NoError(t, core.Decode([]byte(`{"n`+"\u0430"+`me":1,"leaf":{"x":1}}`), new(target)))
	})
}

func TestDecodeRefusesDuplicates(t *testing.T) {
	many := strings.Builder{}
	for i := range 200 {
		many.WriteString(`"k` + strings.Repeat("x", i) + `":1,`)
	}
	for name, in := range map[string]string{
		"of a field":                  `{"name":"a","name":"b"}`,
		"with the same value":         `{"name":"a","name":"a"}`,
		"of an unknown key":           `{"zzz":1,"zzz":1}`,
		"spelt with an escape":        `{"a":1,"\u0061":2}`,
		"in a list of a map":          `{"any":{"l":[1,{"a":1,"a":2}]}}`,
		"under an unknown key":        `{"zzz":[[{"a":1,"a":2}]]}`,
		"in a field's object":         `{"leaf":{"s":{"a":1,"a":2}}}`,
		"of the empty key":            `{"":1,"":2}`,
		"among many keys":             `{` + many.String() + `"kx":1}`,
		"the last of many":            `{` + many.String() + `"z":1,"z":1}`,
		"broken UTF-8 read as U+FFFD": "{\"\xff\":1,\"\xfe\":2}",
		"lone surrogates, likewise":   `{"\ud800":1,"\ud801":2}`,
		"surrogate pairs":             `{"\ud83d\ude00":1,"😀":2}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, json.Valid([]byte(in)))
			require.ErrorIs(t, core.Decode([]byte(in), new(target)), core.ErrDuplicateKey)
			require.ErrorIs(t, core.Decode([]byte(in), new(any)), core.ErrDuplicateKey)
		})
	}
	t.Run("not across objects", func(t *testing.T) {
		require.NoError(t, core.Decode([]byte(`[{"a":1},{"a":{"a":1}},{"b":"\"a\":{"}]`), new(any)))
		require.NoError(t, core.Decode([]byte(`{`+many.String()+`"z":1}`), new(any)))
	})
}

func TestDecodeRefusesWhatIsNotOneValue(t *testing.T) {
	for name, in := range map[string]string{
		"empty":             ``,
		"blanks":            " \n",
		"two values":        `{} {}`,
		"trailing letters":  `{}x`,
		"trailing brace":    `{}}`,
		"cut off":           `{"a":`,
		"a comma too many":  `{"a":1,}`,
		"a comment":         `{/**/}`,
		"a leading BOM":     "\ufeff{}",
		"a leading nought":  `01`,
		"NaN":               `NaN`,
		"single quotes":     `{'a':1}`,
		"a raw newline":     "\"a\nb\"",
		"10,001 levels":     strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
		"a million levels":  strings.Repeat(`{"a":`, 1_000_000) + "1" + strings.Repeat("}", 1_000_000),
		"a million opening": strings.Repeat("[", 1_000_000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []any{new(any), new(target), new(json.RawMessage)} {
				require.Error(t, core.Decode([]byte(in), v))
			}
			_, err := core.Members([]byte(in))
			require.Error(t, err)
		})
	}
	t.Run("10,000 levels are read", func(t *testing.T) {
		deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
		require.NoError(t, core.Decode([]byte(deep), new(any)))
	})
	t.Run("a value of another type", func(t *testing.T) {
		require.Error(t, core.Decode([]byte(`{"name":1}`), new(target)))
		require.Error(t, core.Decode([]byte(`[]`), new(target)))
	})
	t.Run("a destination that is none", func(t *testing.T) {
		require.Error(t, core.Decode([]byte(`{}`), nil))
		require.Error(t, core.Decode([]byte(`{}`), target{}))
		require.Error(t, core.Decode([]byte(`{}`), (*target)(nil)))
	})
}

// Row 39.
func TestDecodeKeepsNumbers(t *testing.T) {
	for _, number := range []string{"9007199254740993", "18446744073709551615", "0.10", "1E400", "-0", "1.0", "1e2"} {
		t.Run(number, func(t *testing.T) {
			var got any
			require.NoError(t, core.Decode([]byte(`{"n":[`+number+`]}`), &got))
			out, err := core.Encode(got)
			require.NoError(t, err)
			assert.Equal(t, `{"n":[`+number+`]}`, string(out))
		})
	}
	var typed struct{ N uint64 }
	require.NoError(t, core.Decode([]byte(`{"N":18446744073709551615}`), &typed))
	assert.Equal(t, uint64(18446744073709551615), typed.N)
}

// Where fields meet under one name, the one that encoding/json sets decides.
func TestDecodeFollowsEmbedding(t *testing.T) {
	type inner struct {
		X struct {
			A int `json:"a"`
		} `json:"x"`
	}
	type deep struct{ inner }
	type shallow struct {
		X struct {
			B int `json:"b"`
		} `json:"x"`
	}
	type tagged struct {
		X int `json:"Y"`
	}
	type untagged struct{ Y struct{ C int } }
	type left struct{ Z int }
	type right struct{ Z int }
	type named struct {
		D int `json:"d"`
	}
	type all struct {
		deep
		shallow
		tagged
		untagged
		left
		right
		named `json:"named"`
		Zed   int `json:"z"`
	}
	for name, tt := range map[string]struct {
		in   string
		want error
	}{
		"the shallower field counts":            {`{"x":{"b":1,"A":1}}`, nil},
		"its own fields are checked":            {`{"x":{"B":1}}`, core.ErrKeyCase},
		"the tagged field counts":               {`{"Y":1}`, nil},
		"a name of two fields folds to a third": {`{"Z":1}`, core.ErrKeyCase},
		"an embedded struct with a name":        {`{"named":{"d":1}}`, nil},
		"and the fields in it":                  {`{"named":{"D":1}}`, core.ErrKeyCase},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, core.Decode([]byte(tt.in), new(all)), tt.want) })
	}
	type Knot struct {
		*Knot
		Name string `json:"name"`
	}
	require.ErrorIs(t, core.Decode([]byte(`{"Name":"n"}`), new(Knot)), core.ErrKeyCase, "types that embed themselves end")
}

func TestEncode(t *testing.T) {
	for name, tt := range map[string]struct {
		in   any
		want string
	}{
		"no escapes for HTML": {map[string]any{"a": "<b>&"}, `{"a":"<b>&"}`},
		"nor in raw parts":    {json.RawMessage(`{ "a" : "<b>&" }`), `{"a":"<b>&"}`},
		"null":                {nil, `null`},
		"a newline in text":   {"a\n", `"a\n"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := core.Encode(tt.in)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
	buf := bytes.NewBufferString("kept:")
	require.NoError(t, core.EncodeTo(buf, 1))
	require.Error(t, core.EncodeTo(buf, func() {}))
	assert.Equal(t, "kept:1", buf.String(), "a failure writes nothing")
	_, err := core.Encode(json.RawMessage(`{`))
	require.Error(t, err)
}

func TestMembers(t *testing.T) {
	got, err := core.Members([]byte(" {\"b\" : [1, {\"x\":1}] , \"\\u0061\":\"}\\\"{\",\"n\":-1.50 ,\"\":null,\"t\":true} "))
	require.NoError(t, err)
	assert.Equal(t, []core.Member{
		{Name: "b", Value: json.RawMessage(`[1, {"x":1}]`)},
		{Name: "a", Value: json.RawMessage(`"}\"{"`)},
		{Name: "n", Value: json.RawMessage(`-1.50`)},
		{Name: "", Value: json.RawMessage(`null`)},
		{Name: "t", Value: json.RawMessage(`true`)},
	}, got)
	for _, m := range got {
		assert.Equal(t, len(m.Value), cap(m.Value), "appending to one must not reach the next")
	}

	got, err = core.Members([]byte(`{}`))
	require.NoError(t, err)
	assert.Empty(t, got)
	for in, want := range map[string]error{`[]`: core.ErrNotObject, `null`: core.ErrNotObject, `"{}"`: core.ErrNotObject, `{"a":1,"\u0061":2}`: core.ErrDuplicateKey} {
		_, err := core.Members([]byte(in))
		require.ErrorIs(t, err, want, in)
	}
}

func TestSetMember(t *testing.T) {
	for name, tt := range map[string]struct{ object, member, want string }{
		"in its place":       {`{"a":1,"b":[ 2 ],"c":3}`, "b", `{"a":1,"b":"new","c":3}`},
		"at the end":         {`{"z":9007199254740993}`, "a", `{"z":9007199254740993,"a":"new"}`},
		"in an empty object": {` { } `, "a", `{"a":"new"}`},
		"a name with quotes": {`{}`, `a"<`, `{"a\"<":"new"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := core.SetMember([]byte(tt.object), tt.member, json.RawMessage(`"new"`))
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
	_, err := core.SetMember([]byte(`[]`), "a", json.RawMessage(`1`))
	require.ErrorIs(t, err, core.ErrNotObject)
}
