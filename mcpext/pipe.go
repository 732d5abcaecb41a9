package mcpext

import (
	"context"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A pipe is one end of a transport in memory that hands messages over as they
// are. Unlike the SDK's own it has no frames, so that no message, however
// large or deep, can end the session: what cannot be decoded fails alone.
type pipe struct {
	in   <-chan jsonrpc.Message
	out  chan<- jsonrpc.Message
	tap  func(jsonrpc.Message) // is shown what this end writes; nil for nobody
	done *pipeEnd
}

// A pipeEnd is closed once for both ends.
type pipeEnd struct {
	once   sync.Once
	closed chan struct{}
}

var (
	_ mcp.Transport  = (*pipe)(nil)
	_ mcp.Connection = (*pipe)(nil)
)

// newPipes returns the two ends of a transport. The tap, if any, is shown each
// message before it is handed over.
func newPipes(tap func(jsonrpc.Message)) (client, server *pipe) {
	// Some room spares a writer the wait for the reader's turn.
	up, down := make(chan jsonrpc.Message, 16), make(chan jsonrpc.Message, 16)
	done := &pipeEnd{closed: make(chan struct{})}
	return &pipe{in: down, out: up, tap: tap, done: done}, &pipe{in: up, out: down, tap: tap, done: done}
}

// Connect returns the pipe itself.
func (p *pipe) Connect(context.Context) (mcp.Connection, error) { return p, nil }

// Read returns the next message, or io.EOF once either end is closed.
func (p *pipe) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.done.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write hands a message over.
func (p *pipe) Write(ctx context.Context, m jsonrpc.Message) error {
	if p.tap != nil {
		p.tap(m)
	}
	select {
	case p.out <- m:
		return nil
	case <-p.done.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends both ends.
func (p *pipe) Close() error {
	p.done.once.Do(func() { close(p.done.closed) })
	return nil
}

// SessionID returns the empty string: a pipe has one session.
func (p *pipe) SessionID() string { return "" }
