package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
)

type ctlWatch struct {
	Decisions   bool   `help:"Messages that something was decided on, too."`
	Interceptor string `help:"Only what concerns this interceptor."`
}

// Run follows the plane's events until it is interrupted. A stream that breaks is
// taken up where it broke off, also when the plane is away for a while.
func (cmd *ctlWatch) Run(c *ctl) error {
	q := url.Values{}
	if cmd.Interceptor != "" {
		q.Set("interceptor", cmd.Interceptor)
	}
	if cmd.Decisions {
		q.Set("types", "change,override.expiring,override.expired,breaker,host,decision,reset,overflow")
	}
	last, connected := "", false
	for {
		header := http.Header{"Accept": {"text/event-stream"}}
		if last != "" {
			header.Set("Last-Event-ID", last)
		}
		res, err := c.open(c.ctx, ask{path: "/v1/events?" + q.Encode(), header: header})
		switch {
		case c.ctx.Err() != nil:
			return nil
		case connected && errors.Is(err, errUnreachable):
			if !c.wait("the plane is away, trying again") {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		connected = true
		sc := bufio.NewScanner(res.Body)
		sc.Buffer(nil, 1<<20)
		var kind, data string
		for sc.Scan() {
			field, value, _ := strings.Cut(sc.Text(), ": ")
			switch field {
			case "id":
				last = value
			case "event":
				kind = value
			case "data":
				data = value
			case "":
				if data != "" && value == "" {
					c.event(kind, data)
				}
				kind, data = "", ""
			}
		}
		res.Body.Close()
		if !c.wait("") {
			return nil
		}
	}
}

// wait waits a moment, and reports false if it was interrupted.
func (c *ctl) wait(why string) bool {
	if why != "" {
		fmt.Fprintln(c.err, "headgate ctl:", why)
	}
	select {
	case <-c.ctx.Done():
		return false
	case <-time.After(2 * time.Second):
		return true
	}
}

// event prints one event as a line.
func (c *ctl) event(kind, data string) {
	if c.json {
		fmt.Fprintln(c.out, escaped(fmt.Sprintf("{\"event\":%q,\"data\":%s}", kind, data)))
		return
	}
	switch kind {
	case "change":
		var r history.Record
		if json.Unmarshal([]byte(data), &r) == nil {
			fmt.Fprintf(c.out, "%s  %s  %s %s  %s -> %s  by %s  %s\n", r.Time.Local().Format(time.TimeOnly), r.Outcome, r.Action,
				printable(r.Target), r.Before, r.After, printable(r.Actor.Name), printable(r.Reason))
		}
	case "decision":
		var d decisionView
		if json.Unmarshal([]byte(data), &d) == nil {
			fmt.Fprintf(c.out, "%s  %s %s  %s  message %s\n", d.Time.Local().Format(time.TimeOnly), printable(d.Method), printable(d.Target),
				d.Outcome, printable(d.ID))
		}
	case "breaker":
		var b struct {
			Interceptor, From, To string
			Time                  time.Time
		}
		if json.Unmarshal([]byte(data), &b) == nil {
			fmt.Fprintf(c.out, "%s  circuit of %s  %s -> %s\n", b.Time.Local().Format(time.TimeOnly), printable(b.Interceptor), b.From, b.To)
		}
	case "host":
		var h hostView
		if json.Unmarshal([]byte(data), &h) == nil {
			fmt.Fprintf(c.out, "%s  host %s  up %t  %s\n", time.Now().Format(time.TimeOnly), printable(h.Name), h.Up, h.Fault)
		}
	default:
		fmt.Fprintf(c.out, "%s  %s\n", kind, printable(data))
	}
}
