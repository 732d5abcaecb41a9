package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/headgate-mcp/headgate/core"
)

// redactPII masks e-mail addresses and card numbers in results. It runs before
// other mutators, so that these never see what it masks.
func redactPII() core.Mutator {
	r := &redactor{masker: newMasker(), digits: regexp.MustCompile(`\d{13,}`)}
	return core.Mutator{
		Metadata: core.Metadata{
			Name:        "redact-pii",
			Version:     "1.0.0",
			Description: "Masks e-mail addresses and card numbers in results",
			Hooks: []core.Hook{{
				Events: []string{core.EventToolsCall, core.EventResourcesRead}, Phase: core.PhaseResponse,
			}},
			PriorityHint: core.NewPriority(-1000),
		},
		Handler: func(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			return r.redact(inv.Payload)
		},
	}
}

// A redactor masks results wherever they hold text: in content and structured
// content alike, at any depth, in keys, in JSON that stands in a string, and in
// blobs that hold text.
type redactor struct {
	*masker
	digits *regexp.Regexp
}

func (r *redactor) redact(payload []byte) (*core.MutationResult, error) {
	masked, err := rewrite(payload, &edits{text: r.edit, number: r.number, keep: reserved})
	if err != nil {
		return nil, err
	}
	if bytes.Equal(masked, payload) {
		return core.Unchanged(), nil
	}
	return core.Replace(masked), nil
}

// reserved reports whether the path lies in a key of the result's _meta that
// belongs to the protocol.
func reserved(path []string) bool {
	if len(path) < 2 || path[0] != "_meta" {
		return false
	}
	switch path[1] {
	case "progressToken", "traceparent", "tracestate", "baggage":
		return true
	}
	return strings.HasPrefix(path[1], "io.modelcontextprotocol/")
}

func (r *redactor) edit(path []string, s string) string {
	if isBlob(path) {
		return r.blob(s)
	}
	return r.any(s)
}

// any masks text that may be JSON: tools that give structured content repeat it
// as text, and masking must not break that.
func (r *redactor) any(s string) string {
	if head := strings.TrimLeft(s, " \t\r\n"); head != "" && (head[0] == '{' || head[0] == '[') && json.Valid([]byte(s)) {
		edit := func(_ []string, s string) string { return r.any(s) }
		if masked, err := rewrite([]byte(s), &edits{text: edit, number: r.number}); err == nil {
			s = string(masked)
		}
	}
	return r.text(s)
}

// isBlob reports whether the protocol has base64 at the path: the data of
// images and audio, the blobs of resources.
func isBlob(path []string) bool {
	if len(path) < 3 || (path[0] != "content" && path[0] != "contents") {
		return false
	}
	switch key := path[len(path)-1]; len(path) {
	case 3:
		return key == "data" || key == "blob"
	case 4:
		return key == "blob" && path[2] == "resource"
	}
	return false
}

// blob masks base64: the text in it, if it is text. What results is base64
// again, or the message could not be read.
func (r *redactor) blob(s string) string {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return r.any(s)
	}
	if utf8.Valid(data) {
		if masked := r.any(string(data)); masked != string(data) {
			s = base64.StdEncoding.EncodeToString([]byte(masked))
		}
	}
	return r.digits.ReplaceAllStringFunc(s, func(run string) string { return strings.Repeat("A", len(run)) })
}
