package middleware

import (
	"context"
	"sync"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxNotes is how many intercepted notifications of one session may wait. They
// hold what the client sent, so that it must not be many.
const maxNotes = 64

// noteQueues run intercepted notifications off the read path: go-sdk handles
// notifications in line, so that a slow interceptor would hold up everything
// behind them. Those of one session run one after another. A goroutine lives
// only while its session has some waiting. What only audits look at is not
// held up by them and stays in line, or else audit would change the order in
// which a server does things, and drop what it has no room for.
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

// busy reports whether some of the session wait, which later ones must not
// overtake: policy may have turned to audit meanwhile.
func (q *noteQueues) busy(session mcp.Session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, running := q.waiting[session]
	return running
}

// drop reports a notification that is not going to be handled.
func (m *message) drop(ctx context.Context) {
	defer func() { _ = recover() }()
	m.begin(ctx)
	m.end.Outcome, m.end.Phase = chain.MessageFailed, core.PhaseRequest
	m.logger.Warn("notification dropped", "method", m.method, "message_id", m.info.ID)
	m.finish(nil)
}

// drain runs a session's notifications until none is left. A handler that ends
// its goroutine ends this one: then another takes over.
func (q *noteQueues) drain(session mcp.Session) {
	empty := false
	defer func() {
		if !empty {
			go q.drain(session)
		}
	}()
	for {
		n, ok := q.next(session)
		if !ok {
			empty = true
			return
		}
		if n.message.chain.Snapshot().Closed() {
			n.message.drop(n.ctx) // nobody is left to judge it
			continue
		}
		_, _ = n.message.run(n.ctx) // an abort drops it; the observers were told
	}
}

func (q *noteQueues) next(session mcp.Session) (note, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.waiting[session]
	if len(list) == 0 {
		delete(q.waiting, session)
		return note{}, false
	}
	n := list[0]
	list[0] = note{}
	q.waiting[session] = list[1:]
	return n, true
}
