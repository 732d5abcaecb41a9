package core_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/headgate-mcp/headgate/core"
)

const (
	request  = core.PhaseRequest
	response = core.PhaseResponse
)

func hook(phase core.Phase, events ...string) core.Hook {
	return core.Hook{Events: events, Phase: phase}
}

// The numbers are the rows of doc/CONFORMANCE.md 3.4.
func TestHookMatches(t *testing.T) {
	for name, tt := range map[string]struct {
		hook   core.Hook
		method string
		phase  core.Phase
		want   bool
	}{
		"a name":                                 {hook(request, "tools/call"), "tools/call", request, true},
		"one name of several":                    {hook(request, "a", "tools/call"), "tools/call", request, true},
		"another name":                           {hook(request, "tools/call"), "tools/list", request, false},
		"57: the other phase":                    {hook(request, "tools/call"), "tools/call", response, false},
		"60: case counts":                        {hook(request, "Tools/Call"), "tools/call", request, false},
		"60: the set of names is open":           {hook(request, "acme/thing"), "acme/thing", request, true},
		"a name is no prefix":                    {hook(request, "tools"), "tools/call", request, false},
		"both, request":                          {hook(core.PhaseBoth, "tools/call"), "tools/call", request, true},
		"both, response":                         {hook(core.PhaseBoth, "tools/call"), "tools/call", response, true},
		"no events":                              {hook(request), "tools/call", request, false},
		"59: an unknown phase":                   {hook(core.PhaseBoth, "*"), "tools/call", "bogus", false},
		"59: an empty phase":                     {hook("", "*"), "tools/call", "", false},
		"59: both is no phase of a message":      {hook(core.PhaseBoth, "*"), "tools/call", core.PhaseBoth, false},
		"55: * sees requests":                    {hook(request, "*"), "tools/call", request, true},
		"55: * sees responses":                   {hook(response, "*"), "acme/thing", response, true},
		"a glob":                                 {hook(request, "tools/*"), "tools/call", request, true},
		"a glob that does not fit":               {hook(request, "tools/*"), "prompts/get", request, false},
		"a glob in front":                        {hook(request, "*/list"), "tools/list", request, true},
		"a glob in the middle":                   {hook(request, "a*b*c"), "a-b-b-c", request, true},
		"a glob in the middle that fails":        {hook(request, "a*b*c"), "a-b-b-d", request, false},
		"a star may stand for nothing":           {hook(request, "tools/call*"), "tools/call", request, true},
		"*/request, request":                     {hook(request, "*/request"), "tools/call", request, true},
		"*/request never sees a response":        {hook(response, "*/request"), "tools/call", response, false},
		"*/request in both":                      {hook(core.PhaseBoth, "*/request"), "tools/call", request, true},
		"*/request in both, response":            {hook(core.PhaseBoth, "*/request"), "tools/call", response, false},
		"*/response, response":                   {hook(response, "*/response"), "tools/call", response, true},
		"*/response never sees a request":        {hook(request, "*/response"), "tools/call", request, false},
		"56: * does not see ping":                {hook(request, "*"), "ping", request, false},
		"56: p* does not see ping":               {hook(request, "p*"), "ping", request, false},
		"56: ping by name":                       {hook(request, "ping"), "ping", request, true},
		"* does not see notifications":           {hook(request, "*"), "notifications/progress", request, false},
		"notifications/* does not either":        {hook(request, "notifications/*"), "notifications/progress", request, false},
		"*/request does not either":              {hook(request, "*/request"), "notifications/progress", request, false},
		"a notification by name":                 {hook(request, "notifications/progress"), "notifications/progress", request, true},
		"a notification has no response":         {hook(response, "notifications/progress"), "notifications/progress", response, false},
		"subscriptions/listen, request":          {hook(request, "*"), "subscriptions/listen", request, true},
		"subscriptions/listen, response":         {hook(response, "*"), "subscriptions/listen", response, false},
		"subscriptions/listen, response by name": {hook(response, "subscriptions/listen"), "subscriptions/listen", response, false},
		"the empty method":                       {hook(request, "*"), "", request, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.hook.Matches(tt.method, tt.phase)) })
	}
}

func TestNeverIntercepted(t *testing.T) {
	for _, method := range []string{
		"initialize", "server/discover", "notifications/initialized", "notifications/cancelled", core.MethodList, core.MethodInvoke,
	} {
		t.Run(method, func(t *testing.T) {
			for _, phase := range []core.Phase{request, response} {
				assert.False(t, core.Interceptable(method, phase))
				assert.False(t, hook(phase, "*", method, "*/"+string(phase)).Matches(method, phase), "even by name")
			}
			assert.Contains(t, core.StandardMethods(), method)
		})
	}
}

// The numbers are the rows of doc/CONFORMANCE.md 3.5.
func TestHookCovers(t *testing.T) {
	for name, tt := range map[string]struct {
		declared, override core.Hook
		want               bool
	}{
		"itself":                                 {hook(request, "tools/call"), hook(request, "tools/call"), true},
		"a part":                                 {hook(request, "a", "b"), hook(request, "b"), true},
		"64: a new event":                        {hook(request, "a"), hook(request, "a", "b"), false},
		"64: the other phase":                    {hook(request, "a"), hook(response, "a"), false},
		"64: both over one":                      {hook(request, "a"), hook(core.PhaseBoth, "a"), false},
		"both has each":                          {hook(core.PhaseBoth, "a"), hook(response, "a"), true},
		"both has both":                          {hook(core.PhaseBoth, "*"), hook(core.PhaseBoth, "a"), true},
		"both, */request has no response":        {hook(core.PhaseBoth, "*/request"), hook(core.PhaseBoth, "a"), false},
		"both, */request has the request":        {hook(core.PhaseBoth, "*/request"), hook(request, "a"), true},
		"65: * has tools/call":                   {hook(request, "*"), hook(request, "tools/call"), true},
		"66: tools/call has not *":               {hook(request, "tools/call"), hook(request, "*"), false},
		"* has globs":                            {hook(request, "*"), hook(request, "tools/*", "*/list"), true},
		"a glob has a narrower one":              {hook(request, "tools/*"), hook(request, "tools/l*"), true},
		"a glob has not a wider one":             {hook(request, "tools/l*"), hook(request, "tools/*"), false},
		"* is */request":                         {hook(request, "*"), hook(request, "*/request"), true},
		"*/request is *":                         {hook(request, "*/request"), hook(request, "*"), true},
		"*/response of the request is nothing":   {hook(request, "*/response"), hook(request, "a"), false},
		"* has not ping":                         {hook(request, "*"), hook(request, "ping"), false},
		"* has not notifications":                {hook(request, "*"), hook(request, "notifications/progress"), false},
		"ping by name":                           {hook(request, "*", "ping"), hook(request, "ping"), true},
		"67: no events":                          {hook(request, "a"), hook(request), true},
		"an unknown phase is not covered":        {hook(core.PhaseBoth, "*"), hook("bogus", "a"), false},
		"an unknown phase does not cover itself": {hook("bogus", "a"), hook("bogus", "a"), false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.declared.Covers(tt.override)) })
	}
}

func TestExpandHooks(t *testing.T) {
	in := []core.Hook{hook(core.PhaseBoth, "a", "b"), hook(response, "c")}
	out := core.ExpandHooks(in)
	assert.Equal(t, []core.Hook{hook(request, "a", "b"), hook(response, "a", "b"), hook(response, "c")}, out)

	out[0].Events[0], out[2].Events[0] = "changed", "changed"
	assert.Equal(t, []core.Hook{hook(core.PhaseBoth, "a", "b"), hook(response, "c")}, in, "the copy shares nothing")
	assert.Equal(t, "a", out[1].Events[0], "nor do its halves")
	assert.Nil(t, core.ExpandHooks(nil))
	assert.NotNil(t, core.ExpandHooks([]core.Hook{}), "row 67: no hooks is not the same as none given")
}

func TestGlobTakesNoLongTime(t *testing.T) {
	pattern := strings.Repeat("*a", 100) + "*b"
	assert.False(t, hook(request, pattern).Matches(strings.Repeat("a", 1<<16), request))
}

// An independent reading of globs: by recursion on the first character.
func globReference(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return globReference(pattern[1:], s) || s != "" && globReference(pattern, s[1:])
	}
	return s != "" && pattern[0] == s[0] && globReference(pattern[1:], s[1:])
}

// Seen to fail with glob's mark++ turned into mark += 2, and with p =
// star+1 turned into star+2.
func TestGlobProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*/]{1,6}`).Draw(t, "pattern")
		method := rapid.StringMatching(`[ab/]{1,4}`).Draw(t, "method")
		require.Equal(t, globReference(pattern, method), hook(request, pattern).Matches(method, request))
	})
}

// Methods are drawn from what b's own patterns match, so that b sees most of
// them. Seen to fail with coversEvent's operands swapped in its call of glob.
func TestCoversProperty(t *testing.T) {
	events := rapid.SliceOfN(rapid.OneOf(
		rapid.StringMatching(`[ab*]{1,3}`),
		rapid.SampledFrom([]string{"*", "*/request", "*/response", "ping", "notifications/a", "notifications/*", "initialize"}),
	), 1, 2)
	phases := rapid.SampledFrom([]core.Phase{request, response, core.PhaseBoth})
	hooks := rapid.Custom(func(t *rapid.T) core.Hook { return hook(phases.Draw(t, "phase"), events.Draw(t, "events")...) })
	fill := rapid.SampledFrom([]string{"", "a", "b", "ab", "ing", "/request", "a/b"})
	rapid.Check(t, func(t *rapid.T) {
		a, b := hooks.Draw(t, "a"), hooks.Draw(t, "b")
		require.True(t, a.Covers(a))
		if !a.Covers(b) {
			return
		}
		for _, event := range b.Events {
			method := strings.ReplaceAll(event, "*", fill.Draw(t, "fill"))
			for _, phase := range []core.Phase{request, response} {
				if b.Matches(method, phase) {
					require.True(t, a.Matches(method, phase), "%s of %q", phase, method)
				}
			}
		}
	})
}

// What a hook covers it sees: for any two hooks and any method. Seen to fail
// with the namedOnly check left out of coversEvent, with the operands of its
// call of glob swapped, and with in() not asking for a valid phase.
func FuzzHook(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b, method string, phases byte) {
		words := []core.Phase{request, response, core.PhaseBoth, "bogus"}
		ha := hook(words[phases&3], strings.Split(a, "\n")...)
		hb := hook(words[phases>>2&3], strings.Split(b, "\n")...)
		covers := ha.Covers(hb)
		for _, phase := range words {
			if hb.Matches(method, phase) && !ha.Matches(method, phase) {
				require.False(t, covers, "%v over %v: %s of %q", ha, hb, phase, method)
			}
			if !phase.Valid() || !core.Interceptable(method, phase) {
				require.False(t, ha.Matches(method, phase), "%v: %s of %q", ha, phase, method)
			}
		}
		halves := core.ExpandHooks([]core.Hook{ha})
		for _, phase := range words {
			m := core.Metadata{Hooks: halves}
			require.Equal(t, ha.Matches(method, phase), m.Matches(method, phase), "expansion changes nothing")
		}
	})
}
