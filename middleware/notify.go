package middleware

import (
	"context"
	"sync"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxNotes is how many intercepted notifications of one session may wait.
const maxNotes = 256

// noteQueues run intercepted notifications off the read path: go-sdk handles
// notifications in line, so that a slow interceptor would hold up everything
// behind them. Those of one session run one after another. A goroutine lives
// only while its session has some waiting.
type noteQueues struct {
	mu      sync.Mutex
	waiting map[mcp.Session][]note
}

// A note is a notification that waits. Its context lost its end, since the SDK
// cancels it as soon as the middleware returns.
type note struct {
	ctx     context.Context
	message *message
}

// add puts a notification into its session's queue. If that is full the
// notification is dropped and reported: nobody waits for an answer.
func (q *noteQueues) add(ctx context.Context, m *message) {
	session := m.req.GetSession()
	n := note{context.WithoutCancel(ctx), m}
	q.mu.Lock()
	list, running := q.waiting[session]
	full := len(list) >= maxNotes
	if !full {
		q.waiting[session] = append(list, n)
	}
	q.mu.Unlock()
	if full {
		m.drop(n.ctx)
		return
	}
	if !running {
		go q.drain(session)
	}
}

// drop reports a notification that is not going to be handled.
func (m *message) drop(ctx context.Context) {
	defer func() { _ = recover() }()
	m.begin(ctx)
	m.end.Outcome, m.end.Phase = chain.MessageFailed, core.PhaseRequest
	m.logger.Warn("notification dropped: queue full", "method", m.method, "message", m.info.ID)
	m.finish(nil)
}

// drain runs a session's notifications until none is left.
func (q *noteQueues) drain(session mcp.Session) {
	for {
		q.mu.Lock()
		list := q.waiting[session]
		if len(list) == 0 {
			delete(q.waiting, session)
			q.mu.Unlock()
			return
		}
		n := list[0]
		list[0] = note{}
		q.waiting[session] = list[1:]
		q.mu.Unlock()
		_, _ = n.message.run(n.ctx) // an abort drops it; the observers were told
	}
}
