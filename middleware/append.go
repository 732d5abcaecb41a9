package middleware

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// An appender writes JSON as encoding/json does, for the few types that
// messages are made of. Where it meets anything else it gives up, and the whole
// value is left to encoding/json: so nothing here has to know all of it.
type appender struct {
	buf  []byte
	html bool // < > and & are escaped, as they are in results
	// failed says that it has given up; what is in buf then means nothing.
	failed bool
}

func (a *appender) raw(s string) { a.buf = append(a.buf, s...) }

// member writes the name of a member; the first of an object has no comma
// before it.
func (a *appender) member(name string) {
	if last := a.buf[len(a.buf)-1]; last != '{' {
		a.buf = append(a.buf, ',')
	}
	a.buf = append(append(append(a.buf, '"'), name...), '"', ':')
}

// text writes the member unless it is empty.
func (a *appender) text(name, value string) {
	if value != "" {
		a.member(name)
		a.str(value)
	}
}

func (a *appender) str(s string) {
	b := append(a.buf, '"')
	start := 0
	for i := 0; i < len(s); {
		if a.plain(s[i]) {
			i++
			continue
		}
		size := 1
		b = append(b, s[start:i]...)
		if s[i] < utf8.RuneSelf {
			b = appendEscape(b, s[i])
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			b = appendRune(b, s[i:i+size], r)
		}
		i += size
		start = i
	}
	a.buf = append(append(b, s[start:]...), '"')
}

// plain reports whether a byte stands for itself.
func (a *appender) plain(b byte) bool {
	if b < ' ' || b == '"' || b == '\\' || b >= utf8.RuneSelf {
		return false
	}
	return !a.html || b != '<' && b != '>' && b != '&'
}

func appendEscape(dst []byte, b byte) []byte {
	switch b {
	case '\\', '"':
		return append(dst, '\\', b)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
}

// appendRune writes a rune that is not ASCII: what is no UTF-8 becomes U+FFFD,
// and the two separators of lines are always escaped.
func appendRune(dst []byte, own string, r rune) []byte {
	switch {
	case r == utf8.RuneError && len(own) == 1:
		return append(dst, `\ufffd`...)
	case r == '\u2028':
		return append(dst, `\u2028`...)
	case r == '\u2029':
		return append(dst, `\u2029`...)
	}
	return append(dst, own...)
}

// maxAppend is how deep values may nest; deeper ones are left to encoding/json,
// which knows cycles.
const maxAppend = 32

// object writes a map with its keys sorted.
func (a *appender) object(m map[string]any, depth int) {
	if depth == maxAppend {
		a.failed = true
	}
	if a.failed {
		return
	}
	var room [16]string // most are not larger
	keys := room[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	a.buf = append(a.buf, '{')
	for i, k := range keys {
		if i > 0 {
			a.buf = append(a.buf, ',')
		}
		a.str(k)
		a.buf = append(a.buf, ':')
		a.value(m[k], depth+1)
	}
	a.buf = append(a.buf, '}')
}

func (a *appender) value(v any, depth int) {
	switch v := v.(type) {
	case nil:
		a.raw("null")
	case string:
		a.str(v)
	case bool:
		a.buf = strconv.AppendBool(a.buf, v)
	case float64:
		a.number(v)
	case int:
		a.buf = strconv.AppendInt(a.buf, int64(v), 10)
	case map[string]any:
		if v == nil {
			a.raw("null")
			return
		}
		a.object(v, depth)
	case []any:
		a.array(v, depth)
	default:
		a.failed = true
	}
}

func (a *appender) array(list []any, depth int) {
	if list == nil {
		a.raw("null")
		return
	}
	if depth == maxAppend {
		a.failed = true
	}
	if a.failed {
		return
	}
	a.buf = append(a.buf, '[')
	for i, v := range list {
		if i > 0 {
			a.buf = append(a.buf, ',')
		}
		a.value(v, depth+1)
	}
	a.buf = append(a.buf, ']')
}

// number writes a float in the form of ECMAScript.
func (a *appender) number(f float64) {
	abs := math.Abs(f)
	if math.IsNaN(f) || math.IsInf(f, 0) || abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		a.failed = true // an error, or an exponent
		return
	}
	a.buf = strconv.AppendFloat(a.buf, f, 'f', -1, 64)
}

func (a *appender) base64(data []byte) {
	a.buf = append(a.buf, '"')
	a.buf = base64.StdEncoding.AppendEncode(a.buf, data)
	a.buf = append(a.buf, '"')
}
