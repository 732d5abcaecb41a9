package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/core"
)

// Times of a stream.
const (
	heartbeat    = 15 * time.Second
	writeTimeout = 10 * time.Second // of one write; the stream itself has no end
	retryMillis  = 2000
)

// getEvents streams events (the HTML standard's text/event-stream). Ids are the
// history's, so that a client that comes back misses nothing that is kept.
func (p *Plane) getEvents(w http.ResponseWriter, c *call) error {
	q, err := c.query("types", "interceptor")
	if err != nil {
		return err
	}
	types := strings.FieldsFunc(q.Get("types"), func(r rune) bool { return r == ',' })
	wants := func(e *event) bool {
		if name := q.Get("interceptor"); name != "" && e.Interceptor != "" && e.Interceptor != name {
			return false
		}
		if len(types) == 0 {
			return e.Type != eventDecision
		}
		return slices.Contains(types, e.Type)
	}
	var last uint64
	if id := c.Header.Get("Last-Event-ID"); id != "" {
		if last, err = strconv.ParseUint(id, 10, 64); err != nil {
			return newProblem("malformed", "Last-Event-ID is not a sequence number")
		}
	}
	l, err := p.hub.listen(c.who.Name, wants)
	if err != nil {
		bad := newProblem("too-many", "too many listen already: 64, or 16 of one actor")
		bad.retryAfter = 10
		return bad
	}
	defer p.hub.leave(l)
	if slices.Contains(types, eventDecision) {
		p.listening.Add(1)
		defer p.listening.Add(-1)
	}
	s := &stream{w: w, control: http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{}) // nothing more is read, and the server's would end the stream
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if s.write(fmt.Sprintf("retry: %d\n\n", retryMillis)) != nil {
		return nil
	}
	if last > 0 {
		if last, err = p.resume(s, last, wants); err != nil {
			return nil
		}
	}
	p.stream(s, l, c, last)
	return nil
}

// A stream is one answer that goes on.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// write writes a piece under a deadline of its own, and sends it off.
func (s *stream) write(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers have one
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *stream) event(e *event) error {
	id := ""
	if e.Seq > 0 {
		id = fmt.Sprintf("id: %d\n", e.Seq)
	}
	return s.write(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, e.Type, e.Data))
}

// resume sends what the client has missed, and returns the last that it has now.
func (p *Plane) resume(s *stream, last uint64, wants func(*event) bool) (uint64, error) {
	head := p.history.Head().Seq
	records, lost := p.history.Since(last)
	if last > head { // from before a restart that forgot: what is new counts from here
		last, lost = head, true
	}
	if lost {
		if err := s.event(&event{Type: eventReset, Data: []byte(`{"state":"state"}`)}); err != nil {
			return last, err
		}
	}
	for i := range records {
		r := &records[i]
		last = r.Seq
		raw, err := core.Encode(r)
		if err != nil || r.Outcome == history.Rejected {
			continue
		}
		for _, e := range eventsOf(r, raw) {
			if !wants(&e) {
				continue
			}
			if err := s.event(&e); err != nil {
				return last, err
			}
		}
	}
	return last, nil
}

// stream sends events until the client goes, is too slow, may not listen any
// more, or the plane ends.
func (p *Plane) stream(s *stream, l *listener, c *call, last uint64) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case e := <-l.queue:
			if e.Seq == 0 || e.Seq > last { // or it was sent when the stream was resumed
				err = s.event(&e)
			}
		case <-l.overflow:
			if p.life.Err() != nil {
				return // the plane ends, and nobody was too slow
			}
			_ = s.event(&event{Type: eventOverflow, Data: []byte(`{}`)})
			return
		case <-beat.C:
			if who, authErr := p.authenticate(c.Request); authErr != nil || !who.Role.Includes(RoleRead) {
				return // the token was taken away, or has expired
			}
			err = s.write(": beat\n\n")
		case <-c.Context().Done():
			return
		case <-p.life.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
