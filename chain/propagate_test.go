package chain_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tracer is an observer that is a propagator too: its trace is the name of
// the interceptor that is called.
type tracer struct {
	chain.NopObserver
	fault bool
}

type traceKey struct{}

func (tracer) InvokeStart(ctx context.Context, i *chain.Invoke) context.Context {
	return context.WithValue(ctx, traceKey{}, i.Entry.Name)
}

func (p tracer) Inject(ctx context.Context, meta map[string]any) {
	if p.fault {
		panic("inject")
	}
	if name, ok := ctx.Value(traceKey{}).(string); ok {
		meta["traceparent"] = name
	}
}

func (p tracer) Extract(ctx context.Context, meta map[string]any) context.Context {
	if p.fault {
		panic("extract")
	}
	return context.WithValue(ctx, traceKey{}, meta["traceparent"])
}

func (p tracer) IDs(ctx context.Context) (string, string) {
	if p.fault {
		panic("ids")
	}
	name, _ := ctx.Value(traceKey{}).(string)
	return "trace", name
}

// A farHost is a fake host at the other end of a connection: it keeps what it
// would have sent.
type farHost struct {
	fakeHost
	sent sync.Map // of _meta by name
}

func (*farHost) HeadRoom() time.Duration { return 0 }

func (h *farHost) Invoke(ctx context.Context, name string, inv *core.Invocation) (core.Answer, error) {
	h.sent.Store(name, chain.TraceMeta(ctx))
	return h.fakeHost.Invoke(ctx, name, inv)
}

// An invoke carries the context of its own span, in either mode, to hosts that
// send it and in the ids that SEP-2624 has for it.
func TestTraceContextOfAnInvoke(t *testing.T) {
	var ids sync.Map
	note := func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		ids.Store(inv.Context.SpanID, inv.Context.TraceID)
		return core.Allow(), nil
	}
	for name, add := range map[string]func(*chain.Options, *chain.Chain){
		"an observer of the options": func(o *chain.Options, _ *chain.Chain) { o.Observer = tracer{} },
		"a propagator beside it":     func(o *chain.Options, _ *chain.Chain) { o.Observer, o.Propagator = spanner{}, tracer{} },
		"an observer that is added": func(_ *chain.Options, ch *chain.Chain) {
			if ch != nil {
				ch.AddObserver(tracer{})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ids.Clear()
			var opts chain.Options
			add(&opts, nil)
			ch, err := chain.New(&opts)
			require.NoError(t, err)
			host := &farHost{}
			host.set(
				ct.Validator("v", note), ct.Validator("inline", note, ct.Inline), ct.Validator("audit", note, ct.Audit), ct.Mutator("m", ct.Keep),
			)
			require.NoError(t, ch.AddHost(context.Background(), "far", host))
			if opts.Observer == nil {
				add(&opts, ch)
			}
			_, err = ch.Execute(context.Background(), request())
			require.NoError(t, err)
			require.NoError(t, ch.Close())
			for _, name := range []string{"v", "inline", "audit", "m"} {
				meta, _ := host.sent.Load(name)
				assert.Equal(t, map[string]any{"traceparent": name}, meta, name)
				if name != "m" {
					traceID, _ := ids.Load(name)
					assert.Equal(t, "trace", traceID, name)
				}
			}
			assert.True(t, ch.Entries()[0].Remote)
		})
	}
}

// A spanner is an observer that is no propagator.
type spanner struct{ chain.NopObserver }

func (spanner) InvokeStart(ctx context.Context, i *chain.Invoke) context.Context {
	return tracer{}.InvokeStart(ctx, i)
}

// Without a propagator, and where it panics, invokes go on without.
func TestNoTraceContext(t *testing.T) {
	for name, opts := range map[string]chain.Options{"none": {}, "one that panics": {Propagator: tracer{fault: true}}} {
		t.Run(name, func(t *testing.T) {
			ch, err := chain.New(&opts)
			require.NoError(t, err)
			host := &farHost{}
			host.set(ct.Validator("v", ct.Allow))
			require.NoError(t, ch.AddHost(context.Background(), "far", host))
			_, err = ch.Execute(context.Background(), request())
			require.NoError(t, err)
			meta, called := host.sent.Load("v")
			assert.True(t, called)
			assert.Empty(t, meta)
			assert.NotNil(t, ch.Extract(context.Background(), map[string]any{"traceparent": "x"}))
			require.NoError(t, ch.Close())
		})
	}
	assert.Nil(t, chain.TraceMeta(context.Background()), "a context that no invoke has made")
}

// An embedder that says which ids to use is believed.
func TestGivenTraceIDsStay(t *testing.T) {
	var got core.InvocationContext
	ch := newChain(t, &chain.Options{Observer: tracer{}}, ct.Validator("v", func(_ context.Context, inv *core.Invocation) (*core.ValidationResult, error) {
		got = inv.Context
		return core.Allow(), nil
	}))
	req := request()
	req.Context = core.InvocationContext{TraceID: "mine"}
	_, err := ch.Execute(context.Background(), req)
	require.NoError(t, err)
	assert.Equal(t, core.InvocationContext{TraceID: "mine"}, got)
}

// A policyLog keeps what it is told of policies.
type policyLog struct {
	chain.NopObserver
	seen []string
}

func (p *policyLog) PolicyChanged(_ *chain.Chain, entries []*chain.Entry) {
	line := ""
	for _, e := range entries {
		line += e.Name + ":" + string(e.Effective.Mode) + " "
	}
	p.seen = append(p.seen, line)
}

// Whoever watches policies is told of each, in order, and of the end.
func TestPolicyChanges(t *testing.T) {
	first, second := &policyLog{}, &policyLog{}
	ch := newChain(t, &chain.Options{Observer: first}, ct.Validator("v", ct.Allow))
	remove := ch.AddObserver(second)
	require.NoError(t, ch.SetOverrides(map[string]chain.Overrides{"v": {Mode: core.ModeAudit}}))
	remove()
	remove() // does nothing more
	require.NoError(t, ch.RemoveHost("fake"))
	require.NoError(t, ch.Close())
	assert.Equal(t, []string{"v:active ", "v:audit ", ""}, second.seen)
	assert.Equal(t, []string{"", "v:active ", "v:active ", "v:audit ", "v:audit ", "", ""}, first.seen)
}
