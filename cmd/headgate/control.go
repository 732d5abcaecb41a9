package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/prometheus/client_golang/prometheus"
)

// controlFlags are the demo's flags about its admin plane.
type controlFlags struct {
	addr      string // empty for none
	tokenFile string
	stateDir  string
	config    string
}

// A controller is the demo's admin plane, served.
type controller struct {
	plane *admin.Plane
	url   string // empty if it is not served
	token string // made for this run; empty if it came from a file
	stop  func()
}

// control puts an admin plane over a chain and serves it. What was kept holds
// when it returns.
func (f *controlFlags) control(ctx context.Context, ch *chain.Chain, registry *prometheus.Registry, logger *slog.Logger) (*controller, error) {
	c := &controller{stop: func() {}}
	if f.addr == "" {
		return c, nil
	}
	configured, err := f.configuration()
	if err != nil {
		return nil, err
	}
	tokens, err := c.tokens(f.tokenFile)
	if err != nil {
		return nil, err
	}
	c.plane, err = admin.New(&admin.Options{
		Chains: map[string]*chain.Chain{"demo": ch}, Tokens: tokens, Configured: configured,
		StateDir: f.stateDir, Registerer: registry, Logger: logger, Service: "headgate-demo",
	})
	if err != nil {
		return nil, err
	}
	ln, err := c.plane.Listen(f.addr, nil)
	if err != nil {
		return nil, errors.Join(err, c.plane.Close())
	}
	c.url = "http://" + reachable(ln.Addr())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.plane.Serve(ctx, ln); err != nil {
			logger.Error("the admin plane is not served any more", "err", err)
		}
	}()
	unhook := f.onHangup(ctx, c.plane, logger)
	c.stop = func() {
		unhook()
		cancel()
		<-done
		if err := c.plane.Close(); err != nil {
			logger.Error("admin plane", "err", err)
		}
	}
	return c, nil
}

// tokens reads the tokens, or makes one. A file with a secret alone is the one of
// an administrator.
func (c *controller) tokens(path string) ([]admin.Token, error) {
	secret := ""
	if path == "" {
		c.token = admin.NewSecret()
		secret = c.token
	} else {
		var err error
		if secret, err = readSecret(path); err != nil {
			return nil, err
		}
		if strings.ContainsAny(secret, " \t\n") {
			return admin.ReadTokens(path)
		}
	}
	token, err := admin.NewToken("demo", admin.RoleAdmin, secret)
	return []admin.Token{token}, err
}

// readSecret reads a file with a token in it, which must be its owner's alone.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others than its owner: chmod 600 it", path)
	}
	raw, err := os.ReadFile(path)
	return strings.TrimSpace(string(raw)), err
}

// configuration reads the configured layer; nil for none.
func (f *controlFlags) configuration() (*control.Configuration, error) {
	if f.config == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(f.config)
	if err != nil {
		return nil, err
	}
	c, err := control.ParseConfiguration(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.config, err)
	}
	return c, nil
}

// onHangup has SIGHUP read the configuration again. A bad one changes nothing,
// and the log says so.
func (f *controlFlags) onHangup(ctx context.Context, plane *admin.Plane, logger *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			configured, err := f.configuration()
			if err == nil {
				err = plane.Configure(configured)
			}
			if err != nil {
				logger.Error("configuration not taken over, the old one holds", "err", err)
				continue
			}
			logger.Warn("configuration taken over", "file", f.config)
		}
	}()
	return func() { signal.Stop(hangups) }
}
