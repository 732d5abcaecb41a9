package middleware

import (
	"context"
	"errors"
	"log/slog"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// Log returns an observer that writes down what no caller is told and no
// answer shows: interceptors that failed, open or in audit, and what audit
// would have denied. Plain passes, changes and active denials are not logged;
// messages that were stopped are, by Options.Logger. Texts that validators
// give with their verdicts may quote a message and are not logged.
func Log(logger *slog.Logger) chain.Observer { return logObserver{logger: logger} }

type logObserver struct {
	chain.NopObserver
	logger *slog.Logger
}

// InvokeEnd logs failures, and denials in audit.
func (l logObserver) InvokeEnd(ctx context.Context, i *chain.Invoke, out *chain.Outcome) {
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
	attrs := []slog.Attr{
		slog.String("interceptor", i.Entry.Name), slog.String("host", i.Entry.Host), slog.String("event", i.Event),
		slog.String("phase", string(out.Phase)), slog.String("mode", string(out.Mode)), slog.String("verdict", string(out.Verdict)),
		slog.String("action", string(out.Action)), slog.String("reason", string(out.Reason)),
		slog.Duration("duration", out.Duration), slog.String("message_id", i.MessageID),
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
