package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configured parses a configuration file.
func configured(t testing.TB, text string) *control.Configuration {
	t.Helper()
	c, err := control.ParseConfiguration([]byte(text))
	require.NoError(t, err)
	return c
}

// The highest layer that says something holds, and each reply shows them all.
func TestLayers(t *testing.T) {
	r := newRig(t, admin.Options{Configured: configured(t, `{"interceptors":{"guard":{"mode":"audit","timeoutMs":100}}}`)}, guard())
	holds := func(mode, source string, denied bool) {
		t.Helper()
		a := r.get(item("guard"))
		assert.Equal(t, []any{mode, source}, []any{r.mode("guard"), a.at("effective", "source")})
		assert.Equal(t, denied, r.denied())
		assert.Equal(t, "active", a.at("layers", "declared", "mode"))
		assert.Equal(t, "audit", a.at("layers", "configured", "mode"))
		assert.Equal(t, "configured", a.at("effective", "sources", "timeoutMs"))
		assert.Equal(t, "declared", a.at("effective", "sources", "failOpen"))
	}
	holds("audit", "configured", false)
	r.flip("guard", `{"mode":"active",`+why+`}`)
	holds("active", "override", true)
	require.Equal(t, http.StatusOK, r.glass(`{"action":"audit-all",`+why+`}`).status)
	holds("audit", "breakGlass", false)
	require.Equal(t, http.StatusOK, r.glass(`{"action":"off-all",`+why+`}`).status)
	holds("off", "breakGlass", false)
	require.Equal(t, http.StatusOK, r.do(exchange{method: "DELETE", path: "/v1/break-glass", secret: operateSecret}).status)
	holds("active", "override", true)
	require.Equal(t, http.StatusOK, r.clear("guard", operateSecret).status)
	holds("audit", "configured", false)
}

// What is off does not run, and what is in audit runs and holds nothing back.
func TestOffDoesNotRun(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(ct.Inline))
	runs := func() float64 {
		stats := r.get(item("guard") + "/stats")
		return stats.at("total", "active", "evaluations").(float64) + stats.at("total", "audit", "evaluations").(float64)
	}
	r.denied()
	require.EqualValues(t, 1, runs())
	r.flip("guard", `{"mode":"off",`+why+`}`)
	require.False(t, r.denied())
	require.EqualValues(t, 1, runs())
	require.Zero(t, r.get(item("guard")+"/stats").at("sinceFlip", "active", "evaluations"))
	a := r.get("/v1/pipeline?event=tools/call&phase=request")
	place := a.list("chains", "main")[0]
	require.Equal(t, []any{false, "off", -1.0}, []any{place["runs"], place["why"], place["order"]})
	r.flip("guard", `{"mode":"active",`+why+`}`)
	require.True(t, r.denied())
	require.EqualValues(t, 1, r.get(item("guard")+"/stats").at("sinceFlip", "active", "denials"))
}

// Fields other than the mode reach the chain as well.
func TestOverridesOfOtherFields(t *testing.T) {
	broken := ct.Validator("broken", ct.Fail(assert.AnError))
	r := newRig(t, admin.Options{}, broken)
	require.True(t, r.denied())
	r.flip("broken", `{"failOpen":true,`+why+`}`)
	require.False(t, r.denied())
	r.flip("broken", `{"hooks":[{"events":["tools/call"],"phase":"response"}],`+why+`}`)
	require.False(t, r.denied(), "it is asked in the other phase alone")
	a := r.flip("broken", `{"hooks":[],"timeoutMs":77,"priorityHint":5,`+why+`}`)
	require.False(t, r.denied())
	require.Equal(t, []any{[]any{}, 77.0}, []any{a.at("effective", "hooks"), a.at("effective", "timeoutMs")})
	a = r.put("broken", operateSecret, `{"hooks":[{"events":["*"],"phase":"request"}],`+why+`}`)
	require.Equal(t, []any{"incompatible", "hooks"}, []any{a.problem(), a.at("reason")}, "hooks narrow only")
}

// Weakening has an end, unless an admin says otherwise; strengthening needs none.
func TestDirectionRule(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), named("lax"))
	require.Equal(t, "forbidden", r.put("guard", operateSecret, `{"mode":"audit","ttl":"none",`+why+`}`).problem())
	require.Equal(t, "forbidden", r.put("guard", glassSecret, `{"mode":"audit","ttl":"none",`+why+`}`).problem())
	a := r.put("guard", adminSecret, `{"mode":"audit","ttl":"none",`+why+`}`)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Nil(t, a.at("layers", "override", "expiresAt"))
	a = r.flip("guard", `{"mode":"active",`+why+`}`)
	require.Nil(t, a.at("effective", "expiresAt"))
	require.NotNil(t, r.flip("guard", auditBody).at("effective", "expiresAt"), "four hours if none is given")
	require.Equal(t, "invalid", r.put("guard", adminSecret, `{"mode":"audit","ttl":"8d",`+why+`}`).problem())
}

// What is pinned is weakened by nobody over HTTP: not by an override, not by one
// from before, and not by break-glass.
func TestPinned(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), named("lax"))
	r.flip("guard", auditBody)
	require.True(t, r.denied(), "by the other one")
	require.NoError(t, r.plane.Configure(configured(t, `{"interceptors":{"guard":{"pinned":true}}}`)))
	assert.Equal(t, "active", r.mode("guard"), "an override from before it was pinned does not weaken it")
	for _, body := range []string{
		auditBody, `{"mode":"off",` + why + `}`, `{"failOpen":true,` + why + `}`, `{"hooks":[],` + why + `}`, `{"mode":"audit","ttl":"none",` + why + `}`,
	} {
		a := r.put("guard", adminSecret, body)
		assert.Equal(t, []any{"pinned", http.StatusForbidden}, []any{a.problem(), a.status}, body)
	}
	require.Equal(t, http.StatusOK, r.put("guard", operateSecret, `{"mode":"active","timeoutMs":50,`+why+`}`).status, "nothing is weaker")
	a := r.glass(`{"action":"off-all",` + why + `}`)
	require.Equal(t, []any{[]any{"lax"}, []any{"guard"}}, []any{a.at("weakened"), a.at("spared")})
	require.True(t, r.denied())
}

// A dry run tells what would hold, and changes nothing.
func TestDryRun(t *testing.T) {
	r := newRig(t, admin.Options{StateDir: t.TempDir()}, guard())
	before, head := r.get("/v1/state").raw, r.get("/v1/changes").at("head")
	a := r.do(exchange{
		method: "PUT", path: item("guard") + "/override?dryRun=true", secret: operateSecret, body: auditBody, header: http.Header{"If-Match": {"*"}},
	})
	require.Equal(t, http.StatusOK, a.status)
	assert.Equal(t, []any{true, "audit"}, []any{a.at("dryRun"), a.at("effective", "mode")})
	assert.Equal(t, []any{"active", "audit"}, []any{a.at("change", "before"), a.at("change", "after")})
	assert.Empty(t, a.header.Get("Location"))
	a = r.do(exchange{method: "PUT", path: "/v1/break-glass?dryRun=true", secret: glassSecret, body: `{"action":"off-all",` + why + `}`})
	assert.Equal(t, []any{true, true}, []any{a.at("dryRun"), a.at("active")})
	assert.True(t, r.denied())
	assert.Equal(t, before, r.get("/v1/state").raw)
	assert.Equal(t, head, r.get("/v1/changes").at("head"))
	for _, x := range []exchange{
		{method: "DELETE", path: item("guard") + "/override?dryRun=true", secret: operateSecret, header: http.Header{"If-Match": {"*"}}},
		{method: "DELETE", path: "/v1/break-glass?dryRun=true", secret: operateSecret},
	} {
		assert.Equal(t, http.StatusOK, r.do(x).status)
	}
	assert.Equal(t, "forbidden", r.do(exchange{method: "PUT", path: item("guard") + "/override?dryRun=true", secret: readSecret, body: auditBody}).problem())
	assert.Equal(t, before[:40], r.get("/v1/state").raw[:40])
}

// What holds already is no change: no revision, and a row only for another
// reason (A14).
func TestNoop(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	body := func(reason string) string {
		return `{"mode":"active","timeoutMs":50,"reason":"` + reason + `"}`
	}
	tag := r.flip("guard", body("the first of the reasons")).etag()
	rows := len(r.changes(""))
	a := r.flip("guard", body("the first of the reasons"))
	assert.Equal(t, []any{true, tag}, []any{a.at("noop"), a.etag()})
	assert.Len(t, r.changes(""), rows)
	a = r.flip("guard", body("another of the reasons"))
	assert.Equal(t, []any{true, tag}, []any{a.at("noop"), a.etag()})
	assert.Equal(t, "noop", r.last()["outcome"])
	assert.EqualValues(t, 2, r.metric("headgate_control_changes_total", "action", "override.set", "outcome", "noop"))
	require.Equal(t, http.StatusOK, r.clear("guard", operateSecret).status)
	assert.Equal(t, true, r.clear("guard", operateSecret).at("noop"), "clearing nothing")
	assert.Equal(t, true, r.do(exchange{method: "DELETE", path: "/v1/break-glass", secret: operateSecret}).at("noop"))
}

// A refused attempt is written down with who tried and why it was refused (A14).
func TestRefusedAttemptsAreWrittenDown(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	require.Equal(t, "forbidden", r.put("guard", readSecret, auditBody).problem())
	last := r.last()
	assert.Equal(t, []any{"rejected", "forbidden", "override.set", "guard"}, []any{last["outcome"], last["problem"], last["action"], last["target"]})
	assert.Equal(t, "read-token", last["actor"].(map[string]any)["name"])
	assert.Contains(t, r.log.String(), "admin request refused")
	assert.EqualValues(t, 1, r.metric("headgate_control_changes_total", "action", "override.set", "outcome", "rejected"))
	assert.NotEmpty(t, last["requestId"])
	r.do(exchange{method: "DELETE", path: item("none") + "/override", secret: operateSecret, header: http.Header{"If-Match": {"*"}}})
	assert.Equal(t, "not-found", r.last()["problem"])
}

// At most sixty refusals a minute are written; the rest are counted.
func TestRefusalsAreBounded(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	for range 100 {
		r.do(exchange{method: "GET", path: "/v1/state"})
	}
	require.Len(t, r.changes("&outcome=rejected"), 60)
	require.EqualValues(t, 100, r.metric("headgate_admin_auth_failures_total", "reason", "missing"))
}

// Break-glass weakens all but those that are excepted, for a time, and keeps what
// is weaker as it is.
func TestBreakGlass(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), named("b"), named("c"))
	r.flip("c", `{"mode":"off",`+why+`}`)
	tag := r.get(item("guard")).etag()
	a := r.glass(`{"action":"audit-all","except":["b"],"ttl":"10m",` + why + `}`)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	assert.Equal(t, []any{[]any{"guard"}, []any{"b", "c"}}, []any{a.at("weakened"), a.at("spared")})
	assert.Equal(t, []string{"audit", "active", "off"}, []string{r.mode("guard"), r.mode("b"), r.mode("c")})
	assert.EqualValues(t, 1, r.metric("headgate_break_glass"))
	assert.NotEqual(t, tag, r.get(item("guard")).etag(), "it is a layer of each")
	require.Equal(t, "stale", r.do(exchange{
		method: "PUT", path: item("guard") + "/override", secret: operateSecret, body: auditBody, header: http.Header{"If-Match": {tag}},
	}).problem())
	require.Equal(t, "invalid", r.glass(`{"action":"off-all","ttl":"2h",`+why+`}`).problem(), "an hour at most")
	require.Equal(t, "malformed", r.glass(`{"action":"all",`+why+`}`).problem())
	a = r.do(exchange{method: "DELETE", path: "/v1/break-glass", secret: operateSecret, header: http.Header{"Change-Reason": {"it is over"}}})
	require.Equal(t, []any{false, "it is over"}, []any{a.at("active"), r.last()["reason"]})
	assert.Equal(t, "active", r.mode("guard"))
	assert.Zero(t, r.metric("headgate_break_glass"))
}

// An override of an interceptor that is gone stands: it is listed, holds before
// the first message when it comes back, and can be cleared meanwhile.
func TestStandingOverrides(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), ct.Validator("other", ct.Allow))
	r.flip("guard", auditBody)
	require.True(t, r.ext.RemoveInterceptor("guard"))
	gone := func() bool {
		return r.do(exchange{method: "GET", path: item("guard"), secret: readSecret}).status == http.StatusNotFound
	}
	require.Eventually(t, gone, waiting, tickle)
	listed := r.get("/v1/overrides").list("overrides")
	require.Len(t, listed, 1)
	require.Equal(t, []any{"guard", `"1-1"`, true}, []any{listed[0]["name"], listed[0]["etag"], listed[0]["standing"]})
	require.Equal(t, []any{"guard"}, r.get("/v1/state").at("standing"))

	require.NoError(t, r.ext.AddInterceptor(guard()))
	require.False(t, r.denied(), "its first message is under its override")
	require.Eventually(t, func() bool { return !gone() }, waiting, tickle)
	require.Equal(t, "audit", r.mode("guard"))

	require.True(t, r.ext.RemoveInterceptor("guard"))
	require.Eventually(t, gone, waiting, tickle)
	a := r.do(exchange{method: "DELETE", path: item("guard") + "/override", secret: operateSecret, header: http.Header{"If-Match": {`"1-1"`}}})
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Empty(t, r.get("/v1/overrides").list("overrides"))
	require.Equal(t, "not-found", r.clear("guard", operateSecret).problem())
	require.NoError(t, r.ext.AddInterceptor(guard()))
	require.True(t, r.denied(), "and it is as it was declared")
}

// An override reaches every chain that has the name; reads can be narrowed.
func TestSeveralChains(t *testing.T) {
	_, second := newChain(t, nil, guard(), named("only-here"))
	r := newRig(t, admin.Options{Chains: map[string]*chain.Chain{"second": second}}, guard())
	a := r.flip("guard", auditBody)
	assert.Equal(t, []any{"main", "second"}, a.at("chains"))
	assert.False(t, r.denied())
	assert.True(t, denies(second), "by the one that is only there")
	assert.Len(t, r.get("/v1/interceptors?chain=main").list("interceptors"), 1)
	assert.Len(t, r.get("/v1/interceptors?chain=second").list("interceptors"), 2)
	assert.Len(t, r.get("/v1/pipeline?event=tools/call&phase=request").at("chains"), 2)
	assert.Len(t, r.get("/v1/pipeline?event=tools/call&phase=request&chain=second").at("chains"), 1)
	r.flip("only-here", auditBody)
	assert.False(t, denies(second))
}

// What is asked for of a list is what comes.
func TestListing(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), named("b"), named("c"), ct.Mutator("m", ct.Keep))
	r.flip("c", auditBody)
	for query, want := range map[string][]string{
		"": {"b", "c", "guard", "m"}, "?mode=audit": {"c"}, "?source=override": {"c"}, "?type=mutation": {"m"}, "?q=UAR": {"guard"},
		"?event=prompts/get": nil, "?event=tools/call&q=b": {"b"}, "?cursor=c": {"guard", "m"}, "?chain=none": nil,
	} {
		var names []string
		for _, it := range r.get("/v1/interceptors" + query).list("interceptors") {
			names = append(names, it["name"].(string))
		}
		assert.Equal(t, want, names, query)
	}
	var names []string
	for next := ""; ; {
		a := r.get("/v1/interceptors?limit=3&include=stats&cursor=" + next)
		for _, it := range a.list("interceptors") {
			names = append(names, it["name"].(string))
			assert.NotNil(t, it["stats"])
		}
		if next, _ = a.at("nextCursor").(string); next == "" {
			break
		}
	}
	assert.Equal(t, []string{"b", "c", "guard", "m"}, names)
}

func TestCoverage(t *testing.T) {
	r := newRig(t, admin.Options{}, guard(), ct.Validator("dead", ct.Allow, ct.On(core.PhaseResponse, "ping/*", core.EventToolsCall)))
	uncovered := func() (at []string) {
		for _, u := range r.get("/v1/coverage").list("chains")[0]["uncovered"].([]any) {
			m := u.(map[string]any)
			if m["event"] == "tools/call" {
				at = append(at, m["phase"].(string))
			}
		}
		return at
	}
	require.Empty(t, uncovered())
	v := r.get("/v1/coverage?chain=main").list("chains")[0]
	require.Len(t, v["dead"], 1)
	require.Len(t, v["idle"], 2)
	r.denied()
	require.Len(t, r.get("/v1/coverage").list("chains")[0]["idle"], 1)
	r.flip("guard", auditBody)
	require.Equal(t, []string{"request"}, uncovered(), "what is in audit holds nothing back")
	require.Contains(t, r.log.String(), "a hook can never fire")
}

// schemaGuard is configured by a secret, and says which one it was run with.
func schemaGuard(ran chan<- any) core.Interceptor {
	return ct.Validator("guard", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		ran <- inv.Config["key"]
		return core.Deny("no"), nil
	}, func(m *core.Metadata) {
		m.ConfigSchema = json.RawMessage(`{"type":"object","properties":{"key":{"type":"string"}},"additionalProperties":false}`)
	})
}

// A configuration that does not fit changes nothing and is not quoted; one that
// does moves the revisions of what it changes alone.
func TestConfigure(t *testing.T) {
	ran := make(chan any, 1)
	r := newRig(t, admin.Options{Configured: configured(t, `{"interceptors":{"guard":{"config":{"key":"k-1"}}}}`)}, schemaGuard(ran), named("b"))
	require.True(t, r.denied())
	require.Equal(t, "k-1", <-ran)
	before := r.get("/v1/state").raw
	for name, text := range map[string]string{
		"a config that does not match": `{"interceptors":{"guard":{"config":{"key":{"secret":"canary-4711"}}},"b":{"mode":"audit"}}}`,
		"hooks that widen":             `{"interceptors":{"b":{"mode":"audit","hooks":[{"events":["prompts/get"],"phase":"request"}]}}}`,
	} {
		err := r.plane.Configure(configured(t, text))
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "canary-4711")
		assert.Equal(t, before, r.get("/v1/state").raw, name)
	}
	tags := func() []string { return []string{r.get(item("guard")).etag(), r.get(item("b")).etag()} }
	was := tags()
	require.NoError(t, r.plane.Configure(configured(t, `{"interceptors":{"guard":{"config":{"key":"k-1"}},"b":{"mode":"audit"},"not-here":{"mode":"off"}}}`)))
	assert.Equal(t, "audit", r.mode("b"))
	assert.Equal(t, was[0], tags()[0], "nothing of it changed")
	assert.NotEqual(t, was[1], tags()[1])
	last := r.last()
	assert.Equal(t, []any{"config.load", "file", "applied"}, []any{last["action"], last["surface"], last["outcome"]})
	was = tags()
	require.NoError(t, r.plane.Configure(configured(t, `{"interceptors":{"guard":{"config":{"key":"k-2"}},"b":{"mode":"audit"},"not-here":{"mode":"off"}}}`)))
	assert.NotEqual(t, was[0], tags()[0])
	assert.Equal(t, was[1], tags()[1])
	r.denied()
	assert.Equal(t, "k-2", <-ran)
	require.NoError(t, r.plane.Configure(nil))
	assert.Equal(t, "active", r.mode("b"))
	assert.Nil(t, r.get(item("b")).at("layers", "configured"))
}
