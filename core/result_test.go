package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

func messages(severities ...core.Severity) []core.Message {
	out := []core.Message{}
	for _, s := range severities {
		out = append(out, core.Message{Message: "m", Severity: s})
	}
	return out
}

// The numbers are the rows of doc/CONFORMANCE.md 3.1 and case B04.
func TestVerdict(t *testing.T) {
	const info, warn, err = core.SeverityInfo, core.SeverityWarn, core.SeverityError
	for name, tt := range map[string]struct {
		res  core.ValidationResult
		want core.Verdict
	}{
		"1, 11, B04a: a bare no is a no": {
			core.ValidationResult{}, core.Verdict{Rejects: true, Severity: err},
		},
		"2, B04b: severity error without messages blocks": {
			core.ValidationResult{Severity: err}, core.Verdict{Rejects: true, Severity: err},
		},
		"B04c: an empty message list is no excuse": {
			core.ValidationResult{Messages: messages()}, core.Verdict{Rejects: true, Severity: err},
		},
		"3: a top-level warn outweighs an error message": {
			core.ValidationResult{Severity: warn, Messages: messages(err)}, core.Verdict{Severity: warn},
		},
		"4: one error message blocks": {
			core.ValidationResult{Messages: messages(info, err, warn)}, core.Verdict{Rejects: true, Severity: err},
		},
		"5, B04d: warnings alone do not block": {
			core.ValidationResult{Messages: messages(warn, info)}, core.Verdict{Severity: warn},
		},
		"5: infos alone do not block": {
			core.ValidationResult{Messages: messages(info)}, core.Verdict{Severity: info},
		},
		"messages without severity do not soften a no": {
			core.ValidationResult{Messages: messages("", "")}, core.Verdict{Rejects: true, Severity: err},
		},
		"6: valid with severity error passes, and stands out": {
			core.ValidationResult{Valid: true, Severity: err}, core.Verdict{Severity: err, Contradicts: true},
		},
		"6, B04e: valid with an error message passes, and stands out": {
			core.ValidationResult{Valid: true, Messages: messages(err)}, core.Verdict{Severity: err, Contradicts: true},
		},
		"15: not valid at severity warn passes": {
			core.ValidationResult{Severity: warn}, core.Verdict{Severity: warn},
		},
		"15: not valid at severity info passes": {
			core.ValidationResult{Severity: info}, core.Verdict{Severity: info},
		},
		"valid with a warning is no contradiction": {
			core.ValidationResult{Valid: true, Messages: messages(warn)}, core.Verdict{Severity: warn},
		},
		"Allow is a plain pass": {*core.Allow(), core.Verdict{}},
		"Deny blocks":           {*core.Deny("no"), core.Verdict{Rejects: true, Severity: err}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.res.Verdict()) })
	}
}

func TestAnswerCheck(t *testing.T) {
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	validation := func(v *core.ValidationResult) core.Answer { return core.Answer{Validation: v} }
	mutation := func(m *core.MutationResult) core.Answer { return core.Answer{Mutation: m} }
	for name, tt := range map[string]struct {
		answer core.Answer
		typ    core.Type
		want   string // in the error; empty means none
	}{
		"10: no answer of a validator": {core.Answer{}, core.TypeValidation, "no validation result"},
		"10: no answer of a mutator":   {core.Answer{}, core.TypeMutation, "no mutation result"},
		"9: a validator that mutates":  {mutation(core.Unchanged()), core.TypeValidation, "not a validation result"},
		"9: a mutator that validates":  {validation(core.Allow()), core.TypeMutation, "not a mutation result"},
		"both at once":                 {core.Answer{Validation: core.Allow(), Mutation: core.Unchanged()}, core.TypeValidation, "not a"},
		"an unknown type":              {validation(core.Allow()), "sink", "not a sink result"},
		"7: an unknown severity":       {validation(&core.ValidationResult{Severity: "fatal"}), core.TypeValidation, `unknown severity "fatal"`},
		"7: a severity in capitals":    {validation(&core.ValidationResult{Severity: "Error"}), core.TypeValidation, "unknown severity"},
		"7: an unknown severity of a pass": {
			validation(&core.ValidationResult{Valid: true, Severity: "none"}), core.TypeValidation, "unknown severity",
		},
		"7: an unknown severity of a message": {
			validation(&core.ValidationResult{Messages: messages("warn", "fatal")}), core.TypeValidation, "message 1: unknown severity",
		},
		"info with a function": {
			validation(&core.ValidationResult{Valid: true, Info: map[string]any{"f": func() {}}}), core.TypeValidation, "info",
		},
		"info with NaN":          {validation(&core.ValidationResult{Info: map[string]any{"n": math.NaN()}}), core.TypeValidation, "info"},
		"info that holds itself": {validation(&core.ValidationResult{Info: cyclic}), core.TypeValidation, "info"},
		"a suggestion with a channel": {
			validation(&core.ValidationResult{Suggestions: []core.Suggestion{{Value: make(chan int)}}}), core.TypeValidation, "suggestions",
		},
		"a mutator's info with infinity": {
			mutation(&core.MutationResult{Info: map[string]any{"n": math.Inf(1)}}), core.TypeMutation, "info",
		},
		"35: modified without payload":    {mutation(&core.MutationResult{Modified: true}), core.TypeMutation, "modified without a payload"},
		"35: modified, payload empty":     {mutation(core.Replace(json.RawMessage{})), core.TypeMutation, "modified without a payload"},
		"36: modified, payload null":      {mutation(core.Replace([]byte(" null"))), core.TypeMutation, "payload is null"},
		"40: modified, payload not JSON":  {mutation(core.Replace([]byte(`{"a":`))), core.TypeMutation, "payload is not JSON"},
		"40: a word that starts as null":  {mutation(core.Replace([]byte(`nope`))), core.TypeMutation, "payload is not JSON"},
		"40: two values":                  {mutation(core.Replace([]byte(`{} {}`))), core.TypeMutation, "payload is not JSON"},
		"40: blanks":                      {mutation(core.Replace([]byte("\n "))), core.TypeMutation, "payload is not JSON"},
		"a pass":                          {validation(core.Allow()), core.TypeValidation, ""},
		"a denial":                        {validation(core.Deny("no")), core.TypeValidation, ""},
		"a message without severity":      {validation(&core.ValidationResult{Messages: messages("")}), core.TypeValidation, ""},
		"info that JSON holds":            {validation(&core.ValidationResult{Info: map[string]any{"n": json.Number("1e400")}}), core.TypeValidation, ""},
		"unchanged":                       {mutation(core.Unchanged()), core.TypeMutation, ""},
		"34: unchanged, payload ignored":  {mutation(&core.MutationResult{Payload: []byte("junk")}), core.TypeMutation, ""},
		"replaced by an object":           {mutation(core.Replace([]byte(` {"a":1} `))), core.TypeMutation, ""},
		"replaced by a string with \"n\"": {mutation(core.Replace([]byte(`"null"`))), core.TypeMutation, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.answer.Check(tt.typ)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, core.ErrMalformed)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestCall(t *testing.T) {
	inv := &core.Invocation{Event: core.EventToolsCall, Phase: core.PhaseRequest, Payload: json.RawMessage(`{"a":1}`)}
	boom := errors.New("boom")
	validator := func(res *core.ValidationResult, err error) core.Interceptor {
		return core.Validator{Handler: func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return res, err }}
	}
	mutator := func(res *core.MutationResult, err error) core.Interceptor {
		return core.Mutator{Handler: func(context.Context, *core.Invocation) (*core.MutationResult, error) { return res, err }}
	}
	for name, tt := range map[string]struct {
		i       core.Interceptor
		want    core.Answer
		wantErr error
	}{
		"a validator's answer":             {validator(core.Deny("no"), nil), core.Answer{Validation: core.Deny("no")}, nil},
		"a mutator's answer":               {mutator(core.Unchanged(), nil), core.Answer{Mutation: core.Unchanged()}, nil},
		"a validator's nil":                {validator(nil, nil), core.Answer{}, core.ErrMalformed},
		"a mutator's nil":                  {mutator(nil, nil), core.Answer{}, core.ErrMalformed},
		"a validator's error beats a pass": {validator(core.Allow(), boom), core.Answer{}, boom},
		"a mutator's error beats a result": {mutator(core.Unchanged(), boom), core.Answer{}, boom},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := core.Call(t.Context(), tt.i, inv)
			require.ErrorIs(t, err, tt.wantErr)
			assert.Equal(t, tt.want.Validation, got.Validation)
			assert.Equal(t, tt.want.Mutation, got.Mutation)
		})
	}
}

// Free data becomes plain values once, so that no encoder of a handler's runs
// when an answer is looked at later.
func TestCheckedAnswersArePlain(t *testing.T) {
	runs := 0
	data := map[string]any{"x": encoder{&runs}, "n": int64(9007199254740993), "s": []string{"a"}}
	for name, answer := range map[string]core.Answer{
		"validation": {Validation: &core.ValidationResult{Info: data, Suggestions: []core.Suggestion{{Path: "p", Value: encoder{&runs}}}}},
		"mutation":   {Mutation: &core.MutationResult{Info: data}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := answer.Checked(core.Type(name))
			require.NoError(t, err)
			runs = 0
			_, err = got.Checked(core.Type(name))
			require.NoError(t, err)
			var info map[string]any
			if got.Validation != nil {
				info = got.Validation.Info
				assert.Equal(t, "plain", got.Validation.Suggestions[0].Value)
			} else {
				info = got.Mutation.Info
			}
			assert.Equal(t, map[string]any{"x": "plain", "n": json.Number("9007199254740993"), "s": []any{"a"}}, info)
			assert.Zero(t, runs)
			assert.IsType(t, encoder{}, data["x"], "the handler's own is untouched")
		})
	}
}

type encoder struct{ runs *int }

func (e encoder) MarshalJSON() ([]byte, error) { *e.runs++; return []byte(`"plain"`), nil }
