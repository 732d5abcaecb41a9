package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/headgate-mcp/headgate/admin/history"
)

// Exit codes of ctl beside those that all commands have, so that scripts can
// tell what went wrong.
const (
	exitRefused     = 3 // not let in, or not allowed
	exitConflict    = 4 // changed meanwhile, or it does not fit
	exitNotFound    = 5
	exitUnreachable = 6
	exitBroken      = 7 // a history that does not hold
)

// ctlCommands are the commands of headgate ctl.
type ctlCommands struct {
	Addr      string        `help:"URL of the admin plane." env:"HEADGATE_ADMIN" default:"http://127.0.0.1:9901"`
	Token     string        `help:"Token; better in a file or the environment than on a command line. Before all others."`
	TokenFile string        `help:"File with the token and nothing else, readable by its owner alone. Without it: $$HEADGATE_ADMIN_TOKEN, then the file that $$HEADGATE_ADMIN_TOKEN_FILE names." type:"path"`
	JSON      bool          `help:"Print JSON, for scripts."`
	Timeout   time.Duration `help:"How long an answer may take." default:"10s"`

	Ls         ctlLs         `cmd:"" help:"List interceptors and what holds for them."`
	Get        ctlGet        `cmd:"" help:"Show one interceptor: all its layers and its numbers."`
	Mode       ctlMode       `cmd:"" help:"Turn an interceptor to active, audit or off."`
	Clear      ctlClear      `cmd:"" help:"Take the override off an interceptor."`
	BreakGlass ctlBreakGlass `cmd:"" help:"Weaken everything at once, or end that."`
	Watch      ctlWatch      `cmd:"" help:"Follow what happens."`
	Why        ctlWhy        `cmd:"" help:"Say why a message went as it went."`
	History    ctlHistory    `cmd:"" help:"Show the history, or check its files."`
	Hosts      ctlHosts      `cmd:"" help:"List the hosts of interceptors, and how they fare."`
	Refresh    ctlRefresh    `cmd:"" help:"Have a host list again, or dial at once if it is away."`
	Reset      ctlReset      `cmd:"" help:"Close an interceptor's circuit."`
	Status     ctlStatus     `cmd:"" help:"Show how the plane itself fares."`
	Whoami     ctlWhoami     `cmd:"" help:"Show who the token is."`
}

// ctlCommand is the command headgate ctl.
func ctlCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var commands ctlCommands
	type exited int // kong exits where it printed help
	parser, err := kong.New(&commands, kong.Name("headgate ctl"), kong.Description("Controls a running server over its admin plane."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { panic(exited(code)) }))
	if err != nil {
		fmt.Fprintln(stderr, "headgate ctl:", err)
		return exitFailure
	}
	code := exitOK
	func() {
		defer func() {
			if v := recover(); v != nil {
				c, ok := v.(exited)
				if !ok {
					panic(v)
				}
				code = int(c)
			}
		}()
		parsed, err := parser.Parse(args)
		if err != nil {
			fmt.Fprintln(stderr, "headgate ctl:", err)
			code = exitUsage
			return
		}
		c := &ctl{ctx: ctx, out: stdout, err: stderr, json: commands.JSON, commands: &commands}
		if err := parsed.Run(c); err != nil {
			fmt.Fprintln(stderr, "headgate ctl:", printable(err.Error()))
			code = exitCode(err)
		}
	}()
	return code
}

// exitCode says what went wrong in a number.
func exitCode(err error) int {
	var bad *problemError
	switch {
	case errors.Is(err, history.ErrBroken):
		return exitBroken
	case errors.Is(err, errUnreachable):
		return exitUnreachable
	case !errors.As(err, &bad):
		return exitFailure
	}
	switch bad.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		return exitRefused
	case http.StatusConflict, http.StatusPreconditionFailed:
		return exitConflict
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return exitUsage
	}
	return exitFailure
}

// A ctl is what commands run with.
type ctl struct {
	ctx      context.Context
	out, err io.Writer
	json     bool
	commands *ctlCommands
}

// interceptorPath is where an interceptor is found.
func interceptorPath(name string) string { return "/v1/interceptors/" + url.PathEscape(name) }

type ctlLs struct {
	Mode string `help:"Only those in this mode."`
}

// Run lists interceptors.
func (cmd *ctlLs) Run(c *ctl) error {
	var list struct {
		Interceptors []interceptorView `json:"interceptors"`
	}
	q := url.Values{"include": {"stats"}, "limit": {"1000"}}
	if cmd.Mode != "" {
		q.Set("mode", cmd.Mode)
	}
	return c.show(ask{path: "/v1/interceptors?" + q.Encode()}, &list, func(w io.Writer) { drawList(w, list.Interceptors) })
}

type ctlGet struct {
	Name string `arg:"" help:"The interceptor."`
}

// Run shows an interceptor.
func (cmd *ctlGet) Run(c *ctl) error {
	var it interceptorView
	if err := c.fetch(ask{path: interceptorPath(cmd.Name)}, &it); err != nil || c.json {
		return err
	}
	var st statsView
	if err := c.quietly(ask{path: interceptorPath(cmd.Name) + "/stats"}, &st); err != nil {
		return err
	}
	drawInterceptor(c.out, &it, &st)
	return nil
}

type ctlMode struct {
	Name     string `arg:"" help:"The interceptor."`
	Mode     string `arg:"" enum:"active,audit,off" help:"active, audit or off."`
	TTL      string `help:"How long: 90s, 30m, 2h, 2d. Weakening lasts 4h if this is not given; none takes the role admin." name:"ttl"`
	Reason   string `help:"Why, in 10 characters or more." required:""`
	Ticket   string `help:"A ticket, for the record."`
	OnExpiry string `help:"revert, or hold: keep it and say that it is overdue." enum:"revert,hold" default:"revert"`
	Force    bool   `help:"Whatever it is now; recorded."`
	DryRun   bool   `help:"Say what would hold, and change nothing."`
}

// Run sets an override.
func (cmd *ctlMode) Run(c *ctl) error {
	body := map[string]any{"mode": cmd.Mode, "reason": cmd.Reason, "onExpiry": cmd.OnExpiry}
	if cmd.TTL != "" {
		body["ttl"] = cmd.TTL
	}
	if cmd.Ticket != "" {
		body["ticket"] = cmd.Ticket
	}
	return c.change(http.MethodPut, cmd.Name, body, "", cmd.Force, cmd.DryRun)
}

type ctlClear struct {
	Name   string `arg:"" help:"The interceptor."`
	Reason string `help:"Why."`
	Force  bool   `help:"Whatever it is now; recorded."`
	DryRun bool   `help:"Say what would hold, and change nothing."`
}

// Run takes an override off.
func (cmd *ctlClear) Run(c *ctl) error {
	return c.change(http.MethodDelete, cmd.Name, nil, cmd.Reason, cmd.Force, cmd.DryRun)
}

// change writes an override under the ETag of this moment, so that nobody's
// change in between is lost.
func (c *ctl) change(method, name string, body any, reason string, force, dry bool) error {
	match := "*"
	if !force {
		var now interceptorView
		if err := c.quietly(ask{path: interceptorPath(name)}, &now); err != nil {
			return err
		}
		match = now.ETag
	}
	path := interceptorPath(name) + "/override"
	if dry {
		path += "?dryRun=true"
	}
	header := http.Header{"If-Match": {match}}
	if reason != "" {
		header.Set("Change-Reason", reason)
	}
	var done changeView
	return c.show(ask{method: method, path: path, body: body, header: header}, &done, func(w io.Writer) { drawChange(w, &done) })
}

type ctlBreakGlass struct {
	Action string   `arg:"" optional:"" enum:"audit-all,off-all,end,status" default:"status" help:"audit-all, off-all, end, or status."`
	TTL    string   `help:"How long; an hour at most, and if not given." name:"ttl"`
	Reason string   `help:"Why, in 10 characters or more."`
	Ticket string   `help:"A ticket, for the record."`
	Except []string `help:"Interceptors to leave as they are."`
	DryRun bool     `help:"Say what would hold, and change nothing."`
}

// Run breaks the glass, or mends it.
func (cmd *ctlBreakGlass) Run(c *ctl) error {
	req := ask{path: "/v1/break-glass"}
	switch cmd.Action {
	case "status":
	case "end":
		req.method, req.header = http.MethodDelete, http.Header{"Change-Reason": {cmd.Reason}}
	default:
		body := map[string]any{"action": cmd.Action, "reason": cmd.Reason}
		if cmd.TTL != "" {
			body["ttl"] = cmd.TTL
		}
		if cmd.Ticket != "" {
			body["ticket"] = cmd.Ticket
		}
		if len(cmd.Except) > 0 {
			body["except"] = cmd.Except
		}
		req.method, req.body = http.MethodPut, body
	}
	if cmd.DryRun && cmd.Action != "status" {
		req.path += "?dryRun=true"
	}
	var glass glassView
	return c.show(req, &glass, func(w io.Writer) { drawGlass(w, &glass) })
}

type ctlWhy struct {
	ID string `arg:"" help:"The message's id, or its trace's."`
}

// Run says why a message went as it went.
func (cmd *ctlWhy) Run(c *ctl) error {
	var d decisionView
	return c.show(ask{path: "/v1/decisions/" + url.PathEscape(cmd.ID)}, &d, func(w io.Writer) { drawDecision(w, &d) })
}

type ctlStatus struct{}

// Run shows how the plane fares.
func (*ctlStatus) Run(c *ctl) error {
	var st statusView
	return c.show(ask{path: "/readyz?verbose"}, &st, func(w io.Writer) { drawStatus(w, &st) })
}

type ctlWhoami struct{}

// Run shows who the token is.
func (*ctlWhoami) Run(c *ctl) error {
	var who struct {
		Name, Role, Method, Service string
		Permissions                 []string
	}
	return c.show(ask{path: "/v1/whoami"}, &who, func(w io.Writer) {
		fmt.Fprintf(w, "%s, role %s, by %s, at %s\nmay: %s\n", printable(who.Name), who.Role, who.Method, printable(who.Service),
			strings.Join(who.Permissions, ", "))
	})
}

type ctlHistory struct {
	List   ctlHistoryList   `cmd:"" default:"withargs" help:"Show the last changes."`
	Verify ctlHistoryVerify `cmd:"" help:"Check the files of a history."`
}

type ctlHistoryList struct {
	Interceptor string `help:"Only those of this interceptor."`
	After       uint64 `help:"Only those after this sequence number."`
	Limit       int    `help:"How many." default:"100"`
}

// Run shows the history.
func (cmd *ctlHistoryList) Run(c *ctl) error {
	q := url.Values{"limit": {fmt.Sprint(cmd.Limit)}, "after": {fmt.Sprint(cmd.After)}}
	if cmd.Interceptor != "" {
		q.Set("interceptor", cmd.Interceptor)
	}
	var list struct {
		Changes []history.Record `json:"changes"`
	}
	return c.show(ask{path: "/v1/changes?" + q.Encode()}, &list, func(w io.Writer) { drawHistory(w, list.Changes) })
}

type ctlHistoryVerify struct {
	Dir     string `arg:"" type:"existingdir" help:"The folder: the server's --state-dir."`
	KeyFile string `help:"File with the key, if the history has one." type:"existingfile"`
	Since   uint64 `help:"The first record to judge, if somebody has looked at what comes before."`
}

// Run checks the files. It needs no server.
func (cmd *ctlHistoryVerify) Run(c *ctl) error {
	var key []byte
	if cmd.KeyFile != "" {
		raw, err := os.ReadFile(cmd.KeyFile)
		if err != nil {
			return err
		}
		key = raw
	}
	head, err := stateHead(cmd.Dir)
	if err != nil {
		return err
	}
	report, err := history.Verify(&history.VerifyOptions{Dir: cmd.Dir, Key: key, Head: head, Since: cmd.Since})
	if report != nil {
		c.print(report, func(w io.Writer) { drawReport(w, report) })
	}
	return err
}
