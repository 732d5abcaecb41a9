package middleware

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// sameAsStandard holds encode against encoding/json, which writes what the SDK
// sends. It returns whether the quick way was taken.
func sameAsStandard(t *testing.T, v any) bool {
	t.Helper()
	g := newGate(nil, nil, false)
	want, wantErr := core.Encode(v)
	got, err := g.encode(v, bySomebody)
	require.Equal(t, wantErr == nil, err == nil, "%v", wantErr)
	require.Equal(t, string(want), string(got))
	_, quick := new(scratch).quick(v, bySomebody, &g.shapes)
	if trusted, err := g.encode(v, bySDK); wantErr == nil {
		require.NoError(t, err)
		require.Equal(t, string(want), string(trusted))
	}
	return quick
}

func TestEncodeIsThatOfTheSDK(t *testing.T) {
	meta := mcp.Meta{
		"z": 1.5, "a<b>&c": "é\u2028\u2029\x00\x1f\b\f\n\r\t\"\\\xff<&>", "n": nil, "b": true, "f": false, "int": 7, "": "", "big": 123456789012345678.0,
		"m": map[string]any{"y": []any{1.0, "two", nil, []any{}}, "x": map[string]any(nil), "w": []any(nil)},
	}
	params := map[string]struct {
		params *mcp.CallToolParamsRaw
		quick  bool
	}{
		"empty":          {&mcp.CallToolParamsRaw{}, true},
		"arguments":      {&mcp.CallToolParamsRaw{Name: "act", Arguments: json.RawMessage(`{"a":[1,"<&>"]}`)}, true},
		"meta and state": {&mcp.CallToolParamsRaw{Name: "act <&>", Meta: meta, RequestState: "s", Arguments: json.RawMessage(`null`)}, true},
		"no arguments":   {&mcp.CallToolParamsRaw{Name: "act", Arguments: json.RawMessage{}, RequestState: "s"}, true},
		"spaced":         {&mcp.CallToolParamsRaw{Name: "act", Arguments: json.RawMessage(`{"a": 1}`)}, false},
		"not JSON":       {&mcp.CallToolParamsRaw{Name: "act", Arguments: json.RawMessage(`{"a":`)}, false},
		"answers": {&mcp.CallToolParamsRaw{Name: "act", InputResponses: mcp.InputResponseMap{
			"a": &mcp.ElicitResult{Action: "accept"},
		}}, false},
		"meta with an exponent":      {&mcp.CallToolParamsRaw{Name: "act", Meta: mcp.Meta{"f": 1e-9}}, false},
		"meta that cannot be":        {&mcp.CallToolParamsRaw{Name: "act", Meta: mcp.Meta{"f": math.Inf(1)}}, false},
		"meta of types of one's own": {&mcp.CallToolParamsRaw{Name: "act", Meta: mcp.Meta{"f": []string{"a"}}}, false},
		"deep meta":                  {&mcp.CallToolParamsRaw{Name: "act", Meta: mcp.Meta{"f": nested(100)}}, false},
	}
	for name, tt := range params {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.quick, sameAsStandard(t, tt.params)) })
	}
	failed := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "x"}}}
	failed.SetError(errors.New("x"))
	typed := &mcp.CallToolResult{}
	require.NoError(t, json.Unmarshal([]byte(`{"content":[],"resultType":"complete"}`), typed))
	results := map[string]struct {
		result *mcp.CallToolResult
		quick  bool
	}{
		"empty":      {&mcp.CallToolResult{}, true},
		"no content": {&mcp.CallToolResult{Content: []mcp.Content{}}, true},
		"text and image": {&mcp.CallToolResult{Meta: meta, IsError: true, RequestState: "s", Content: []mcp.Content{
			&mcp.TextContent{Text: "line\n<b>\u2028 \xc3 ü", Meta: mcp.Meta{"k": "<"}}, &mcp.ImageContent{}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte{1, 2, 3, 4}},
		}}, true},
		"structured":       {&mcp.CallToolResult{StructuredContent: json.RawMessage(`{"a":[1]}`)}, true},
		"structured, null": {&mcp.CallToolResult{StructuredContent: json.RawMessage(`null`)}, true},
		"an error":         {failed, true},
		"a type":           {typed, true},
		"spaced":           {&mcp.CallToolResult{StructuredContent: json.RawMessage(` 1`)}, false},
		"not JSON":         {&mcp.CallToolResult{StructuredContent: json.RawMessage(`{]`)}, false},
		"nil that is raw":  {&mcp.CallToolResult{StructuredContent: json.RawMessage(nil)}, false},
		"to be escaped":    {&mcp.CallToolResult{StructuredContent: json.RawMessage(`"<"`)}, false},
		"separators":       {&mcp.CallToolResult{StructuredContent: json.RawMessage("\"\u2028\"")}, false},
		"typed":            {&mcp.CallToolResult{StructuredContent: map[string]any{"a": 1}}, false},
		"annotations":      {&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Annotations: &mcp.Annotations{Priority: 1}}}}, false},
		"a link":           {&mcp.CallToolResult{Content: []mcp.Content{&mcp.ResourceLink{URI: "u"}}}, false},
		"asks":             {&mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"r": &mcp.ElicitParams{Message: "m"}}}, false},
	}
	for name, tt := range results {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.quick, sameAsStandard(t, tt.result)) })
	}
}

func nested(depth int) any {
	if depth == 0 {
		return "end"
	}
	return map[string]any{"m": []any{nested(depth - 1)}}
}

// Seen red with escapes() false, with the names of an object not sorted, and
// with \u2029 left as it is.
func FuzzEncode(f *testing.F) {
	f.Add("act", `{"a":[1,2]}`, `{"k":{"n":1.25,"s":"<"}}`, "text\n\u2028", "state", true)
	f.Add("", ``, ``, "\xff\x00", "", false)
	f.Add("n", `{"a" :1}`, `{"k":1e-7}`, strings.Repeat("é", 9), "s", true)
	f.Fuzz(func(t *testing.T, name, raw, metaJSON, text, state string, isError bool) {
		var meta mcp.Meta
		_ = json.Unmarshal([]byte(metaJSON), &meta)
		sameAsStandard(t, &mcp.CallToolParamsRaw{Name: name, Arguments: json.RawMessage(raw), Meta: meta, RequestState: state})
		result := &mcp.CallToolResult{
			Meta: meta, IsError: isError, RequestState: state,
			Content: []mcp.Content{&mcp.TextContent{Text: text, Meta: meta}, &mcp.ImageContent{MIMEType: name, Data: []byte(text)}},
		}
		if raw != "" {
			result.StructuredContent = json.RawMessage(raw)
		}
		sameAsStandard(t, result)
	})
}
