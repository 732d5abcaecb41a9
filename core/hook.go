package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Hook says which events an interceptor sees in one phase.
//
// An event is a method name or a pattern in which each * stands for any run of
// characters: "*" is every event, "tools/*" every event of tools. The SEP's
// "*/request" and "*/response" are every event of that phase. Patterns match
// requests other than ping; ping and notifications are seen only by a hook
// that spells their name out.
type Hook struct {
	Events []string `json:"events"`
	Phase  Phase    `json:"phase"`
}

// Patterns of SEP-2624, Wildcards, that name a phase of their own.
const (
	anyRequest  = "*/request"
	anyResponse = "*/response"
)

const maxEventName = 256

// Matches reports whether the hook sees messages of the method in the phase.
func (h Hook) Matches(method string, phase Phase) bool {
	if !h.in(phase) || !Interceptable(method, phase) {
		return false
	}
	return slices.ContainsFunc(h.Events, func(pattern string) bool {
		return matchEvent(pattern, method, phase)
	})
}

// Covers reports whether each message that other sees is seen by h too.
func (h Hook) Covers(other Hook) bool {
	if other.Phase != PhaseBoth && !other.Phase.Valid() {
		return false
	}
	for _, phase := range []Phase{PhaseRequest, PhaseResponse} {
		if other.in(phase) && !(h.in(phase) && h.coversEvents(other.Events, phase)) {
			return false
		}
	}
	return true
}

// in reports whether the hook is one of the phase, which is a message's.
func (h Hook) in(phase Phase) bool {
	return phase.Valid() && (h.Phase == phase || h.Phase == PhaseBoth)
}

func (h Hook) coversEvents(events []string, phase Phase) bool {
	for _, event := range events {
		if !slices.ContainsFunc(h.Events, func(pattern string) bool { return coversEvent(pattern, event, phase) }) {
			return false
		}
	}
	return true
}

// Literal reports whether event is a plain name, not a pattern.
func Literal(event string) bool { return !strings.Contains(event, "*") }

func matchEvent(pattern, method string, phase Phase) bool {
	if pattern == method {
		return true
	}
	if Literal(pattern) || namedOnly(method) {
		return false
	}
	return glob(phasePattern(pattern, phase), method)
}

// coversEvent reports whether pattern matches whatever event matches. A * in
// event can stand for anything, so only a * in pattern can cover it; plain
// matching with event's stars taken as characters says exactly that. A name
// that no pattern sees is covered by its own spelling alone.
func coversEvent(pattern, event string, phase Phase) bool {
	if pattern == event {
		return true
	}
	if namedOnly(event) {
		return false
	}
	return glob(phasePattern(pattern, phase), phasePattern(event, phase))
}

// phasePattern resolves the patterns that carry a phase. In the other phase
// they match nothing, which the empty pattern says.
func phasePattern(pattern string, phase Phase) string {
	switch {
	case pattern == anyRequest && phase == PhaseRequest, pattern == anyResponse && phase == PhaseResponse:
		return EventAny
	case pattern == anyRequest, pattern == anyResponse:
		return ""
	}
	return pattern
}

// glob matches s against a pattern in which * is any run of characters. It
// backtracks to the last star only, so it is linear in practice and never
// exponential.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// check joins the faults of a hook.
func (h Hook) check() error {
	var errs []error
	if h.Phase != PhaseBoth && !h.Phase.Valid() {
		errs = append(errs, fmt.Errorf("unknown phase %q", clip(string(h.Phase))))
	}
	if len(h.Events) == 0 {
		errs = append(errs, errors.New("a hook without events"))
	}
	for _, event := range h.Events {
		if err := checkText("event", event, maxEventName); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ExpandHooks returns a copy of hooks in which [PhaseBoth] has become a hook
// for the request and one for the response, in this order.
func ExpandHooks(hooks []Hook) []Hook {
	if hooks == nil {
		return nil
	}
	out := make([]Hook, 0, len(hooks))
	for _, h := range hooks {
		if h.Phase != PhaseBoth {
			out = append(out, Hook{Events: slices.Clone(h.Events), Phase: h.Phase})
			continue
		}
		for _, phase := range []Phase{PhaseRequest, PhaseResponse} {
			out = append(out, Hook{Events: slices.Clone(h.Events), Phase: phase})
		}
	}
	return out
}

// checkText says whether a name is fit to be shown in logs, labels and URLs.
func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("empty %s", what)
	case len(s) > most:
		return fmt.Errorf("%s of %d bytes (at most %d)", what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8", what)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%s holds a control character", what)
	}
	return nil
}
