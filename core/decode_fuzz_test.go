package core_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

// FuzzDecode holds Decode against readings that share nothing with it: what it
// accepts, a reader that takes keys exactly reads alike, field by field; what
// it refuses has the fault that it names. Seen to fail with folds answering
// nil, and folding names of equal length only; with keySet.add answering true;
// with the elements of lists checked without their type; without UseNumber.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		var got fuzzTarget
		err := core.Decode(data, &got)
		var plain fuzzTarget
		plainErr := unmarshalNumbers(data, &plain)
		switch {
		case errors.Is(err, core.ErrDuplicateKey):
			duplicate, _ := keysOf(t, data)
			require.True(t, duplicate, "%s", err)
		case errors.Is(err, core.ErrKeyCase):
			_, keys := keysOf(t, data)
			require.True(t, slices.ContainsFunc(keys, foldsToField), "%s", err)
		case err != nil:
			require.Error(t, plainErr)
		default:
			require.NoError(t, plainErr)
			require.Equal(t, plain, got)
			require.Equal(t, readExactly(data), got)
			duplicate, _ := keysOf(t, data)
			require.False(t, duplicate)
		}
	})
}

type fuzzTarget struct {
	base
	Name string          `json:"name"`
	Ptr  *leaf           `json:"ptr"`
	List []leaf          `json:"list"`
	Map  map[string]leaf `json:"map"`
	Any  any             `json:"any"`
	Raw  json.RawMessage `json:"raw"`
}

func foldsToField(key string) bool {
	return slices.ContainsFunc([]string{"kind", "name", "ptr", "list", "map", "any", "raw", "k", "s"}, func(field string) bool {
		return key != field && strings.EqualFold(key, field)
	})
}

// readExactly reads a fuzzTarget through maps, which know no case folding.
func readExactly(data []byte) fuzzTarget {
	m := read[map[string]json.RawMessage](data)
	out := fuzzTarget{base: base{read[string](m["kind"])}, Name: read[string](m["name"]), Any: read[any](m["any"]), Raw: m["raw"]}
	if raw := m["ptr"]; raw != nil && string(raw) != "null" {
		out.Ptr = new(readLeaf(raw))
	}
	if raws := read[[]json.RawMessage](m["list"]); raws != nil {
		out.List = make([]leaf, len(raws))
		for i, raw := range raws {
			out.List[i] = readLeaf(raw)
		}
	}
	if raws := read[map[string]json.RawMessage](m["map"]); raws != nil {
		out.Map = map[string]leaf{}
		for name, raw := range raws {
			out.Map[name] = readLeaf(raw)
		}
	}
	return out
}

func readLeaf(raw json.RawMessage) leaf {
	m := read[map[string]json.RawMessage](raw)
	return leaf{K: read[string](m["k"]), S: read[any](m["s"])}
}

func read[T any](raw json.RawMessage) (v T) {
	if raw != nil {
		_ = unmarshalNumbers(raw, &v)
	}
	return v
}

func unmarshalNumbers(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return errors.Join(dec.Decode(v), json.Unmarshal(data, new(json.RawMessage)))
}

// keysOf reads token by token, reports whether an object has a key twice, and
// returns all keys. Under the target's raw it does not look.
func keysOf(tb testing.TB, data []byte) (duplicate bool, keys []string) {
	tb.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var value func(skip string)
	value = func(skip string) {
		tok, err := dec.Token()
		require.NoError(tb, err)
		seen := map[string]bool{}
		for open := tok; (open == json.Delim('{') || open == json.Delim('[')) && dec.More(); {
			if open == json.Delim('{') {
				tok, err := dec.Token()
				require.NoError(tb, err)
				key := tok.(string)
				duplicate = duplicate || seen[key]
				seen[key] = true
				keys = append(keys, key)
				if key == skip {
					require.NoError(tb, dec.Decode(new(json.RawMessage)))
					continue
				}
			}
			value("")
		}
		if _, open := tok.(json.Delim); open {
			_, err := dec.Token()
			require.NoError(tb, err)
		}
	}
	value("raw")
	return duplicate, keys
}
