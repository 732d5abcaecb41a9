package middleware

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// Log returns an observer that writes down what no caller is told and no
// answer shows: interceptors that failed, open or in audit, and what audit
// would have denied. Plain passes, changes and active denials are not logged;
// messages that were stopped are, by Options.Logger. Texts that validators
// give with their verdicts may quote a message and are not logged.
//
// What happens again and again is written ten times in ten seconds, for each
// interceptor, phase, mode and reason; the next line says how many were left
// out. Metrics have them all.
func Log(logger *slog.Logger) chain.Observer {
	return &logObserver{logger: logger, kinds: map[logKind]*logBudget{}}
}

type logObserver struct {
	chain.NopObserver
	logger *slog.Logger

	mu    sync.Mutex
	kinds map[logKind]*logBudget // as many as there are interceptors, times a few
}

// A logKind is what is the same line but for the message.
type logKind struct {
	host, name string
	phase      core.Phase
	mode       core.Mode
	verdict    chain.Verdict
	reason     chain.Reason
}

// A logBudget is what may be written of a kind.
type logBudget struct {
	began   time.Time
	lines   int
	leftOut uint64
}

const (
	logLines  = 10
	logWindow = 10 * time.Second
)

// take says whether a line may be written, and how many were not before it.
func (l *logObserver) take(kind logKind, now time.Time) (leftOut uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.kinds[kind]
	if b == nil {
		b = &logBudget{began: now}
		l.kinds[kind] = b
	}
	if now.Sub(b.began) >= logWindow {
		b.began, b.lines = now, 0
	}
	if b.lines == logLines {
		b.leftOut++
		return 0, false
	}
	b.lines++
	leftOut, b.leftOut = b.leftOut, 0
	return leftOut, true
}

// InvokeEnd logs failures, and denials in audit.
func (l *logObserver) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
	level, text := slog.LevelWarn, "interceptor failed"
	switch {
	case out.Mode == core.ModeAudit && out.Verdict == chain.VerdictDeny:
		level, text = slog.LevelInfo, "audit would have denied"
	case out.Err == nil || out.Verdict == chain.VerdictSkipped && out.Action == chain.ActionProceed:
		return
	}
	if !l.logger.Enabled(ctx, level) {
		return
	}
	leftOut, ok := l.take(logKind{i.Entry.Host, i.Entry.Name, out.Phase, out.Mode, out.Verdict, out.Reason}, time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("interceptor", i.Entry.Name), slog.String("host", i.Entry.Host), slog.String("event", i.Event),
		slog.String("phase", string(out.Phase)), slog.String("mode", string(out.Mode)), slog.String("verdict", string(out.Verdict)),
		slog.String("action", string(out.Action)), slog.String("reason", string(out.Reason)),
		slog.Duration("duration", out.Duration), slog.String("message_id", i.MessageID),
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Uint64("left_out", leftOut))
	}
	if out.Err != nil {
		attrs = append(append(attrs, slog.Any("err", out.Err)), stackOf(out.Err)...)
	}
	l.logger.LogAttrs(ctx, level, text, attrs...)
}

// stackOf returns the stack of a panic that err came of.
func stackOf(err error) []slog.Attr {
	var panicked *chain.PanicError
	if errors.As(err, &panicked) {
		return []slog.Attr{slog.String("stack", string(panicked.Stack))}
	}
	return nil
}
