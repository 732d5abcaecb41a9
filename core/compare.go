package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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
	if !Valid(a) || !Valid(b) {
		return "", true
	}
	sa, sb := scanner{data: a}, scanner{data: b}
	sa.peek()
	sb.peek()
	return lacks(&sa, &sb)
}

// lacks compares the values that begin here and moves behind both, unless it
// finds a difference. It walks over both at once, so that its time is that of
// one pass wherever keys come in the same order.
func lacks(a, b *scanner) (string, bool) {
	ka, kb := kind(a.data[a.pos]), kind(b.data[b.pos])
	switch {
	case ka == kb && ka == '{':
		return missingMember(a, b)
	case ka == kb && ka == '[':
		return missingElement(a, b)
	}
	va, vb := a.skip(), b.skip()
	switch {
	case bytes.Equal(va, vb) || empty(va) && empty(vb):
		return "", false
	case ka != kb:
		return "", true
	case ka == '"':
		return "", unquote(va) != unquote(vb)
	case ka == '0':
		return "", !sameNumber(va, vb)
	}
	return "", true
}

// kind returns the first byte of a value, one for all numbers.
func kind(b byte) byte {
	if b != '-' && (b < '0' || b > '9') {
		return b
	}
	return '0'
}

// empty reports whether a value says nothing, so that a type with omitempty
// may leave it out.
func empty(v []byte) bool {
	switch kind(v[0]) {
	case 'n', 'f':
		return true
	case '0':
		digits, _ := decimal(v)
		return digits == ""
	case '"':
		return len(v) == 2
	case '{', '[':
		s := scanner{data: v, pos: 1}
		c := s.peek()
		return c == ']' || c == '}'
	}
	return false
}

// sameNumber reports whether two numbers have the same value, however they
// are spelled and however large they are.
func sameNumber(a, b []byte) bool {
	da, ea := decimal(a)
	db, eb := decimal(b)
	return da == db && (ea == eb || da == "") && (da == "" || (a[0] == '-') == (b[0] == '-'))
}

// decimal returns a number's digits without zeros at either end, and the power
// of ten that the first digit stands behind the point of. Zero has no digits.
func decimal(v []byte) (digits string, exponent int64) {
	s := strings.TrimPrefix(string(v), "-")
	mantissa, power, _ := strings.Cut(strings.ToLower(s), "e")
	if power != "" {
		var err error
		if exponent, err = strconv.ParseInt(power, 10, 64); err != nil {
			return string(v), 0 // beyond all bounds: only its own spelling is its equal
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent += int64(len(whole))
	digits = whole + fraction
	trimmed := strings.TrimLeft(digits, "0")
	exponent -= int64(len(digits) - len(trimmed))
	return strings.TrimRight(trimmed, "0"), exponent
}

// missingMember compares two objects. As long as their keys come in the same
// order it walks over both; from the first key that does not on, it looks the
// rest up.
func missingMember(a, b *scanner) (string, bool) {
	start := b.pos
	a.pos++
	b.pos++
	for a.peek() != '}' {
		name := unquote(a.str())
		a.peek()
		if other, ok := b.nextName(); !ok || other != name {
			return a.lookUp(name, b, start)
		}
		if sub, missing := lacks(a, b); missing {
			return join(name, sub), true
		}
	}
	a.pos++
	for _, more := b.nextName(); more; _, more = b.nextName() {
		b.skip()
	}
	b.pos++
	return "", false
}

// nextName consumes the name of the next member, if there is one.
func (s *scanner) nextName() (string, bool) {
	if s.peek() == '}' {
		return "", false
	}
	name := unquote(s.str())
	s.peek()
	return name, true
}

// lookUp compares the member called name, whose value begins here, and all
// members behind it with those of the object that begins at start of b.
func (s *scanner) lookUp(name string, b *scanner, start int) (string, bool) {
	b.pos = start
	theirs := make(map[string]json.RawMessage)
	_ = b.members(func(name string) error {
		theirs[name] = b.skip()
		return nil
	})
	for {
		value := s.skip()
		other, ok := theirs[name]
		if !ok && !empty(value) {
			return name, true
		}
		if ok {
			va, vb := scanner{data: value}, scanner{data: other}
			if sub, missing := lacks(&va, &vb); missing {
				return join(name, sub), true
			}
		}
		if name, ok = s.nextName(); !ok {
			s.pos++
			return "", false
		}
	}
}

func missingElement(a, b *scanner) (string, bool) {
	a.pos++
	b.pos++
	for i := 0; ; i++ {
		enda, endb := a.peek() == ']', b.peek() == ']'
		switch {
		case enda && endb:
			a.pos++
			b.pos++
			return "", false
		case enda || endb:
			return fmt.Sprintf("[%d]", i), true
		}
		if sub, missing := lacks(a, b); missing {
			return join(fmt.Sprintf("[%d]", i), sub), true
		}
	}
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
