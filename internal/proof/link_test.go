package proof_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A fault is what goes wrong between a chain and an interceptor server.
type fault string

const (
	none       fault = ""
	lost       fault = "requests get lost"
	mute       fault = "answers get lost"
	slow       fault = "answers are slow"
	late       fault = "answers come too late"
	twice      fault = "each answer comes twice"
	stranger   fault = "answers are to somebody else's request"
	wrongType  fault = "answers are of another type"
	errs       fault = "answers are errors"
	garbage    fault = "the stream is garbage"
	halfClosed fault = "the peer has closed its side"
	cut        fault = "the connection is cut"
	gone       fault = "the server is gone"
)

// linkFaults are those that a link can have.
var linkFaults = []fault{none, lost, mute, slow, late, twice, stranger, wrongType, errs, garbage, halfClosed, cut, gone}

// A link is a way to an interceptor server on which things go wrong. It lasts
// longer than the connections over it.
type link struct {
	mu    sync.Mutex
	dice  dice
	fault fault
	conns []*linkConn
}

// set has a fault hold from now on.
func (l *link) set(f fault) {
	l.mu.Lock()
	l.fault = f
	conns := l.conns
	if f == cut || f == gone {
		l.conns = nil
	}
	l.mu.Unlock()
	if f == cut || f == gone {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

func (l *link) now() fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

var errGone = errors.New("nobody there")

// over returns a transport that goes over the link.
func (l *link) over(inner mcp.Transport) mcp.Transport { return &linkTransport{link: l, inner: inner} }

type linkTransport struct {
	link  *link
	inner mcp.Transport
}

func (t *linkTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	if f := t.link.now(); f == gone || f == cut {
		return nil, errGone
	}
	conn, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &linkConn{Connection: conn, link: t.link, in: make(chan jsonrpc.Message, 1<<10)}
	go c.pump()
	t.link.mu.Lock()
	t.link.conns = append(t.link.conns, c)
	t.link.mu.Unlock()
	return c, nil
}

// A linkConn is a connection over a link, seen from the side that asks.
type linkConn struct {
	mcp.Connection
	link *link
	in   chan jsonrpc.Message // what has come; closed at the end

	again []jsonrpc.Message // to be read before others; the reader's own
	last  jsonrpc.ID
}

// pump takes in what comes at once, as a network does: whoever writes at the
// other end does not wait for a link that is slow.
func (c *linkConn) pump() {
	defer close(c.in)
	for {
		m, err := c.Connection.Read(context.Background())
		if err != nil {
			return
		}
		c.in <- m
	}
}

func (c *linkConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if c.link.now() == lost {
		return nil
	}
	return c.Connection.Write(ctx, m)
}

func (c *linkConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		if len(c.again) > 0 {
			m := c.again[0]
			c.again = c.again[1:]
			return m, nil
		}
		m, ok := <-c.in
		if !ok {
			return nil, io.EOF
		}
		switch c.link.now() {
		case mute:
			continue
		case slow:
			time.Sleep(20 * time.Millisecond)
		case late:
			time.Sleep(2 * guardTimeout)
		case garbage:
			return nil, errors.New("invalid character '<' looking for beginning of value")
		case halfClosed:
			return nil, io.EOF
		}
		c.link.mu.Lock()
		c.again = c.link.dice.tamper(c.link.fault, m, &c.last)
		c.link.mu.Unlock()
	}
}

// tamper returns what comes in the place of a message.
func (d dice) tamper(f fault, m jsonrpc.Message, last *jsonrpc.ID) []jsonrpc.Message {
	answer, ok := m.(*jsonrpc.Response)
	if !ok {
		return []jsonrpc.Message{m}
	}
	before := *last
	*last = answer.ID
	changed := *answer
	switch f {
	case twice:
		return []jsonrpc.Message{answer, &changed}
	case stranger:
		changed.ID = before // answered already, or nobody's
		if !before.IsValid() || d.chance(2) {
			changed.ID, _ = jsonrpc.MakeID("nobody's")
		}
		return []jsonrpc.Message{&changed}
	case wrongType:
		changed.Result, changed.Error = json.RawMessage(pick(d, wrongResults...)), nil
		return []jsonrpc.Message{&changed}
	case errs:
		changed.Result = nil
		changed.Error = &jsonrpc.Error{Code: pick[int64](d, 0, 1, -32601, -32602, -32603, -32000, -32001, -32005), Message: "valid: true"}
		return []jsonrpc.Message{&changed}
	}
	return []jsonrpc.Message{m}
}

// wrongResults are no answers to interceptor/invoke, nor to interceptors/list,
// however much some look like a pass.
var wrongResults = []string{
	`{}`, `null`, `[]`, `7`, `true`, `"valid"`, `{"Valid":true}`, `{"valid":"true"}`, `{"valid":null}`, `{"valid":1}`, `{"valid":[true]}`,
	`{"type":"mutation","modified":false,"payload":{}}`, `{"type":"mutation","valid":true}`, `{"type":"sink","recorded":true}`,
	`{"interceptor":"other","type":"validation","phase":"request","valid":true}`, `{"type":"validation","phase":"never","valid":true}`,
	`{"type":"validation","valid":true,"severity":"fatal"}`, `{"type":"validation","valid":true,"valid":false}`, `{"validation":{"valid":"true"}}`,
	`{"interceptors":null}`, `{"interceptors":"none"}`, `{"interceptors":[7]}`, `{"interceptors":[{"name":"guard","type":7}]}`, `{"interceptors":{}}`,
	`{"interceptors":[{"name":"guard","type":"sink"}]}`, `{"interceptors":[{"name":"guard"}],"nextCursor":7}`,
}
