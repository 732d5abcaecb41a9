package middleware

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of what is remembered of a server's tools and prompts: on a client,
// and behind a proxy, the names come from elsewhere.
const (
	maxOffers    = 1024
	maxOfferName = 128
)

// offers are the names of the tools and prompts that a server is known to have,
// so that observers can tell these from whatever a client may ask for. go-sdk
// does not say what is registered; but it lists nothing else, and no other call
// succeeds.
type offers struct {
	known atomic.Pointer[map[offer]struct{}]

	mu sync.Mutex // serialises learning
}

type offer struct{ event, name string }

// has reports whether the method's target is on offer. Resources are not
// remembered: their URIs are no small set.
func (o *offers) has(method, target string) bool {
	known := o.known.Load()
	if known == nil || target == "" {
		return false
	}
	_, ok := (*known)[offer{method, target}]
	return ok
}

// learn takes in what a server's own handler answered.
func (o *offers) learn(target string, res mcp.Result) {
	switch r := res.(type) {
	case *mcp.CallToolResult:
		o.add(core.EventToolsCall, target)
	case *mcp.GetPromptResult:
		o.add(core.EventPromptsGet, target)
	case *mcp.ListToolsResult:
		names := make([]string, 0, len(r.Tools))
		for _, t := range r.Tools {
			if t != nil {
				names = append(names, t.Name)
			}
		}
		o.add(core.EventToolsCall, names...)
	case *mcp.ListPromptsResult:
		names := make([]string, 0, len(r.Prompts))
		for _, p := range r.Prompts {
			if p != nil {
				names = append(names, p.Name)
			}
		}
		o.add(core.EventPromptsGet, names...)
	}
}

// add remembers names. Nearly always it knows them already.
func (o *offers) add(event string, names ...string) {
	fresh := false
	for _, name := range names {
		fresh = fresh || name != "" && len(name) <= maxOfferName && !o.has(event, name)
	}
	if !fresh {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	next := map[offer]struct{}{}
	if known := o.known.Load(); known != nil {
		if len(*known) >= maxOffers {
			return
		}
		next = maps.Clone(*known)
	}
	for _, name := range names {
		if name != "" && len(name) <= maxOfferName && len(next) < maxOffers {
			next[offer{event, name}] = struct{}{}
		}
	}
	o.known.Store(&next)
}
