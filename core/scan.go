package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// A Member is one name and value of a JSON object. Value is a part of the
// object's own bytes and must not be changed.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Text returns the value if it is a string.
func (m Member) Text() (text string, ok bool) {
	if len(m.Value) < 2 || m.Value[0] != '"' {
		return "", false
	}
	return unquote(m.Value), true
}

// ErrDuplicateKey is wrapped by errors about an object that has a key twice.
// Parsers disagree about which one counts, so neither does.
var ErrDuplicateKey = errors.New("duplicate key")

// ErrNotObject is reported where a JSON object is needed and something else stands.
var ErrNotObject = errors.New("not a JSON object")

// Members splits a JSON object into its members, in their order and with their
// bytes as they are. Duplicate keys are refused.
func Members(object []byte) ([]Member, error) {
	if !Valid(object) {
		return nil, errors.New("core: invalid JSON")
	}
	s := scanner{data: object}
	if s.peek() != '{' {
		return nil, fmt.Errorf("core: %w", ErrNotObject)
	}
	out := make([]Member, 0, 8) // most have fewer
	var seen keySet
	err := s.members(func(name string) error {
		if !seen.add(name) {
			return fmt.Errorf("core: %w %q", ErrDuplicateKey, clip(name))
		}
		out = append(out, Member{Name: name, Value: s.skip()})
		return nil
	})
	return out, err
}

// JoinMembers writes members as an object, in their order and with their
// values as they are, which must be valid JSON.
func JoinMembers(members []Member) (json.RawMessage, error) {
	size := 2
	for _, m := range members {
		size += len(m.Name) + len(m.Value) + len(`"":,`)
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range members {
		name, err := Encode(m.Name)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), m.Value...)
	}
	return append(out, '}'), nil
}

// SetMember returns a copy of a JSON object in which the member has the value:
// in its place if it is there, else at the end. All others keep their order
// and bytes, so that a mutator changes nothing that it does not mean to.
func SetMember(object []byte, name string, value json.RawMessage) (json.RawMessage, error) {
	members, err := Members(object)
	if err != nil {
		return nil, err
	}
	return JoinMembers(PutMember(members, Member{Name: name, Value: value}))
}

// PutMember replaces the member of the same name, or adds m at the end. It may
// write to the list that it is given.
func PutMember(members []Member, m Member) []Member {
	for i := range members {
		if members[i].Name == m.Name {
			members[i] = m
			return members
		}
	}
	return append(members, m)
}

// Depth returns how deep objects and arrays nest in JSON, which it does not
// check.
func Depth(data []byte) int {
	depth, most := 0, 0
	s := scanner{data: data}
	for s.pos < len(data) {
		switch data[s.pos] {
		case '"':
			if !s.tryStr() {
				return most
			}
			continue
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
		s.pos++
	}
	return most
}

// tryStr consumes a string literal in data that may not be valid.
func (s *scanner) tryStr() bool {
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return true
		}
	}
	return false
}

// A scanner walks over JSON that is known to be valid, without allocating.
type scanner struct {
	data []byte
	pos  int
}

// peek moves to the next value or punctuation and returns its first byte.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch b := s.data[s.pos]; b {
		case ' ', '\t', '\r', '\n', ',', ':':
			s.pos++
		default:
			return b
		}
	}
	return 0
}

// members calls f with each name of the object that begins here; f must
// consume the value. The scanner ends behind the object.
func (s *scanner) members(f func(name string) error) error {
	s.pos++
	for s.peek() != '}' {
		name := unquote(s.str())
		s.peek()
		if err := f(name); err != nil {
			return err
		}
	}
	s.pos++
	return nil
}

// elements calls f at each element of the array that begins here; f must
// consume it.
func (s *scanner) elements(f func() error) error {
	s.pos++
	for s.peek() != ']' {
		if err := f(); err != nil {
			return err
		}
	}
	s.pos++
	return nil
}

// skip consumes the value that begins here and returns its bytes.
func (s *scanner) skip() json.RawMessage {
	start := s.pos
	switch s.data[s.pos] {
	case '"':
		s.str()
	case '{', '[':
		s.skipNested()
	default:
		for s.pos < len(s.data) && !isDelimiter(s.data[s.pos]) {
			s.pos++
		}
	}
	return s.data[start:s.pos:s.pos]
}

func (s *scanner) skipNested() {
	depth := 0
	for {
		switch s.data[s.pos] {
		case '"':
			s.str()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.pos++
		if depth == 0 {
			return
		}
	}
}

// str consumes a string literal and returns it with its quotes.
func (s *scanner) str() []byte {
	start := s.pos
	s.pos++
	for {
		end := bytes.IndexByte(s.data[s.pos:], '"')
		if end < 0 { // not valid after all
			s.pos = len(s.data)
			return s.data[start:]
		}
		s.pos += end
		escaped := false
		for i := s.pos - 1; i > start && s.data[i] == '\\'; i-- {
			escaped = !escaped
		}
		s.pos++
		if !escaped {
			return s.data[start:s.pos]
		}
	}
}

func isDelimiter(b byte) bool {
	switch b {
	case ',', ':', '}', ']', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// unquote returns the text of a valid string literal as encoding/json reads it.
func unquote(literal []byte) string {
	inner := literal[1 : len(literal)-1]
	for _, b := range inner {
		if b == '\\' || b >= utf8.RuneSelf {
			var s string
			_ = json.Unmarshal(literal, &s) // a valid literal cannot fail
			return s
		}
	}
	return string(inner)
}

// A keySet remembers the keys of one object. Few are kept in a list, which is
// faster than a map and does not allocate.
type keySet struct {
	few  [fewKeys]string
	n    int // in few
	many map[string]struct{}
}

const fewKeys = 16

// add reports whether key is new.
func (k *keySet) add(key string) bool {
	if k.many != nil {
		n := len(k.many)
		k.many[key] = struct{}{}
		return len(k.many) > n
	}
	if slices.Contains(k.few[:k.n], key) {
		return false
	}
	if k.n < fewKeys {
		k.few[k.n] = key
		k.n++
		return true
	}
	k.many = make(map[string]struct{}, 2*fewKeys)
	for _, old := range k.few {
		k.many[old] = struct{}{}
	}
	k.many[key] = struct{}{}
	return true
}
