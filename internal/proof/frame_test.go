package proof_test

import (
	"fmt"
	"strings"
)

const (
	modern = "2026-07-28" // each request says who asks, no session
	legacy = "2025-11-25" // initialize
)

// A frame is a message as a client writes it.
type frame struct {
	text         string
	method, name string // for the headers that HTTP wants of the newer era
	id           string // as it stands in the text; empty if no answer can be told by it
	fatal        bool   // may end a session of lines
}

// A writer draws the frames of one session.
type writer struct {
	dice
	version string
	calls   int
	asks    bool // the client can be asked for something
}

// triple is what the newer era wants in the _meta of each request.
const triple = `"io.modelcontextprotocol/protocolVersion":"` + modern + `",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`

// draw returns any frame that leaves the session whole.
func (w *writer) draw() frame {
	switch n := w.IntN(20); {
	case n < 2:
		return w.notification()
	case n < 3:
		return w.stray()
	case n < 6:
		return w.malformed()
	}
	method := pick(w.dice, methods...)
	name, members := w.params(method)
	return w.request(method, name, w.object(members, w.meta()))
}

// methods are those that are drawn, tools/call as often as all others.
var methods = []string{
	"tools/call", "tools/call", "tools/call", "tools/call", "tools/call", "tools/call", "tools/call", "tools/call", "tools/list", "prompts/list",
	"prompts/get", "resources/list", "resources/templates/list", "resources/read", "completion/complete", "logging/setLevel",
	"resources/subscribe", "resources/unsubscribe", "ping", "vendor/echo", "vendor/unknown", "sampling/createMessage",
}

// params returns the name and the members of a method's params.
func (w *writer) params(method string) (name string, members []string) {
	switch method {
	case "tools/call":
		return w.toolCall()
	case "prompts/get":
		name = pick(w.dice, "p0", "p1", "unknown")
		return name, []string{`"name":` + quote(name), `"arguments":{"a":` + pick(w.dice, `"<&>"`, `"fail"`, `""`, `"\ud83d\ude00"`) + `}`}
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		name = pick(w.dice, "a://1", "b://x", "b://%2e%2e", "b://missing", "c://none", "")
		return name, []string{`"uri":` + quote(name)}
	case "completion/complete":
		ref := pick(w.dice, `{"type":"ref/prompt","name":"p0"}`, `{"type":"ref/resource","uri":"b://{id}"}`, `{"type":"ref/none"}`)
		return "", []string{`"ref":` + ref, `"argument":{"name":"a","value":` + pick(w.dice, `"x"`, `"fail"`, `"<"`) + `}`}
	case "logging/setLevel":
		return "", []string{`"level":` + pick(w.dice, `"debug"`, `"error"`, `"loud"`)}
	case "vendor/echo":
		return "", []string{`"value":` + w.value(3), `"fail":` + pick(w.dice, "false", "false", "true")}
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		if w.chance(3) {
			return "", []string{`"cursor":` + pick(w.dice, `""`, `"nonsense"`, `null`)}
		}
	}
	return "", nil
}

func (w *writer) toolCall() (string, []string) {
	name := pick(w.dice, "echo", "echo", "act", "act", "noisy", "typed", "empty", "large", "fails", "wire error", "is error", "unknown", "asks")
	if name == "asks" && !w.asks {
		name = "noisy"
	}
	members := []string{`"name":` + quote(name)}
	switch n := w.IntN(12); {
	case n < 8:
		members = append(members, `"arguments":`+w.object([]string{`"n":` + w.number(), `"text":` + w.text(), `"v":` + w.value(4)}, ""))
	case n < 9:
		depth := 1 + w.IntN(900)
		members = append(members, `"arguments":{"deep":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+"}")
	case n < 10:
		members = append(members, `"arguments":{}`)
	case n < 11:
		members = append(members, `"arguments":{"long":"`+strings.Repeat("<é\\u00e9", 1+w.IntN(500))+`"}`)
	}
	return name, members
}

// malformed returns a request that has something wrong with its params.
func (w *writer) malformed() frame {
	method := pick(w.dice, methods...)
	name, members := w.params(method)
	switch w.IntN(4) {
	case 0: // a member of another type
		if len(members) > 0 {
			key, _, _ := strings.Cut(members[0], ":")
			members[0] = key + ":" + w.value(1)
		}
		return w.request(method, name, w.object(members, w.meta()))
	case 1: // one that is there twice, perhaps with another value
		if len(members) > 0 {
			key, _, _ := strings.Cut(members[0], ":")
			members = append(members, key+":"+w.value(1))
		}
		return w.request(method, name, w.object(members, w.meta()))
	case 2: // no params, or none that are an object
		return w.request(method, name, pick(w.dice, "", "null", "[]", `"x"`, "7", "[{}]"))
	}
	return w.request(method, name, w.object(members, `"_meta":`+pick(w.dice, "null", "{}", "7", `{"progressToken":{}}`, `{"io.modelcontextprotocol/protocolVersion":"1999-01-01"}`)))
}

// notification returns a message that nobody is to answer.
func (w *writer) notification() frame {
	method := pick(w.dice, "notifications/progress", "notifications/progress", "notifications/cancelled", "notifications/roots/list_changed", "notifications/unknown", "tools/call")
	params := pick(w.dice, `{"progressToken":"t","progress":`+fmt.Sprint(w.IntN(100))+`,"message":"<m>"}`, `{"requestId":4711,"reason":"none"}`, `{}`, `[]`)
	if w.version == modern && strings.HasPrefix(params, "{\"") {
		params = `{"_meta":{` + triple + `},` + params[1:]
	}
	return frame{method: method, text: `{"jsonrpc":"2.0","method":` + quote(method) + `,"params":` + params + `}`}
}

// stray returns an answer to nothing.
func (w *writer) stray() frame {
	return frame{text: pick(w.dice, `{"jsonrpc":"2.0","id":4711,"result":{}}`, `{"jsonrpc":"2.0","id":"none","error":{"code":1,"message":"none"}}`,
		`{"jsonrpc":"2.0","id":4712,"result":{"content":[]}}`)}
}

// last returns a frame after which a session may be over.
func (w *writer) last() frame {
	f := frame{fatal: true, text: pick(w.dice, `{}`, `[]`, `null`, `7`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1}`, `{{`, "\xff\xfe", `{"jsonrpc":"2.0","id":1,"method":7}`,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":"ping"} trailing`, strings.Repeat("[", 1200)+strings.Repeat("]", 1200))}
	return f
}

// request puts a request together, its members in any order and oddly spaced.
func (w *writer) request(method, name, params string) frame {
	w.calls++
	id := fmt.Sprint(w.calls)
	if w.chance(4) {
		id = quote("id-" + id)
	}
	members := []string{`"jsonrpc":"2.0"`, `"id":` + id, `"method":` + quote(method)}
	if params != "" {
		members = append(members, `"params":`+params)
	}
	if w.chance(8) {
		members = append(members, `"vendor":`+w.value(1))
	}
	return frame{text: w.object(members, ""), method: method, name: name, id: id}
}

// meta returns a _meta member, or nothing where none is needed.
func (w *writer) meta() string {
	var members []string
	if w.chance(3) {
		members = append(members, `"progressToken":`+pick(w.dice, `"t"`, "7", "9007199254740993", `""`))
	}
	if w.chance(4) {
		members = append(members, `"vendor/k":`+w.value(2))
	}
	if w.chance(6) {
		members = append(members, `"traceparent":`+pick(w.dice, `"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`, `"nonsense"`, "7"))
	}
	if w.version == modern {
		members = append(members, triple)
		if w.chance(5) {
			members = append(members, `"io.modelcontextprotocol/logLevel":"debug"`)
		}
	}
	if len(members) == 0 && !w.chance(6) {
		return ""
	}
	return `"_meta":` + w.object(members, "")
}

// object writes members in any order, with another one if that is not empty.
func (w *writer) object(members []string, another string) string {
	all := append([]string{}, members...)
	if another != "" {
		all = append(all, another)
	}
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if w.chance(6) {
		return "{ " + strings.Join(all, " ,\t") + " }"
	}
	return "{" + strings.Join(all, ",") + "}"
}

// value draws any JSON, at most depth levels deep.
func (w *writer) value(depth int) string {
	n := w.IntN(9)
	if depth == 0 {
		n = w.IntN(5)
	}
	switch n {
	case 0, 1:
		return w.number()
	case 2, 3:
		return w.text()
	case 4:
		return pick(w.dice, "null", "true", "false", "[]", "{}")
	case 5, 6:
		list := make([]string, w.IntN(5))
		for i := range list {
			list[i] = w.value(depth - 1)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	members := make([]string, w.IntN(5))
	for i := range members {
		members[i] = pick(w.dice, `"a"`, `"b"`, `"A"`, `""`, `"<k>"`, `"\u00e9"`, `"name"`, `"content"`) + ":" + w.value(depth-1)
	}
	return w.object(members, "")
}

func (w *writer) number() string {
	return pick(w.dice, "0", "-0", "1", "9007199254740993", "18446744073709551615", "123456789012345678901234567890", "1e400", "-1E-400", "0.10", "1E+2", "3.0")
}

func (w *writer) text() string {
	return pick(w.dice, `""`, `"plain"`, `"é \u00e9 \ud83d\ude00 😀"`, `"a<b && c>d"`, `"\u2028\u2029"`, `"\u0000\u001f\/"`, `"\ud800"`, "\"\xff\"", `"\\\"\n"`, `"\u202e"`)
}

// quote writes a plain word as JSON.
func quote(s string) string { return `"` + s + `"` }
