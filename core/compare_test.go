package core_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

func TestMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b, path string
		missing    bool
	}{
		"equal":                             {`{"a":1}`, `{"a":1}`, "", false},
		"order and blanks":                  {`{"a":1,"b":[1,2]}`, `{ "b" : [1, 2], "a" : 1 }`, "", false},
		"spelling of text and numbers":      {`{"a":"\u003c","n":1.0}`, `{"a":"<","n":1}`, "", false},
		"what only b has":                   {`{"a":1}`, `{"a":1,"b":2}`, "", false},
		"what says nothing":                 {`{"a":null,"b":false,"c":0,"d":"","e":[ ],"f":{ }}`, `{}`, "", false},
		"nothing for nothing":               {`{"a":null}`, `{"a":""}`, "", false},
		"a member":                          {`{"a":{"b":1}}`, `{"a":{}}`, "a.b", true},
		"a member of a list":                {`{"a":[{"b":1},{"c":1}]}`, `{"a":[{"b":1},{}]}`, "a[1].c", true},
		"an element":                        {`{"a":[1,2]}`, `{"a":[1]}`, "a[1]", true},
		"an element too many":               {`{"a":[1]}`, `{"a":[1,2]}`, "a[1]", true},
		"an element, even an empty one":     {`[null]`, `[]`, "[0]", true},
		"the first of two":                  {`[{"a":1},{"b":1}]`, `[{},{}]`, "[0].a", true},
		"another value":                     {`{"a":"x"}`, `{"a":"y"}`, "a", true},
		"another number":                    {`{"a":1}`, `{"a":2}`, "a", true},
		"another type":                      {`{"a":1}`, `{"a":"1"}`, "a", true},
		"true, turned":                      {`{"a":true}`, `{"a":false}`, "a", true},
		"a key in another case":             {`{"Name":1}`, `{"name":1}`, "Name", true},
		"the whole":                         {`1`, `2`, "", true},
		"what is not JSON misses all of it": {`{"a":1}`, `{"a":`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			path, missing := core.Missing([]byte(tt.a), []byte(tt.b))
			assert.Equal(t, tt.missing, missing)
			assert.Equal(t, tt.path, path)
		})
	}
}

func TestMissingComparesNumbersExactly(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b string
		same bool
	}{
		"2^53+1 is not 2^53":     {`9007199254740993`, `9007199254740992`, false},
		"1.0 is 1":               {`1.0`, `1`, true},
		"100 is 1e2 and 1E+2":    {`[100,100]`, `[1e2,1E+2]`, true},
		"0.001 is 1e-3":          {`0.001`, `1e-3`, true},
		"-0 is 0":                {`-0`, `0`, true},
		"-1 is not 1":            {`-1`, `1`, false},
		"beyond all floats":      {`1e400`, `10e399`, true},
		"nor are these the same": {`1e400`, `1e401`, false},
		"exponents beyond int64": {`1e99999999999999999999`, `1e99999999999999999998`, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, missing := core.Missing([]byte(tt.a), []byte(tt.b))
			assert.Equal(t, !tt.same, missing)
		})
	}
}

// Its time does not grow with the depth at which two values differ in spelling.
// Seen to fail when each level scanned all that lies below it once more.
func TestMissingIsLinear(t *testing.T) {
	deep := func(levels int, end string) []byte {
		return []byte(strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", 1<<18) + end + `"` + strings.Repeat("}", levels))
	}
	cost := func(levels int) time.Duration {
		a, b := deep(levels, "<"), deep(levels, `\u003c`)
		start := time.Now()
		_, missing := core.Missing(a, b)
		require.False(t, missing)
		return time.Since(start)
	}
	cost(900)
	require.Less(t, cost(900), 20*cost(10)+50*time.Millisecond)
}
