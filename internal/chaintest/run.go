package chaintest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// atOnce is how many cases in real time run at once. Most of them sleep.
const atOnce = 12

// early and late are how far from its exact value a real duration may be.
const (
	early = 500 * time.Millisecond
	late  = 3 * time.Second
)

// A run is the suite over one kind of host.
type run struct {
	kind Kind

	mu         sync.Mutex
	renderings map[string]string
}

// A T is a test of one case.
type T struct {
	*testing.T
	realTime bool
	rendered strings.Builder
}

// took wants a duration to be what it should, exactly where the clock is fake.
func (t *T) took(want, got time.Duration) {
	t.Helper()
	if !t.realTime {
		assert.Equal(t, want, got)
		return
	}
	assert.GreaterOrEqual(t, got, want-early)
	assert.LessOrEqual(t, got, want+late)
}

// execute runs a message and records what came of it.
func (t *T) execute(ch *chain.Chain, req chain.Request) (*chain.Result, error) {
	return t.executeIn(t.Context(), ch, req)
}

func (t *T) executeIn(ctx context.Context, ch *chain.Chain, req chain.Request) (*chain.Result, error) {
	req = withDefaults(req)
	before := string(req.Payload)
	res, err := ch.Execute(ctx, &req)
	assert.Equal(t, before, string(req.Payload), "the caller's payload is never written to")
	if res != nil && err == nil {
		assert.NotNil(t, res.FinalPayload, "an allowed run has a final payload")
		assert.Equal(t, chain.StatusSuccess, res.Status)
	}
	if res != nil && err != nil {
		assert.Nil(t, res.FinalPayload, "a stopped message has no final payload")
		assert.NotEqual(t, chain.StatusSuccess, res.Status)
	}
	t.rendered.WriteString(Render(res, err))
	return res, err
}

// all runs the cases, of one group each, as the kind allows.
func (r *run) all(t *testing.T, groups map[string][]Case) {
	if !r.kind.RealTime {
		for name, cases := range groups {
			t.Run(name, func(t *testing.T) {
				for i := range cases {
					t.Run(cases[i].Name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { r.one(t, &cases[i]) })
					})
				}
			})
		}
		return
	}
	var busy sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, cases := range groups {
		for i := range cases {
			free <- struct{}{}
			busy.Go(func() {
				defer func() { <-free }()
				t.Run(cases[i].Name, func(t *testing.T) { r.one(t, &cases[i]) })
			})
		}
	}
	busy.Wait()
}

func (r *run) one(t *testing.T, c *Case) {
	if !r.kind.RealTime {
		// Handlers that were abandoned end after all else, in the bubble's time.
		t.Cleanup(func() { time.Sleep(2 * time.Hour) })
	}
	rig := r.kind.New(t, c)
	if c.Overrides != nil {
		require.NoError(t, rig.Chain.SetOverrides(c.Overrides))
	}
	tt := &T{T: t, realTime: r.kind.RealTime}
	if c.Do != nil {
		c.Do(tt, rig)
	} else {
		ctx := t.Context()
		if c.Context != nil {
			ctx = c.Context(t)
		}
		res, err := tt.executeIn(ctx, rig.Chain, c.Request)
		c.Check(tt, res, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renderings[c.Name] = tt.rendered.String()
}
