package proof_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/stretchr/testify/require"
)

// Whatever a client writes, a server behind audits that read and rewrite all of it
// answers as it does without. Seen to fail with notifications that audits see
// queued as those that active interceptors see.
func FuzzClientBytes(f *testing.F) {
	for _, version := range []string{legacy, modern} {
		w := &writer{dice: newDice(1, "fuzz "+version), version: version}
		for range 40 {
			f.Add(w.draw().text, version == modern)
		}
		f.Add(w.last().text, version == modern)
	}
	f.Fuzz(func(t *testing.T, text string, isModern bool) {
		version := legacy
		if isModern {
			version = modern
		}
		fr, ok := frameOf(text)
		if !ok {
			return
		}
		server := newSubject()
		ext := mcpext.New(nil)
		d := newDice(1, "fuzz")
		for _, name := range []string{"validator", "mutator"} {
			h := d.hostile(name)
			h.act, h.metadata.Mode, h.metadata.Inline = "replace", core.ModeAudit, false
			h.metadata.Hooks = []core.Hook{{Events: []string{"*", "ping", "notifications/progress"}, Phase: core.PhaseBoth}}
			if name == "mutator" {
				require.NoError(t, ext.AddInterceptor(core.Mutator{Metadata: h.metadata, Handler: h.mutate}))
			} else {
				require.NoError(t, ext.AddInterceptor(core.Validator{Metadata: h.metadata, Handler: h.validate}))
			}
		}
		ch, err := ext.Chain(&chain.Options{})
		require.NoError(t, err)
		defer func() { _ = ch.Close() }()
		server.AddReceivingMiddleware(middleware.Receiving(ch, nil))
		plain, guarded := newPipe(t, newSubject(), version), newPipe(t, server, version)
		defer plain.close()
		defer guarded.close()
		require.Equal(t, plain.exchange(fr), guarded.exchange(fr))
	})
}

var plainID = regexp.MustCompile(`^("[a-z0-9-]{1,20}"|[1-9][0-9]{0,8})$`)

// frameOf reads a text as a frame whose answer can be told; ok is false for what
// is none, or is answered otherwise each time, or not at all.
func frameOf(text string) (f frame, ok bool) {
	var msg struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  struct {
			Name any `json:"name"`
		} `json:"params"`
	}
	if strings.ContainsAny(text, "\n\r") || core.Decode([]byte(text), &msg) != nil || msg.Method == "" {
		return f, false
	}
	if msg.Params.Name == "typed" { // go-sdk lists what is wrong with its arguments in the order of a map
		return f, false
	}
	switch msg.Method {
	case "initialize", "server/discover", "subscriptions/listen", "interceptors/list", "interceptor/invoke":
		return f, false
	}
	f = frame{text: text, method: msg.Method, id: string(msg.ID)}
	note := strings.HasPrefix(msg.Method, "notifications/")
	return f, note && f.id == "" || !note && plainID.MatchString(f.id)
}
