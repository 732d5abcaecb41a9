package chaintest

import (
	"context"
	"errors"
	"runtime"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// verdictCases say what a well-formed answer comes to.
func verdictCases() []Case {
	msg := func(sevs ...core.Severity) []core.Message {
		var out []core.Message
		for _, s := range sevs {
			out = append(out, core.Message{Message: "m", Severity: s})
		}
		return out
	}
	table := []struct {
		name   string
		answer core.ValidationResult
		check  func(*T, *chain.Result, error)
	}{
		{"row 1: invalid without severity and messages blocks", core.ValidationResult{}, denied("v")},
		{"row 2: invalid with severity error and no messages blocks", core.ValidationResult{Severity: "error"}, denied("v")},
		{"row 3: top-level warn outranks an error message", core.ValidationResult{Severity: "warn", Messages: msg("error")}, passes},
		{"row 4: invalid with an error message blocks", core.ValidationResult{Messages: msg("info", "error")}, denied("v")},
		{"row 5: invalid with only warnings passes", core.ValidationResult{Messages: msg("warn", "info")}, passes},
		{"row 6: valid with severity error passes", core.ValidationResult{Valid: true, Severity: "error"}, passes},
		{"row 6: valid with an error message passes", core.ValidationResult{Valid: true, Messages: msg("error")}, passes},
		{"row 15: an active warning passes", core.ValidationResult{Severity: "warn"}, passes},
		{"an empty list of messages is no excuse", core.ValidationResult{Messages: []core.Message{}}, denied("v")},
	}
	var cases []Case
	for _, row := range table {
		cases = append(cases, Case{
			Name: row.name, Interceptors: []core.Interceptor{Validator("v", Answer(row.answer))}, Check: row.check,
		})
	}
	return append(cases,
		Case{
			Name:         "row 12: all validators finish, all are reported, the first by name leads",
			Interceptors: []core.Interceptor{Validator("c", Deny), Validator("a", Allow), Validator("b", Deny)},
			Check: func(t *T, res *chain.Result, err error) {
				abort := aborted(t, res, err, "b", chain.StatusValidationFailed)
				assert.Equal(t, []chain.Denial{{Interceptor: "b", Severity: "error"}, {Interceptor: "c", Severity: "error"}}, abort.Denials)
				require.Len(t, res.Results, 3)
				for i, name := range []string{"a", "b", "c"} {
					assert.Equal(t, name, res.Results[i].Entry.Name)
				}
			},
		},
		Case{
			Name: "row 14: the summary counts a severity without messages",
			Interceptors: []core.Interceptor{
				Validator("a", Answer(core.ValidationResult{Severity: "warn"})),
				Validator("b", Answer(core.ValidationResult{Valid: true, Messages: msg("info", "info")})),
				Validator("c", Answer(core.ValidationResult{})),
			},
			Check: func(t *T, res *chain.Result, err error) {
				require.Error(t, err)
				assert.Equal(t, chain.ValidationSummary{Errors: 1, Warnings: 1, Infos: 2}, res.ValidationSummary)
			},
		},
		Case{
			Name:         "row 23: fail-open does not let a denial pass",
			Interceptors: []core.Interceptor{Validator("v", Deny, FailOpen)},
			Check:        denied("v"),
		},
	)
}

// failureCases say what failOpen makes of each way to fail.
func failureCases() []Case {
	validators := map[string]ValidatorFunc{
		"error":                  Fail(errors.New("boom")),
		"row 10: no result":      Fail(nil),
		"row 7: severity fatal":  Answer(core.ValidationResult{Valid: true, Severity: "fatal"}),
		"message severity fatal": Answer(core.ValidationResult{Valid: true, Messages: []core.Message{{Severity: "fatal"}}}),
		"row 93: panic":          func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("boom") },
		"panic of nil":           func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic(nil) },
		"runtime error": func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			return []*core.ValidationResult{}[len(inv.Event)], nil
		},
		"Goexit": func(context.Context, *core.Invocation) (*core.ValidationResult, error) {
			runtime.Goexit()
			return core.Allow(), nil
		},
		"info that JSON cannot hold":        Answer(core.ValidationResult{Valid: true, Info: map[string]any{"f": func() {}}}),
		"row 87: its own deadline exceeded": Fail(context.DeadlineExceeded),
		"its own cancellation":              Fail(context.Canceled),
	}
	mutators := map[string]MutatorFunc{
		"error":                        func(context.Context, *core.Invocation) (*core.MutationResult, error) { return nil, errors.New("boom") },
		"row 10: no result":            func(context.Context, *core.Invocation) (*core.MutationResult, error) { return nil, nil },
		"row 35: modified, no payload": Set(""),
		"row 36: modified to null":     Set("null"),
		"row 36: null with space":      Set(" null "),
		"row 37: not an object":        Set(`["a"]`),
		"row 37: a string":             Set(`"a"`),
		"row 40: not JSON":             Set(`{"a":`),
		"row 40: trailing data":        Set(`{} {}`),
		"row 93: panic":                func(context.Context, *core.Invocation) (*core.MutationResult, error) { panic("boom") },
		"Goexit": func(context.Context, *core.Invocation) (*core.MutationResult, error) {
			runtime.Goexit()
			return nil, nil
		},
		"row 87: its own deadline": func(context.Context, *core.Invocation) (*core.MutationResult, error) {
			return nil, context.DeadlineExceeded
		},
	}
	var cases []Case
	for name, h := range validators {
		cases = append(cases,
			Case{Name: "validator fails closed: " + name, Interceptors: []core.Interceptor{Validator("v", h)}, Check: fails("v", chain.StatusValidationFailed)},
			Case{Name: "validator fails open: " + name, Interceptors: []core.Interceptor{Validator("v", h, FailOpen)}, Check: failsOpen},
			Case{Name: "inline or not, closed: " + name, Interceptors: []core.Interceptor{Validator("v", unlessGoexit(name, h), Inline)}, Check: fails("v", chain.StatusValidationFailed)},
		)
	}
	for name, h := range mutators {
		cases = append(cases,
			Case{Name: "mutator fails closed: " + name, Interceptors: []core.Interceptor{Mutator("v", h)}, Check: fails("v", chain.StatusMutationFailed)},
			Case{Name: "mutator fails open: " + name, Interceptors: []core.Interceptor{Mutator("v", h, FailOpen)}, Check: failsOpen},
		)
	}
	return cases
}

// unlessGoexit replaces the one failure that cannot be contained on the
// caller's own goroutine, where inline handlers run.
func unlessGoexit(name string, h ValidatorFunc) ValidatorFunc {
	if name == "Goexit" {
		return Fail(errors.New("boom"))
	}
	return h
}

func failsOpen(t *T, res *chain.Result, err error) {
	t.Helper()
	passes(t, res, err)
	out := outcome(t, res, "v")
	assert.Equal(t, chain.VerdictError, out.Verdict)
	assert.Equal(t, chain.ActionFailOpen, out.Action)
	assert.Error(t, out.Err)
}
