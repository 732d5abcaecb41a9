package core

import "strings"

// Methods and the extension's key, as SEP-2624 names them.
const (
	// ExtensionKey is the capability under which a server advertises interceptors.
	ExtensionKey = "io.modelcontextprotocol/interceptors"
	// MethodList is the JSON-RPC method that lists a host's interceptors.
	MethodList = "interceptors/list"
	// MethodInvoke is the JSON-RPC method that invokes one interceptor.
	MethodInvoke = "interceptor/invoke"
)

// Event names of SEP-2624. An event is the JSON-RPC method of the message that
// is intercepted; the set is open, so any other method name is an event too.
const (
	EventToolsCall          = "tools/call"             // a tool is called
	EventToolsList          = "tools/list"             // tools are listed
	EventPromptsGet         = "prompts/get"            // a prompt is rendered
	EventPromptsList        = "prompts/list"           // prompts are listed
	EventResourcesRead      = "resources/read"         // a resource is read
	EventResourcesList      = "resources/list"         // resources are listed
	EventResourcesSubscribe = "resources/subscribe"    // a resource is subscribed to
	EventSampling           = "sampling/createMessage" // a server asks its client's model
	EventElicitation        = "elicitation/create"     // a server asks its client's user
	EventRoots              = "roots/list"             // a server asks for its client's roots
	EventLLMCompletion      = "llm/completion"         // a model is called outside MCP
	EventAny                = "*"                      // each request of the hook's phase
)

// Method names of MCP that decide how a message is treated.
const (
	methodPing            = "ping"
	methodListen          = "subscriptions/listen"
	prefixNotification    = "notifications/"
	methodInitialize      = "initialize"
	methodDiscover        = "server/discover"
	notificationInit      = "notifications/initialized"
	notificationCancelled = "notifications/cancelled"
)

// IsNotification reports whether method names a notification: a message that
// nobody answers.
func IsNotification(method string) bool {
	return strings.HasPrefix(method, prefixNotification)
}

// Interceptable reports whether messages of the method can be intercepted at
// all in the phase. The handshakes, cancellation and the extension's own two
// methods never are; a notification has no response; and the response of
// subscriptions/listen ends a subscription that may have lasted for days, so
// it is left alone.
func Interceptable(method string, phase Phase) bool {
	switch method {
	case "", methodInitialize, methodDiscover, notificationInit, notificationCancelled, MethodList, MethodInvoke:
		return false
	case methodListen:
		return phase == PhaseRequest
	}
	return phase == PhaseRequest || !IsNotification(method)
}

// namedOnly reports whether only a hook that spells the method out sees it.
func namedOnly(method string) bool {
	return method == methodPing || IsNotification(method)
}

// StandardMethods returns the methods of MCP and the further events of
// SEP-2624, those that are never intercepted included.
func StandardMethods() []string {
	return []string{
		EventToolsCall, EventToolsList, EventPromptsGet, EventPromptsList,
		EventResourcesRead, EventResourcesList, EventResourcesSubscribe,
		EventSampling, EventElicitation, EventRoots, EventLLMCompletion,
		"resources/templates/list", "resources/unsubscribe", "completion/complete",
		"logging/setLevel", methodPing, methodListen,
		"notifications/progress", "notifications/message", "notifications/roots/list_changed",
		"notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated",
		"notifications/elicitation/complete",
		methodInitialize, methodDiscover, notificationInit, notificationCancelled, MethodList, MethodInvoke,
	}
}
