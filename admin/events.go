package admin

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/headgate-mcp/headgate/admin/history"
)

// An event is something that happened on the plane, for whoever listens.
type event struct {
	// Seq is the history's; 0 for events that are not in it.
	Seq         uint64
	Type        string
	Interceptor string
	Data        json.RawMessage
}

// The types of events.
const (
	eventChange   = "change"            // a record of the history
	eventExpiring = "override.expiring" // an override ends soon
	eventExpired  = "override.expired"  // an override has ended
	eventDecision = "decision"          // something was decided on a message; only where asked for
	eventBreaker  = "breaker"           // a circuit has changed
	eventHost     = "host"              // a host was lost, or is back
	eventReset    = "reset"             // what was missed is kept no more
	eventOverflow = "overflow"          // the listener was too slow, and is cut off
)

const (
	maxListeners = 64
	maxOfOne     = 16 // of them that one actor may have: a loop must not take them all
	maxQueued    = 256
)

// eventsOf returns what a record of the history is told as.
func eventsOf(r *history.Record, raw json.RawMessage) []event {
	events := []event{{Seq: r.Seq, Type: eventChange, Interceptor: r.Target, Data: raw}}
	if r.Outcome == history.Expired {
		events = append(events, event{Seq: r.Seq, Type: eventExpired, Interceptor: r.Target, Data: raw})
	}
	return events
}

var errListeners = errors.New("admin: too many listeners")

// A hub hands events to listeners. It never waits for one.
type hub struct {
	mu        sync.Mutex
	listeners map[*listener]bool
	closed    bool
}

// A listener is one stream.
type listener struct {
	actor string
	wants func(*event) bool
	queue chan event
	// overflow is closed when the queue was full: the stream is to end.
	overflow chan struct{}
	lost     bool
}

func newHub() *hub { return &hub{listeners: map[*listener]bool{}} }

// listen adds a listener. It is an error if there are too many.
func (h *hub) listen(actor string, wants func(*event) bool) (*listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	same := 0
	for l := range h.listeners {
		if l.actor == actor {
			same++
		}
	}
	if h.closed || len(h.listeners) >= maxListeners || same >= maxOfOne {
		return nil, errListeners
	}
	l := &listener{actor: actor, wants: wants, queue: make(chan event, maxQueued), overflow: make(chan struct{})}
	h.listeners[l] = true
	return l, nil
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
}

// count is how many listen.
func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners)
}

// publish hands an event to all who want it.
func (h *hub) publish(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		if l.lost || !l.wants(&e) {
			continue
		}
		select {
		case l.queue <- e:
		default:
			l.lost = true
			close(l.overflow)
		}
	}
}

// close ends all streams.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		if !l.lost {
			l.lost = true
			close(l.overflow)
		}
	}
}
