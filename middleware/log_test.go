package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/stretchr/testify/assert"
)

// At 3 a.m.: from the log alone, who did what and why.
func TestWhatIsLogged(t *testing.T) {
	boom := func(context.Context, *core.Invocation) (*core.ValidationResult, error) { panic("boom") }
	tests := map[string]struct {
		interceptor core.Interceptor
		chain       chain.Options
		want        []string
	}{
		"denial":             {ct.Validator("x", ct.Deny), chain.Options{}, []string{`msg="message stopped"`, "level=INFO", "interceptor=x", "reason=validation", "phase=request", "message_id="}},
		"failure":            {ct.Validator("x", ct.Fail(errors.New("db is down"))), chain.Options{}, []string{"level=WARN", "interceptor=x", "reason=error", "db is down"}},
		"panic":              {ct.Validator("x", boom), chain.Options{}, []string{"interceptor=x", "reason=panic", "boom", "log_test.go"}},
		"timeout":            {ct.Validator("x", ct.Sleep(time.Hour, nil)), chain.Options{InvokeTimeout: time.Millisecond}, []string{"interceptor=x", "reason=timeout", "timeout=1ms"}},
		"phase timeout":      {ct.Validator("x", ct.Sleep(time.Hour, nil)), chain.Options{Timeout: time.Millisecond}, []string{"reason=timeout", "waiting for", "x"}},
		"unfit change":       {ct.Mutator("x", ct.Set(`{"name":"echo","extra":1}`)), chain.Options{}, []string{"interceptor=x", "reason=protocol", "extra has no place"}},
		"failed open":        {ct.Validator("x", boom, ct.FailOpen), chain.Options{}, []string{`msg="interceptor failed"`, "interceptor=x", "action=fail_open", "reason=panic", "log_test.go"}},
		"audit failure":      {ct.Validator("x", boom, ct.Audit), chain.Options{InlineAudit: true}, []string{`msg="interceptor failed"`, "mode=audit", "reason=panic"}},
		"audit denial":       {ct.Validator("x", ct.Deny, ct.Audit), chain.Options{InlineAudit: true}, []string{`msg="audit would have denied"`, "level=INFO", "interceptor=x"}},
		"a pass is not news": {ct.Validator("x", ct.Allow), chain.Options{}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			log := &logBuffer{}
			logger := slog.New(slog.NewTextHandler(log, nil))
			tt.chain.Observer = middleware.Log(logger)
			p := protect(t, setup{interceptors: []core.Interceptor{tt.interceptor}, chain: tt.chain, options: middleware.Options{Logger: logger}, server: echo})
			_, _ = call(t, p.client(t, modern), "echo", map[string]any{"text": "payload-text"})
			for _, want := range tt.want {
				assert.Contains(t, log.String(), want)
			}
			if tt.want == nil {
				assert.Empty(t, log.String())
			}
			assert.NotContains(t, log.String(), "payload-text")
		})
	}
}

// A guard that fails on each of thousands of messages does not fill the disk, and
// does not keep another failure from being seen.
func TestLogDoesNotRepeatItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		o := middleware.Log(slog.New(slog.NewTextHandler(log, nil)))
		tell := func(name string, mode core.Mode) {
			e := &chain.Entry{Host: "h", Descriptor: core.Descriptor{Metadata: core.Metadata{Name: name}}}
			o.InvokeEnd(context.Background(), &chain.Invoke{Entry: e}, &chain.Outcome{
				Entry: e, Mode: mode, Verdict: chain.VerdictError, Reason: chain.ReasonError, Err: errors.New("ill"),
			})
		}
		count := func(text string) int { return strings.Count(log.String(), text) }
		for range 5000 {
			tell("x", core.ModeActive)
		}
		assert.Equal(t, 10, count("interceptor=x"))
		tell("y", core.ModeActive)
		tell("x", core.ModeAudit)
		assert.Equal(t, 1, count("interceptor=y"))
		assert.Equal(t, 1, count("mode=audit"))
		time.Sleep(10 * time.Second)
		assert.Zero(t, count("left_out"))
		tell("x", core.ModeActive)
		tell("x", core.ModeActive)
		assert.Equal(t, 1, count("left_out=4990"))
		assert.Equal(t, 1, count("left_out="))
	})
}
