package core_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

func sample() map[string]any {
	return map[string]any{
		"map": map[string]any{"a": []any{map[string]any{"b": 1}}}, "list": []any{[]any{1}}, "n": json.Number("1"), "nil": nil,
		"strings": []string{"a"}, "typed": map[string]string{"k": "v"}, "maps": []map[string]any{{"a": 1}},
		"mixed": map[string][]any{"l": {map[string]any{"a": 1}, nil}}, "raw": json.RawMessage(`{}`),
		"nil list": []any(nil), "nil strings": []string(nil), "nil map": map[string]any(nil), "no list": []any{},
	}
}

func TestCloneMapSharesNothing(t *testing.T) {
	in := sample()
	out := core.CloneMap(in)
	require.Equal(t, in, out)

	out["map"].(map[string]any)["a"].([]any)[0].(map[string]any)["b"] = 2
	out["map"].(map[string]any)["new"] = 1
	out["list"].([]any)[0].([]any)[0] = 2
	out["strings"].([]string)[0] = "changed"
	out["typed"].(map[string]string)["k"] = "changed"
	out["maps"].([]map[string]any)[0]["a"] = 2
	out["mixed"].(map[string][]any)["l"][0].(map[string]any)["a"] = 2
	out["raw"].(json.RawMessage)[0] = '!'
	out["new"] = 1
	assert.Equal(t, sample(), in)
	assert.Nil(t, core.CloneMap(nil))
}

func TestInvocationContextClone(t *testing.T) {
	in := core.InvocationContext{SessionID: "s", Principal: &core.Principal{ID: "u", Claims: sample(), Asserted: true}}
	out := in.Clone()
	require.Equal(t, in, out)
	out.Principal.ID = "changed"
	out.Principal.Claims["strings"].([]string)[0] = "changed"
	assert.Equal(t, "u", in.Principal.ID)
	assert.Equal(t, sample(), in.Principal.Claims)
	assert.Equal(t, core.InvocationContext{}, core.InvocationContext{}.Clone())
}
