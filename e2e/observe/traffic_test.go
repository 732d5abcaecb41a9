//go:build e2e

package observe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// A request is one thing that the client does. What comes of it stands in the
// ledger.
type request func(ctx context.Context, s *mcp.ClientSession)

func call(tool string, args map[string]any) request {
	return func(ctx context.Context, s *mcp.ClientSession) {
		_, _ = s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	}
}

func read(uri string) request {
	return func(ctx context.Context, s *mcp.ClientSession) {
		_, _ = s.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	}
}

// mix returns requests of all kinds in the order of the seed.
func mix(seed uint64) []request {
	var all []request
	add := func(n int, r request) {
		for range n {
			all = append(all, r)
		}
	}
	add(12, call("echo", map[string]any{"text": "hello"}))
	add(8, call("get_customer", map[string]any{"id": "42"}))                       // redacted
	add(7, call("delete_records", map[string]any{"table": "orders"}))              // blocked
	add(6, call("delete_records", map[string]any{"table": "t", "where": "a = 1"})) // allowed
	add(5, call("echo", map[string]any{"text": bait}))                             // suspect both ways
	add(3, call("delete_records", map[string]any{"table": bait, "where": " "}))    // suspect, and blocked
	add(4, call("slow", map[string]any{"ms": -1}))                                 // fails
	add(5, call("slow", map[string]any{"ms": 20}))
	add(3, call("no_such_tool", nil))
	add(3, read("customer://7")) // redacted
	add(2, read("nobody://7"))   // not found
	add(2, func(ctx context.Context, s *mcp.ClientSession) { _, _ = s.ListTools(ctx, nil) })
	add(2, func(ctx context.Context, s *mcp.ClientSession) {
		_, _ = s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "summarize", Arguments: map[string]string{"text": "x"}})
	})
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// What mix must bring about, if the demo guards its tools at all.
const (
	mixBlocked = 7 + 3
	mixLured   = 5 + 3
	mixFailed  = 4
)

// connect opens a session that the ledger watches.
func connect(t *testing.T, url string, l *ledger) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "headgate-e2e", Version: "0"}, nil)
	client.AddSendingMiddleware(l.watch)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// drive sends the requests, a few at a time, and waits for all answers.
func drive(t *testing.T, s *mcp.ClientSession, requests []request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := make(chan request)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for r := range next {
				r(ctx, s)
			}
		})
	}
	for _, r := range requests {
		next <- r
	}
	close(next)
	workers.Wait()
}

// A traced is a call in a trace that the client began.
type traced struct{ trace, span string }

// callTraced makes a call as a client does that traces what it does.
func callTraced(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) traced {
	t.Helper()
	tr := traced{fmt.Sprintf("%016x%016x", rand.Uint64()|1<<63, rand.Uint64()), fmt.Sprintf("%016x", rand.Uint64()|1<<63)}
	_, _ = s.CallTool(t.Context(), &mcp.CallToolParams{
		Meta: mcp.Meta{"traceparent": "00-" + tr.trace + "-" + tr.span + "-01"}, Name: tool, Arguments: args,
	})
	return tr
}
