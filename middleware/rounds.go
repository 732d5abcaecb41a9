package middleware

//lint:file-ignore SA1019 Sampling and roots: They are deprecated and still have to be judged.

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Since 2026-07-28 a server that wants something from its client says so in the
// result of a request (SEP-2322): the result carries requests, and the client
// sends its own request once more with the answers. To interceptors these are
// the events that they were before, with the payloads that they had before.

// manyRounds reports whether results of the method may carry requests.
func manyRounds(method string) bool {
	switch method {
	case core.EventToolsCall, core.EventPromptsGet, core.EventResourcesRead:
		return true
	}
	return false
}

// embedsHooked reports whether anything is hooked on what results may carry.
func embedsHooked(snap *chain.Snapshot) bool {
	for _, event := range [...]string{core.EventSampling, core.EventElicitation, core.EventRoots} {
		if snap.Hooked(event, core.PhaseRequest) || snap.Hooked(event, core.PhaseResponse) {
			return true
		}
	}
	return false
}

// interceptRequests runs the requests that a result carries through the chain:
// this peer sends them. It returns the result with what became of them.
func (m *message) interceptRequests(res mcp.Result) (mcp.Result, error) {
	requests, state, ok := asks(res)
	if !ok || len(requests) == 0 || !m.embedsHooked(m.snapshot) {
		return res, nil
	}
	// The SDK fills in members when it writes requests; take them from there.
	var written map[string]struct {
		Params json.RawMessage `json:"params"`
	}
	start := time.Now()
	raw, unreadable := m.encode(requests, bySomebody)
	if unreadable == nil {
		unreadable = json.Unmarshal(raw, &written)
	}
	took := time.Since(start)
	changed := mcp.InputRequestMap{}
	for _, id := range sortedIDs(requests) {
		e := embedded{message: m, event: eventOf(requests[id]), phase: core.PhaseRequest, id: m.embeddedID(state, id), old: requests[id]}
		fresh, err := e.intercept(written[id].Params, unreadable, took)
		took = 0 // they were written together: the first one pays
		if err != nil {
			return nil, err
		}
		changed[id] = fresh.(mcp.InputRequest)
	}
	if sameValues(requests, changed) {
		return res, nil
	}
	return withRequests(res, changed), nil
}

// interceptAnswers runs the answers that params carry through the chain: this
// peer receives them. The request goes on with what became of them.
func (m *message) interceptAnswers() error {
	params := m.req.GetParams()
	if isNil(params) || !m.embedsHooked(m.snapshot) {
		return nil
	}
	responses, state := answers(params)
	changed := mcp.InputResponseMap{}
	for _, id := range sortedIDs(responses) {
		e := embedded{message: m, event: eventOf(responses[id]), phase: core.PhaseResponse, id: m.embeddedID(state, id), old: responses[id]}
		start := time.Now()
		payload, unreadable := m.encode(responses[id], bySomebody)
		fresh, err := e.intercept(payload, unreadable, time.Since(start))
		if err != nil {
			return err
		}
		changed[id] = fresh.(mcp.InputResponse)
	}
	if !sameValues(responses, changed) {
		m.req = withParams(m.req, withAnswers(params, changed, state))
	}
	return nil
}

// eventOf names the event that a request or an answer belongs to.
func eventOf(carried any) string {
	switch carried.(type) {
	case *mcp.ElicitParams, *mcp.ElicitResult:
		return core.EventElicitation
	case *mcp.CreateMessageParams, *mcp.CreateMessageWithToolsParams, *mcp.CreateMessageResult, *mcp.CreateMessageWithToolsResult:
		return core.EventSampling
	case *mcp.ListRootsParams, *mcp.ListRootsResult:
		return core.EventRoots
	}
	return ""
}

// embeddedID returns the message id of a request that travels in a result, the
// same for its answer. It needs no memory: the peer sends the state back. A
// server that keeps no state gets an id for each phase. The state may be a
// secret, so it does not show in the id.
func (g *gate) embeddedID(state, id string) string {
	if state == "" {
		return ""
	}
	mac := hmac.New(sha256.New, g.key[:])
	fmt.Fprintf(mac, "%d %s%s", len(state), state, id)
	letters := make([]byte, 0, 32)
	for _, b := range mac.Sum(nil)[:16] {
		letters = append(letters, 'a'+b>>4, 'a'+b&15)
	}
	return string(letters)
}

// An embedded request or answer travels in another message.
type embedded struct {
	*message
	event string
	phase core.Phase
	id    string
	old   any
	fresh any

	original json.RawMessage
}

// intercept runs one phase on the payload and returns what goes on. A payload
// that cannot be had is each interceptor's failure.
func (e *embedded) intercept(payload json.RawMessage, unreadable error, took time.Duration) (any, error) {
	e.carriers().Marshal += took
	if !e.snapshot.Hooked(e.event, e.phase) {
		return e.old, nil
	}
	// The carrier's direction holds: requests travel in a result, answers in
	// params.
	dir := e.direction(core.PhaseResponse)
	if e.phase == core.PhaseResponse {
		dir = e.direction(core.PhaseRequest)
	}
	e.original = payload
	who, unprovided := e.invocationContext()
	if unreadable == nil {
		unreadable = unprovided
	}
	res, err := e.snapshot.Execute(e.ctx, &chain.Request{
		Event: e.event, Phase: e.phase, Direction: dir, Payload: payload, Disposable: true,
		MarshalTime: took, MessageID: e.id, Protocol: e.protocol, Context: who, Unreadable: unreadable, Applier: e,
	})
	addWalls(e.carriers(), res)
	if err != nil {
		return nil, e.refused(e.event, e.phase, err)
	}
	if !res.Mutated {
		return e.old, nil
	}
	return e.fresh, nil
}

// carriers returns the times of the carrying message's phase: requests travel
// in its response, answers in its request.
func (e *embedded) carriers() *chain.PhaseTimes {
	if e.phase == core.PhaseRequest {
		return &e.end.Stages.Response
	}
	return &e.end.Stages.Request
}

// Apply decodes a mutated payload into a new value of the same type.
func (e *embedded) Apply(payload json.RawMessage) (chain.Applied, error) {
	protected := protectedMembers
	if e.phase == core.PhaseRequest {
		protected = nil
	}
	payload, err := restore(e.original, payload, protected)
	if err != nil {
		return chain.Applied{}, err
	}
	fresh := reflect.New(reflect.TypeOf(e.old).Elem()).Interface()
	going, err := e.decodeFresh(payload, fresh)
	if err != nil {
		return chain.Applied{}, err
	}
	e.fresh = fresh
	return chain.Applied{Payload: going}, nil
}

// Rounds that a client makes at most, as go-sdk's own does.
const (
	maxRounds     = 10
	maxBusyRounds = 3
)

var errRounds = errors.New("middleware: the server asks without end")

// answer is what go-sdk's client does where Options.MultiRoundTrip disables it,
// but through the client's receiving middleware: it answers the requests that a
// result carries and sends the request again until there is a result proper.
func (m *message) answer(ctx context.Context, res mcp.Result) (mcp.Result, error) {
	busy := 0
	for round := 1; ; round++ {
		requests, state, ok := asks(res)
		if !ok {
			return res, nil
		}
		if len(requests) == 0 {
			busy++
		}
		if round >= maxRounds || busy >= maxBusyRounds {
			return nil, errRounds
		}
		start := time.Now()
		responses, err := m.fulfil(ctx, requests)
		m.end.Stages.Handler += time.Since(start)
		if err != nil {
			return nil, err
		}
		m.req, m.retry = withParams(m.req, withAnswers(m.req.GetParams(), responses, state)), true
		if m.request { // a message like any other
			if err := m.interceptRequest(); err != nil {
				return nil, err
			}
		}
		if res, err = m.handleTimed(ctx); err != nil {
			return nil, err
		}
	}
}

// fulfil asks the client's own handlers, in the order of the ids.
func (m *message) fulfil(ctx context.Context, requests mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	session, ok := m.req.GetSession().(*mcp.ClientSession)
	if !ok {
		return nil, errors.New("middleware: not a client's session")
	}
	responses := mcp.InputResponseMap{}
	for _, id := range sortedIDs(requests) {
		method, req := clientRequest(session, requests[id])
		if req == nil {
			return nil, fmt.Errorf("middleware: unknown input request %T", requests[id])
		}
		res, err := m.peer.handler(ctx, method, req)
		if err != nil {
			return nil, err
		}
		response, ok := res.(mcp.InputResponse)
		if !ok {
			return nil, fmt.Errorf("middleware: %T is no answer to %s", res, method)
		}
		responses[id] = response
	}
	return responses, nil
}

// clientRequest returns the request as the client's handlers would get it.
func clientRequest(session *mcp.ClientSession, request mcp.InputRequest) (string, mcp.Request) {
	switch p := request.(type) {
	case *mcp.ElicitParams:
		return core.EventElicitation, &mcp.ClientRequest[*mcp.ElicitParams]{Session: session, Params: p}
	case *mcp.CreateMessageWithToolsParams:
		return core.EventSampling, &mcp.ClientRequest[*mcp.CreateMessageWithToolsParams]{Session: session, Params: p}
	case *mcp.ListRootsParams:
		return core.EventRoots, &mcp.ClientRequest[*mcp.ListRootsParams]{Session: session, Params: p}
	}
	return "", nil
}

func sortedIDs[V any](m map[string]V) []string {
	ids := make([]string, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// sameValues reports whether two maps hold the same pointers.
func sameValues[V comparable](a, b map[string]V) bool {
	for id, v := range a {
		if b[id] != v {
			return false
		}
	}
	return true
}
