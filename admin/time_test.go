package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inBubble runs a test on a fake clock, over a plane that ends with it.
func inBubble(t *testing.T, opts func(*admin.Options), f func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o admin.Options
		if opts != nil {
			opts(&o)
		}
		r := newRig(t, o, guard())
		f(t, r)
	})
}

// pass lets time go by, and the plane do what it does then.
func pass(d time.Duration) {
	time.Sleep(d) // the bubble's clock: nothing waits
	synctest.Wait()
}

// An override ends at its time, to the moment, as a change that time made.
func TestExpiry(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		a := r.flip("guard", `{"mode":"audit","ttl":"2h",`+why+`}`)
		require.Equal(t, time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339), a.at("effective", "expiresAt"))
		require.EqualValues(t, time.Now().Add(2*time.Hour).Unix(), r.metric("headgate_override_expiry_timestamp_seconds", "interceptor", "guard"))
		pass(2*time.Hour - time.Nanosecond)
		require.Equal(t, "audit", r.mode("guard"))
		pass(time.Nanosecond)
		require.Equal(t, "active", r.mode("guard"))
		require.True(t, r.denied())
		last := r.last()
		assert.Equal(t, []any{"override.expire", "expired", "system"}, []any{last["action"], last["outcome"], last["surface"]})
		assert.Equal(t, []any{"audit", "active", "guard"}, []any{last["before"], last["after"], last["target"]})
		assert.Equal(t, "system:ttl", last["actor"].(map[string]any)["name"])
		got := r.get(item("guard"))
		assert.NotEqual(t, a.etag(), got.etag())
		assert.Nil(t, got.at("layers", "override"))
		assert.EqualValues(t, -1, r.metric("headgate_override_expiry_timestamp_seconds", "interceptor", "guard"))
		assert.Empty(t, r.get("/v1/overrides").list("overrides"))
	})
}

// One is warned fifteen minutes and one minute before an end, once each.
func TestWarnings(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		warned := func() float64 { return r.metric("headgate_control_expiry_warnings_total") }
		r.flip("guard", `{"mode":"audit","ttl":"1h",`+why+`}`)
		pass(45*time.Minute - time.Second)
		require.Zero(t, warned())
		pass(6 * time.Second)
		require.EqualValues(t, 1, warned())
		pass(13 * time.Minute)
		require.EqualValues(t, 1, warned())
		pass(time.Minute + 5*time.Second)
		require.EqualValues(t, 2, warned())
		require.Equal(t, 2, strings.Count(r.log.String(), "an override ends soon"))
		pass(time.Hour)
		require.EqualValues(t, 2, warned())
	})
}

// With onExpiry hold it stays, and is overdue until somebody says otherwise.
func TestHold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.flip("guard", `{"mode":"audit","ttl":"1h","onExpiry":"hold",`+why+`}`)
		require.Zero(t, r.metric("headgate_override_overdue"))
		pass(24 * time.Hour)
		require.Equal(t, "audit", r.mode("guard"))
		require.False(t, r.denied())
		require.EqualValues(t, 1, r.metric("headgate_override_overdue"))
		require.Equal(t, true, r.get(item("guard")).at("effective", "overdue"))
		listed := r.get("/v1/overrides").list("overrides")
		require.Equal(t, []any{true, 0.0}, []any{listed[0]["overdue"], listed[0]["secondsLeft"]})
		require.Equal(t, http.StatusOK, r.clear("guard", operateSecret).status)
		require.True(t, r.denied())
	})
}

// To put it again is to extend it.
func TestExtending(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.flip("guard", `{"mode":"audit","ttl":"1h",`+why+`}`)
		pass(59*time.Minute + 30*time.Second)
		r.flip("guard", `{"mode":"audit","ttl":"1h",`+why+`}`)
		pass(58 * time.Minute)
		require.Equal(t, "audit", r.mode("guard"))
		require.EqualValues(t, 3, r.metric("headgate_control_expiry_warnings_total"), "the new end has warnings of its own")
		pass(3 * time.Minute)
		require.Equal(t, "active", r.mode("guard"))
	})
}

func TestBreakGlassEnds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.Equal(t, http.StatusOK, r.glass(`{"action":"off-all",`+why+`}`).status)
		require.False(t, r.denied())
		pass(time.Hour)
		require.True(t, r.denied())
		last := r.last()
		require.Equal(t, []any{"break-glass.expire", "expired", "off-all"}, []any{last["action"], last["outcome"], last["before"]})
		require.Equal(t, false, r.get("/v1/break-glass").at("active"))
		require.Zero(t, r.metric("headgate_break_glass"))
	})
}

// What ended while nobody ran does not hold at the next start, not for one
// message.
func TestExpiryWhileStopped(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(o *admin.Options) { o.StateDir = dir }, func(t *testing.T, r *rig) {
		r.flip("guard", `{"mode":"audit","ttl":"1h",`+why+`}`)
		r.stop()
		pass(2 * time.Hour)
		r.begin(admin.Options{StateDir: dir})
		require.True(t, r.denied())
		synctest.Wait()
		require.Equal(t, "expired", r.last()["outcome"])
	})
}

// A restart in between keeps what holds and when it ends.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(o *admin.Options) { o.StateDir = dir }, func(t *testing.T, r *rig) {
		r.flip("guard", `{"mode":"audit","ttl":"1h",`+why+`}`)
		require.Equal(t, http.StatusOK, r.glass(`{"action":"audit-all","ttl":"30m",`+why+`}`).status)
		before := r.get(item("guard"))
		r.stop()
		require.NoError(t, r.chain.SetStanding(nil))
		require.True(t, r.denied())
		r.begin(admin.Options{StateDir: dir})
		require.False(t, r.denied(), "before anything is served")
		require.Equal(t, before.raw, r.get(item("guard")).raw)
		pass(time.Hour)
		require.True(t, r.denied())
	})
}

// Refusals have a new budget each minute, and the first of it says how many were
// only counted.
func TestRefusalsOfTheNextMinute(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		refuse := func() { r.do(exchange{method: "GET", path: "/v1/state"}) }
		for range 75 {
			refuse()
		}
		pass(time.Minute)
		refuse()
		require.EqualValues(t, 15, r.last()["unrecorded"])
		refuse()
		require.Nil(t, r.last()["unrecorded"])
	})
}

// Tokens end to the moment.
func TestATokenEnds(t *testing.T) {
	inBubble(t, func(o *admin.Options) {
		tok := token(t, "ending", admin.RoleRead, endingSecret)
		tok.ExpiresAt = time.Now().Add(time.Hour)
		o.Tokens = append(tokens(t), tok)
	}, func(t *testing.T, r *rig) {
		ask := func() int { return r.do(exchange{method: "GET", path: "/v1/whoami", secret: endingSecret}).status }
		pass(time.Hour - time.Nanosecond)
		require.Equal(t, http.StatusOK, ask())
		pass(time.Nanosecond)
		require.Equal(t, http.StatusUnauthorized, ask())
	})
}

// A store that is away does not fill the history with attempts to end something.
func TestAStoreThatIsAwayWhenSomethingEnds(t *testing.T) {
	failing := &brittle{}
	inBubble(t, func(o *admin.Options) { o.Store = failing }, func(t *testing.T, r *rig) {
		r.flip("guard", `{"mode":"audit","ttl":"1h",`+why+`}`)
		failing.fail(fmt.Errorf("gone: %w", context.DeadlineExceeded))
		pass(2 * time.Hour)
		require.True(t, r.denied(), "it is over all the same")
		assert.Less(t, len(r.changes("")), 10, "one hour of trying")
		failing.fail(nil)
		pass(10 * time.Second)
		require.Equal(t, "expired", r.last()["outcome"])
		require.Nil(t, r.get(item("guard")).at("layers", "override"))
	})
}
