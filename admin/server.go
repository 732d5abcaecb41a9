package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Bounds of the plane's server.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	idleTimeout   = time.Minute
	maxHeaders    = 16 << 10
	shutdownTime  = 5 * time.Second
)

// ErrExposed is wrapped by the error of listening where others than this machine's
// users can reach, without TLS or without a way to tell who they are.
var ErrExposed = errors.New("admin: refuses to be reachable from elsewhere without TLS and tokens")

// Listen listens on an address: host and port, or unix: and the path of a socket.
// One that can be reached from elsewhere takes a TLS configuration, and tokens or
// an Authenticator, or the error wraps [ErrExposed].
func (p *Plane) Listen(addr string, secure *tls.Config) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return p.listenUnix(path)
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	local := tcp.IP != nil && tcp.IP.IsLoopback()
	if !local && (secure == nil || p.opts.Anonymous != "" || p.opts.Authenticator == nil && len(*p.tokens.Load()) == 0) {
		return nil, fmt.Errorf("%w: %s", ErrExposed, addr)
	}
	ln, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	p.hosts.bind(ln.Addr())
	if secure != nil {
		return tls.NewListener(ln, secure), nil
	}
	return ln, nil
}

// listenUnix listens on a socket that only its owner can open.
func (p *Plane) listenUnix(path string) (net.Listener, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("admin: %w", err), ln.Close())
	}
	p.hosts.bind(ln.Addr())
	return ln, nil
}

// server returns what serves the plane.
func (p *Plane) server() *http.Server {
	return &http.Server{
		Handler: p.handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(p.opts.Logger.Handler(), slog.LevelWarn),
		// No WriteTimeout: it would cut off streams. Each of their writes has a
		// deadline, and other answers are small.
	}
}

// Serve serves the plane on a listener until ctx ends, and closes the listener. It
// returns nil when it ended for that.
func (p *Plane) Serve(ctx context.Context, ln net.Listener) error {
	web := p.server()
	web.BaseContext = func(net.Listener) context.Context { return ctx }
	done := make(chan error, 1)
	go func() { done <- web.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-p.life.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if web.Shutdown(patience) != nil {
		_ = web.Close()
	}
	<-done
	return nil
}
