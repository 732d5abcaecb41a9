package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
)

// Bounds of the names that labels can have.
const (
	defaultMaxTools        = 64
	defaultMaxInterceptors = 32
	maxHosts               = 32
	maxPrompts             = 64 // in names of spans
	maxCustom              = 8  // methods that are not MCP's and that a hook spells out
	maxName                = 128
)

// A bound is the set of values that one label may have.
type bound struct {
	label string
	max   int // how many may be let in, beside those known from the start

	overflowed atomic.Uint64
	known      atomic.Pointer[map[string]struct{}]

	mu  sync.Mutex // serialises changes
	let int
}

func newBound(label string, most int, known ...string) *bound {
	b := &bound{label: label, max: most}
	set := make(map[string]struct{}, len(known))
	for _, v := range known {
		set[v] = struct{}{}
	}
	b.known.Store(&set)
	return b
}

// clamp returns v if it is known, or if it is trusted and there is room to let
// it in; or else _OTHER, and counts that. Whatever becomes the value of a label
// has come through here. What is trusted comes from configuration or from what
// is registered, never from a message alone.
func (b *bound) clamp(v string, trusted bool) string {
	if b.takes(v, trusted) {
		return v
	}
	b.overflowed.Add(1)
	return semconv.Other
}

// takes is clamp for spans, which are not what the count is about.
func (b *bound) takes(v string, trusted bool) bool {
	_, ok := (*b.known.Load())[v]
	return ok || trusted && b.admit(v)
}

func (b *bound) admit(v string) bool {
	if v == "" || v == semconv.Other || v == semconv.Chain || len(v) > maxName || !utf8.ValidString(v) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known := *b.known.Load()
	if _, ok := known[v]; ok {
		return true
	}
	if b.let >= b.max {
		return false
	}
	b.let++
	next := maps.Clone(known)
	next[v] = struct{}{}
	b.known.Store(&next)
	return true
}

// A table keeps a handle for each value of a bound, so that a message finds
// what is prepared for it without building anything.
type table[H any] struct {
	bound *bound
	build func(value string) *H
	other *H

	mu      sync.Mutex // serialises changes
	handles atomic.Pointer[map[string]*H]
}

func newTable[H any](b *bound, build func(value string) *H) *table[H] {
	t := &table[H]{bound: b, build: build, other: build(semconv.Other)}
	t.handles.Store(&map[string]*H{})
	return t
}

// get returns the handle of a value, or that of _OTHER.
func (t *table[H]) get(v string, trusted bool) *H {
	if h, ok := (*t.handles.Load())[v]; ok {
		return h
	}
	if t.bound.clamp(v, trusted) == semconv.Other {
		return t.other
	}
	return t.make(v)
}

// find is get for spans.
func (t *table[H]) find(v string, trusted bool) *H {
	if h, ok := (*t.handles.Load())[v]; ok {
		return h
	}
	if !t.bound.takes(v, trusted) {
		return t.other
	}
	return t.make(v)
}

func (t *table[H]) make(v string) *H {
	t.mu.Lock()
	defer t.mu.Unlock()
	handles := *t.handles.Load()
	if h, ok := handles[v]; ok {
		return h
	}
	next := maps.Clone(handles)
	next[v] = t.build(v)
	t.handles.Store(&next)
	return next[v]
}

// lookup returns the handle that get has made of a value, or that of _OTHER. It
// counts nothing.
func (t *table[H]) lookup(v string) *H {
	if h, ok := (*t.handles.Load())[v]; ok {
		return h
	}
	return t.other
}

// names are the bounds of all labels whose values are not fixed in the code.
type names struct {
	interceptors, methods, events, tools, prompts, errors, hosts *bound
	fixedTools                                                   bool // Options.Tools says which
}

func newNames(opts *Options) *names {
	methods := core.StandardMethods()
	n := &names{
		interceptors: newBound(semconv.LabelInterceptor, or(opts.MaxInterceptors, defaultMaxInterceptors)),
		methods:      newBound(semconv.LabelMethod, maxCustom, methods...),
		events:       newBound(semconv.LabelEvent, maxCustom, methods...),
		tools:        newBound(semconv.LabelTool, or(opts.MaxTools, defaultMaxTools)),
		prompts:      newBound("", maxPrompts),
		errors:       newBound(semconv.LabelErrorType, 0, errorTypes()...),
		hosts:        newBound(semconv.LabelHost, maxHosts),
		fixedTools:   opts.Tools != nil,
	}
	for _, tool := range opts.Tools {
		n.tools.clamp(tool, true)
	}
	return n
}

// counted returns the bounds whose overflow is a metric.
func (n *names) counted() []*bound {
	return []*bound{n.interceptors, n.methods, n.events, n.tools, n.errors}
}

// hooked lets in a method that an interceptor's hook spells out.
func (n *names) hooked(method string) {
	if core.Literal(method) {
		n.methods.clamp(method, true)
		n.events.clamp(method, true)
	}
}

// offered reports whether a message's target may become a label.
func (n *names) offered(m *chain.Message) bool {
	return m.Offered && (!n.fixedTools || m.Method != core.EventToolsCall)
}

func or(v, fallback int) int {
	if v == 0 {
		return fallback
	}
	return v
}

// clip shortens a text that is no label to something that any backend takes.
func clip(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?") // one byte, so that it gets no longer
}
