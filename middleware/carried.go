package middleware

//lint:file-ignore SA1019 Sampling and roots: They are deprecated and still have to be judged.

import (
	"encoding/json"
	"errors"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asks returns the requests that a result carries, and whether it wants an
// answer before there is a result proper: clients act on the requests, whatever
// the result calls itself.
func asks(res mcp.Result) (requests mcp.InputRequestMap, state string, ok bool) {
	switch r := res.(type) {
	case *mcp.CallToolResult:
		return r.InputRequests, r.RequestState, r.NeedsInput() || r.InputRequests != nil
	case *mcp.GetPromptResult:
		return r.InputRequests, r.RequestState, r.NeedsInput() || r.InputRequests != nil
	case *mcp.ReadResourceResult:
		return r.InputRequests, r.RequestState, r.NeedsInput() || r.InputRequests != nil
	}
	return nil, "", false
}

// onlyAsks reports whether there is nothing in a result but what it asks for. A
// peer may call a result what it likes; what else is in it has to be judged.
func onlyAsks(res mcp.Result) bool {
	switch r := res.(type) {
	case *mcp.CallToolResult:
		return len(r.Content) == 0 && r.StructuredContent == nil && !r.IsError && onlyReserved(r.Meta)
	case *mcp.GetPromptResult:
		return len(r.Messages) == 0 && r.Description == "" && onlyReserved(r.Meta)
	case *mcp.ReadResourceResult:
		return len(r.Contents) == 0 && onlyReserved(r.Meta)
	}
	return false
}

func onlyReserved(meta mcp.Meta) bool {
	for key := range meta {
		if !reservedMeta(key) {
			return false
		}
	}
	return true
}

// errCarried says that a mutator of the carrying message changed what travels
// in it: only interceptors of those events may.
var errCarried = errors.New("changes requests or answers that the message carries")

// carriesTheSame reports whether two payloads carry the same requests, answers
// and state, and whether the later one asks only if the first did.
func carriesTheSame(before, after json.RawMessage) error {
	if len(before) == 0 {
		before = json.RawMessage("{}")
	}
	old, err := core.Members(before)
	if err != nil {
		return err
	}
	now, err := core.Members(after)
	if err != nil {
		return err
	}
	return sameCarried(old, now)
}

// sameCarried is carriesTheSame on members.
func sameCarried(old, now []core.Member) error {
	for _, name := range [...]string{"inputRequests", "inputResponses", "requestState"} {
		if !sameJSON(valueOf(old, name), valueOf(now, name)) {
			return errCarried
		}
	}
	const asking = `"input_required"`
	if string(valueOf(now, "resultType")) == asking && string(valueOf(old, "resultType")) != asking {
		return errCarried
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	_, more := core.Missing(a, b)
	_, less := core.Missing(b, a)
	return !more && !less
}

// withRequests returns a copy of the result that carries other requests.
func withRequests(res mcp.Result, requests mcp.InputRequestMap) mcp.Result {
	switch r := res.(type) {
	case *mcp.CallToolResult:
		c := *r
		c.InputRequests = requests
		return &c
	case *mcp.GetPromptResult:
		c := *r
		c.InputRequests = requests
		return &c
	case *mcp.ReadResourceResult:
		c := *r
		c.InputRequests = requests
		return &c
	}
	return res
}

// answers returns the answers that params carry, and the state that goes with
// them. Either marks a request as one that is sent once more.
func answers(params mcp.Params) (responses mcp.InputResponseMap, state string) {
	switch p := params.(type) {
	case *mcp.CallToolParamsRaw:
		return p.InputResponses, p.RequestState
	case *mcp.CallToolParams:
		return p.InputResponses, p.RequestState
	case *mcp.GetPromptParams:
		return p.InputResponses, p.RequestState
	case *mcp.ReadResourceParams:
		return p.InputResponses, p.RequestState
	}
	return nil, ""
}

// withAnswers returns a copy of the params that carries other answers.
func withAnswers(params mcp.Params, responses mcp.InputResponseMap, state string) mcp.Params {
	switch p := params.(type) {
	case *mcp.CallToolParamsRaw:
		c := *p
		c.InputResponses, c.RequestState = responses, state
		return &c
	case *mcp.CallToolParams:
		c := *p
		c.InputResponses, c.RequestState = responses, state
		return &c
	case *mcp.GetPromptParams:
		c := *p
		c.InputResponses, c.RequestState = responses, state
		return &c
	case *mcp.ReadResourceParams:
		c := *p
		c.InputResponses, c.RequestState = responses, state
		return &c
	}
	return params
}
