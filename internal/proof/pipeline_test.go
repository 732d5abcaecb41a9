package proof_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/headgate-mcp/headgate/telemetry"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
)

// A pipeline is Headgate in front of a server, with hostile interceptors of which
// none is active.
type pipeline struct {
	chain   *chain.Chain
	waits   bool // audit runs are waited for, so that messages take long
	closers []func() error
	flips   sync.WaitGroup
	stop    chan struct{}
	story   []string // what was drawn, for whoever reads of a failure
}

func (p *pipeline) tell(format string, args ...any) {
	p.story = append(p.story, fmt.Sprintf(format, args...))
}

// story draws a pipeline again to say what it is.
func story(seed uint64, purpose string) string {
	p, err := newPipeline(newDice(seed, purpose), newSubject())
	if err != nil {
		return err.Error()
	}
	return strings.Join(p.story, "\n") + fmt.Sprint("\n", p.close())
}

// auditTimeout is far above what a message takes: one that waits for it shows.
const auditTimeout = 50 * time.Millisecond

// newPipeline draws a pipeline and puts it in front of the server.
func newPipeline(d dice, server *mcp.Server) (*pipeline, error) {
	p := &pipeline{waits: d.chance(6), stop: make(chan struct{})}
	ext := mcpext.New(nil)
	for i := range 1 + d.IntN(5) {
		it := d.interceptor(fmt.Sprint("hostile", i), p.tell)
		if err := ext.AddInterceptor(it); err != nil {
			return nil, err
		}
	}
	opts := &chain.Options{
		InlineAudit: p.waits, AuditTimeout: auditTimeout, AuditQueue: pick(d, 0, 0, 1), Timeout: pick(d, 0, time.Millisecond),
		MaxPayload: pick(d, 0, 0, 64), MaxConcurrent: pick(d, 0, 1),
		Config: pick(d, nil, map[string]map[string]any{"hostile0": {"k": 1}}),
	}
	if d.chance(4) {
		opts.Observer = breaker{when: d.IntN(4)}
	}
	p.tell("chain %+v", *opts)
	if err := p.open(d, ext, opts); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err := ext.Install(server); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.protect(d, server)
	return p, nil
}

// open makes the chain, of any kind, and has it watched.
func (p *pipeline) open(d dice, ext *mcpext.Extension, opts *chain.Options) (err error) {
	if d.chance(4) {
		p.tell("local chain")
		p.chain, err = ext.LocalChain(context.Background(), opts)
	} else {
		p.chain, err = ext.Chain(opts)
	}
	if err != nil {
		return err
	}
	p.closers = append(p.closers, func() error {
		_ = p.chain.Close() // it may say that audit runs were cut off
		return nil
	})
	if d.chance(3) {
		lie := pick(d, lies...)
		p.tell("a host that answers with %s", lie)
		if err := p.chain.AddHost(context.Background(), "liar", &liar{lie}); err != nil {
			return err
		}
	}
	if err := p.chain.SetOverrides(p.harmless(d)); err != nil {
		return err
	}
	if d.chance(2) {
		p.tell("telemetry and admin")
		return p.watch()
	}
	return nil
}

// watch adds the observers that a server in production has.
func (p *pipeline) watch() error {
	registry := prometheus.NewRegistry()
	tel, err := telemetry.New(&telemetry.Options{Registerer: registry, TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		return err
	}
	p.chain.AddObserver(tel)
	plane, err := admin.New(&admin.Options{Chains: map[string]*chain.Chain{"main": p.chain}, Anonymous: admin.RoleRead, Registerer: registry})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, plane.Close)
	// The plane takes policy over, so it has to be said again.
	return p.chain.SetOverrides(p.harmless(newDice(1, "watch")))
}

// harmless returns overrides under which nothing is active.
func (p *pipeline) harmless(d dice) map[string]chain.Overrides {
	out := map[string]chain.Overrides{}
	for _, e := range p.chain.Entries() {
		switch {
		case d.chance(3):
			out[e.Name] = chain.Overrides{Off: true}
		case e.Mode != core.ModeAudit || d.chance(2):
			out[e.Name] = chain.Overrides{Mode: core.ModeAudit, Timeout: pick(d, 0, time.Microsecond)}
		}
	}
	return out
}

// protect installs the middleware and, perhaps, turns policies all the while.
func (p *pipeline) protect(d dice, server *mcp.Server) {
	opts := &middleware.Options{AllowRetarget: d.chance(2)}
	if d.chance(5) {
		p.tell("a provider that panics")
		opts.ContextProvider = func(context.Context, mcp.Request) core.InvocationContext { panic("provider") }
	}
	if d.chance(2) {
		middleware.Server(server, p.chain, opts)
	} else {
		server.AddReceivingMiddleware(middleware.Receiving(p.chain, opts))
	}
	if !d.chance(2) {
		return
	}
	p.tell("flips")
	p.flips.Go(func() {
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(2 * time.Millisecond):
				_ = p.chain.SetOverrides(p.harmless(d))
			}
		}
	})
}

func (p *pipeline) close() error {
	close(p.stop)
	p.flips.Wait()
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	return errors.Join(errs...)
}

// subjectPeer is a process that serves the subject over stdio: bare, or behind
// the pipeline that its specification has drawn.
const subjectPeer = "subject"

const bare = "bare"

func serveSubject(spec string) error {
	server := newSubject()
	if spec != bare {
		number, purpose, _ := strings.Cut(spec, " ")
		s, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return err
		}
		p, err := newPipeline(newDice(s, purpose), server)
		if err != nil {
			return err
		}
		defer func() { _ = p.close() }()
	}
	err := server.Run(context.Background(), &mcp.StdioTransport{})
	_ = os.Stdout.Close()
	return ignoreEnd(err)
}

// ignoreEnd drops the error of a session that a client has ended, or broken.
func ignoreEnd(error) error { return nil }
