package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/headgate-mcp/headgate/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var errs []error
	for _, b := range bench.Bands() {
		ratio, err := b.Hold(ctx, bench.Plan{Rounds: 21, Turn: 20 * time.Millisecond})
		errs = append(errs, err)
		fmt.Printf("%-60s %.2f× (%.2f×)\n", b.Name, ratio, b.Usual)
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
