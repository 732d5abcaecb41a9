package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// A state is all that the plane knows at one moment. It never changes.
type state struct {
	at       time.Time
	revision uint64
	items    map[string]*item
	names    []string // of the items that a chain has, sorted
	// standing are overrides for interceptors that no chain has; they are kept.
	standing   []string
	breakGlass *control.BreakGlass
	// glass is the revision of break-glass, and record that of its record.
	glass, glassRecord uint64
	head               history.Head
	print              string // of all items
}

// An item is one interceptor.
type item struct {
	layers    control.Layers
	effective control.Effective
	// revision is the last one that changed any of its layers, record the one of
	// its record in the store.
	revision, record uint64
	entry            chain.Entry // of the first chain that has it
	chains           []string
	print            string // of what is declared
}

// tag is the item's entity tag.
func (it *item) tag() string { return etag(it.revision, it.print) }

// tag is that of everything.
func (s *state) tag() string { return etag(s.revision, s.print) }

// keys of records.
const (
	keyGlass      = "break-glass"
	keyConfigured = "configured"
	keyOverride   = "override:" // followed by the name
)

// A configuredRecord says when what is configured last changed, by interceptor.
type configuredRecord struct {
	Digests   map[string]string `json:"digests"`
	Revisions map[string]uint64 `json:"revisions"`
}

// A memory is what states are made of: what the store holds, decoded, and what
// is configured.
type memory struct {
	contents   store.Contents
	overrides  map[string]*control.Override
	records    map[string]uint64 // revisions, by key
	breakGlass *control.BreakGlass
	configured *control.Configuration
	changed    configuredRecord
	// strange are records that could not be read. They are kept.
	strange []string
}

// remember decodes what a store holds. What cannot be read is reported and left
// alone: it may be a later version's.
func remember(c store.Contents) *memory {
	m := &memory{
		contents: c, overrides: map[string]*control.Override{}, records: map[string]uint64{},
		changed: configuredRecord{Digests: map[string]string{}, Revisions: map[string]uint64{}},
	}
	for _, r := range c.Records {
		m.records[r.Key] = r.Revision
		if len(r.Value) == 0 || string(r.Value) == "null" {
			continue
		}
		if err := m.take(r); err != nil {
			m.strange = append(m.strange, r.Key)
		}
	}
	return m
}

func (m *memory) take(r store.Record) error {
	if name, ok := cutPrefix(r.Key, keyOverride); ok {
		var o control.Override
		if err := decodeKnown(r.Value, &o); err != nil {
			return err
		}
		m.overrides[name] = &o
		return nil
	}
	switch r.Key {
	case keyGlass:
		var b control.BreakGlass
		if err := decodeKnown(r.Value, &b); err != nil {
			return err
		}
		m.breakGlass = &b
		return nil
	case keyConfigured:
		return json.Unmarshal(r.Value, &m.changed)
	}
	return fmt.Errorf("admin: unknown key %q", r.Key)
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return "", false
}

// decodeKnown refuses members that this version does not know: half an override
// is another override.
func decodeKnown(raw json.RawMessage, v any) error { return control.Strict(raw, v) }

func (m *memory) head() (h history.Head) {
	_ = json.Unmarshal(m.contents.Note, &h)
	return h
}

// state works out what holds at a moment, for the interceptors that the chains have.
func (m *memory) state(chains map[string]*chain.Chain, now time.Time) *state {
	s := &state{
		at: now, revision: m.contents.Revision, items: map[string]*item{}, breakGlass: m.breakGlass,
		glass: m.records[keyGlass], glassRecord: m.records[keyGlass], head: m.head(),
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		for _, e := range chains[name].Entries() {
			it := s.items[e.Name]
			if it == nil {
				it = m.item(&e, s)
				s.items[e.Name] = it
				s.names = append(s.names, e.Name)
			}
			it.chains = append(it.chains, name)
		}
	}
	for name := range m.overrides {
		if s.items[name] == nil {
			s.standing = append(s.standing, name)
		}
	}
	slices.Sort(s.names)
	slices.Sort(s.standing)
	s.fingerprint()
	return s
}

// fingerprint takes prints of what hosts declare, which changes without a revision.
func (s *state) fingerprint() {
	prints := make([]string, len(s.names))
	for i, name := range s.names {
		it := s.items[name]
		e := &it.entry
		it.print = fingerprint(e.Type, e.Version, e.Description, e.Host, it.chains, it.layers.Declared, e.Health.Err == nil)
		prints[i] = it.print
	}
	s.print = fingerprint(s.names, prints, s.standing)
}

// standing is an interceptor that no chain has, with what is said of it.
func standing(name string, o *control.Override, revision uint64) *item {
	l := control.Of(&core.Descriptor{Metadata: core.Metadata{Name: name}}, 0)
	l.Override, l.Declared.Hooks = o, []core.Hook{}
	return &item{layers: l, effective: l.At(time.Now()), revision: revision, record: revision, chains: []string{}}
}

func (m *memory) item(e *chain.Entry, s *state) *item {
	// An override of the timeout is in what the chain says holds; what is below it
	// is what the chain would say without.
	l := control.Of(&e.Descriptor, declaredTimeout(e))
	l.BreakGlass = m.breakGlass
	l.Override = m.overrides[e.Name]
	it := &item{entry: *e, record: m.records[keyOverride+e.Name]}
	if m.configured != nil {
		if c, ok := m.configured.Interceptors[e.Name]; ok {
			l.Configured, l.Pinned = &c.Settings, c.Pinned
		}
	}
	it.revision = max(it.record, s.glassRecord, m.changed.Revisions[e.Name])
	it.layers = l
	it.effective = l.At(s.at)
	return it
}

// declaredTimeout is what an invoke may take without anybody's word.
func declaredTimeout(e *chain.Entry) time.Duration { return e.DefaultTimeout }

// chainOverrides returns what the chains are told.
func (m *memory) chainOverrides(s *state) map[string]chain.Overrides {
	out := map[string]chain.Overrides{}
	for name, it := range s.items {
		if o := m.overridesOf(name, &it.effective); o != nil {
			out[name] = *o
		}
	}
	for _, name := range m.names() {
		if s.items[name] == nil { // whoever it is, it is to begin under its policy
			l := control.Layers{Name: name, Override: m.overrides[name], BreakGlass: m.breakGlass, Declared: control.Settings{Mode: control.Active}}
			if m.configured != nil {
				c := m.configured.Interceptors[name]
				l.Configured, l.Pinned = &c.Settings, c.Pinned
			}
			e := l.At(s.at)
			if o := m.overridesOf(name, &e); o != nil {
				out[name] = *o
			}
		}
	}
	return out
}

// names are all names that something is said of.
func (m *memory) names() []string {
	set := map[string]bool{}
	for name := range m.overrides {
		set[name] = true
	}
	if m.configured != nil {
		for name := range m.configured.Interceptors {
			set[name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// overridesOf returns what a chain is told of an interceptor; nil for nothing.
func (m *memory) overridesOf(name string, e *control.Effective) *chain.Overrides {
	o := e.Chain()
	said := false
	for _, from := range e.Sources {
		said = said || from != control.Declared
	}
	if m.configured != nil {
		if c := m.configured.Interceptors[name].Config; c != nil {
			o.Config, said = c, true
		}
	}
	if !said {
		return nil
	}
	return &o
}

// expiries calls f for each end that is still to come or was passed unnoticed.
func (m *memory) expiries(f func(name string, at time.Time)) {
	for name, o := range m.overrides {
		if o.ExpiresAt != nil {
			f(name, *o.ExpiresAt)
		}
	}
	if m.breakGlass != nil {
		f("", m.breakGlass.ExpiresAt)
	}
}

// hooksOf returns what all interceptors declare, by name.
func (s *state) hooks() map[string][]core.Hook {
	out := map[string][]core.Hook{}
	for name, it := range s.items {
		out[name] = it.layers.Declared.Hooks
	}
	return out
}
