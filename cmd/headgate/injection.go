package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-mcp/headgate/core"
)

// injectionScan looks for text that tries to give a model orders. Such a search
// errs both ways, so it is in audit: watch what it finds before it may block.
func injectionScan() core.Validator {
	signs := injectionSigns()
	return core.Validator{
		Metadata: core.Metadata{
			Name:        "injection-scan",
			Version:     "1.0.0",
			Description: "Looks for prompt injections in tool calls and their results",
			Hooks:       []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseBoth}},
			Mode:        core.ModeAudit,
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			return scan(inv.Payload, signs)
		},
	}
}

// A sign is a kind of injection and what it looks like, in plain text.
type sign struct {
	kind string
	like *regexp.Regexp
	// words are such that one of them is in all that like matches: text without
	// any, as most is, need not be searched.
	words []string
}

// in reports whether a text looks like it.
func (s *sign) in(plain string) bool {
	return slices.ContainsFunc(s.words, func(word string) bool { return strings.Contains(plain, word) }) && s.like.MatchString(plain)
}

func injectionSigns() []sign {
	return []sign{
		{
			"overrides instructions", regexp.MustCompile(
				`\b(ignore|disregard|forget|override)\b.{0,40}\b(previous|prior|above|earlier|preceding|your|all)\b.{0,40}\b(instructions?|prompts?|rules|guidelines|directions)\b`),
			[]string{"ignore", "disregard", "forget", "override"},
		},
		{
			"asks for the system prompt", regexp.MustCompile(
				`\b(reveal|print|show|repeat|output|leak)\b.{0,40}\b(system|hidden|initial|developer) (prompt|message|instructions?)\b`),
			[]string{"prompt", "message", "instruction"},
		},
		{
			"assigns a role", regexp.MustCompile(
				`\byou are now\b|\bpretend (to be|you are)\b|\bdeveloper mode\b|\bjailbreak`),
			[]string{"you are", "pretend to be", "developer mode", "jailbreak"},
		},
		{
			"forges a turn", regexp.MustCompile(
				`<\|?(im_start|im_end|system|assistant)\|?>|</?system>|\[/?inst\]|(^|\n)\s*(system|assistant) ?:`),
			[]string{"system", "assistant", "im_", "inst]"},
		},
		{
			"hides from the user", regexp.MustCompile(
				`\b(do not|don't|never) (tell|inform|mention|show)\b.{0,40}\buser\b`),
			[]string{"user"},
		},
	}
}

// scan names the kinds of injection in a payload, once each and never with the
// text that they were found in.
func scan(payload []byte, signs []sign) (*core.ValidationResult, error) {
	found := map[string]bool{}
	look := func(_ []string, s string) string {
		plain := plainText(s)
		for _, sign := range signs {
			if !found[sign.kind] && sign.in(plain) {
				found[sign.kind] = true
			}
		}
		return s
	}
	if _, err := rewrite(payload, &edits{text: look}); err != nil {
		return nil, err
	}
	res := core.Allow()
	for _, sign := range signs {
		if found[sign.kind] {
			res.Valid, res.Severity = false, core.SeverityError
			res.Messages = append(res.Messages, core.Message{
				Message: "looks like a prompt injection: " + sign.kind, Severity: core.SeverityError,
			})
		}
	}
	return res, nil
}

// plainText undoes what hides a phrase from a search and not from a model:
// capitals, invisible characters, odd spaces. Line breaks stay.
func plainText(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteByte('\n')
			space = true
		case unicode.IsSpace(r):
			if !space {
				b.WriteByte(' ')
			}
			space = true
		case r >= utf8.RuneSelf && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		default:
			b.WriteRune(unicode.ToLower(r))
			space = false
		}
	}
	return b.String()
}
