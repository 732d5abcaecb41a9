package proof_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// What holds under faults in memory holds with real processes: an interceptor
// server over stdio that is killed or stopped in the middle of calls, one that
// lies, and one over HTTP behind a proxy that delays, swallows, cuts, resets and
// half-closes, and whose process is killed and started anew elsewhere.
func TestEnforcementWithProcesses(t *testing.T) {
	s := seed(t)
	for i := range scaled(t, 2) {
		for _, kind := range []string{overPipes, liarPipes, overWeb + " stateful", overWeb + " " + stateless} {
			purpose := fmt.Sprint("processes ", kind, " ", i)
			t.Run(fmt.Sprint(kind, " ", i), func(t *testing.T) {
				d := newDice(s, purpose)
				var far farGuard
				if strings.HasPrefix(kind, overWeb) {
					far = newWebGuard(t, kind)
				} else {
					far = &pipeGuard{spec: fmt.Sprint(kind, " ", d.Uint32())}
				}
				enforceProcesses(t, d, far)
			})
		}
	}
}

// A farGuard is the guard in another process.
type farGuard interface {
	dial(ctx context.Context) (*mcp.ClientSession, error)
	// strike has something go wrong and says what.
	strike(d dice) string
	heal()
	close()
}

func enforceProcesses(t *testing.T, d dice, far farGuard) {
	var story []string
	defer func() {
		if t.Failed() {
			t.Log("the schedule:\n" + strings.Join(story, "\n"))
		}
	}()
	defer far.close()
	st := newStand(t, d, 100*time.Millisecond, far.dial)
	defer st.close()
	for range 4 {
		var under sync.WaitGroup
		under.Go(func() { st.batch(d, 8) }) // the dice are its own until it ends
		time.Sleep(time.Millisecond)
		story = append(story, far.strike(newDice(uint64(len(story)), "strike "+t.Name())))
		under.Wait()
		st.batch(d, 4)
	}
	far.heal()
	st.recover(20 * time.Millisecond)
	st.account()
}

// A pipeGuard is reached over stdio. Each session is a process.
type pipeGuard struct {
	mu    sync.Mutex
	spec  string
	dials int
	last  atomic.Pointer[os.Process]
}

func (g *pipeGuard) dial(ctx context.Context) (*mcp.ClientSession, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	spec := g.spec
	if g.dials++; spec != overPipes {
		spec += fmt.Sprint(g.dials) // other lies
	}
	return dialOver(ctx, &pipeTransport{mcp.CommandTransport{Command: peer(guardPeer, spec), TerminateDuration: 200 * time.Millisecond}, g})
}

// A pipeTransport tells its guard of the process that it has started.
type pipeTransport struct {
	mcp.CommandTransport
	guard *pipeGuard
}

func (t *pipeTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.CommandTransport.Connect(ctx)
	if err == nil {
		t.guard.last.Store(t.Command.Process)
	}
	return conn, err
}

func (g *pipeGuard) signal(s syscall.Signal) { _ = g.last.Load().Signal(s) }

func (g *pipeGuard) strike(d dice) string {
	s := pick(d, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCONT)
	g.signal(s)
	return fmt.Sprint("the process gets ", s)
}

// heal has the process be one that tells the truth.
func (g *pipeGuard) heal() {
	g.signal(syscall.SIGKILL) // whoever dials meanwhile may wait for it
	g.mu.Lock()
	g.spec = overPipes
	g.mu.Unlock()
	g.signal(syscall.SIGKILL)
}

func (g *pipeGuard) close() { g.signal(syscall.SIGCONT) }

// A webGuard is reached over HTTP, by a road on which things go wrong.
type webGuard struct {
	t         testing.TB
	spec      string
	road      *road
	process   *process
	transport *http.Transport
}

func newWebGuard(t testing.TB, spec string) *webGuard {
	g := &webGuard{t: t, spec: spec, process: startWeb(t, spec), transport: &http.Transport{}}
	g.road = newRoad(t, g.process.address)
	return g
}

func (g *webGuard) dial(ctx context.Context) (*mcp.ClientSession, error) {
	return dialOver(ctx, &mcp.StreamableClientTransport{
		Endpoint: g.road.url(), HTTPClient: &http.Client{Transport: g.transport}, MaxRetries: -1, DisableStandaloneSSE: true,
	})
}

func (g *webGuard) strike(d dice) string {
	if d.chance(4) {
		g.renew()
		return "the process is killed, and another takes its place"
	}
	f := pick(d, roadFaults...)
	g.road.set(f)
	return "the road: " + string(f)
}

// renew kills the process and starts another, elsewhere.
func (g *webGuard) renew() {
	g.process.kill()
	g.process = startWeb(g.t, g.spec)
	g.road.lead(g.process.address)
}

func (g *webGuard) heal() { g.road.set(none) }

func (g *webGuard) close() {
	g.road.close()
	g.process.kill()
	g.transport.CloseIdleConnections()
}

// A message that is under way when the guard's process is killed is stopped, once,
// and what comes after is stopped until the guard is there again.
func TestGuardKilledInTheMiddleOfACall(t *testing.T) {
	far := &pipeGuard{spec: overPipes}
	defer far.close()
	st := newStand(t, newDice(1, "killed"), 100*time.Millisecond, far.dial)
	defer st.close()
	far.signal(syscall.SIGSTOP) // it has the call, and does not answer
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		st.send(0, "tools/call", forbidden)
	}()
	time.Sleep(guardTimeout / 4)
	far.signal(syscall.SIGKILL)
	<-answered
	require.Equal(t, 1, st.stopped[-32603], "%v", st.stopped)
	st.recover(20 * time.Millisecond)
	st.account()
}
