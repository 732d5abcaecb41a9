package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// Missing looks for something that a holds and b lacks, and returns its path.
// It serves whoever sends a through a typed value that may drop what it does
// not know, and gets b back. Members that only b has, the order of keys and
// the spelling of strings and numbers do not count, nor do members of a that
// say nothing: null, false, 0, "", [] and {}. Both must be valid JSON.
func Missing(a, b []byte) (path string, missing bool) {
	if bytes.Equal(a, b) {
		return "", false
	}
	if !json.Valid(a) || !json.Valid(b) {
		return "", true
	}
	sa, sb := scanner{data: a}, scanner{data: b}
	sa.peek()
	sb.peek()
	return lacks(sa.skip(), sb.skip())
}

func lacks(a, b []byte) (string, bool) {
	if bytes.Equal(a, b) || empty(a) && empty(b) {
		return "", false
	}
	if kind(a) != kind(b) {
		return "", true
	}
	switch kind(a) {
	case '{':
		return missingMember(a, b)
	case '[':
		return missingElement(a, b)
	case '"':
		return "", unquote(a) != unquote(b)
	case '0':
		fa, errA := strconv.ParseFloat(string(a), 64)
		fb, errB := strconv.ParseFloat(string(b), 64)
		return "", errA != nil || errB != nil || fa != fb
	}
	return "", true
}

// kind returns the first byte of a value, one for all numbers.
func kind(v []byte) byte {
	if b := v[0]; b != '-' && (b < '0' || b > '9') {
		return b
	}
	return '0'
}

// empty reports whether a value says nothing, so that a type with omitempty
// may leave it out.
func empty(v []byte) bool {
	switch kind(v) {
	case 'n', 'f':
		return true
	case '0':
		f, err := strconv.ParseFloat(string(v), 64)
		return err == nil && f == 0
	case '"':
		return len(v) == 2
	}
	s := scanner{data: v, pos: 1}
	c := s.peek()
	return c == ']' || c == '}'
}

func missingMember(a, b []byte) (path string, missing bool) {
	theirs := membersOf(b)
	for i, m := range members(a) {
		other, ok := theirs.find(m.Name, i)
		if !ok && empty(m.Value) {
			continue
		}
		if !ok {
			return m.Name, true
		}
		if sub, missing := lacks(m.Value, other); missing {
			return join(m.Name, sub), true
		}
	}
	return "", false
}

// An index finds members by name. Most objects come back in the order that
// they went out in, so the map is made only when one does not.
type index struct {
	list   []Member
	byName map[string]json.RawMessage
}

func membersOf(object []byte) *index { return &index{list: members(object)} }

// find looks for a member, first in the place where it is likely to stand.
func (x *index) find(name string, likely int) (json.RawMessage, bool) {
	if likely < len(x.list) && x.list[likely].Name == name {
		return x.list[likely].Value, true
	}
	if x.byName == nil {
		x.byName = make(map[string]json.RawMessage, len(x.list))
		for _, m := range x.list {
			x.byName[m.Name] = m.Value
		}
	}
	v, ok := x.byName[name]
	return v, ok
}

func members(object []byte) []Member {
	s := scanner{data: object}
	var out []Member
	_ = s.members(func(name string) error {
		out = append(out, Member{name, s.skip()})
		return nil
	})
	return out
}

func missingElement(a, b []byte) (path string, missing bool) {
	sa, sb := scanner{data: a}, scanner{data: b, pos: 1}
	i := 0
	_ = sa.elements(func() error {
		va := sa.skip()
		if missing || sb.peek() == ']' {
			path, missing = orIndex(path, i), true
			return nil
		}
		if sub, lost := lacks(va, sb.skip()); lost {
			path, missing = join(fmt.Sprintf("[%d]", i), sub), true
		}
		i++
		return nil
	})
	if !missing && sb.peek() != ']' {
		return fmt.Sprintf("[%d]", i), true
	}
	return path, missing
}

func orIndex(path string, i int) string {
	if path != "" {
		return path
	}
	return fmt.Sprintf("[%d]", i)
}

func join(name, sub string) string {
	switch {
	case sub == "":
		return name
	case sub[0] == '[':
		return name + sub
	}
	return name + "." + sub
}
