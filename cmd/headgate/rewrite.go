package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/headgate-mcp/headgate/core"
)

// edits say what becomes of the strings and numbers of a JSON value.
type edits struct {
	// text edits a string or key, which is the last of path.
	text func(path []string, s string) string
	// number edits the literal of a number. Nil leaves numbers alone.
	number func(literal string) string
	// keep says that what stands at the path, and all in it, stays. Nil keeps
	// nothing.
	keep func(path []string) bool
}

// rewrite applies the edits to JSON. What they do not change stays byte for
// byte, order of keys and spelling of numbers included.
func rewrite(data []byte, e *edits) (json.RawMessage, error) {
	r := newRewriter(data, e)
	if err := r.run(); err != nil {
		return nil, err
	}
	return r.out.Bytes(), nil
}

// A rewriter reads JSON token by token, so that depth costs it nothing.
type rewriter struct {
	*edits
	data  []byte
	dec   *json.Decoder
	pos   int // what of data is dealt with
	out   bytes.Buffer
	stack []level
	path  []string // the keys on the way here; "" for the elements of an array

	names map[int]map[string]int       // of each object, once a key was edited
	onKey func(object int, key string) // nil if nobody wants to know
}

// A level is an object or array that the rewriter is in.
type level struct {
	start  int
	object bool
	inside bool // behind a key, before its value
}

func newRewriter(data []byte, e *edits) *rewriter {
	r := &rewriter{edits: e, data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	return r
}

func (r *rewriter) run() error {
	for {
		token, err := r.dec.Token()
		if errors.Is(err, io.EOF) {
			r.copy(len(r.data))
			return nil
		}
		if err == nil {
			err = r.take(token)
		}
		if err != nil {
			return err
		}
	}
}

func (r *rewriter) take(token json.Token) error {
	end := int(r.dec.InputOffset())
	switch t := token.(type) {
	case json.Delim:
		r.copy(end)
		if t == ']' || t == '}' {
			r.stack, r.path = r.stack[:len(r.stack)-1], r.path[:len(r.path)-1]
			r.valueDone()
			return nil
		}
		r.stack = append(r.stack, level{start: end - 1, object: t == '{'})
		r.path = append(r.path, "")
		return nil
	case string:
		return r.takeString(t, end)
	case json.Number:
		if edited := r.editNumber(t.String()); edited != t.String() {
			r.replace(end, len(t), []byte(edited))
		}
	}
	r.copy(end)
	r.valueDone()
	return nil
}

func (r *rewriter) takeString(s string, end int) error {
	top := r.top()
	isKey := top != nil && top.object && !top.inside
	if isKey {
		top.inside = true
		r.path[len(r.path)-1] = s
		if r.onKey != nil {
			r.onKey(top.start, s)
		}
	}
	edited := s
	if r.keep == nil || !r.keep(r.path) {
		edited = r.text(r.path, s)
	}
	if edited != s {
		if isKey {
			edited = r.unique(top, edited)
		}
		literal, err := core.Encode(edited)
		if err != nil {
			return err
		}
		r.replace(end, end-r.literalStart(), literal)
	}
	r.copy(end)
	if !isKey {
		r.valueDone()
	}
	return nil
}

func (r *rewriter) editNumber(literal string) string {
	if r.number == nil || (r.keep != nil && r.keep(r.path)) {
		return literal
	}
	return r.number(literal)
}

// unique makes an edited key differ from all others of its object: a key that
// stood there twice would make the result unreadable.
func (r *rewriter) unique(l *level, name string) string {
	if r.names == nil {
		r.names = namesByObject(r.data)
	}
	counts := r.names[l.start]
	free := name
	for counts[free] > 0 {
		counts[name]++
		free = name + " " + strconv.Itoa(counts[name])
	}
	counts[free] = 1
	return free
}

// namesByObject returns the keys of each object in valid JSON, by where it
// begins, with a count of 1.
func namesByObject(data []byte) map[int]map[string]int {
	byObject := map[int]map[string]int{}
	r := newRewriter(data, &edits{text: func(_ []string, s string) string { return s }})
	r.onKey = func(object int, key string) {
		if byObject[object] == nil {
			byObject[object] = map[string]int{}
		}
		byObject[object][key] = 1
	}
	_ = r.run() // what it cannot read, the run that asks cannot either
	return byObject
}

func (r *rewriter) top() *level {
	if len(r.stack) == 0 {
		return nil
	}
	return &r.stack[len(r.stack)-1]
}

func (r *rewriter) valueDone() {
	if top := r.top(); top != nil {
		top.inside = false
	}
}

// literalStart returns where the string begins that was read last; before it
// stand white space and punctuation.
func (r *rewriter) literalStart() int {
	return r.pos + bytes.IndexByte(r.data[r.pos:], '"')
}

// replace writes instead in the place of the last size bytes before end.
func (r *rewriter) replace(end, size int, instead []byte) {
	r.copy(end - size)
	r.out.Write(instead)
	r.pos = end
}

func (r *rewriter) copy(end int) {
	r.out.Write(r.data[r.pos:end])
	r.pos = end
}
