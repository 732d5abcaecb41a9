package main

import (
	"context"
	"strings"
	"unicode"

	"github.com/headgate-mcp/headgate/core"
)

// blockDestructive denies delete_records without a condition.
func blockDestructive() core.Validator {
	return core.Validator{
		Metadata: core.Metadata{
			Name:        "block-destructive",
			Version:     "1.0.0",
			Description: "Denies delete_records without a condition",
			Hooks:       []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			return judgeDelete(inv), nil
		},
	}
}

// judgeDelete denies what it cannot read for sure: where a key stands twice,
// the server might read the other one.
func judgeDelete(inv *core.Invocation) *core.ValidationResult {
	var call struct {
		Name      string `json:"name"`
		Arguments any    `json:"arguments"`
	}
	if err := inv.Decode(&call); err != nil {
		return core.Deny("the call is ambiguous: duplicate keys, or keys that differ in case")
	}
	if call.Name != toolDelete {
		return core.Allow()
	}
	// Keys of a map match exactly: a "Where" is no where.
	args, _ := call.Arguments.(map[string]any)
	where, _ := args["where"].(string)
	if blank(where) {
		return &core.ValidationResult{
			Severity: core.SeverityError,
			Messages: []core.Message{{
				Path: "arguments.where", Message: "delete_records needs a condition", Severity: core.SeverityError,
			}},
		}
	}
	return core.Allow()
}

// blank reports whether nothing in s can be seen.
func blank(s string) bool {
	return strings.IndexFunc(s, visible) < 0
}

// visible reports whether r can be seen: white space, controls, and what
// Unicode gives no glyph, such as the zero width space, cannot.
func visible(r rune) bool {
	const brailleBlank = '\u2800'
	return unicode.IsGraphic(r) && r != brailleBlank && r != unicode.ReplacementChar &&
		!unicode.In(r, unicode.White_Space, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
