package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A target is a server under load and its clients.
type target struct {
	web      *http.Server
	sessions []*mcp.ClientSession
	client   *http.Transport
	turns    []samples
}

// samples are what one turn of a server has shown.
type samples struct {
	latencies []time.Duration
	failed    int
	took      time.Duration
}

// newTarget serves web and connects the clients. Each has a connection of its
// own to keep.
func (f *benchFlags) newTarget(ctx context.Context, web *http.Server) (*target, error) {
	url, err := listen(ctx, web)
	if err != nil {
		return nil, err
	}
	t := &target{web: web, client: &http.Transport{MaxIdleConns: f.Clients, MaxIdleConnsPerHost: f.Clients}}
	for range f.Clients {
		client := mcp.NewClient(&mcp.Implementation{Name: "headgate-bench", Version: "0.1.0"}, nil)
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: url, HTTPClient: &http.Client{Transport: t.client},
		}, nil)
		if err != nil {
			t.close()
			return nil, err
		}
		t.sessions = append(t.sessions, session)
	}
	return t, nil
}

func (t *target) close() {
	for _, s := range t.sessions {
		_ = s.Close()
	}
	t.client.CloseIdleConnections()
	_ = t.web.Close()
}

// load has all clients send for a while. Client i of n sends the requests i,
// i+n, i+2n and so on of a schedule that knows nothing of answers; where there
// is no rate, each sends as soon as it has its answer.
func (t *target) load(ctx context.Context, rate float64, length time.Duration, text string) samples {
	parts := make([]samples, len(t.sessions))
	start := time.Now()
	var all sync.WaitGroup
	for i, session := range t.sessions {
		all.Go(func() {
			p := pace{start: start, end: start.Add(length), next: i, step: len(t.sessions), rate: rate}
			parts[i] = p.drive(ctx, echoes(session, text))
		})
	}
	all.Wait()
	out := samples{took: time.Since(start)}
	for _, p := range parts {
		out.latencies = append(out.latencies, p.latencies...)
		out.failed += p.failed
	}
	return out
}

var errOtherAnswer = errors.New("not the text that was sent")

// echoes returns one request: a call of the demo's echo. What it does not
// echo counts as failed.
func echoes(session *mcp.ClientSession, text string) func(context.Context) error {
	params := &mcp.CallToolParams{Name: toolEcho, Arguments: map[string]any{"text": text}}
	return func(ctx context.Context) error {
		res, err := session.CallTool(ctx, params)
		switch {
		case err != nil:
			return err
		case res.IsError || len(res.Content) == 0:
			return errOtherAnswer
		}
		if c, ok := res.Content[0].(*mcp.TextContent); !ok || c.Text != text {
			return fmt.Errorf("%w: %d bytes", errOtherAnswer, len(text))
		}
		return nil
	}
}

// A pace says when one client sends its requests.
type pace struct {
	start, end time.Time
	next, step int     // places in the schedule
	rate       float64 // of the schedule; 0 for none
}

// drive sends one request after another and returns how long each took from when
// it should have been sent. One that should have been sent before the end, and
// had to wait for the one before it, is still sent: leaving it out is how slow
// servers come by good figures.
func (p *pace) drive(ctx context.Context, send func(context.Context) error) (s samples) {
	for {
		due := p.due()
		if !due.Before(p.end) || !sleepUntil(ctx, due) {
			return s
		}
		if err := send(ctx); err != nil {
			s.failed++
			continue
		}
		s.latencies = append(s.latencies, time.Since(due))
	}
}

// due returns when the next request should be sent.
func (p *pace) due() time.Time {
	if p.rate == 0 {
		return time.Now()
	}
	at := p.start.Add(time.Duration(float64(p.next) / p.rate * float64(time.Second)))
	p.next += p.step
	return at
}

// sleepUntil reports false if ctx ended first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
