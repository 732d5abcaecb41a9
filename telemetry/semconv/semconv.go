package semconv

import "go.opentelemetry.io/otel/attribute"

// Attributes of spans and of the decision event. The comment of each is its line
// in doc/OPERATIONS.md.
const (
	MessageIDKey           = attribute.Key("headgate.message.id")                     // message, phase: the id that invocations carry; in place of jsonrpc.request.id, which go-sdk does not tell
	MessageOutcomeKey      = attribute.Key("headgate.message.outcome")                // message: ok, tool_error, error, denied, failed, timeout, cancelled or panic
	InterceptorNameKey     = attribute.Key("headgate.interceptor.name")               // invoke, event, and a phase that was stopped: as registered
	InterceptorTypeKey     = attribute.Key("headgate.interceptor.type")               // invoke: validation or mutation
	InterceptorModeKey     = attribute.Key("headgate.interceptor.mode")               // invoke, event: active or audit
	InterceptorPhaseKey    = attribute.Key("headgate.interceptor.phase")              // phase, invoke, event: request or response
	InterceptorEventKey    = attribute.Key("headgate.interceptor.event")              // phase: the event of SEP-2624, or _OTHER
	InterceptorVerdictKey  = attribute.Key("headgate.interceptor.verdict")            // invoke, event: what the interceptor said: allow, deny, modify, error, timeout, cancelled, skipped or dropped
	InterceptorActionKey   = attribute.Key("headgate.interceptor.action")             // phase, invoke, event: what the chain made of it: proceed, block, modify or fail_open
	InterceptorReasonKey   = attribute.Key("headgate.interceptor.abort.reason")       // phase, invoke, event: why, in one word of a closed set
	InterceptorFailOpenKey = attribute.Key("headgate.interceptor.fail_open")          // invoke: whether failures let messages pass
	InterceptorPriorityKey = attribute.Key("headgate.interceptor.priority")           // invoke of a mutator: its place
	InterceptorVersionKey  = attribute.Key("headgate.interceptor.version")            // invoke: as registered
	FindingsErrorKey       = attribute.Key("headgate.interceptor.findings.error")     // phase, invoke of a validator: findings of this severity
	FindingsWarnKey        = attribute.Key("headgate.interceptor.findings.warn")      // phase, invoke of a validator: findings of this severity
	FindingsInfoKey        = attribute.Key("headgate.interceptor.findings.info")      // phase, invoke of a validator: findings of this severity
	PayloadSizeKey         = attribute.Key("headgate.interceptor.payload.size")       // phase, invoke: bytes handed in
	ResultSizeKey          = attribute.Key("headgate.interceptor.result.size")        // phase, invoke: bytes handed out, if they changed
	ChainSizeKey           = attribute.Key("headgate.interceptor.chain.size")         // phase: how many interceptors run
	ChainIndexKey          = attribute.Key("headgate.interceptor.chain.index")        // invoke: place among them, from 0
	MarshalDurationKey     = attribute.Key("headgate.interceptor.marshal.duration")   // phase: seconds to encode the payload
	UnmarshalDurationKey   = attribute.Key("headgate.interceptor.unmarshal.duration") // phase: seconds to apply a changed one
	ReasonTextKey          = attribute.Key("headgate.interceptor.reason")             // event, with Options.Reasons alone: the validator's own words, which may quote the message
)

// Names of spans and of the event.
const (
	SpanRequest   = "intercept request"
	SpanResponse  = "intercept response"
	SpanInvoke    = "interceptor/invoke" // followed by the interceptor's name
	EventDecision = "headgate.interceptor.decision"
)

// Names of metrics.
const (
	MetricServerOperation = "mcp_server_operation_duration_seconds"
	MetricClientOperation = "mcp_client_operation_duration_seconds"
	MetricInvoke          = "headgate_interceptor_invoke_duration_seconds"
	MetricStage           = "headgate_interceptor_stage_duration_seconds"
	MetricPayload         = "headgate_interceptor_payload_size_bytes"
	MetricAborts          = "headgate_interceptor_aborts_total"
	MetricAuditDenials    = "headgate_interceptor_audit_denials_total"
	MetricAuditFailures   = "headgate_interceptor_audit_failures_total"
	MetricAuditDropped    = "headgate_interceptor_audit_dropped_total"
	MetricFailOpen        = "headgate_interceptor_fail_open_total"
	MetricSkipped         = "headgate_interceptor_skipped_total"
	MetricRefused         = "headgate_interceptor_refused_total"
	MetricCircuitState    = "headgate_interceptor_circuit_state"
	MetricCircuitOpened   = "headgate_interceptor_circuit_opened_total"
	MetricHostUp          = "headgate_host_up"
	MetricHostLosses      = "headgate_host_losses_total"
	MetricInflight        = "headgate_interceptor_inflight"
	MetricAbandoned       = "headgate_interceptor_abandoned"
	MetricInfo            = "headgate_interceptor_info"
	MetricOverflow        = "headgate_telemetry_label_overflow_total"
)

// Names of labels.
const (
	LabelMethod      = "mcp_method_name"
	LabelTool        = "gen_ai_tool_name"
	LabelErrorType   = "error_type"
	LabelTransport   = "network_transport"
	LabelInterceptor = "interceptor"
	LabelType        = "type"
	LabelMode        = "mode"
	LabelPhase       = "phase"
	LabelVerdict     = "verdict"
	LabelEvent       = "event"
	LabelStage       = "stage"
	LabelReason      = "reason"
	LabelLimit       = "limit"
	LabelHost        = "host"
	LabelFailOpen    = "fail_open"
	LabelVersion     = "version"
	LabelLabel       = "label"
)

// Values of labels and attributes.
const (
	// Other stands for every value that is not known to be one of few.
	Other = "_OTHER"
	// Chain stands for an interceptor's name where the whole phase ran out of
	// time.
	Chain = "_CHAIN"

	// VerdictCancelled is the verdict of an invoke whose caller gave up. It says
	// nothing about the interceptor.
	VerdictCancelled = "cancelled"

	ModeOff = "off" // of the info metric: the interceptor does not run

	StageMarshal    = "marshal"
	StageValidators = "validators"
	StageMutators   = "mutators"
	StageUnmarshal  = "unmarshal"
	StageHandler    = "handler"
	StageAudit      = "audit" // off the path: no part of a message's duration

	ErrorTool      = "tool_error"
	ErrorTimeout   = "timeout"
	ErrorCancelled = "cancelled"
	ErrorPanic     = "panic"
)
