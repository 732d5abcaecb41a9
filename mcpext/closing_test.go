package mcpext_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waits is a validator that never comes to a verdict.
func waits() core.Interceptor {
	return ct.Validator("x", func(ctx context.Context, _ *core.Invocation) (*core.ValidationResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// A tally counts what observers see of invokes.
type tally struct {
	chain.NopObserver
	started chan struct{} // takes one for each
	ended   atomic.Int64
}

func (c *tally) InvokeStart(ctx context.Context, _ *chain.Invoke) context.Context {
	c.started <- struct{}{}
	return ctx
}

func (c *tally) InvokeEnd(context.Context, *chain.Invoke, *chain.Outcome) { c.ended.Add(1) }

// A tapped transport lets a test cut the connection that it makes.
type tapped struct {
	mcp.Transport
	conn mcp.Connection
}

func (t *tapped) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	t.conn = conn
	return conn, err
}

// A session's end, at either end, fails what is under way, each invoke once,
// as a failure and not as a timeout; so does what comes after (row 27).
func TestSessionsThatEnd(t *testing.T) {
	memory := func(cut func(cs *mcp.ClientSession, server mcp.Connection)) func(*testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
		return func(t *testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
			_, server := host(t, nil, waits())
			clientEnd, serverEnd := mcp.NewInMemoryTransports()
			end := &tapped{Transport: serverEnd}
			ss, err := server.Connect(t.Context(), end, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = ss.Wait() })
			cs := connectOver(t, clientEnd, modern)
			return cs, func(*chain.Chain) { cut(cs, end.conn) }
		}
	}
	stdio := func(cut func(io.Closer, func() error)) func(*testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
		return func(t *testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
			cmd := child(stdioHost, "waits")
			cs := connectOver(t, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Second}, modern)
			return cs, func(*chain.Chain) { cut(cs, cmd.Process.Kill) }
		}
	}
	web := func(kind, version string) func(*testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
		return func(t *testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
			address, stop := startProcess(t, kind)
			t.Cleanup(stop)
			return dialWeb(t, address, version, "waits"), func(*chain.Chain) { stop() }
		}
	}
	ends := map[string]func(*testing.T) (*mcp.ClientSession, func(*chain.Chain)){
		"the connection is cut at the server": memory(func(_ *mcp.ClientSession, server mcp.Connection) { _ = server.Close() }),
		"the chain is closed": func(t *testing.T) (*mcp.ClientSession, func(*chain.Chain)) {
			_, server := host(t, nil, waits())
			cs, _ := connectTo(t, modern, server)
			return cs, func(ch *chain.Chain) { assert.NoError(t, ch.Close()) }
		},
		"the child is killed":            stdio(func(_ io.Closer, kill func() error) { _ = kill() }),
		"the web server ends, " + modern: web(statelessHost, modern),
		"the web server ends, " + legacy: web(statefulHost, legacy),
	}
	for name, begin := range ends {
		for _, moment := range []string{"before", "during", "after"} {
			t.Run(name+", "+moment, func(t *testing.T) {
				cs, cut := begin(t)
				endsAt(t, cs, cut, moment)
			})
		}
	}
}

func endsAt(t *testing.T, cs *mcp.ClientSession, cut func(*chain.Chain), moment string) {
	const invokes = 20
	seen := &tally{started: make(chan struct{}, 2*invokes)}
	ch, err := chain.New(&chain.Options{InvokeTimeout: time.Minute, Timeout: time.Minute, Observer: seen})
	require.NoError(t, err)
	require.NoError(t, mcpext.AddMCPServer(t.Context(), ch, cs))
	t.Cleanup(func() { _ = ch.Close() })
	began := time.Now()
	fails := func(ctx context.Context) {
		res, err := ch.Execute(ctx, call())
		if res == nil {
			assert.ErrorIs(t, err, chain.ErrClosed)
			return
		}
		abort := abortOf(t, err)
		assert.Equal(t, chain.ReasonError, abort.Reason, "%v", abort.Err)
		assert.Len(t, res.Results, 1)
	}
	var busy sync.WaitGroup
	switch moment {
	case "before":
		cut(ch)
	case "during":
		for range invokes {
			busy.Go(func() { fails(context.Background()) })
		}
		for range invokes {
			<-seen.started
		}
		cut(ch)
	case "after":
		ctx, cancel := context.WithCancel(t.Context())
		busy.Go(func() { _, err := ch.Execute(ctx, call()); assert.ErrorIs(t, err, context.Canceled) })
		<-seen.started
		cancel()
		busy.Wait()
		cut(ch)
	}
	busy.Wait()
	fails(t.Context())
	assert.Less(t, time.Since(began), 20*time.Second, "nobody waits for a deadline")
	ended := seen.ended.Load()
	_ = ch.Close() // its error may say how the session ended
	_ = ch.Close()
	assert.Equal(t, ended, seen.ended.Load(), "each invoke ends once")
	if moment == "during" {
		assert.GreaterOrEqual(t, ended, int64(invokes))
		assert.LessOrEqual(t, ended, int64(invokes+1))
	}
}
