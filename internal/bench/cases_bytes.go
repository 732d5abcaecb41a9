package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/headgate-mcp/headgate/core"
	"github.com/headgate-mcp/headgate/middleware"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// oneChange is a mutator that changes one field. Its reference is what no
// design can leave out: the handler, and one decoding into a fresh value.
func oneChange(size int) Case {
	return Case{
		Name: fmt.Sprintf("a mutator that changes one field, %d KiB", size/KiB),
		Contenders: []Contender{
			calls("one string", text(size), onRequest.mutators(1, stamp)...),
			handlerAndDecode("one string, least", text(size)),
			calls("records", records(size), onRequest.mutators(1, stamp)...),
			handlerAndDecode("records, least", records(size)),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("one string: against handler and one decoding", f[0].Ratio(f[1]), 1.3, Ratio),
				atMost("records: against handler and one decoding", f[2].Ratio(f[3]), 1.3, Ratio),
				quoted("one string: time", nanos(f[0]), Nanoseconds),
				quoted("records: time", nanos(f[2]), Nanoseconds),
			}
		},
	}
}

func handlerAndDecode(name string, arguments json.RawMessage) Contender {
	params := must(core.Encode(request(arguments, nil).Params))
	return plain(name, func() {
		res := must(stamp(context.Background(), &core.Invocation{Payload: params}))
		var fresh mcp.CallToolParamsRaw
		check(core.Decode(res.Payload, &fresh))
	})
}

// encoding is what making a payload costs against copying its raw parts: whole
// phases with one validator, so that all that is done for the payload is in.
func encoding() Case {
	inline := hook{event: core.EventToolsCall, phase: core.PhaseRequest, inline: true}
	answers := hook{event: core.EventToolsCall, phase: core.PhaseResponse, inline: true}
	result := func(raw json.RawMessage) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: raw}
	}
	big, small, rows := text(64*KiB), text(KiB), records(64*KiB)
	var contenders []Contender
	for _, raw := range []json.RawMessage{big, rows, small} {
		contenders = append(contenders,
			plain("clone", func() { runtime.KeepAlive(bytes.Clone(raw)) }),
			plain("clone and json.Valid", func() { runtime.KeepAlive(bytes.Clone(raw)); _ = json.Valid(raw) }),
			calls("params", raw, inline.validators(1)...),
			phases("result", nil, core.EventToolsCall, request(small, nil), result(raw), answers.validators(1)...),
		)
	}
	return Case{
		Name: "making a payload, against copying its raw part", Contenders: contenders,
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("params, one string of 64 KiB: against bytes.Clone", f[2].Ratio(f[0]), 1.3, Ratio),
				quoted("params, records of 64 KiB: against bytes.Clone", f[6].Ratio(f[4]), Ratio),
				atMost("result, one string of 64 KiB: against bytes.Clone and json.Valid", f[3].Ratio(f[1]), 1.3, Ratio),
				atMost("result, records of 64 KiB: against bytes.Clone and json.Valid", f[7].Ratio(f[5]), 1.3, Ratio),
				quoted("params, 1 KiB: whole phase", nanos(f[10]), Nanoseconds),
				quoted("result, 1 KiB: whole phase", nanos(f[11]), Nanoseconds),
			}
		},
	}
}

// oneMebibyte is what a large message holds in memory.
func oneMebibyte() Case {
	const size = KiB * KiB
	set := append(onRequest.validators(5), onRequest.mutators(1, stampBytes)...)
	arguments := text(size)
	params := must(core.Encode(request(arguments, nil).Params))
	return Case{
		Name: "1 MiB, five validators, one mutator that changes one field", Slow: true,
		Contenders: []Contender{
			calls("all", arguments, set...),
			plain("the mutator's own work", func() {
				must(stampBytes(context.Background(), &core.Invocation{Payload: bytes.Clone(params)}))
			}),
		},
		Judge: func(f []Figure) []Line {
			peak, held := live(arguments, set)
			return []Line{
				atMost("peak over the bare call, in payloads", peak/size, 4, Ratio),
				quoted("held while the tool runs, in payloads", held/size, Ratio),
				quoted("allocated in all, the mutator's own work apart, in payloads", (f[0].Bytes-f[1].Bytes)/size, Ratio),
				quoted("time", nanos(f[0]), Nanoseconds),
			}
		},
	}
}

// stampBytes changes one field without decoding the others, so that what it
// allocates is one payload.
func stampBytes(_ context.Context, inv *core.Invocation) (*core.MutationResult, error) {
	at := bytes.LastIndexByte(inv.Payload, '}') - 1
	out := make([]byte, 0, len(inv.Payload)+32)
	out = append(append(append(out, inv.Payload[:at]...), `,"stamp":"seen"`...), inv.Payload[at:]...)
	return core.Replace(out), nil
}

// live returns how much the heap grows at most before a call's handler runs,
// with the mutator's own result left out, and how much of it is still held when
// the handler runs. Nothing is collected meanwhile but at the end: what a
// collector could have freed earlier counts too, so the peak is an upper bound.
func live(arguments json.RawMessage, set []core.Interceptor) (peak, held float64) {
	ch := newChain(nil, set...)
	defer func() { _ = ch.Close() }()
	heap := func() float64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	var atHandler, afterCollection float64
	handle := middleware.Receiving(ch, nil)(func(context.Context, string, mcp.Request) (mcp.Result, error) {
		atHandler = heap()
		runtime.GC()
		afterCollection = heap()
		return answer("x"), nil
	})
	req := request(arguments, nil)
	for range 3 { // the first ones fill pools
		runtime.GC()
		runtime.GC()
		percent := debug.SetGCPercent(-1)
		before := heap()
		must(handle(context.Background(), core.EventToolsCall, req))
		debug.SetGCPercent(percent)
		peak, held = atHandler-before-float64(len(arguments)), afterCollection-before
	}
	runtime.KeepAlive(req)
	return peak, held
}
