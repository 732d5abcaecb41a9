package telemetry

import (
	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/telemetry/semconv"
	"go.opentelemetry.io/otel/attribute"
	upstream "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// A template is how a span begins: all of it that can be known before a message
// comes.
type template struct {
	name    string
	attrs   []attribute.KeyValue
	options []trace.SpanStartOption
}

func newTemplate(name string, kind trace.SpanKind, attrs ...attribute.KeyValue) *template {
	return &template{name, attrs, []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}}
}

// A methodTemplates has the templates of one method on one side.
type methodTemplates struct {
	plain   *template
	targets *table[template] // nil for methods whose targets are no small set
}

// newMethodTemplates returns the templates of a method. Unknown methods and
// targets are a client's own words and in no name.
func newMethodTemplates(n *names, kind trace.SpanKind, method string) *methodTemplates {
	attrs := []attribute.KeyValue{upstream.McpMethodNameKey.String(method)}
	var key attribute.Key
	var targets *bound
	switch method {
	case core.EventToolsCall:
		attrs = append(attrs, upstream.GenAIOperationNameExecuteTool)
		key, targets = upstream.GenAIToolNameKey, n.tools
	case core.EventPromptsGet:
		key, targets = upstream.GenAIPromptNameKey, n.prompts
	}
	t := &methodTemplates{plain: newTemplate(method, kind, attrs...)}
	if targets == nil {
		return t
	}
	t.targets = newTable(targets, func(target string) *template {
		if target == semconv.Other {
			return t.plain
		}
		with := append(attrs[:len(attrs):len(attrs)], key.String(target))
		return newTemplate(method+" "+target, kind, with...)
	})
	return t
}

// phaseTemplates are those of the phases of one event.
type phaseTemplates [phases]*template

func newPhaseTemplates(event string) *phaseTemplates {
	var t phaseTemplates
	for i, name := range [phases]string{semconv.SpanRequest, semconv.SpanResponse} {
		t[i] = newTemplate(name, trace.SpanKindInternal,
			semconv.InterceptorEventKey.String(event), semconv.InterceptorPhaseKey.String(string(phaseAt(i))))
	}
	return &t
}

// newInvokeTemplates returns the templates of an interceptor, by phase. Its
// name comes from the registry and may still be anything.
func newInvokeTemplates(e *chain.Entry) *phaseTemplates {
	name := clip(e.Name, maxName)
	kind := trace.SpanKindInternal
	attrs := []attribute.KeyValue{
		semconv.InterceptorNameKey.String(name),
		semconv.InterceptorTypeKey.String(string(e.Type)),
		semconv.InterceptorModeKey.String(string(e.Effective.Mode)),
		semconv.InterceptorFailOpenKey.Bool(e.Effective.FailOpen),
	}
	if e.Version != "" {
		attrs = append(attrs, semconv.InterceptorVersionKey.String(clip(e.Version, maxName)))
	}
	if e.Remote {
		kind = trace.SpanKindClient
		attrs = append(attrs, upstream.McpMethodNameKey.String(core.MethodInvoke))
	}
	var t phaseTemplates
	for i := range t {
		phase := phaseAt(i)
		own := append(attrs[:len(attrs):len(attrs)], semconv.InterceptorPhaseKey.String(string(phase)))
		if e.Type == core.TypeMutation {
			own = append(own, semconv.InterceptorPriorityKey.Int(int(e.Effective.Priority.For(phase))))
		}
		t[i] = newTemplate(semconv.SpanInvoke+" "+name, kind, own...)
	}
	return &t
}

// templates are those of all spans but the invokes', which entries have.
type templates struct {
	servers, clients *table[methodTemplates]
	phases           *table[phaseTemplates]
}

func newTemplates(n *names) *templates {
	return &templates{
		servers: newTable(n.methods, func(m string) *methodTemplates { return newMethodTemplates(n, trace.SpanKindServer, m) }),
		clients: newTable(n.methods, func(m string) *methodTemplates { return newMethodTemplates(n, trace.SpanKindClient, m) }),
		phases:  newTable(n.events, newPhaseTemplates),
	}
}
