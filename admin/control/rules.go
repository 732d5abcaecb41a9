package control

import (
	"slices"

	"github.com/headgate-mcp/headgate/core"
)

// Weakens reports whether b holds back less than a: a weaker mode, failures that
// let messages pass, or fewer hooks.
func Weakens(a, b *Effective) bool {
	return b.Mode.rank() < a.Mode.rank() || b.FailOpen && !a.FailOpen || !covers(b.Hooks, a.Hooks)
}

// Widens returns what the hooks see that those declared do not.
func Widens(declared, hooks []core.Hook) []core.Hook {
	var found []core.Hook
	for _, h := range core.ExpandHooks(hooks) {
		for _, event := range h.Events {
			one := core.Hook{Events: []string{event}, Phase: h.Phase}
			if !covered(declared, one) {
				found = append(found, one)
			}
		}
	}
	return found
}

// covers reports whether hooks see all that others see.
func covers(hooks, others []core.Hook) bool { return len(Widens(hooks, others)) == 0 }

func covered(hooks []core.Hook, one core.Hook) bool {
	return slices.ContainsFunc(hooks, func(h core.Hook) bool { return h.Covers(one) })
}

// Same reports whether two overrides say the same about an interceptor and
// about their end.
func Same(a, b *Override) bool {
	if a == nil || b == nil {
		return a == b
	}
	sameTime := a.ExpiresAt == b.ExpiresAt || a.ExpiresAt != nil && b.ExpiresAt != nil && a.ExpiresAt.Equal(*b.ExpiresAt)
	return sameTime && a.OnExpiry == b.OnExpiry && sameSettings(&a.Settings, &b.Settings)
}

func sameSettings(a, b *Settings) bool {
	x, err := core.Encode(a)
	if err != nil {
		return false
	}
	y, err := core.Encode(b)
	return err == nil && string(x) == string(y)
}
