package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ctxOf returns the test's context, if t has one.
func ctxOf(t any) context.Context {
	if t, ok := t.(interface{ Context() context.Context }); ok {
		return t.Context()
	}
	return context.Background()
}

// redacted returns what redact-pii makes of a result, which may be the same.
func redacted(t require.TestingT, payload string) string {
	got := invoke(t, redactPII(), core.EventToolsCall, core.PhaseResponse, payload).Mutation
	if !got.Modified {
		return payload
	}
	return string(got.Payload)
}

func TestRedact(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, tt := range map[string]struct{ in, want string }{
		"an address":               {`{"content":[{"type":"text","text":"to ada@example.com."}]}`, `{"content":[{"type":"text","text":"to [email]."}]}`},
		"an address as text":       {`{"t":"Ada <ada.b+c@mail.example.com>, hi"}`, `{"t":"Ada <[email]>, hi"}`},
		"an address in a URI":      {`{"uri":"mailto:ada@example.com?subject=x"}`, `{"uri":"mailto:[email]?subject=x"}`},
		"an address in a query":    {`{"uri":"https://x.example/?to=ada@example.com&n=1"}`, `{"uri":"https://x.example/?to=[email]&n=1"}`},
		"an address without a dot": {`{"t":"root@localhost"}`, `{"t":"[email]"}`},
		"two addresses in one":     {`{"t":"a@b@c.example"}`, `{"t":"[email]"}`},
		"an at sign alone":         {`{"t":"3 @ noon"}`, `{"t":"3 [email] noon"}`},
		"only at signs":            {`{"t":"@@@"}`, `{"t":"[email]"}`},
		"a wide at sign":           {`{"t":"ada＠example.com"}`, `{"t":"[email]"}`},
		"an escaped at sign":       {`{"t":"ada\u0040example.com"}`, `{"t":"[email]"}`},
		"another script":           {`{"t":"用户@例え.jp 说"}`, `{"t":"[email] 说"}`},

		"a card":                       {`{"t":"card 4111111111111111!"}`, `{"t":"card [card]!"}`},
		"a card in groups":             {`{"t":"4111 1111 1111 1111"}`, `{"t":"[card]"}`},
		"a card with dashes":           {`{"t":"4111-1111-1111-1111"}`, `{"t":"[card]"}`},
		"a card of 15":                 {`{"t":"3782 822463 10005"}`, `{"t":"[card]"}`},
		"a card of 13":                 {`{"t":"4222222222222"}`, `{"t":"[card]"}`},
		"a card with odd spaces":       {`{"t":"4111\u00a01111\u2009\u20091111\t1111"}`, `{"t":"[card]"}`},
		"a card with odd dashes":       {`{"t":"4111–1111—1111\u22121111"}`, `{"t":"[card]"}`},
		"a card with invisible breaks": {`{"t":"41111111\u200b11111111"}`, `{"t":"[card]"}`},
		"a card in wide digits":        {`{"t":"４１１１１１１１１１１１１１１１"}`, `{"t":"[card]"}`},
		"digits that are no card":      {`{"t":"order 123456789012 of 2026"}`, `{"t":"order 123456789012 of 2026"}`},
		"two things in one text":       {`{"t":"ada@example.com4111111111111111"}`, `{"t":"[email]"}`},

		"a number":                    {`{"card":4111111111111111}`, `{"card":0}`},
		"a negative number":           {`{"card":-4111111111111111}`, `{"card":0}`},
		"a number with an exponent":   {`{"card":4.111111111111111e15}`, `{"card":0}`},
		"few digits, great exponent":  {`{"card":4111E12}`, `{"card":0}`},
		"a long fraction":             {`{"n":0.3333333333333}`, `{"n":0}`},
		"numbers that are none":       {`[123456789012,-1.50,1e3,1E+2,0.10,1e400,-0]`, `[123456789012,-1.50,1e3,1E+2,0.10,1e400,-0]`},
		"a number at the top":         {`4111111111111111`, `0`},
		"a number before white space": {`{"n": 4111111111111111 , "m" : 1}`, `{"n": 0 , "m" : 1}`},

		"structured content, any depth": {
			`{"structuredContent":{"z":1,"a":[{"deep":[["x@y.example"]]}],"m":"ok"}}`,
			`{"structuredContent":{"z":1,"a":[{"deep":[["[email]"]]}],"m":"ok"}}`,
		},
		"an embedded resource": {
			`{"content":[{"type":"resource","resource":{"uri":"customer://1","mimeType":"text/plain","text":"x@y.example"}}]}`,
			`{"content":[{"type":"resource","resource":{"uri":"customer://1","mimeType":"text/plain","text":"[email]"}}]}`,
		},
		"a resource link": {
			`{"content":[{"type":"resource_link","uri":"u://1","name":"n","title":"x@y.example","description":"x@y.example"}]}`,
			`{"content":[{"type":"resource_link","uri":"u://1","name":"n","title":"[email]","description":"[email]"}]}`,
		},
		"a resource's contents": {
			`{"contents":[{"uri":"customer://x@y.example","text":"x@y.example"}]}`,
			`{"contents":[{"uri":"customer://[email]","text":"[email]"}]}`,
		},
		"keys":             {`{"x@y.example":{"4111111111111111":"v"}}`, `{"[email]":{"[card]":"v"}}`},
		"keys that meet":   {`{"a@y.example":1,"b@y.example":2,"[email]":3}`, `{"[email] 2":1,"[email] 3":2,"[email]":3}`},
		"order and spaces": {`{ "z":1 ,"b":"x@y.example", "a" : [ 1.0 ] }`, `{ "z":1 ,"b":"[email]", "a" : [ 1.0 ] }`},
		"an own part of _meta": {
			`{"_meta":{"acme/contact":"x@y.example"}}`, `{"_meta":{"acme/contact":"[email]"}}`,
		},
		"the protocol's part of _meta": {
			`{"_meta":{"traceparent":"00-12345678901234567890123456789012-1234567890123456-01","tracestate":"t@v=1","progressToken":4111111111111111,"io.modelcontextprotocol/x":{"a":["x@y.example"]}}}`,
			`{"_meta":{"traceparent":"00-12345678901234567890123456789012-1234567890123456-01","tracestate":"t@v=1","progressToken":4111111111111111,"io.modelcontextprotocol/x":{"a":["x@y.example"]}}}`,
		},
		"what only looks like the protocol's": {
			`{"structuredContent":{"_meta":{"tracestate":"x@y.example"}},"_meta":[{"tracestate":"x@y.example"}]}`,
			`{"structuredContent":{"_meta":{"tracestate":"[email]"}},"_meta":[{"tracestate":"[email]"}]}`,
		},
		"JSON in a text": {
			`{"text":"{\"b\":\"x@y.example\",\"a\":4111111111111111,\"s\":\"x\\n\\u0040y\"}"}`,
			`{"text":"{\"b\":\"[email]\",\"a\":0,\"s\":\"x\\n[email]\"}"}`,
		},
		"JSON in JSON in a text": {
			`{"text":"[\"[\\\"x@y.example\\\"]\"]"}`, `{"text":"[\"[\\\"[email]\\\"]\"]"}`,
		},
		"JSON in a text that has a run by its escapes": {
			`{"text":"[\"\\u1234567890123456\"]"}`, `{"text":"[\"\\u[card]\"]"}`,
		},
		"a picture":               {`{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]}`, `{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]}`},
		"a blob of text":          {`{"contents":[{"uri":"u://1","blob":"` + b64("x@y.example") + `"}]}`, `{"contents":[{"uri":"u://1","blob":"` + b64("[email]") + `"}]}`},
		"an embedded blob":        {`{"content":[{"resource":{"blob":"` + b64("4111 1111 1111 1111") + `"}}]}`, `{"content":[{"resource":{"blob":"` + b64("[card]") + `"}}]}`},
		"a card for a picture":    {`{"content":[{"data":"4111111111111111"}]}`, `{"content":[{"data":"AAAAAAAAAAAAAAAA"}]}`},
		"no base64 in a blob":     {`{"content":[{"data":"x@y.example"}]}`, `{"content":[{"data":"[email]"}]}`},
		"a blob where none is":    {`{"structuredContent":{"content":[{"data":"4111111111111111"}]}}`, `{"structuredContent":{"content":[{"data":"[card]"}]}}`},
		"nothing to mask":         {`{"content":[{"type":"text","text":"\u003cok\u003e & é"}],"isError":true}`, `{"content":[{"type":"text","text":"\u003cok\u003e & é"}],"isError":true}`},
		"characters beside PII":   {`{"t":"<b>&\u2028 x@y.example"}`, `{"t":"<b>&\u2028 [email]"}`},
		"an empty result":         {`{}`, `{}`},
		"a text of white space":   {`{"t":" \n"}`, `{"t":" \n"}`},
		"a text with broken ends": {`{"t":"{\"a\":x@y.example"}`, `{"t":"{\"a\":[email]"}`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, redacted(t, tt.in))
		})
	}
}

func TestRedactDeep(t *testing.T) {
	deep := strings.Repeat(`{"x@y.example":[`, 4000) + `"x@y.example"` + strings.Repeat("]}", 4000)
	got := redacted(t, deep)
	assert.True(t, json.Valid([]byte(got)))
	assert.NotContains(t, got, "@")
}

var (
	run13 = regexp.MustCompile(`\p{Nd}{13}`)
	gaps  = regexp.MustCompile(`(\p{Nd})[ -]+`)
)

// clean reports whether no text of v holds personal data any more.
func clean(v any) bool {
	switch v := v.(type) {
	case string:
		return !strings.ContainsAny(v, "@＠") && !run13.MatchString(v) && !run13.MatchString(gaps.ReplaceAllString(v, "$1"))
	case json.Number:
		return !run13.MatchString(v.String())
	case []any:
		for _, e := range v {
			if !clean(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if !clean(k) || !clean(e) {
				return false
			}
		}
	}
	return true
}

// personal draws text that holds an address or a card number, among other text.
func personal() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		address := rapid.StringMatching(`[a-zA-Z0-9._%+"'-]{0,8}@[a-zA-Z0-9.@-]{0,8}`)
		cardNumber := rapid.StringMatching(`[0-9]([ -]{0,2}[0-9]){12,20}`)
		return rapid.String().Draw(t, "before") + rapid.OneOf(address, cardNumber).Draw(t, "pii") + rapid.String().Draw(t, "after")
	})
}

// value draws a JSON value of the given strings and numbers.
func value(texts *rapid.Generator[string], numbers *rapid.Generator[json.Number], depth int) *rapid.Generator[any] {
	leaf := []*rapid.Generator[any]{
		texts.AsAny(), numbers.AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
		rapid.Custom(func(t *rapid.T) any { // JSON as text, as tools give it
			raw, err := core.Encode(map[string]any{"t": texts.Draw(t, "nested"), "n": numbers.Draw(t, "number")})
			require.NoError(t, err)
			return string(raw)
		}),
	}
	if depth == 0 {
		return rapid.OneOf(leaf...)
	}
	inner := value(texts, numbers, depth-1)
	keys := rapid.OneOf(texts, rapid.SampledFrom([]string{"_meta", "content", "contents", "data", "blob", "resource", "text", "traceparent"}))
	return rapid.OneOf(append(leaf,
		rapid.SliceOfN(inner, 0, 4).AsAny(),
		rapid.MapOfN(keys, inner, 0, 4).AsAny())...)
}

// Seen to fail with numbers left alone, with keys left alone in takeString, and
// with a gap of at most one character between digits.
func TestRedactLeavesNothingPersonal(t *testing.T) {
	numbers := rapid.Map(rapid.StringMatching(`-?[1-9][0-9]{0,18}(\.[0-9]{1,15})?`), func(s string) json.Number { return json.Number(s) })
	values := value(rapid.OneOf(personal(), rapid.String()), numbers, 3)
	rapid.Check(t, func(t *rapid.T) {
		// Under keys that the protocol does not reserve.
		payload, err := core.Encode(map[string]any{
			"content": values.Draw(t, "content"), "structuredContent": values.Draw(t, "structured"),
		})
		require.NoError(t, err)
		got := redacted(t, string(payload))
		var v any
		require.NoError(t, core.Decode([]byte(got), &v), "every key once, and all of it JSON")
		require.True(t, clean(v), "%s\nbecame\n%s", payload, got)
		require.Equal(t, got, redacted(t, got), "masks are not masked again")
	})
}

// Seen to fail with a minCard of 9 digits, and with rewrite encoding each string anew.
func TestRedactLeavesTheRestAlone(t *testing.T) {
	// Escapes, odd spellings of numbers and white space must stay as they are.
	literals := rapid.SampledFrom([]string{
		`"\u0041\/\u003c\n"`, `"<&>"`, `"\ud83d\ude00 😀"`, `"123456789012"`, `"2026-01-02"`, `"{\"a\": 1.50}"`,
		`1.0`, `-0`, `1E+2`, `123456789012`, `0.10`, `1e-7`, `true`, `null`, `{}`, `[ ]`, `""`,
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(literals, 1, 6).Draw(t, "parts")
		payload := `{"z": [` + strings.Join(parts, " ,\t") + `] , "a":{"b":` + parts[0] + `}}`
		got := invoke(t, redactPII(), core.EventToolsCall, core.PhaseResponse, payload).Mutation
		require.False(t, got.Modified, "%s\nbecame\n%s", payload, got.Payload)
	})
}

// Seen to fail with redactor.any returning s where it masks it.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"ada@example.com 4111 1111 1111 1111"}]}`,
		`{"structuredContent":{"a@b":[4111111111111111,"\u0040"]},"_meta":{"x":"a@b"}}`,
		`{"t":"[\"a@b\",\"\\u1234567890123456\"]"}`, `"@"`, `[[[]]]`, `{"data":"4111111111111111"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		var before any
		if core.Decode([]byte(payload), &before) != nil || strings.Contains(payload, "_meta") {
			return // no result, or one with parts that stay
		}
		got := redacted(t, payload)
		var after any
		require.NoError(t, core.Decode([]byte(got), &after))
		require.True(t, clean(after), got)
	})
}
