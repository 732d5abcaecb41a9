package middleware

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxScratch keeps one huge message from pinning its buffer for ever.
const maxScratch = 1 << 20

// A scratch is what encoders write to. It is used over and over: what leaves
// an encoder is always a copy.
type scratch struct {
	appender
	buf bytes.Buffer // of encoding/json
}

// scratches is a pool of scratch. Its zero value is ready to use.
type scratches struct{ pool sync.Pool }

func (p *scratches) get() *scratch {
	s, ok := p.pool.Get().(*scratch)
	if !ok {
		s = new(scratch)
	}
	s.appender = appender{buf: s.appender.buf[:0]}
	s.buf.Reset()
	return s
}

func (p *scratches) put(s *scratch) {
	if checkScratch {
		s.poison()
	}
	if s.buf.Cap() <= maxScratch && cap(s.appender.buf) <= maxScratch {
		p.pool.Put(s)
	}
}

// poison writes over all that is going to be used again, so that tests see who
// still reads it.
func (s *scratch) poison() {
	for _, b := range [][]byte{s.appender.buf[:cap(s.appender.buf)], s.buf.AvailableBuffer()} {
		b = b[:cap(b)]
		for i := range b {
			b[i] = poison
		}
	}
	used := s.buf.Bytes()
	for i := range used {
		used[i] = poison
	}
}

const poison = '!'

// parsed says where raw JSON in a value comes from.
type parsed bool

const (
	bySomebody parsed = false // it is checked
	bySDK      parsed = true  // the SDK has just read it from a message, and so it is JSON
)

// encode writes params or a result as the SDK would, in bytes that nobody else
// has. Raw parts are free of space between tokens and, but for those that the
// SDK has read itself, checked to be JSON.
func (g *gate) encode(v any, from parsed) (out json.RawMessage, err error) {
	if isNil(v) {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil { // a type's own encoder
			out, err = nil, fmt.Errorf("middleware: encode %T: panic: %v", v, p)
		}
	}()
	s := g.scratch.get()
	out, ok := s.quick(v, from, &g.shapes)
	if !ok {
		err = core.EncodeTo(&s.buf, v)
		out = bytes.Clone(s.buf.Bytes())
	}
	g.scratch.put(s)
	if err != nil {
		return nil, fmt.Errorf("middleware: encode %T: %w", v, err)
	}
	return out, nil
}

// quick writes the types of the messages that there are most of. It reports
// false for what it leaves to encoding/json.
func (s *scratch) quick(v any, from parsed, known *shapes) (json.RawMessage, bool) {
	switch v := v.(type) {
	case *mcp.CallToolParamsRaw:
		return s.callParams(v, from, known)
	case *mcp.CallToolResult:
		return s.callResult(v, known)
	}
	return nil, false
}

// callParams writes the params of tools/call. Arguments are copied once, into
// the very bytes that interceptors get.
func (s *scratch) callParams(p *mcp.CallToolParamsRaw, from parsed, known *shapes) (json.RawMessage, bool) {
	if !known.callParams || len(p.InputResponses) > 0 || len(p.Arguments) > 0 && !asItIs(p.Arguments, from) {
		return nil, false
	}
	s.raw("{")
	s.meta(p.Meta)
	s.member("name")
	s.str(p.Name)
	if len(p.Arguments) > 0 {
		s.member("arguments")
	}
	head := len(s.appender.buf)
	s.text("requestState", p.RequestState)
	s.raw("}")
	return s.around(head, p.Arguments)
}

// callResult writes the result of tools/call where its content is text or
// images. Its own encoder escapes for HTML.
func (s *scratch) callResult(r *mcp.CallToolResult, known *shapes) (json.RawMessage, bool) {
	structured, isRaw := r.StructuredContent.(json.RawMessage)
	if known.resultType < 0 || r.InputRequests != nil || r.StructuredContent != nil && !isRaw ||
		isRaw && (!asItIs(structured, bySomebody) || escapes(structured)) {
		return nil, false
	}
	s.html = true
	s.raw("{")
	s.meta(r.Meta)
	s.content(r.Content)
	if isRaw {
		s.member("structuredContent")
	}
	head := len(s.appender.buf)
	if r.IsError {
		s.member("isError")
		s.raw("true")
	}
	s.text("requestState", r.RequestState)
	s.text("resultType", reflect.ValueOf(r).Elem().Field(known.resultType).String())
	s.raw("}")
	return s.around(head, structured)
}

// around returns a copy of the scratch with a raw part put in at a place.
func (s *scratch) around(at int, part json.RawMessage) (json.RawMessage, bool) {
	if s.failed {
		return nil, false
	}
	parts := [...][]byte{s.appender.buf[:at], part, s.appender.buf[at:]}
	return bytes.Join(parts[:], nil), true
}

func (s *scratch) meta(meta mcp.Meta) {
	if len(meta) > 0 {
		s.member("_meta")
		s.object(meta, 0)
	}
}

func (s *scratch) content(list []mcp.Content) {
	s.member("content")
	if list == nil {
		s.appender.raw("null")
		return
	}
	s.appender.raw("[")
	for i, c := range list {
		if i > 0 {
			s.appender.raw(",")
		}
		s.block(c)
	}
	s.appender.raw("]")
}

func (s *scratch) block(c mcp.Content) {
	switch c := c.(type) {
	case *mcp.TextContent:
		if c == nil || c.Annotations != nil {
			break
		}
		s.appender.raw(`{"type":"text","text":`)
		s.str(c.Text)
		s.meta(c.Meta)
		s.appender.raw("}")
		return
	case *mcp.ImageContent:
		if c == nil || c.Annotations != nil {
			break
		}
		s.appender.raw(`{"type":"image","mimeType":`)
		s.str(c.MIMEType)
		s.member("data")
		s.base64(c.Data)
		s.meta(c.Meta)
		s.appender.raw("}")
		return
	}
	s.failed = true
}

// asItIs reports whether a raw part is what encoding/json would make of it.
func asItIs(raw json.RawMessage, from parsed) bool {
	if from == bySDK {
		return !core.Spaced(raw)
	}
	return core.Tight(raw)
}

// escapes reports whether escaping for HTML changes JSON.
func escapes(raw []byte) bool {
	for _, b := range [...]byte{'<', '>', '&'} {
		if bytes.IndexByte(raw, b) >= 0 {
			return true
		}
	}
	return bytes.Contains(raw, []byte("\u2028")) || bytes.Contains(raw, []byte("\u2029"))
}

// shapes says which types of the SDK are the ones that this package can write:
// one that has since got another field is left to encoding/json.
type shapes struct {
	callParams bool
	resultType int // the field of a tool's result; negative if it cannot be written
}

func newShapes() shapes {
	known := shapes{resultType: -1}
	known.callParams = sameFields[mcp.CallToolParamsRaw]("Meta", "Name", "Arguments", "InputResponses", "RequestState")
	if sameFields[mcp.CallToolResult]("Meta", "Content", "StructuredContent", "IsError", "InputRequests", "RequestState", "resultType", "err") &&
		sameFields[mcp.TextContent]("Text", "Meta", "Annotations") && sameFields[mcp.ImageContent]("Meta", "Annotations", "Data", "MIMEType") {
		f, _ := reflect.TypeFor[mcp.CallToolResult]().FieldByName("resultType")
		known.resultType = f.Index[0]
	}
	return known
}

func sameFields[T any](names ...string) bool {
	t := reflect.TypeFor[T]()
	if t.NumField() != len(names) {
		return false
	}
	for i, name := range names {
		if t.Field(i).Name != name {
			return false
		}
	}
	return true
}
