package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// benchFlags are the flags of headgate bench.
type benchFlags struct {
	Clients   int           `help:"MCP clients, each with one request under way." default:"64"`
	Rate      float64       `help:"Requests a second, of all clients together. 0: each sends its next request when it has its answer." default:"200"`
	Duration  time.Duration `help:"How long each server is under load." default:"10s"`
	Turns     int           `help:"Turns of each server within that time; they alternate." default:"5"`
	Payload   int           `help:"Bytes of text in each call, and in its answer." default:"1024"`
	Chain     string        `help:"What protects: the demo's interceptors, or two validators and two mutators that do nothing (idle), which shows what Headgate costs without their work." enum:"demo,idle" default:"demo"`
	Telemetry bool          `help:"Have the protected server keep metrics, and make spans that are not sampled."`
	JSON      bool          `help:"Print JSON, for scripts."`
}

// Validate says which flags make no sense; kong calls it.
func (f *benchFlags) Validate() error {
	switch {
	case f.Clients < 1 || f.Clients > 10_000:
		return errors.New("--clients must be between 1 and 10000")
	case !(f.Rate >= 0 && f.Rate <= 1e6): // NaN is not
		return errors.New("--rate must be between 0 and 1000000")
	case f.Duration <= 0:
		return errors.New("--duration must be more than 0")
	case f.Turns < 1 || f.Turns > 1000:
		return errors.New("--turns must be between 1 and 1000")
	case f.Payload < 0 || f.Payload > 3<<20:
		return errors.New("--payload must be between 0 and 3145728, as HTTP servers of the SDK refuse more than 4 MiB")
	}
	return nil
}

const benchHelp = `Measures what Headgate costs on this machine: the demo's server, bare and with the demo's interceptors, under the same load of real MCP clients over HTTP.

Both run in this process, and take turns. With a fixed rate, latencies count from when a request should have been sent: a server that falls behind does not look better for it.`

// benchCommand is the command headgate bench.
func benchCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var flags benchFlags
	asked := false
	parser, err := kong.New(&flags, kong.Name("headgate bench"), kong.Description(benchHelp),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { asked = true }))
	if err == nil {
		_, err = parser.Parse(args)
	}
	switch {
	case asked: // for help, which has been printed
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "headgate bench:", err)
		return exitUsage
	}
	report, err := runBench(ctx, &flags, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err == nil && flags.JSON {
		err = report.writeJSON(stdout)
	} else if err == nil {
		err = report.writeTable(stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "headgate bench:", err)
		return exitFailure
	}
	return exitOK
}

// runBench serves both servers and puts them under load in turns.
func runBench(ctx context.Context, f *benchFlags, logger *slog.Logger) (*benchReport, error) {
	bare, protected := newServer(ctx), newServer(ctx)
	var watch chain.Observer
	if f.Chain == "demo" {
		watch = chain.NopObserver{}
	}
	if f.Telemetry {
		provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
		tel, err := telemetry.New(&telemetry.Options{Registerer: prometheus.NewRegistry(), TracerProvider: provider})
		if err != nil {
			return nil, err
		}
		watch = tel
	}
	ch, err := f.protect(protected, logger, watch)
	if err != nil {
		return nil, err
	}
	defer ch.Close()
	targets := [2]*target{}
	for i, web := range []*http.Server{newWeb(bare, logger), newWeb(protected, logger)} {
		t, err := f.newTarget(ctx, web)
		if err != nil {
			return nil, err
		}
		defer t.close()
		targets[i] = t
	}
	return f.takeTurns(ctx, targets[0], targets[1])
}

// protect puts the chosen chain in front of a server.
func (f *benchFlags) protect(server *mcp.Server, logger *slog.Logger, watch chain.Observer) (*chain.Chain, error) {
	if f.Chain == "demo" {
		return protect(server, logger, watch, chain.NopObserver{})
	}
	ext := mcpext.New(nil)
	if err := ext.AddInterceptor(idle()...); err != nil {
		return nil, err
	}
	ch, err := ext.Chain(&chain.Options{Observer: watch})
	if err == nil {
		middleware.Server(server, ch, &middleware.Options{Logger: logger})
	}
	return ch, err
}

// idle returns interceptors that do nothing, two of each type, on both phases.
func idle() []core.Interceptor {
	var list []core.Interceptor
	for _, n := range []string{"1", "2"} {
		hooks := []core.Hook{{Events: []string{core.EventToolsCall}, Phase: core.PhaseBoth}}
		list = append(list, core.Validator{
			Metadata: core.Metadata{Name: "validator-" + n, Hooks: hooks},
			Handler:  func(context.Context, *core.Invocation) (*core.ValidationResult, error) { return core.Allow(), nil },
		}, core.Mutator{
			Metadata: core.Metadata{Name: "mutator-" + n, Hooks: hooks},
			Handler:  func(context.Context, *core.Invocation) (*core.MutationResult, error) { return core.Unchanged(), nil },
		})
	}
	return list
}

// takeTurns alternates between the servers, so that what else the machine does
// falls on both. A first turn of each warms up and is not counted.
func (f *benchFlags) takeTurns(ctx context.Context, bare, protected *target) (*benchReport, error) {
	length := f.Duration / time.Duration(f.Turns)
	text := strings.Repeat("x", f.Payload)
	r := &benchReport{flags: f}
	for turn := range f.Turns + 1 {
		order := []*target{bare, protected}
		if turn%2 == 1 { // nobody is always second
			order = []*target{protected, bare}
		}
		for _, t := range order {
			s := t.load(ctx, f.Rate, length, text)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if turn > 0 {
				t.turns = append(t.turns, s)
			}
		}
	}
	r.bare, r.protected = summary("bare", bare.turns), summary("protected", protected.turns)
	return r, nil
}

// listen serves web on a port of loopback that is free.
func listen(ctx context.Context, web *http.Server) (url string, err error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = web.Serve(ln) }()
	return "http://" + ln.Addr().String() + endpoint, nil
}
