package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A remote is a host of interceptors in another process, as --host names it:
// by a command that speaks MCP over stdio, or by a URL.
type remote struct {
	flag    string
	command []string // nil for a URL
}

const stdioPrefix = "stdio:"

// addHost takes a value of --host. Words of a command are parted by white
// space; no shell reads them.
func (f *demoFlags) addHost(value string) error {
	r := remote{flag: value}
	if command, ok := strings.CutPrefix(value, stdioPrefix); ok {
		if r.command = strings.Fields(command); len(r.command) == 0 {
			return errors.New("no command")
		}
	} else if u, err := url.Parse(value); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("neither stdio:COMMAND nor the URL of a web server")
	}
	f.hosts = append(f.hosts, r)
	return nil
}

const (
	// reachPatience is what one host gets to start and list.
	reachPatience = 10 * time.Second
	// closePatience is what the chain gets to close: audit runs and hosts.
	closePatience = 1400 * time.Millisecond
	// stepPatience is what a child process gets for each of the SDK's ways to
	// end it.
	stepPatience = 200 * time.Millisecond
)

// remotes are the hosts that a demo has opened.
type remotes struct {
	// Fixed at creation.
	stderr io.Writer // of the child processes
	logger *slog.Logger

	web http.Transport // of its own: no proxy, and closed in the end

	mu       sync.Mutex
	children []*exec.Cmd
}

// add connects to the hosts and adds their interceptors to the chain. One that
// cannot be reached or listed is an error: its guards would be missing.
func (r *remotes) add(ctx context.Context, ch *chain.Chain, hosts []remote) error {
	for _, h := range hosts {
		if err := r.addOne(ctx, ch, h); err != nil {
			return fmt.Errorf("host %s: %w", h.flag, err)
		}
	}
	return nil
}

func (r *remotes) addOne(ctx context.Context, ch *chain.Chain, h remote) error {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	dial := func(ctx context.Context) (*mcp.ClientSession, error) {
		client := mcp.NewClient(&mcp.Implementation{Name: "headgate-demo", Version: "0.1.0"}, nil)
		if err := mcpext.RegisterSendingMethods(client); err != nil {
			return nil, err
		}
		return client.Connect(ctx, r.transport(h), nil)
	}
	// It dials again, or starts the process again, when the session has gone.
	host, err := mcpext.DialHost(ctx, dial, &mcpext.DialOptions{SessionOptions: mcpext.SessionOptions{Logger: r.logger}})
	if err != nil {
		return err
	}
	if err := ch.AddHost(ctx, h.flag, host); err != nil {
		return errors.Join(err, host.Close())
	}
	return nil
}

func (r *remotes) transport(h remote) mcp.Transport {
	if h.command == nil {
		return &mcp.StreamableClientTransport{
			Endpoint: h.flag, HTTPClient: &http.Client{Transport: &r.web}, DisableStandaloneSSE: true,
		}
	}
	cmd := exec.Command(h.command[0], h.command[1:]...)
	cmd.Stderr = r.stderr
	r.mu.Lock()
	defer r.mu.Unlock()
	r.children = append(r.children, cmd)
	return &mcp.CommandTransport{Command: cmd, TerminateDuration: stepPatience}
}

// close closes the chain and thereby the hosts. The demo does not wait longer
// for them than it may.
func (r *remotes) close(ch *chain.Chain) {
	defer r.web.CloseIdleConnections()
	closed := make(chan error, 1)
	go func() { closed <- ch.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			r.logger.Warn("chain closed", "err", err)
		}
	case <-time.After(closePatience):
		r.logger.Warn("hosts left behind")
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, child := range r.children {
			if child.Process != nil {
				_ = child.Process.Kill()
			}
		}
	}
}
