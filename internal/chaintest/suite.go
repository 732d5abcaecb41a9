package chaintest

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Rig is a chain over some kind of host, and the means to change the host.
type Rig struct {
	Chain  *chain.Chain
	Add    func(...core.Interceptor) error
	Remove func(name string) bool
}

// A NewRig makes a rig; what it opens ends with the test.
type NewRig func(t *testing.T, opts *chain.Options, interceptors ...core.Interceptor) *Rig

// A Case is one behaviour: a chain, a message, and what must come of it.
type Case struct {
	Name         string
	Options      chain.Options
	Interceptors []core.Interceptor
	Overrides    map[string]chain.Overrides
	// Request has defaults for event, phase, direction and payload.
	Request chain.Request
	// Context returns the caller's context; nil for the test's own.
	Context func(t *testing.T) context.Context
	Check   func(t *testing.T, res *chain.Result, err error)
}

// Run runs the whole suite over one kind of host. Each case runs in a bubble
// of its own, in which time passes only when everything waits.
func Run(t *testing.T, newRig NewRig) {
	for name, cases := range map[string][]Case{
		"verdicts": verdictCases(), "failures": failureCases(), "order": orderCases(),
		"payloads": payloadCases(), "time": timeCases(), "audit": auditCases(), "policy": policyCases(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.Name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { c.run(t, newRig) }) })
			}
		})
	}
	t.Run("changes", func(t *testing.T) { runChanges(t, newRig) })
}

// payload is what a request carries unless a case says otherwise.
const payload = `{"name":"echo","arguments":{"text":"hi"}}`

func (c *Case) run(t *testing.T, newRig NewRig) {
	// Handlers that were abandoned end after all else, in the bubble's time.
	t.Cleanup(func() { time.Sleep(2 * time.Hour) })
	rig := newRig(t, &c.Options, c.Interceptors...)
	if c.Overrides != nil {
		require.NoError(t, rig.Chain.SetOverrides(c.Overrides))
	}
	ctx := t.Context()
	if c.Context != nil {
		ctx = c.Context(t)
	}
	req := withDefaults(c.Request)
	before := string(req.Payload)
	res, err := rig.Chain.Execute(ctx, &req)
	assert.Equal(t, before, string(req.Payload), "the caller's payload is never written to")
	if res != nil && err == nil {
		assert.NotNil(t, res.FinalPayload, "an allowed run has a final payload")
		assert.Equal(t, chain.StatusSuccess, res.Status)
	}
	if res != nil && err != nil {
		assert.Nil(t, res.FinalPayload, "a stopped message has no final payload")
		assert.NotEqual(t, chain.StatusSuccess, res.Status)
	}
	c.Check(t, res, err)
}

func withDefaults(req chain.Request) chain.Request {
	if req.Event == "" {
		req.Event = core.EventToolsCall
	}
	if req.Phase == "" {
		req.Phase = core.PhaseRequest
	}
	if req.Direction == "" {
		req.Direction = core.Receiving
	}
	if req.Payload == nil {
		req.Payload = json.RawMessage(payload)
	}
	return req
}

// passes wants the message to go on unchanged.
func passes(t *testing.T, res *chain.Result, err error) {
	t.Helper()
	require.NoError(t, err)
	assert.JSONEq(t, payload, string(res.FinalPayload))
	assert.False(t, res.Mutated)
}

// becomes wants the message to go on with exactly this payload.
func becomes(want string) func(*testing.T, *chain.Result, error) {
	return func(t *testing.T, res *chain.Result, err error) {
		t.Helper()
		require.NoError(t, err)
		assert.Equal(t, want, string(res.FinalPayload))
		assert.True(t, res.Mutated)
	}
}

// denied wants a denial by the named interceptor.
func denied(name string) func(*testing.T, *chain.Result, error) {
	return func(t *testing.T, res *chain.Result, err error) {
		t.Helper()
		abort := aborted(t, res, err, name, chain.StatusValidationFailed)
		assert.ErrorIs(t, abort, chain.ErrDenied)
		assert.Equal(t, chain.ReasonDenied, abort.Reason)
	}
}

// fails wants a failure of the named interceptor that stops the message.
func fails(name string, status chain.Status) func(*testing.T, *chain.Result, error) {
	return func(t *testing.T, res *chain.Result, err error) {
		t.Helper()
		abort := aborted(t, res, err, name, status)
		assert.NotErrorIs(t, abort, chain.ErrDenied)
	}
}

func aborted(t *testing.T, res *chain.Result, err error, name string, status chain.Status) *chain.AbortError {
	t.Helper()
	var abort *chain.AbortError
	require.ErrorAs(t, err, &abort)
	assert.Equal(t, name, abort.Interceptor)
	assert.Equal(t, status, res.Status)
	require.NotNil(t, res.AbortedAt)
	assert.Equal(t, name, res.AbortedAt.Interceptor)
	return abort
}

// outcome returns the named interceptor's part.
func outcome(t *testing.T, res *chain.Result, name string) *chain.Outcome {
	t.Helper()
	for i := range res.Results {
		if res.Results[i].Entry.Name == name {
			return &res.Results[i]
		}
	}
	require.Failf(t, "no outcome", "of %q", name)
	return nil
}
