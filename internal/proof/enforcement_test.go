package proof_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// dialOver opens a session of an interceptor host's client.
func dialOver(ctx context.Context, transport mcp.Transport) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "chain", Version: "1"}, nil)
	if err := mcpext.RegisterSendingMethods(client); err != nil {
		return nil, err
	}
	return client.Connect(ctx, transport, nil)
}

// Whatever goes wrong on the way to an interceptor server, with the admin plane's
// store and with the clock: what an active guard that fails closed would deny
// reaches neither the handler nor the client, each message that was stopped is in
// the metrics and among the decisions, each flip that was acknowledged is in the
// history, and once all is well again what is fine passes.
func TestEnforcementUnderFaults(t *testing.T) {
	s := seed(t)
	for i := range scaled(t, 25) {
		purpose := fmt.Sprint("enforcement ", i)
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { enforce(t, newDice(s, purpose)) })
		})
		if !ok {
			return
		}
	}
}

// enforce runs one schedule of faults.
func enforce(t *testing.T, d dice) {
	var story []string
	defer func() {
		if t.Failed() {
			t.Log("the schedule:\n" + strings.Join(story, "\n"))
		}
	}()
	l := &link{dice: newDice(d.Uint64(), "link")}
	server, err := newGuardServer()
	require.NoError(t, err)
	st := newStand(t, d, 20*time.Second, func(ctx context.Context) (*mcp.ClientSession, error) {
		ce, se := mcp.NewInMemoryTransports()
		if _, err := server.Connect(context.Background(), se, nil); err != nil {
			return nil, err
		}
		cs, err := dialOver(ctx, l.over(ce))
		if err != nil {
			closeBoth(ce, se)
		}
		return cs, err
	})
	defer st.close()
	for range 3 + d.IntN(6) {
		what := st.strike(d, l)
		story = append(story, what)
		st.batch(d, 4+d.IntN(4))
	}
	l.set(none)
	st.recover(time.Second)
	time.Sleep(time.Minute) // for the audits
	st.account()
}

// closeBoth ends a connection that came to nothing.
func closeBoth(ends ...mcp.Transport) {
	for _, e := range ends {
		if c, err := e.Connect(context.Background()); err == nil {
			_ = c.Close()
		}
	}
}

// strike has something go wrong, or right, and says what.
func (s *stand) strike(d dice, l *link) string {
	switch d.IntN(10) {
	case 0:
		s.store.gone.Store(!s.store.gone.Load())
		return fmt.Sprint("the store is gone: ", s.store.gone.Load())
	case 1, 2:
		jump := time.Duration(d.Int64N(int64(pick(d, time.Second, time.Minute, 10*time.Minute))))
		time.Sleep(jump)
		return fmt.Sprint("the clock jumps by ", jump)
	case 3:
		name, mode := pick(d, "moody", "open"), pick(d, "audit", "off", "active")
		return fmt.Sprint("flip of ", name, " to ", mode, ": ", s.flip(name, mode, time.Hour))
	case 4:
		return s.weaken(d)
	default:
		f := pick(d, linkFaults...)
		l.set(f)
		return "the link: " + string(f)
	}
}

// weaken has an operator turn the guard down for a while, in which it may let
// pass what it would deny, and not a moment longer.
func (s *stand) weaken(d dice) string {
	ttl := time.Minute + time.Duration(d.Int64N(int64(4*time.Minute)))
	s.weak.Store(true)
	mode := pick(d, "audit", "off")
	acknowledged := s.flip(guardName, mode, ttl)
	if !acknowledged {
		s.weak.Store(false)
		return "weakening the guard is refused"
	}
	s.batch(d, 4)
	gone := d.chance(2)
	if gone {
		s.store.gone.Store(true) // when time is up
	}
	time.Sleep(ttl + time.Millisecond)
	synctest.Wait()
	s.weak.Store(false)
	return fmt.Sprint("the guard is ", mode, " for ", ttl, ", and then the store is gone: ", gone)
}

// recover wants what is fine to pass again, now that all is well.
func (s *stand) recover(pause time.Duration) {
	s.t.Helper()
	s.store.gone.Store(false)
	before := s.passed.Load()
	for range 300 {
		time.Sleep(pause)
		if s.send(0, core.EventToolsCall, "fine"); s.passed.Load() > before {
			break
		}
	}
	require.Greater(s.t, s.passed.Load(), before, "the guard does not come back: %v", s.stopped)
	denied := s.stopped[-32602]
	s.send(0, core.EventToolsCall, forbidden)
	s.send(1, core.EventToolsCall, "out")
	require.Equal(s.t, denied+2, s.stopped[-32602], "the guard is back, and does not deny")
}
