package main

import (
	"log/slog"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/chain/breaker"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// protect puts the demo's interceptors in front of a server. It is all that a
// server's author writes besides the interceptors. Close the chain in the end.
func protect(server *mcp.Server, logger *slog.Logger, tel, watch chain.Observer) (*chain.Chain, error) {
	// The registry of the interceptors that live in this process.
	ext := mcpext.New(&mcpext.Options{Logger: logger})
	err := ext.AddInterceptor(blockDestructive(), redactPII(), stampResponse(time.Now), injectionScan())
	if err != nil {
		return nil, err
	}
	// Expose them: clients may list them and invoke them by hand.
	if err := ext.Install(server); err != nil {
		return nil, err
	}
	// Run them: a chain decides what their answers mean for a message, telemetry
	// makes spans and metrics of it, and what keeps failing is left alone a while.
	ch, err := ext.Chain(&chain.Options{Observer: tel, Gate: breaker.New(&breaker.Options{Logger: logger})})
	if err != nil {
		return nil, err
	}
	ch.AddObserver(middleware.Log(logger)) // what failed and was let pass, or failed in audit
	ch.AddObserver(watch)
	ch.AddObserver(trailKeeper{}) // stamp-response reads what this one keeps
	// Last, so that no other middleware changes what interceptors have seen.
	middleware.Server(server, ch, &middleware.Options{Logger: logger, Tools: demoTools(), Prompts: []string{promptSummarize}})
	return ch, nil
}
