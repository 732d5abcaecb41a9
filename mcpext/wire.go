package mcpext

import (
	"encoding/json"
	"slices"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ListParams are the params of interceptors/list.
type ListParams struct {
	mcp.ParamsBase
	// Event keeps the interceptors that see this event; empty keeps all.
	Event string `json:"event,omitempty"`
	// Cursor is for hosts that list in pages. This package's own has one page.
	Cursor string `json:"cursor,omitempty"`
}

// ListResult is the result of interceptors/list.
type ListResult struct {
	// Interceptors are the entries as they came, so that one that cannot be
	// read does not take the others with it. Decode each as a [core.Descriptor].
	Interceptors []json.RawMessage `json:"interceptors"`
	// NextCursor asks for another page; empty after the last one.
	NextCursor string `json:"nextCursor,omitempty"`
	mcp.ResultBase
}

// InvokeParams are the params of interceptor/invoke.
type InvokeParams struct {
	mcp.ParamsBase
	core.InvokeRequest

	// body is InvokeRequest, written; nil if it has not been.
	body []byte
	// fault is what was wrong with params that came over the wire. Reading
	// them never fails, since the SDK would quote the whole payload to the
	// caller and in its logs; the handler answers instead.
	fault error
}

type metaOnly struct {
	Meta mcp.Meta `json:"_meta,omitempty"`
}

// metaMessage is a member of a result's _meta: the message that the invoke was
// for. Whoever gets it can tell an answer to another invoke from its own.
const metaMessage = "io.github.headgate-mcp/messageId"

// metaAsserted is a member of _meta: the principal was asserted already. It is
// read where the sender is this process.
const metaAsserted = "io.github.headgate-mcp/asserted"

// MarshalJSON writes the request's members and _meta.
func (p *InvokeParams) MarshalJSON() ([]byte, error) {
	return withMeta(p.body, p.InvokeRequest, p.Meta)
}

// UnmarshalJSON reads the params. What is wrong with them is kept for the
// method's handler to answer.
func (p *InvokeParams) UnmarshalJSON(data []byte) error {
	var m metaOnly
	if err := json.Unmarshal(data, &m); err == nil {
		p.Meta = m.Meta
	}
	p.fault = p.InvokeRequest.UnmarshalJSON(data)
	return nil
}

// InvokeResult is the result of interceptor/invoke.
type InvokeResult struct {
	core.InvokeResult
	mcp.ResultBase

	// body is the embedded result, written; nil if it has not been.
	body []byte
}

// MarshalJSON writes the flat form with type first and _meta last.
func (r *InvokeResult) MarshalJSON() ([]byte, error) { return withMeta(r.body, r.InvokeResult, r.Meta) }

// UnmarshalJSON reads a result; see [core.InvokeResult].
func (r *InvokeResult) UnmarshalJSON(data []byte) error {
	var m metaOnly
	if err := json.Unmarshal(data, &m); err == nil {
		r.Meta = m.Meta
	}
	return r.InvokeResult.UnmarshalJSON(data)
}

// withMeta writes v, an object with at least one member, and puts _meta last.
// If body is not nil it is v, written before.
func withMeta(body []byte, v json.Marshaler, meta mcp.Meta) ([]byte, error) {
	if body == nil {
		var err error
		if body, err = v.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	if len(meta) == 0 {
		return body, nil
	}
	m, err := core.Encode(metaOnly{meta})
	if err != nil {
		return nil, err
	}
	return slices.Concat(body[:len(body)-1], []byte{','}, m[1:]), nil
}

// RegisterSendingMethods lets the client call interceptors/list and
// interceptor/invoke with [mcp.CallCustomMethod].
func RegisterSendingMethods(client *mcp.Client) error {
	if err := mcp.AddSendingCustomMethod[*ListParams, *ListResult](client, core.MethodList); err != nil {
		return err
	}
	return mcp.AddSendingCustomMethod[*InvokeParams, *InvokeResult](client, core.MethodInvoke)
}
