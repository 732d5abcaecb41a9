package core

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// ErrKeyCase is wrapped by errors about a key that differs from a field's name
// in case alone. encoding/json would take it for the field; the SDK would not.
var ErrKeyCase = errors.New("key differs in case")

// Decode reads one JSON value into v, for handlers that must see what the
// server will see: keys match fields exactly, duplicate keys are refused at
// any depth, and numbers in values of type any are kept digit for digit as
// json.Number. What a json.RawMessage takes is kept as it is, unlooked at.
func Decode(data []byte, v any) error {
	if err := checkKeys(data, v); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	return nil
}

// DecodePlain is [Decode] with numbers as float64, for configurations and
// claims: a handler sees the same types whichever way it is reached.
func DecodePlain(data []byte, v any) error {
	if err := checkKeys(data, v); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// checkKeys refuses what is not one JSON value, duplicate keys, and keys that
// would become a field of v by folding their case.
func checkKeys(data []byte, v any) error {
	if !Valid(data) {
		var raw json.RawMessage
		return fmt.Errorf("core: %w", json.Unmarshal(data, &raw))
	}
	s := scanner{data: data}
	s.peek()
	return s.check(destination(v))
}

// destination returns the type that v is decoded into. A pointer to an
// interface that holds a pointer is followed, as encoding/json follows it.
func destination(v any) reflect.Type {
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer && rv.Elem().Kind() == reflect.Interface && rv.Elem().Elem().Kind() == reflect.Pointer {
		rv = rv.Elem().Elem()
	}
	if !rv.IsValid() {
		return nil
	}
	return rv.Type()
}

// Encode writes v as compact JSON without escaping <, > and &, as the SDK
// writes messages, so that text which is compared, hashed or signed stays as
// it was sent.
func Encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	if err := EncodeTo(&buf, v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// EncodeTo writes what [Encode] returns.
func EncodeTo(w *bytes.Buffer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	w.Truncate(w.Len() - 1) // the newline that Encode adds
	return nil
}

// check walks over the value that begins here, next to the type that it will
// be decoded into. A nil type knows no fields.
func (s *scanner) check(t reflect.Type) error {
	t = target(t)
	if t == rawMessage {
		s.skip()
		return nil
	}
	switch s.data[s.pos] {
	case '{':
		return s.checkObject(t)
	case '[':
		var elem reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			elem = t.Elem()
		}
		return s.elements(func() error { return s.check(elem) })
	}
	s.skip()
	return nil
}

func (s *scanner) checkObject(t reflect.Type) error {
	var fields fieldSet
	var elem reflect.Type
	if t != nil {
		switch t.Kind() {
		case reflect.Struct:
			fields = fieldsOf(t)
		case reflect.Map:
			elem = t.Elem()
		}
	}
	var seen keySet
	return s.members(func(name string) error {
		if !seen.add(name) {
			return fmt.Errorf("core: %w %q", ErrDuplicateKey, clip(name))
		}
		if fields == nil {
			return s.check(elem)
		}
		field, ok := fields[name]
		if !ok {
			if err := fields.folds(name); err != nil {
				return err
			}
		}
		return s.check(field)
	})
}

// A fieldSet holds the types of a struct's fields by their JSON names.
type fieldSet map[string]reflect.Type

func (f fieldSet) folds(name string) error {
	for field := range f {
		if strings.EqualFold(field, name) {
			return fmt.Errorf("core: %w: %q, want %q", ErrKeyCase, clip(name), field)
		}
	}
	return nil
}

// fieldSets caches what reflection finds; types are few and never go away.
var fieldSets sync.Map

func fieldsOf(t reflect.Type) fieldSet {
	if cached, ok := fieldSets.Load(t); ok {
		return cached.(fieldSet)
	}
	set := newFieldSet(t)
	fieldSets.Store(t, set)
	return set
}

// newFieldSet follows encoding/json: of fields with one name the shallowest
// counts, then the one with a tag; where that leaves several, none counts, and
// the key would go to a field that it folds to.
func newFieldSet(t reflect.Type) fieldSet {
	set, hidden := fieldSet{}, map[string]bool{}
	seen := map[reflect.Type]bool{}
	for level := []reflect.Type{t}; len(level) > 0; {
		found := map[string][]reflect.StructField{}
		var next []reflect.Type
		for _, t := range level {
			next = append(next, collectFields(found, t)...)
		}
		for name, fields := range found {
			if f, ok := dominant(fields); ok && !hidden[name] {
				set[name] = f.Type
			}
			hidden[name] = true
		}
		for _, t := range level {
			seen[t] = true
		}
		level = slices.DeleteFunc(next, func(t reflect.Type) bool { return seen[t] })
	}
	return set
}

// collectFields adds the struct's own fields to found and returns the embedded
// structs that have no name of their own.
func collectFields(found map[string][]reflect.StructField, t reflect.Type) (embedded []reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := jsonName(f)
		switch ft := deref(f.Type); {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && ft.Kind() == reflect.Struct:
			embedded = append(embedded, ft)
		case f.IsExported(), f.Anonymous && ft.Kind() == reflect.Struct:
			name = cmp.Or(name, f.Name)
			found[name] = append(found[name], f)
		}
	}
	return embedded
}

func dominant(fields []reflect.StructField) (f reflect.StructField, ok bool) {
	tagged := slices.DeleteFunc(slices.Clone(fields), func(f reflect.StructField) bool { return jsonName(f) == "" })
	if len(tagged) > 0 {
		fields = tagged
	}
	return fields[0], len(fields) == 1
}

// jsonName returns the name in the field's tag, or "".
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

var (
	rawMessage      = reflect.TypeFor[json.RawMessage]()
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// target returns the type that fields are looked up in, or nil where only the
// type's own decoder knows.
func target(t reflect.Type) reflect.Type {
	if t == nil {
		return nil
	}
	t = deref(t)
	if t == rawMessage {
		return t
	}
	if p := reflect.PointerTo(t); p.Implements(unmarshaler) || p.Implements(textUnmarshaler) {
		return nil
	}
	return t
}
