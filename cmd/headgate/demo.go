package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

// Bounds of --traffic: a slip of the hand must not be a load test.
const (
	minTraffic = 0.01
	maxTraffic = 1000
)

// defaultMetrics is where metrics and traces are served.
const defaultMetrics = "127.0.0.1:9464"

// defaultAdmin is where the admin plane is served.
const defaultAdmin = "127.0.0.1:9901"

// demoFlags are the flags of headgate demo.
type demoFlags struct {
	addr    string
	metrics string        // empty for none
	traffic float64       // requests a second; 0 means none
	length  time.Duration // 0 means until a signal
	hosts   []remote
	control controlFlags
}

func parseDemo(args []string, stderr io.Writer) (*demoFlags, error) {
	f := &demoFlags{}
	fs := flag.NewFlagSet("headgate demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&f.addr, "mcp", "127.0.0.1:8080", "`address` to serve MCP on, at "+endpoint)
	fs.StringVar(&f.metrics, "metrics", defaultMetrics, "`address` to serve metrics and traces on; empty for none")
	fs.StringVar(&f.control.addr, "admin", defaultAdmin, "`address` to serve the admin plane on; empty for none")
	fs.StringVar(&f.control.tokenFile, "admin-token-file", "", "`file` with the admin token alone, or with lines of id, role and secret; without it one is made and printed")
	fs.StringVar(&f.control.stateDir, "state-dir", "", "`folder` to keep overrides and history in; without it they last as long as the demo")
	fs.StringVar(&f.control.config, "config", "", "JSON `file` with modes and more by interceptor, read again on SIGHUP; see doc/OPERATIONS.md")
	fs.Float64Var(&f.traffic, "traffic", 5, "requests a second of the demo's own client; 0 for none")
	fs.DurationVar(&f.length, "for", 0, "`duration` after which the demo ends; 0 for never")
	fs.Func("host", "`stdio:COMMAND or URL` of a host whose interceptors run too; may be given several times", f.addHost)
	err := fs.Parse(args)
	switch {
	case err != nil:
		return nil, err // printed by Parse
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case f.traffic != 0 && !(f.traffic >= minTraffic && f.traffic <= maxTraffic): // NaN is not
		err = fmt.Errorf("--traffic must be 0, or between %v and %v", minTraffic, maxTraffic)
	case f.control.addr == "" && f.control.config+f.control.stateDir+f.control.tokenFile != "":
		err = errors.New("--config, --state-dir and --admin-token-file are the admin plane's, and --admin is empty")
	case f.length < 0:
		err = errors.New("--for must not be negative")
	}
	if err != nil {
		fmt.Fprintln(stderr, "headgate demo:", err)
		fs.Usage()
	}
	return f, err
}

// demo is the command headgate demo.
func demo(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags, err := parseDemo(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := runDemo(ctx, flags, stdout, stderr, logger); err != nil {
		fmt.Fprintln(stderr, "headgate demo:", err)
		return exitFailure
	}
	return exitOK
}

// runDemo serves until ctx ends or the time is up, and cleans up.
func runDemo(ctx context.Context, f *demoFlags, stdout, stderr io.Writer, logger *slog.Logger) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.WithoutCancel(ctx), "tcp", f.addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	// Tools work until they are told to stop, which is later than ctx ends:
	// calls under way get time to finish.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()

	watch, err := newObservatory(ctx, os.Getenv)
	if err != nil {
		return err
	}
	defer watch.close()
	metrics, stop, err := watch.serve(ctx, f.metrics, logger)
	if err != nil {
		return err
	}
	defer stop()
	report := newReport(stdout)
	defer report.close()
	server := newServer(work)
	ch, err := protect(server, logger, watch.telemetry, report)
	if err != nil {
		return err
	}
	hosts := &remotes{stderr: stderr, logger: logger}
	defer hosts.close(ch)
	if err := hosts.add(ctx, ch, f.hosts); err != nil {
		return err
	}
	ctl, err := f.control.control(ctx, ch, watch.registry, logger)
	if err != nil {
		return err
	}
	defer ctl.stop()
	url := "http://" + reachable(ln.Addr()) + endpoint
	report.begin(&addresses{mcp: url, metrics: metrics, admin: ctl.url, token: ctl.token}, ch.Entries())

	web := newWeb(server, logger)
	defer shutDown(web, abandon)
	served := make(chan error, 1)
	go func() { served <- web.Serve(ln) }()
	defer startTraffic(url, f.traffic, logger)()
	return wait(ctx, f.length, served)
}

// wait returns when ctx ends, the time is up, or serving failed. No length
// means no end.
func wait(ctx context.Context, length time.Duration, served <-chan error) error {
	var up <-chan time.Time
	if length > 0 {
		up = time.After(length)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-up:
		return nil
	case err := <-served:
		return err
	}
}

// grace is what calls under way get to finish. With the chain's own drain time
// and the rest, the demo is gone within 5 s of a signal.
const grace = 2 * time.Second

// shutDown ends a server: politely first, then for good.
func shutDown(web *http.Server, abandon func()) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if web.Shutdown(ctx) != nil {
		abandon()
		_ = web.Close() // streams that nobody ends
	}
}
