package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// auditKey is where stamp-response leaves its trail in a result's _meta.
const auditKey = "io.github.headgate-mcp/audit"

// stampResponse leaves an audit trail in results: what was decided on the message
// before the mutators of its result began, and when. It runs after other
// mutators.
func stampResponse(now func() time.Time) core.Mutator {
	return core.Mutator{
		Metadata: core.Metadata{
			Name:        "stamp-response",
			Version:     "1.0.0",
			Description: "Leaves an audit trail in results",
			Hooks: []core.Hook{{
				Events: []string{core.EventToolsCall, core.EventResourcesRead, core.EventPromptsGet},
				Phase:  core.PhaseResponse,
			}},
			PriorityHint: core.NewPriority(1000),
		},
		Handler: func(ctx context.Context, inv *core.Invocation) (*core.MutationResult, error) {
			s := stamp{MessageID: inv.MessageID, Time: now().UTC().Format(time.RFC3339), Ran: trailOf(ctx)}
			return s.on(inv.Payload)
		},
	}
}

// A stamp is what stands under auditKey.
type stamp struct {
	MessageID string `json:"messageId"`
	Time      string `json:"time"`
	Ran       []step `json:"ran"`
}

// A step is one interceptor's part in a message.
type step struct {
	Interceptor string        `json:"interceptor"`
	Phase       core.Phase    `json:"phase"`
	Verdict     chain.Verdict `json:"verdict"`
}

// on returns the result with the stamp in its _meta.
func (s *stamp) on(payload []byte) (*core.MutationResult, error) {
	value, err := core.Encode(s)
	if err != nil {
		return nil, err
	}
	var meta json.RawMessage
	if meta, err = member(payload, "_meta"); err != nil {
		return nil, err
	}
	if len(meta) == 0 || string(meta) == "null" {
		meta = json.RawMessage("{}")
	}
	if meta, err = core.SetMember(meta, auditKey, value); err != nil {
		return nil, err
	}
	if payload, err = core.SetMember(payload, "_meta", meta); err != nil {
		return nil, err
	}
	return core.Replace(payload), nil
}

// member returns the member of that name, or nil.
func member(object []byte, name string) (json.RawMessage, error) {
	members, err := core.Members(object)
	for _, m := range members {
		if m.Name == name {
			return m.Value, err
		}
	}
	return nil, err
}

// A trailKeeper is an observer that keeps, on each message's context, what ran.
// What runs in audit is left out: clients must not be able to tell that it did.
type trailKeeper struct{ chain.NopObserver }

type trail struct {
	mu    sync.Mutex
	steps []step
}

type trailKey struct{}

// MessageStart hangs an empty trail on the message's context.
func (trailKeeper) MessageStart(ctx context.Context, _ *chain.Message) context.Context {
	return context.WithValue(ctx, trailKey{}, &trail{})
}

// InvokeEnd adds a step to the trail of the message.
func (trailKeeper) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	t, ok := ctx.Value(trailKey{}).(*trail)
	if !ok || out.Mode == core.ModeAudit {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, step{Interceptor: i.Entry.Name, Phase: out.Phase, Verdict: out.Verdict})
}

// trailOf returns what has run so far; empty where nobody kept it.
func trailOf(ctx context.Context) []step {
	t, ok := ctx.Value(trailKey{}).(*trail)
	if !ok {
		return []step{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]step{}, t.steps...)
}
