package chaintest

import (
	"context"
	"encoding/json"
	"testing"

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

// A Kind is a kind of host that the suite runs over.
type Kind struct {
	Name string
	// RealTime says that the interceptors are where no fake clock reaches.
	// Durations then have some slack, and cases run many at once.
	RealTime bool
	// New makes a rig for a case; what it opens ends with the test.
	New func(t *testing.T, c *Case) *Rig
}

// A Case is one behaviour: a chain, a message, and what must come of it.
type Case struct {
	Name         string // unique in the suite
	Options      chain.Options
	Interceptors []core.Interceptor
	Overrides    map[string]chain.Overrides
	// Request has defaults for event, phase, direction and payload.
	Request chain.Request
	// Context returns the caller's context; nil for the test's own.
	Context func(t *testing.T) context.Context
	Check   func(t *T, res *chain.Result, err error)
	// Do takes the place of Request, Context and Check where one message is
	// not enough.
	Do func(t *T, rig *Rig)
}

// groups returns all cases.
func groups() map[string][]Case {
	return map[string][]Case{
		"verdicts": verdictCases(), "failures": failureCases(), "order": orderCases(), "payloads": payloadCases(),
		"time": timeCases(), "audit": auditCases(), "policy": policyCases(), "changes": changeCases(),
	}
}

// Interceptors returns the interceptors of the case: a process that serves
// them is told its name. It reports false for an unknown one.
func Interceptors(caseName string) ([]core.Interceptor, bool) {
	for _, cases := range groups() {
		for _, c := range cases {
			if c.Name == caseName {
				return c.Interceptors, true
			}
		}
	}
	return nil, false
}

// Run runs the whole suite over one kind of host and returns what came of each
// case, as [Render] writes it. Unless the kind is one of real time, each case
// runs in a bubble of its own, in which time passes only when everything waits.
func Run(t *testing.T, k Kind) map[string]string {
	r := &run{kind: k, renderings: map[string]string{}}
	r.all(t, groups())
	return r.renderings
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

// payload is what a request carries unless a case says otherwise.
const payload = `{"name":"echo","arguments":{"text":"hi"}}`

// passes wants the message to go on unchanged.
func passes(t *T, res *chain.Result, err error) {
	t.Helper()
	require.NoError(t, err)
	assert.JSONEq(t, payload, string(res.FinalPayload))
	assert.False(t, res.Mutated)
}

// becomes wants the message to go on with exactly this payload.
func becomes(want string) func(*T, *chain.Result, error) {
	return func(t *T, res *chain.Result, err error) {
		t.Helper()
		require.NoError(t, err)
		assert.Equal(t, want, string(res.FinalPayload))
		assert.True(t, res.Mutated)
	}
}

// denied wants a denial by the named interceptor.
func denied(name string) func(*T, *chain.Result, error) {
	return func(t *T, res *chain.Result, err error) {
		t.Helper()
		abort := aborted(t, res, err, name, chain.StatusValidationFailed)
		assert.ErrorIs(t, abort, chain.ErrDenied)
		assert.Equal(t, chain.ReasonValidation, abort.Reason)
	}
}

// fails wants a failure of the named interceptor that stops the message.
func fails(name string, status chain.Status) func(*T, *chain.Result, error) {
	return func(t *T, res *chain.Result, err error) {
		t.Helper()
		abort := aborted(t, res, err, name, status)
		assert.NotErrorIs(t, abort, chain.ErrDenied)
	}
}

func aborted(t *T, res *chain.Result, err error, name string, status chain.Status) *chain.AbortError {
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
func outcome(t *T, res *chain.Result, name string) *chain.Outcome {
	t.Helper()
	for i := range res.Results {
		if res.Results[i].Entry.Name == name {
			return &res.Results[i]
		}
	}
	require.Failf(t, "no outcome", "of %q", name)
	return nil
}
