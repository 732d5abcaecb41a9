package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

const usage = `Headgate runs interceptors on the messages of MCP servers.

Usage:

	headgate demo [flags]   run a protected MCP server, with traffic
	headgate ctl COMMAND    control a running server over its admin plane
	headgate bench          measure what Headgate costs on this machine
	headgate dashboards     write Grafana dashboards and rules to a folder
	headgate trace ID       draw one of the demo's last traces
	headgate version        print the version
	headgate help           print this text

Each command has flags of its own: headgate COMMAND -h.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process at once, as usual.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with everything handed in. It returns the exit code; the end of
// ctx is the first signal.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	switch command, rest := args[0], args[1:]; command {
	case "demo":
		return demo(ctx, rest, stdout, stderr)
	case "ctl":
		return ctlCommand(ctx, rest, stdout, stderr)
	case "bench":
		return benchCommand(ctx, rest, stdout, stderr)
	case "dashboards":
		return dashboardsCommand(ctx, rest, stdout, stderr)
	case "trace":
		return traceCommand(ctx, rest, stdout, stderr)
	case "version", "-version", "--version":
		fmt.Fprintln(stdout, "headgate", version())
		return exitOK
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return exitOK
	default:
		fmt.Fprintf(stderr, "headgate: unknown command %q\n\n%s", command, usage)
		return exitUsage
	}
}

// version says what the binary was built from, as far as the build recorded it.
func version() string {
	v := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
