package chain

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// Options configures a [Chain]. The zero value is ready to use.
type Options struct {
	// Timeout bounds one phase of one message; passing it always aborts.
	// Zero means 30 s, negative none.
	Timeout time.Duration
	// MaxPayload bounds the payload of one phase in bytes. What is larger is not
	// shown to interceptors, in part or whole: each fails with
	// [ErrPayloadTooLarge], and failOpen decides. Zero means 16 MiB, negative no
	// bound.
	MaxPayload int
	// MaxConcurrent bounds the calls of one active interceptor that run at once,
	// those included that were abandoned; MaxInflight bounds those of all
	// together. A call beyond them is not begun and fails with [ErrOverload], and
	// failOpen decides: a slow interceptor costs its own messages and no others.
	// Zero means 512 and 8192, negative no bound.
	MaxConcurrent, MaxInflight int
	// Gate may keep a call from being begun, such as a circuit breaker does; nil
	// for none.
	Gate Gate
	// InvokeTimeout bounds one invoke. Zero means 5 s, negative none; with
	// none, handlers run on the caller's goroutine.
	InvokeTimeout time.Duration
	// FailOpenBudget is what fail-open interceptors may spend together in one
	// phase; beyond it they are skipped and counted as failed open. Zero means
	// half of the phase's timeout, negative no budget.
	FailOpenBudget time.Duration
	// Config holds configurations by interceptor name. They are checked when
	// plans are made and handed to handlers as copies.
	Config map[string]map[string]any
	// Protocols are the MCP versions that can be spoken here. An interceptor
	// whose compat excludes them all is refused. Nil refuses none.
	Protocols []string
	// Observer watches from the first message on; nil for none.
	Observer Observer
	// Propagator carries trace contexts to hosts that are elsewhere. Nil means
	// the first observer that is one, if any.
	Propagator Propagator
	// InlineAudit runs audit interceptors before Execute returns, after all
	// active ones, and puts their outcomes into the results. The message then
	// waits for them; it still cannot be blocked or changed by them.
	InlineAudit bool
	// AuditTimeout bounds one audit run. Zero means 5 s.
	AuditTimeout time.Duration
	// AuditQueue is how many runs may wait for one audit interceptor; zero
	// means 256. AuditBytes bounds their payloads together; zero means 16 MiB.
	// What exceeds them is dropped and counted.
	AuditQueue int
	AuditBytes int
	// DrainTimeout is how long Close lets waiting audit runs finish before it
	// cancels them. Zero means 1 s.
	DrainTimeout time.Duration
}

const (
	defaultTimeout       = 30 * time.Second
	defaultInvokeTimeout = 5 * time.Second
	defaultAuditQueue    = 256
	defaultAuditBytes    = 16 << 20
	defaultDrainTimeout  = time.Second

	defaultMaxPayload    = 16 << 20
	defaultMaxConcurrent = 512
	defaultMaxInflight   = 8192
)

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.Timeout = orDefault(out.Timeout, defaultTimeout)
	out.InvokeTimeout = orDefault(out.InvokeTimeout, defaultInvokeTimeout)
	out.AuditTimeout = orDefault(out.AuditTimeout, defaultInvokeTimeout)
	out.AuditQueue = orDefault(out.AuditQueue, defaultAuditQueue)
	out.AuditBytes = orDefault(out.AuditBytes, defaultAuditBytes)
	out.DrainTimeout = orDefault(out.DrainTimeout, defaultDrainTimeout)
	out.MaxPayload = orDefault(out.MaxPayload, defaultMaxPayload)
	out.MaxConcurrent = orDefault(out.MaxConcurrent, defaultMaxConcurrent)
	out.MaxInflight = orDefault(out.MaxInflight, defaultMaxInflight)
	return out
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// check says which options make no sense.
func (o *Options) check() error {
	if o.AuditTimeout < 0 || o.DrainTimeout < 0 || o.AuditQueue < 0 || o.AuditBytes < 0 {
		return errors.New("chain: audit limits must not be negative")
	}
	if b, ok := o.Gate.(CircuitBreaker); ok && !reflect.TypeOf(b).Comparable() {
		return errors.New("chain: a breaker must be of a comparable type")
	}
	if o.Timeout > core.MaxTimeout || o.InvokeTimeout > core.MaxTimeout || o.AuditTimeout > core.MaxTimeout {
		return fmt.Errorf("chain: a timeout is over %v", core.MaxTimeout)
	}
	return nil
}
