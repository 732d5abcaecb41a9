package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

type (
	hostView struct {
		Name, Chain, Fault, LastError string
		Remote, Up                    bool
		Since                         *time.Time
		Losses                        uint64
		Interceptors                  int
	}
	hostsView struct{ Hosts []hostView }

	circuitView struct {
		State  string
		Since  *time.Time
		Opened uint64
	}
)

type ctlHosts struct{}

// Run lists hosts.
func (*ctlHosts) Run(c *ctl) error {
	var list hostsView
	return c.show(ask{path: "/v1/hosts"}, &list, func(w io.Writer) { drawHosts(w, list.Hosts) })
}

type ctlRefresh struct {
	Host   string `arg:"" help:"The host, as headgate ctl hosts names it."`
	Reason string `help:"Why."`
}

// Run has a host list again, or dial at once.
func (cmd *ctlRefresh) Run(c *ctl) error {
	var list hostsView
	return c.show(ask{
		method: http.MethodPost, path: "/v1/hosts/" + url.PathEscape(cmd.Host) + ":refresh", header: reasonHeader(cmd.Reason),
	}, &list, func(w io.Writer) { drawHosts(w, list.Hosts) })
}

type ctlReset struct {
	Name   string `arg:"" help:"The interceptor."`
	Reason string `help:"Why."`
}

// Run closes an interceptor's circuit.
func (cmd *ctlReset) Run(c *ctl) error {
	var done struct {
		Circuit circuitView
		Change  struct{ Before string }
	}
	return c.show(ask{
		method: http.MethodPost, path: interceptorPath(cmd.Name) + "/breaker:reset", header: reasonHeader(cmd.Reason),
	}, &done, func(w io.Writer) {
		fmt.Fprintf(w, "circuit of %s %s -> %s\n", printable(cmd.Name), done.Change.Before, done.Circuit.State)
	})
}

func reasonHeader(reason string) http.Header {
	if reason == "" {
		return nil
	}
	return http.Header{"Change-Reason": {reason}}
}

func drawHosts(w io.Writer, list []hostView) {
	var rows [][]string
	for i := range list {
		h := &list[i]
		state, since := "up", ""
		if !h.Up {
			state = "down: " + h.Fault
		}
		if h.Since != nil {
			since = h.Since.Local().Format(clock)
		}
		rows = append(rows, []string{h.Name, h.Chain, fmt.Sprint(h.Interceptors), state, since, fmt.Sprint(h.Losses), h.LastError})
	}
	columns(w, "HOST\tCHAIN\tINTERCEPTORS\tSTATE\tSINCE\tLOST\tLAST ERROR", rows)
}
