package core_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
