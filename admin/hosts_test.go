package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/chain/breaker"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A far is a host elsewhere that can be taken away.
type far struct {
	core.Interceptor

	mu        sync.Mutex
	health    chain.HostHealth
	refreshes int
	back      bool // a refresh finds it again
}

var (
	_ chain.RemoteHost     = (*far)(nil)
	_ chain.HealthReporter = (*far)(nil)
	_ chain.Refresher      = (*far)(nil)
)

func (h *far) List(context.Context) ([]core.Descriptor, error) {
	return []core.Descriptor{h.Describe()}, nil
}

func (h *far) Invoke(ctx context.Context, _ string, inv *core.Invocation) (core.Answer, error) {
	if err := h.Health().Err; err != nil {
		return core.Answer{}, err
	}
	return core.Call(ctx, h.Interceptor, inv)
}
func (h *far) Close() error            { return nil }
func (h *far) HeadRoom() time.Duration { return 0 }
func (h *far) Health() chain.HostHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.health
}

func (h *far) lose(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.health = chain.HostHealth{Err: err, Last: err, Fault: chain.FaultUnreachable, Since: time.Now(), Losses: h.health.Losses + 1}
}

func (h *far) Refresh(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refreshes++
	if h.back {
		h.health.Err, h.health.Fault, h.health.Since = nil, "", time.Now()
	}
	return h.health.Err
}

// A host with such a name shows that names are encoded and may have colons.
const farName = "https://guards.example:8443/mcp"

// withFar returns a rig whose chain has a host elsewhere, in a bubble.
func withFar(t *testing.T, test func(t *testing.T, r *rig, h *far)) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		h := &far{Interceptor: ct.Validator("elsewhere", ct.Allow)}
		require.NoError(t, r.chain.AddHost(context.Background(), farName, h))
		synctest.Wait()
		test(t, r, h)
	})
}

func (r *rig) refresh(path, secret string) answer {
	r.t.Helper()
	return r.do(exchange{method: "POST", path: path, secret: secret, header: http.Header{"Change-Reason": {"it is back"}}})
}

func TestHostsOfChains(t *testing.T) {
	withFar(t, func(t *testing.T, r *rig, h *far) {
		host := func(secret string) map[string]any {
			a := r.do(exchange{method: "GET", path: "/v1/hosts", secret: secret})
			require.Equal(t, http.StatusOK, a.status, a.raw)
			list := a.list("hosts")
			require.Len(t, list, 2)
			require.Equal(t, []any{"main", true, false, 1.0}, []any{list[0]["chain"], list[0]["up"], list[0]["remote"], list[0]["interceptors"]})
			return list[1]
		}
		require.Equal(t, []any{farName, true, true, nil, 0.0}, []any{
			host(readSecret)["name"], host(readSecret)["up"], host(readSecret)["remote"], host(readSecret)["fault"], host(readSecret)["losses"],
		})
		l := r.listen("?types=host", "", readSecret).begun()
		h.lose(errors.New("dial tcp 10.0.0.7:8443: connect: connection refused\x1b[2J"))
		got := host(readSecret)
		require.Equal(t, []any{false, "unreachable", 1.0, nil}, []any{got["up"], got["fault"], got["losses"], got["lastError"]}, "who reads is not told addresses")
		require.Equal(t, "dial tcp 10.0.0.7:8443: connect: connection refused\uFFFD[2J", host(operateSecret)["lastError"])
		require.Equal(t, "unreachable", r.get(item("elsewhere")+"/stats").at("hostFault"))
		var told map[string]any
		require.NoError(t, json.Unmarshal([]byte(l.want("host")["data"]), &told))
		require.Equal(t, []any{farName, false}, []any{told["name"], told["up"]})
		require.NotContains(t, told, "lastError")
		ready := r.do(exchange{method: "GET", path: "/readyz?verbose", secret: readSecret})
		require.Equal(t, http.StatusOK, ready.status, "a host that is away is no reason to take the server out")
		require.Contains(t, ready.at("degraded"), "host "+farName)

		path := "/v1/hosts/" + strings.ReplaceAll(farName, "/", "%2F") + ":refresh"
		a := r.refresh(path, operateSecret)
		require.Equal(t, "host-unavailable", a.problem())
		require.Equal(t, http.StatusBadGateway, a.status)
		require.NotContains(t, a.raw, "10.0.0.7")
		require.Equal(t, []any{"host.refresh", "rejected", farName}, []any{r.last()["action"], r.last()["outcome"], r.last()["target"]})
		h.back = true
		a = r.refresh(path, operateSecret)
		require.Equal(t, http.StatusOK, a.status, a.raw)
		require.Equal(t, true, a.list("hosts")[0]["up"])
		require.Equal(t, 2, h.refreshes)
		last := r.last()
		require.Equal(t, []any{"host.refresh", "applied", farName, "it is back"}, []any{last["action"], last["outcome"], last["target"], last["reason"]})
		require.NoError(t, json.Unmarshal([]byte(l.want("host")["data"]), &told))
		require.Equal(t, true, told["up"])
		ready = r.do(exchange{method: "GET", path: "/readyz?verbose", secret: readSecret})
		require.NotContains(t, ready.at("degraded"), "host "+farName)

		h.lose(errors.New("away"))
		l.want("host")
		require.NoError(t, r.chain.RemoveHost(farName))
		pass(10 * time.Second)
		ready = r.do(exchange{method: "GET", path: "/readyz?verbose", secret: readSecret})
		require.NotContains(t, ready.at("degraded"), "host "+farName, "a host that was taken out is not missed")
		l.close()
	})
}

func TestRefreshThatIsRefused(t *testing.T) {
	withFar(t, func(t *testing.T, r *rig, h *far) {
		path := "/v1/hosts/" + strings.ReplaceAll(farName, "/", "%2F")
		require.Equal(t, "not-found", r.refresh("/v1/hosts/nobody:refresh", operateSecret).problem())
		require.Equal(t, "not-found", r.refresh(path, operateSecret).problem(), "no verb")
		require.Equal(t, "not-found", r.refresh(path+":close", operateSecret).problem(), "another verb")
		require.Equal(t, "not-found", r.refresh("/v1/hosts/:refresh", operateSecret).problem(), "no name")
		require.Equal(t, "forbidden", r.refresh(path+":refresh", readSecret).problem())
		require.Equal(t, "malformed", r.refresh(path+":refresh?force=true", operateSecret).problem())
		a := r.do(exchange{method: "GET", path: path + ":refresh", secret: operateSecret})
		require.Equal(t, "method-not-allowed", a.problem())
		require.Equal(t, "POST", a.header.Get("Allow"))
		require.Equal(t, "invalid", r.do(exchange{
			method: "POST", path: path + ":refresh", secret: operateSecret, header: http.Header{"Change-Reason": {strings.Repeat("x", 501)}},
		}).problem())
		require.Zero(t, h.refreshes)
	})
}

// A circuit is shown, told of, and closed by hand.
func TestCircuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := breaker.New(nil)
		r := &rig{t: t}
		fail := errors.New("ill")
		r.ext, r.chain = newChain(t, &chain.Options{Gate: gate}, ct.Validator("guard", ct.Fail(fail)))
		_, other := newChain(t, nil, ct.Validator("plain", ct.Allow))
		r.begin(admin.Options{Chains: map[string]*chain.Chain{"other": other}})
		defer r.stop()
		reset := item("guard") + "/breaker:reset"
		require.Equal(t, map[string]any{"state": "closed", "opened": 0.0}, r.get(item("guard")+"/stats").at("circuit"))
		require.Nil(t, r.get(item("plain")+"/stats").at("circuit"), "its chain has no breaker")
		require.Equal(t, "noop", r.do(exchange{method: "POST", path: reset, secret: operateSecret}).outcome(r))

		l := r.listen("?types=breaker,change", "", readSecret).begun()
		defer l.close()
		for range 25 {
			require.True(t, r.denied())
		}
		var told map[string]any
		require.NoError(t, json.Unmarshal([]byte(l.want("breaker")["data"]), &told))
		require.Equal(t, []any{"guard", "closed", "open"}, []any{told["interceptor"], told["from"], told["to"]})
		circuit := func() any { return r.get(item("guard")+"/stats").at("circuit", "state") }
		require.Equal(t, "open", circuit())
		for _, it := range r.get("/v1/interceptors?include=stats&q=guard").list("interceptors") {
			require.Equal(t, "open", it["stats"].(map[string]any)["circuit"].(map[string]any)["state"])
		}

		require.Equal(t, "forbidden", r.do(exchange{method: "POST", path: reset, secret: readSecret}).problem())
		require.Equal(t, "not-found", r.do(exchange{method: "POST", path: item("nobody") + "/breaker:reset", secret: operateSecret}).problem())
		require.Equal(t, "incompatible", r.do(exchange{method: "POST", path: item("plain") + "/breaker:reset", secret: operateSecret}).problem())
		require.Equal(t, "malformed", r.do(exchange{method: "POST", path: reset + "?dryRun=true", secret: operateSecret}).problem())
		require.Equal(t, "open", circuit())
		a := r.do(exchange{method: "POST", path: reset, secret: operateSecret, header: http.Header{"Change-Reason": {"the model is back"}}})
		require.Equal(t, http.StatusOK, a.status, a.raw)
		require.Equal(t, []any{"closed", "open", "closed"}, []any{a.at("circuit", "state"), a.at("change", "before"), a.at("change", "after")})
		require.Equal(t, "closed", circuit())
		last := r.last()
		require.Equal(t, []any{"breaker.reset", "applied", "guard", "operate-token", "the model is back"}, []any{
			last["action"], last["outcome"], last["target"], last["actor"].(map[string]any)["name"], last["reason"],
		})
		require.Equal(t, "breaker", l.next()["event"])
		require.Equal(t, "change", l.next()["event"])
		assert.EqualValues(t, 1, r.metric("headgate_control_changes_total", "action", "breaker.reset", "outcome", "applied"))
	})
}

// outcome is that of the record of an answer.
func (a answer) outcome(r *rig) any {
	require.Equal(r.t, http.StatusOK, a.status, a.raw)
	return r.last()["outcome"]
}

// What a host declares anew is told to who asks whether there is anything new, and
// nobody overrides it without having seen it.
func TestTagsFollowWhatIsDeclared(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	now := r.get(item("guard"))
	unchanged := func(path, tag string) bool {
		return r.do(exchange{method: "GET", path: path, secret: readSecret, header: http.Header{"If-None-Match": {tag}}}).status == http.StatusNotModified
	}
	all := r.get("/v1/state").etag()
	require.True(t, unchanged(item("guard"), now.etag()))
	require.True(t, unchanged("/v1/state", all))
	require.True(t, r.ext.RemoveInterceptor("guard"))
	require.NoError(t, r.ext.AddInterceptor(guard(ct.FailOpen)))
	require.Eventually(t, func() bool { return !unchanged(item("guard"), now.etag()) && !unchanged("/v1/state", all) }, waiting, tickle)
	a := r.do(exchange{
		method: "PUT", path: item("guard") + "/override", secret: operateSecret, body: auditBody, header: http.Header{"If-Match": {now.etag()}},
	})
	require.Equal(t, "stale", a.problem())
	require.Equal(t, true, a.at("current", "layers", "declared", "failOpen"))
	require.Equal(t, now.at("revision"), r.get(item("guard")).at("revision"), "no policy was changed")
}
