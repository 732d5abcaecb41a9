package main

import (
	"encoding/json"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// invoke runs an interceptor on a payload, as a chain would.
func invoke(t require.TestingT, i core.Interceptor, event string, phase core.Phase, payload string) core.Answer {
	inv := &core.Invocation{Event: event, Phase: phase, MessageID: "m-1", Payload: json.RawMessage(payload)}
	answer, err := core.Call(ctxOf(t), i, inv)
	require.NoError(t, err)
	return answer
}

func TestInterceptorsAreSound(t *testing.T) {
	for _, i := range []core.Interceptor{blockDestructive(), redactPII(), stampResponse(nil), injectionScan()} {
		assert.NoError(t, core.CheckInterceptor(i), i.Describe().Name)
	}
}

func TestBlockDestructive(t *testing.T) {
	for name, tt := range map[string]struct {
		params string
		passes bool
	}{
		"a condition":                       {`{"name":"delete_records","arguments":{"table":"t","where":"id = 7"}}`, true},
		"a condition of one character":      {`{"name":"delete_records","arguments":{"where":"0"}}`, true},
		"a condition among blanks":          {`{"name":"delete_records","arguments":{"where":"\u200b\n x \t"}}`, true},
		"a condition in another script":     {`{"name":"delete_records","arguments":{"where":"年 = 7"}}`, true},
		"a condition beside one in capital": {`{"name":"delete_records","arguments":{"where":"id = 7","Where":""}}`, true},
		"another tool":                      {`{"name":"echo","arguments":{"text":"delete_records"}}`, true},
		"another tool without arguments":    {`{"name":"echo"}`, true},
		"another tool in capitals":          {`{"name":"DELETE_RECORDS","arguments":{}}`, true}, // the server has none

		"no arguments":                   {`{"name":"delete_records"}`, false},
		"null arguments":                 {`{"name":"delete_records","arguments":null}`, false},
		"arguments in an array":          {`{"name":"delete_records","arguments":[{"where":"x"}]}`, false},
		"arguments in a string":          {`{"name":"delete_records","arguments":"{\"where\":\"x\"}"}`, false},
		"no where":                       {`{"name":"delete_records","arguments":{"table":"t"}}`, false},
		"null":                           {`{"name":"delete_records","arguments":{"where":null}}`, false},
		"a number":                       {`{"name":"delete_records","arguments":{"where":1}}`, false},
		"a boolean":                      {`{"name":"delete_records","arguments":{"where":true}}`, false},
		"an array":                       {`{"name":"delete_records","arguments":{"where":["id = 7"]}}`, false},
		"an object":                      {`{"name":"delete_records","arguments":{"where":{"id":7}}}`, false},
		"an empty string":                {`{"name":"delete_records","arguments":{"where":""}}`, false},
		"blanks":                         {`{"name":"delete_records","arguments":{"where":"  "}}`, false},
		"tabs and line breaks":           {`{"name":"delete_records","arguments":{"where":"\t\r\n\u000b\f"}}`, false},
		"a nul":                          {`{"name":"delete_records","arguments":{"where":"\u0000"}}`, false},
		"no-break spaces":                {`{"name":"delete_records","arguments":{"where":"\u00a0\u3000\u2028\u0085"}}`, false},
		"zero width spaces":              {`{"name":"delete_records","arguments":{"where":"\u200b\ufeff\u2060\u00ad"}}`, false},
		"letters without a glyph":        {`{"name":"delete_records","arguments":{"where":"\u3164\u115f\uffa0\u2800\ufe0f"}}`, false},
		"half a surrogate":               {`{"name":"delete_records","arguments":{"where":"\ud800"}}`, false},
		"a key in another case":          {`{"name":"delete_records","arguments":{"Where":"x"}}`, false},
		"a key that folds to it":         {`{"name":"delete_records","arguments":{"wherE":"x","WHERE":"x"}}`, false},
		"a key with a blank":             {`{"name":"delete_records","arguments":{"where ":"x"}}`, false},
		"a key deeper down":              {`{"name":"delete_records","arguments":{"table":{"where":"x"}}}`, false},
		"the key outside":                {`{"name":"delete_records","where":"x","arguments":{}}`, false},
		"the key twice, the good first":  {`{"name":"delete_records","arguments":{"where":"x","where":""}}`, false},
		"the key twice, the good last":   {`{"name":"delete_records","arguments":{"where":"","where":"x"}}`, false},
		"the key twice, once escaped":    {`{"name":"delete_records","arguments":{"where":"x","\u0077here":""}}`, false},
		"another key twice":              {`{"name":"delete_records","arguments":{"table":"a","table":"b","where":"x"}}`, false},
		"a key twice deeper down":        {`{"name":"delete_records","arguments":{"where":"x","o":{"a":1,"a":2}}}`, false},
		"the name twice":                 {`{"name":"echo","name":"delete_records","arguments":{}}`, false},
		"the name in another case":       {`{"Name":"delete_records","arguments":{"where":"x"}}`, false},
		"arguments in another case":      {`{"name":"delete_records","Arguments":{"where":"x"}}`, false},
		"an escaped name":                {`{"name":"\u0064elete_records","arguments":{}}`, false},
		"a name that is no string":       {`{"name":["delete_records"],"arguments":{}}`, false},
		"arguments under both spellings": {`{"name":"delete_records","arguments":{"where":"x"},"ARGUMENTS":{}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, blockDestructive(), core.EventToolsCall, core.PhaseRequest, tt.params).Validation
			assert.Equal(t, tt.passes, got.Valid)
			assert.Equal(t, !tt.passes, got.Verdict().Rejects)
		})
	}
}
