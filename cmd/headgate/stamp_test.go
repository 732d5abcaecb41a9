package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func noon() time.Time { return time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC) }

func TestStampKeepsTheRest(t *testing.T) {
	const trail = `"io.github.headgate-mcp/audit":{"messageId":"m-1","time":"2026-09-01T12:00:00Z","ran":[]}`
	for name, tt := range map[string]struct{ in, want string }{
		"no _meta":     {`{"content":[],"isError":true}`, `{"content":[],"isError":true,"_meta":{` + trail + `}}`},
		"null _meta":   {`{"_meta":null,"a":1}`, `{"_meta":{` + trail + `},"a":1}`},
		"other keys":   {`{"_meta":{"z":1.50,"a":"<&>"},"n":9007199254740993}`, `{"_meta":{"z":1.50,"a":"<&>",` + trail + `},"n":9007199254740993}`},
		"a forged one": {`{"_meta":{"io.github.headgate-mcp/audit":"mine","z":1}}`, `{"_meta":{` + trail + `,"z":1}}`},
		"nothing":      {`{}`, `{"_meta":{` + trail + `}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, stampResponse(noon), core.EventToolsCall, core.PhaseResponse, tt.in).Mutation
			require.True(t, got.Modified)
			assert.Equal(t, tt.want, string(got.Payload))
		})
	}
}

func TestStampRefusesWhatItCannotKeep(t *testing.T) {
	for _, payload := range []string{`{"_meta":[]}`, `{"_meta":"x"}`, `{"_meta":{"a":1,"a":2}}`, `[]`} {
		inv := &core.Invocation{Payload: json.RawMessage(payload)}
		_, err := core.Call(t.Context(), stampResponse(noon), inv)
		assert.Error(t, err, payload)
	}
}

func TestTrail(t *testing.T) {
	keeper := trailKeeper{}
	ctx := keeper.MessageStart(t.Context(), &chain.Message{})
	guard := &chain.Invoke{Entry: &chain.Entry{Descriptor: blockDestructive().Describe()}}
	keeper.InvokeEnd(ctx, guard, &chain.Outcome{Phase: core.PhaseRequest, Mode: core.ModeActive, Verdict: chain.VerdictAllow})
	keeper.InvokeEnd(ctx, guard, &chain.Outcome{Phase: core.PhaseRequest, Mode: core.ModeAudit, Verdict: chain.VerdictDeny})
	assert.Equal(t, []step{{"block-destructive", core.PhaseRequest, chain.VerdictAllow}}, trailOf(ctx), "audit leaves no trail")

	keeper.InvokeEnd(context.Background(), guard, &chain.Outcome{})
	assert.Empty(t, trailOf(context.Background()))
}
