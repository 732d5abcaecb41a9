package middleware

import (
	"encoding/json"
	"fmt"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// replaceable reports whether applyCall will do for a mutated payload, so that
// nobody needs the bytes of the original: all but the arguments is small, and
// can be had from the request itself.
func (m *message) replaceable(phase core.Phase) bool {
	if m.sending || phase != core.PhaseRequest || !m.shapes.callParams {
		return false
	}
	req, ok := m.req.(*mcp.CallToolRequest)
	return ok && req != nil && req.Params != nil
}

// applyCall is applyParams for a received tools/call, which most messages are.
// Arguments are raw on both sides, so that they need neither be decoded nor
// written again to see that nothing of them is lost: the handler gets the
// payload's own bytes. It reports false where anything else is to be looked at.
func (m *message) applyCall(payload json.RawMessage) (applied chain.Applied, ok bool, err error) {
	if !m.replaceable(core.PhaseRequest) {
		return chain.Applied{}, false, nil
	}
	req := m.req.(*mcp.CallToolRequest)
	before, err := m.beside(req.Params)
	if err != nil {
		return chain.Applied{}, false, err
	}
	now, err := core.Members(payload)
	if err != nil {
		return chain.Applied{}, false, err
	}
	now, changed, err := restoreMembers(before, now, nil)
	if err != nil {
		return chain.Applied{}, false, err
	}
	fresh, err := callParamsOf(now, valueOf(before, "_meta"))
	if err != nil {
		return chain.Applied{}, false, err
	}
	if err := sameCarried(before, now); err != nil {
		return chain.Applied{}, false, err
	}
	retargeted := fresh.Name != req.Params.Name
	if retargeted && !m.opts.AllowRetarget {
		return chain.Applied{}, false, errRetarget
	}
	if changed {
		if payload, err = core.JoinMembers(now); err != nil {
			return chain.Applied{}, false, err
		}
	}
	other := *req
	other.Params = fresh
	m.applied = &other
	return chain.Applied{Payload: payload, Revalidate: retargeted}, true, nil
}

// beside returns what stands beside name and arguments in the params as they
// were; mostly nothing, before 2026-07-28.
func (m *message) beside(p *mcp.CallToolParamsRaw) ([]core.Member, error) {
	if len(p.Meta) == 0 && len(p.InputResponses) == 0 && p.RequestState == "" {
		return nil, nil
	}
	rest := *p
	rest.Arguments = nil
	raw, err := m.encode(&rest, bySDK)
	if err != nil {
		return nil, err
	}
	return core.Members(raw)
}

// callParamsOf makes params of members. What they have no place for is an error.
func callParamsOf(members []core.Member, meta json.RawMessage) (*mcp.CallToolParamsRaw, error) {
	p := new(mcp.CallToolParamsRaw)
	for _, m := range members {
		var err error
		switch m.Name {
		case "arguments":
			p.Arguments = m.Value
		case "name":
			err = decodeText(m, &p.Name)
		case "requestState":
			err = decodeText(m, &p.RequestState)
		case "inputResponses":
			err = core.Decode(m.Value, &p.InputResponses)
		case "_meta":
			err = decodeMeta(m.Value, meta, &p.Meta)
		default:
			err = misplaced(m, p)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return p, nil
}

// decodeText is Decode for strings, which need no decoder.
func decodeText(m core.Member, to *string) error {
	if text, ok := m.Text(); ok {
		*to = text
		return nil
	}
	return core.Decode(m.Value, to)
}

// decodeMeta reads _meta as the SDK does, with numbers as float64. Where it is not
// what it was, nothing must be lost by that.
func decodeMeta(raw, before json.RawMessage, meta *mcp.Meta) error {
	if err := core.DecodePlain(raw, meta); err != nil || string(raw) == string(before) {
		return err
	}
	written, err := core.Encode(*meta)
	if err != nil {
		return err
	}
	if path, missing := core.Missing(raw, written); missing {
		return fmt.Errorf("%s has no place in it", path)
	}
	return nil
}

// misplaced says what is wrong with a member that no field has the name of;
// nil if it says nothing.
func misplaced(m core.Member, v any) error {
	object, err := core.JoinMembers([]core.Member{m})
	if err != nil {
		return err
	}
	if err := core.Decode(object, v); err != nil { // its name may fold to another's
		return err
	}
	if path, missing := core.Missing(object, []byte("{}")); missing {
		return fmt.Errorf("%s has no place in %T", path, v)
	}
	return nil
}
