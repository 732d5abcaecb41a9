//go:build e2e

package observe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// asHost has this binary be a host of interceptors that fail when asked to. The
// demo starts it: its own interceptors never fail.
const asHost = "HEADGATE_E2E_HOST"

func TestMain(m *testing.M) {
	if os.Getenv(asHost) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serveFaults(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "host of faults:", err)
		os.Exit(1)
	}
}

// What a call says to have its guards fail.
const (
	pleaseFail  = "please fail"  // open and audited with an error
	pleaseCrash = "please crash" // closed, with a panic
	pleaseOpen  = "please open"  // open and audited with a panic
	pleaseHang  = "please hang"  // open, past its time
)

// The guards.
const (
	failsOpen   = "e2e/fails-open"
	failsClosed = "e2e/fails-closed"
	failsAudit  = "e2e/fails-in-audit"
)

var errAsked = errors.New("it was asked to fail")

func serveFaults(ctx context.Context) error {
	guard := func(name string, open bool, mode core.Mode, act func(ctx context.Context, said string) error) core.Validator {
		return core.Validator{
			Metadata: core.Metadata{
				Name: name, FailOpen: open, Mode: mode,
				Hooks: []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseRequest}},
			},
			Handler: func(ctx context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
				return core.Allow(), act(ctx, string(inv.Payload))
			},
		}
	}
	ext := mcpext.New(nil)
	err := ext.AddInterceptor(
		guard(failsOpen, true, core.ModeActive, func(ctx context.Context, said string) error {
			switch {
			case strings.Contains(said, pleaseFail):
				return errAsked
			case strings.Contains(said, pleaseOpen):
				panic(errAsked)
			case strings.Contains(said, pleaseHang):
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}),
		guard(failsClosed, false, core.ModeActive, func(_ context.Context, said string) error {
			if strings.Contains(said, pleaseCrash) {
				panic(errAsked)
			}
			return nil
		}),
		guard(failsAudit, false, core.ModeAudit, func(_ context.Context, said string) error {
			switch {
			case strings.Contains(said, pleaseFail):
				return errAsked
			case strings.Contains(said, pleaseOpen):
				panic(errAsked)
			}
			return nil
		}),
	)
	if err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "faults", Version: "0"}, nil)
	if err := ext.Install(server); err != nil {
		return err
	}
	return server.Run(ctx, &mcp.StdioTransport{})
}

// faults returns requests that make the guards fail, and one that hangs.
func faults() []request {
	var all []request
	for word, n := range map[string]int{pleaseFail: 4, pleaseCrash: 3, pleaseOpen: 2, pleaseHang: 1} {
		for range n {
			all = append(all, call("echo", map[string]any{"text": word}))
		}
	}
	return all
}

// fault enters a call that asks guards to fail. That one fails closed is seen
// from the error; that one fails open is nowhere to be seen, and is what was
// asked for.
func (l *ledger) fault(params any) {
	for word, reason := range map[string]string{pleaseFail: "error", pleaseOpen: "panic", pleaseHang: "timeout"} {
		if says(params, word) {
			l.opened[failsOpen+" "+reason]++
		}
	}
	for word, reason := range map[string]string{pleaseFail: "error", pleaseOpen: "panic"} {
		if says(params, word) {
			l.auditFailed[failsAudit+" "+reason]++
		}
	}
	if says(params, pleaseCrash) {
		l.crashes++
	}
}
