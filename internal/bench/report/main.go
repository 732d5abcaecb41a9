package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/headgate-mcp/headgate/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rounds := flag.Int("rounds", 15, "turns of each contender")
	turn := flag.Duration("turn", 10*time.Millisecond, "how long a turn lasts")
	only := flag.String("run", "", "`regexp` of the cases to measure")
	figures := flag.Bool("figures", false, "print what each contender costs as well")
	pictures := flag.String("pictures", "", "draw pictures into a `folder` instead")
	flag.Parse()
	if *pictures != "" {
		if err := bench.Draw(ctx, bench.Plan{Rounds: *rounds, Turn: *turn}, *pictures); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
		return
	}
	if err := report(ctx, bench.Plan{Rounds: *rounds, Turn: *turn}, *only, *figures); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(ctx context.Context, plan bench.Plan, only string, figures bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var all []bench.Line
	for _, c := range bench.Cases() {
		if !pattern.MatchString(c.Name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring:", c.Name)
		lines, costs := c.Run(ctx, plan)
		all = append(all, lines...)
		for _, f := range costs {
			if figures {
				fmt.Printf("%-40s %12v %8.1f allocs %12.0f B\n", f.Name, f.Time, f.Allocs, f.Bytes)
			}
		}
	}
	if err := bench.WriteTable(os.Stdout, all); err != nil {
		return err
	}
	return ctx.Err()
}
