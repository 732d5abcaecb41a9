package chaintest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A rendering is what a run came to, without what may differ between two of
// the same: durations, message ids, and the texts of errors, which stay in the
// process that they arise in.
type rendering struct {
	Error    string                  `json:"error,omitempty"`
	Abort    *abortRendering         `json:"abort,omitempty"`
	Status   chain.Status            `json:"status,omitempty"`
	At       *chain.AbortInfo        `json:"abortedAt,omitempty"`
	Summary  chain.ValidationSummary `json:"summary"`
	Final    string                  `json:"finalPayload"`
	Mutated  bool                    `json:"mutated"`
	Outcomes []outcomeRendering      `json:"outcomes"`
}

type abortRendering struct {
	Interceptor string         `json:"interceptor"`
	Type        core.Type      `json:"type"`
	Phase       core.Phase     `json:"phase"`
	Reason      chain.Reason   `json:"reason"`
	Timeout     time.Duration  `json:"timeout"`
	Denials     []chain.Denial `json:"denials"`
	Is          string         `json:"is"`
}

type outcomeRendering struct {
	Name       string                 `json:"name"`
	Type       core.Type              `json:"type"`
	Phase      core.Phase             `json:"phase"`
	Mode       core.Mode              `json:"mode"`
	Verdict    chain.Verdict          `json:"verdict"`
	Action     chain.Action           `json:"action"`
	Reason     chain.Reason           `json:"reason"`
	Failed     bool                   `json:"failed"`
	Validation *core.ValidationResult `json:"validation,omitempty"`
	Mutation   *mutationRendering     `json:"mutation,omitempty"`
}

type mutationRendering struct {
	Modified bool           `json:"modified"`
	Payload  string         `json:"payload"`
	Info     map[string]any `json:"info"`
}

// Render writes what a run came to in a form that is equal for equal
// behaviour, whatever kind of host the interceptors are in.
func Render(res *chain.Result, err error) string {
	r := rendering{}
	abort := (*chain.AbortError)(nil)
	switch {
	case errors.As(err, &abort):
		r.Abort = renderAbort(abort)
	case err != nil:
		r.Error = err.Error()
	}
	if res != nil {
		r.Status, r.At, r.Summary, r.Mutated = res.Status, res.AbortedAt, res.ValidationSummary, res.Mutated
		r.Final = string(res.FinalPayload)
		for i := range res.Results {
			r.Outcomes = append(r.Outcomes, renderOutcome(&res.Results[i]))
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	// Written twice: what is no UTF-8 is the same then, wherever it became so.
	if err := enc.Encode(plain(r)); err != nil {
		return "cannot be rendered: " + err.Error()
	}
	return out.String()
}

func renderAbort(a *chain.AbortError) *abortRendering {
	return &abortRendering{
		a.Interceptor, a.Type, a.Phase, a.Reason, a.Timeout, a.Denials,
		fmt.Sprint("denied:", errors.Is(a, chain.ErrDenied), " timeout:", errors.Is(a, chain.ErrTimeout)),
	}
}

func renderOutcome(o *chain.Outcome) outcomeRendering {
	r := outcomeRendering{
		Name: o.Entry.Name, Type: o.Entry.Type, Phase: o.Phase, Mode: o.Mode,
		Verdict: o.Verdict, Action: o.Action, Reason: o.Reason, Failed: o.Err != nil,
	}
	if v := o.Validation; v != nil {
		r.Validation = &core.ValidationResult{Valid: v.Valid, Severity: v.Severity, Info: plainMap(v.Info)}
		r.Validation.Messages = append(r.Validation.Messages, v.Messages...)
		for _, s := range v.Suggestions {
			r.Validation.Suggestions = append(r.Validation.Suggestions, core.Suggestion{Path: s.Path, Value: plain(s.Value)})
		}
	}
	if m := o.Mutation; m != nil {
		r.Mutation = &mutationRendering{Modified: m.Modified, Info: plainMap(m.Info)}
		if m.Modified { // else the payload means nothing
			r.Mutation.Payload = compact(m.Payload)
		}
	}
	return r
}

// compact takes away the space between tokens, which no message keeps.
func compact(payload []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, payload) != nil {
		return string(payload)
	}
	return out.String()
}

// plain gives free data the Go types that JSON has, digits kept.
func plain(v any) any {
	raw, err := core.Encode(v)
	if err != nil {
		return err.Error()
	}
	var out any
	if err := core.Decode(raw, &out); err != nil {
		return err.Error()
	}
	return out
}

// plainMap is plain for a map; an empty one is none.
func plainMap(m map[string]any) map[string]any {
	if len(m) == 0 {
		return nil
	}
	out, ok := plain(m).(map[string]any)
	if !ok {
		return map[string]any{"": plain(m)}
	}
	return out
}
