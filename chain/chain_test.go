package chain_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAddHostRefuses(t *testing.T) {
	good := ct.Validator("a", ct.Allow)
	tests := map[string]struct {
		host *fakeHost
		name string
		want string
	}{
		"row 75: a host that cannot be listed": {&fakeHost{listErr: errors.New("down")}, "h", "down"},
		"row 71: a name that another host has": {&fakeHost{list: []core.Interceptor{good}}, "h", `interceptor "a": name is taken by host "fake"`},
		"a host's name twice":                  {&fakeHost{}, "fake", "host name is taken"},
		"a compat that excludes all protocols": {&fakeHost{list: []core.Interceptor{ct.Validator("b", ct.Allow, func(m *core.Metadata) {
			m.Compat = &core.Compat{MaxProtocol: "2001-01-01"}
		})}}, "h", "compat"},
		"a description with faults": {&fakeHost{list: []core.Interceptor{core.Validator{Metadata: core.Metadata{Name: "b"}}}}, "h", "no hooks"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, &chain.Options{Protocols: []string{"2026-07-28"}}, good)
			err := ch.AddHost(t.Context(), tt.name, tt.host)
			require.ErrorContains(t, err, tt.want)
			assert.Len(t, ch.Entries(), 1, "nothing is half-added")
			_, err = ch.Execute(t.Context(), request())
			require.NoError(t, err)
		})
	}
}

func TestHostsShareOneOrder(t *testing.T) {
	ch := newChain(t, nil, ct.Mutator("one-late", ct.Append("one-late"), ct.Priority(core.NewPriority(1000))), ct.Mutator("one", ct.Append("one")))
	require.NoError(t, ch.AddHost(t.Context(), "second", &fakeHost{list: []core.Interceptor{
		ct.Mutator("two-early", ct.Append("two-early"), ct.Priority(core.NewPriority(-1000))), ct.Mutator("two", ct.Append("two")),
	}}))
	req := request()
	req.Payload = []byte(`{}`)
	res, err := ch.Execute(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, `{"log":["two-early","one","two","one-late"]}`, string(res.FinalPayload))
}

func TestRefresh(t *testing.T) {
	h := &fakeHost{list: []core.Interceptor{ct.Validator("a", ct.Allow)}}
	ch, err := chain.New(nil)
	require.NoError(t, err)
	require.NoError(t, ch.AddHost(t.Context(), "h", h))

	h.set(ct.Validator("b", ct.Deny))
	_, err = ch.Execute(t.Context(), request())
	var abort *chain.AbortError
	require.ErrorAs(t, err, &abort, "row 74: what a host removed fails closed until it is listed again")
	require.NoError(t, ch.Refresh(t.Context()))
	_, err = ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrDenied)

	h.listErr = errors.New("down")
	require.ErrorContains(t, ch.Refresh(t.Context()), "down")
	_, err = ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrDenied, "a host that cannot be listed keeps its guards")
	h.listErr = nil

	h.set(ct.Validator("c", ct.Allow), core.Validator{Metadata: core.Metadata{
		Name: "bad\x00name", Hooks: []core.Hook{{Events: []string{"tools/call"}, Phase: core.PhaseRequest}},
	}})
	require.ErrorContains(t, ch.Refresh(t.Context()), "control character")
	_, err = ch.Execute(t.Context(), request())
	require.ErrorAs(t, err, &abort, "a faulty guard is present and failing")
	assert.Error(t, ch.Entries()[1].Health.Err)

	require.NoError(t, ch.Close())
	require.NoError(t, ch.Close())
	assert.Equal(t, 1, h.closed)
	require.ErrorIs(t, ch.Refresh(t.Context()), chain.ErrClosed)
	require.ErrorIs(t, ch.SetOverrides(nil), chain.ErrClosed)
	require.ErrorIs(t, ch.AddHost(t.Context(), "x", &fakeHost{}), chain.ErrClosed)
}

func TestSetOverridesIsAllOrNothing(t *testing.T) {
	hooks := func(phase core.Phase, events ...string) []core.Hook {
		return []core.Hook{{Events: events, Phase: phase}}
	}
	audit := chain.Overrides{Mode: core.ModeAudit}
	tests := map[string]struct {
		overrides map[string]chain.Overrides
		want      error
		says      []string
	}{
		"row 68: an unknown name":         {map[string]chain.Overrides{"v": audit, "nobody": audit}, chain.ErrUnknownName, []string{`"nobody"`}},
		"row 64: a new event":             {map[string]chain.Overrides{"v": {Mode: core.ModeAudit, Hooks: hooks(core.PhaseRequest, "tools/call", "resources/read")}}, chain.ErrWidens, []string{`"v"`, "resources/read"}},
		"row 64: the other phase":         {map[string]chain.Overrides{"v": {Mode: core.ModeAudit, Hooks: hooks(core.PhaseBoth, "tools/call")}}, chain.ErrWidens, []string{"response of tools/call"}},
		"row 66: a pattern over an event": {map[string]chain.Overrides{"v": {Mode: core.ModeAudit, Hooks: hooks(core.PhaseRequest, "*")}}, chain.ErrWidens, []string{"request of *"}},
		"an unknown mode":                 {map[string]chain.Overrides{"v": {Mode: "aduit"}}, nil, []string{"aduit"}},
		"every fault is named":            {map[string]chain.Overrides{"v": {Mode: "x", Timeout: 1 << 60, Hooks: hooks("p", "e")}, "n": {}}, nil, []string{`"n"`, `"x"`, "timeout", `"p"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ch := newChain(t, nil, ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, "tools/call")))
			before := ch.Entries()
			err := ch.SetOverrides(tt.overrides)
			require.Error(t, err)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
			for _, part := range tt.says {
				assert.ErrorContains(t, err, part)
			}
			assert.Equal(t, before, ch.Entries())
			_, err = ch.Execute(t.Context(), request())
			require.ErrorIs(t, err, chain.ErrDenied, "nothing of it took effect")
		})
	}
}

func TestOverridesAreCopied(t *testing.T) {
	ch := newChain(t, nil, ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, "*")))
	hooks := []core.Hook{{Events: []string{"tools/list"}, Phase: core.PhaseRequest}}
	require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"v": {Hooks: hooks}}))
	hooks[0].Events[0] = "tools/call"
	_, err := ch.Execute(t.Context(), request())
	require.NoError(t, err)
	require.NoError(t, ch.SetOverrides(nil))
	_, err = ch.Execute(t.Context(), request())
	require.ErrorIs(t, err, chain.ErrDenied, "without overrides the declared policy holds")
}

func TestEntries(t *testing.T) {
	ch := newChain(t, nil, ct.Validator("v", ct.Deny), ct.Mutator("m", ct.Keep, ct.FailOpen, ct.Priority(core.RequestPriority(-3))))
	require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"v": {Mode: core.ModeAudit, Off: true}}))
	entries := ch.Entries()
	require.Len(t, entries, 2)
	assert.Equal(t, "fake", entries[0].Host)
	assert.Equal(t, core.ModeActive, entries[0].Mode, "what was declared")
	assert.Equal(t, core.ModeAudit, entries[0].Effective.Mode, "what holds")
	assert.True(t, entries[0].Effective.Off)
	assert.Equal(t, "m", entries[1].Name)
	assert.True(t, entries[1].Effective.FailOpen)
	assert.EqualValues(t, -3, entries[1].Effective.Priority.For(core.PhaseRequest))
	entries[0].Name = "changed"
	assert.Equal(t, "v", ch.Entries()[0].Name)
}

func TestBadOptions(t *testing.T) {
	for name, opts := range map[string]*chain.Options{
		"config that JSON cannot hold": {Config: map[string]map[string]any{"v": {"f": func() {}}}},
		"a timeout over ten minutes":   {Timeout: 1 << 60},
		"a negative audit queue":       {AuditQueue: -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chain.New(opts)
			require.Error(t, err)
		})
	}
}

func TestRequestConfigReplaces(t *testing.T) {
	wants := func(n float64) ct.ValidatorFunc {
		return func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
			if inv.Config["n"] != n {
				return core.Deny(fmt.Sprint(inv.Config)), nil
			}
			return core.Allow(), nil
		}
	}
	ch := newChain(t, &chain.Options{Config: map[string]map[string]any{"a": {"n": 1}, "b": {"n": 1}}},
		ct.Validator("a", wants(2)), ct.Validator("b", wants(1)))
	req := request()
	req.Config = map[string]map[string]any{"a": {"n": 2.0}}
	_, err := ch.Execute(t.Context(), req)
	require.NoError(t, err)
	req.Config = map[string]map[string]any{"nobody": {}}
	_, err = ch.Execute(t.Context(), req)
	require.ErrorIs(t, err, chain.ErrUnknownName)
}

// Seen to fail when newPlan did not sort, and when ties were left to the order
// of registration.
func TestAnyOrderOfRegistrationGivesTheSameOutcome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(rt, "n")
		list := make([]core.Interceptor, n)
		for i := range list {
			name := string(rune('a' + i))
			priority := ct.Priority(core.NewPriority(int32(rapid.IntRange(-2, 2).Draw(rt, "priority"))))
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				list[i] = ct.Validator(name, ct.Allow)
			case 1:
				list[i] = ct.Validator(name, ct.Deny)
			case 2:
				list[i] = ct.Mutator(name, ct.Append(name), priority)
			default:
				list[i] = ct.Mutator(name, ct.Set("{{"), priority, ct.FailOpen)
			}
		}
		outcome := func(list []core.Interceptor) string {
			ch, err := chain.New(nil)
			require.NoError(rt, err)
			defer func() { _ = ch.Close() }()
			require.NoError(rt, ch.AddHost(context.Background(), "h", &fakeHost{list: list}))
			req := request()
			req.Payload = []byte(`{}`)
			res, err := ch.Execute(context.Background(), req)
			out := fmt.Sprintln(res.Status, string(res.FinalPayload), err, res.ValidationSummary)
			for _, r := range res.Results {
				out += fmt.Sprintln(r.Entry.Name, r.Verdict, r.Action)
			}
			return out
		}
		assert.Equal(rt, outcome(list), outcome(rapid.Permutation(list).Draw(rt, "order")))
	})
}

// Policy changes and messages at once: every message runs under one policy.
func TestChangesUnderLoad(t *testing.T) {
	// Under either policy exactly one of the two guards is active.
	ch := newChain(t, nil, ct.Validator("a", ct.Deny), ct.Validator("b", ct.Deny))
	off := func(name string) map[string]chain.Overrides { return map[string]chain.Overrides{name: {Off: true}} }
	require.NoError(t, ch.SetOverrides(off("a")))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := "a"
			if i%2 == 0 {
				name = "b"
			}
			assert.NoError(t, ch.SetOverrides(off(name)))
			remove := ch.AddObserver(chain.NopObserver{})
			remove()
			_ = ch.Entries()
		}
	})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 300 {
				snap := ch.Snapshot()
				first, err := snap.Execute(t.Context(), request())
				assert.ErrorIs(t, err, chain.ErrDenied)
				req := request()
				req.Phase, req.Direction = core.PhaseResponse, core.Sending
				second, err := snap.Execute(t.Context(), req)
				assert.ErrorIs(t, err, chain.ErrDenied)
				assert.Equal(t, first.AbortedAt.Interceptor, second.AbortedAt.Interceptor)
				assert.Len(t, first.Results, 1)
			}
		})
	}
	readers.Wait()
	close(stop)
	wg.Wait()
}

func TestUnnamedEventsAreBounded(t *testing.T) {
	ch := newChain(t, nil, ct.Validator("v", ct.Deny, ct.On(core.PhaseRequest, "acme/*")))
	for i := range 3000 {
		req := request()
		req.Event = fmt.Sprintf("acme/%d", i)
		_, err := ch.Execute(t.Context(), req)
		require.ErrorIs(t, err, chain.ErrDenied)
	}
}

func TestMessageIDs(t *testing.T) {
	one, two := newChain(t, nil), newChain(t, nil)
	seen := map[string]bool{}
	for range 1000 {
		for _, ch := range []*chain.Chain{one, two} {
			id := ch.NewMessageID()
			assert.Regexp(t, `^[a-p]{16}-[0-9a-z]{1,3}$`, id, "nothing in it looks like a card number")
			assert.False(t, seen[id])
			seen[id] = true
		}
	}
}
