package middleware_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The stages of a message add up, also where it carries others and is sent
// more than once.
func TestStagesOfRoundsAddUp(t *testing.T) {
	for _, side := range []string{"server", "client"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ends []chain.MessageEnd
				observer := endObserver{onEnd: func(e *chain.MessageEnd) {
					if e.Message.Method == core.EventToolsCall {
						ends = append(ends, *e)
					}
				}}
				sleepy := ct.Sleep(5*time.Millisecond, core.Allow())
				_, _, err := ask(t, core.EventElicitation, modern, side, observer,
					ct.Validator("call", sleepy), ct.Validator("asked", sleepy, ct.On(core.PhaseBoth, core.EventElicitation)))
				require.NoError(t, err)
				require.NotEmpty(t, ends)
				for _, e := range ends {
					assert.Equal(t, e.Duration, sum(e.Stages), "%+v", e.Stages)
					assert.Positive(t, e.Duration)
				}
			})
		})
	}
}

func sum(s chain.StageTimes) time.Duration {
	total := s.Handler
	for _, p := range []chain.PhaseTimes{s.Request, s.Response} {
		total += p.Marshal + p.Validators + p.Mutators + p.Unmarshal
	}
	return total
}
