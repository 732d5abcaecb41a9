package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/headgate-mcp/headgate/chain"
	"github.com/headgate-mcp/headgate/core"
)

// Cases returns all cases.
func Cases() []Case {
	return []Case{
		idle(), oneValidator(), furtherValidators(), mutatorsThatKeep(),
		oneChange(KiB), oneChange(64 * KiB), encoding(), oneMebibyte(),
		local(), unsampled(), sampled(), flip(), hooked(), registered(), payload(), whole(),
	}
}

// idle is a message that nothing is hooked on.
func idle() Case {
	other := hook{event: core.EventPromptsGet, phase: core.PhaseRequest}.validators(3)
	return Case{
		Name: "nothing hooked",
		Contenders: []Contender{
			calls("idle", text(KiB), other...),
			calls("idle, 1 MiB", text(KiB*KiB), other...),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("time", nanos(f[0]), 100, Nanoseconds),
				atMost("allocations", f[0].Allocs, 0.01, Allocations),
				atMost("1 MiB against 1 KiB: nothing is encoded", f[1].Ratio(f[0]), 1.2, Ratio),
			}
		},
	}
}

// oneValidator is a phase with one validator that does nothing.
func oneValidator() Case {
	inline := hook{event: core.EventToolsCall, phase: core.PhaseRequest, inline: true}
	return Case{
		Name: "one validator, 1 KiB",
		Contenders: []Contender{
			calls("inline", text(KiB), inline.validators(1)...),
			calls("deadline", text(KiB), onRequest.validators(1)...),
			phases("inline, _meta", nil, core.EventToolsCall, request(text(KiB), modernMeta()), answer("x"), inline.validators(1)...),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("on the caller's goroutine: time", nanos(f[0]), 1200, Nanoseconds),
				atMost("on the caller's goroutine: allocations", f[0].Allocs, 6, Allocations),
				atMost("under a deadline: time", nanos(f[1]), 3000, Nanoseconds),
				atMost("under a deadline: allocations", f[1].Allocs, 10, Allocations),
				quoted("_meta of 2026-07-28 adds", nanos(f[2])-nanos(f[0]), Nanoseconds),
			}
		},
	}
}

// furtherValidators is what each validator more costs.
func furtherValidators() Case {
	return Case{
		Name: "further validators",
		Contenders: []Contender{
			calls("1", text(KiB), onRequest.validators(1)...),
			calls("11", text(KiB), onRequest.validators(11)...),
			atOnce(10),
			oneByOne("10 one after another", 10, 0),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("each: time", (nanos(f[1])-nanos(f[0]))/10, 1200, Nanoseconds),
				atMost("each: allocations", (f[1].Allocs-f[0].Allocs)/10, 3, Allocations),
				atMost("ten at once against one after another", f[2].Ratio(f[3]), 1, Ratio),
			}
		},
	}
}

// atOnce is the chain alone with n validators.
func atOnce(n int) Contender {
	return Contender{fmt.Sprint(n, " at once"), func() (func(), func()) {
		ch := newChain(nil, onRequest.validators(n)...)
		req := chain.Request{
			Event: core.EventToolsCall, Phase: core.PhaseRequest, Direction: core.Receiving,
			Payload: text(KiB), Disposable: true, MessageID: "id",
		}
		ctx := context.Background()
		return func() { must(ch.Execute(ctx, &req)) }, func() { _ = ch.Close() }
	}}
}

// oneByOne calls the same handler n times, each under the default deadline, by
// what the chain does for one call. Where size is set each gets a copy of a
// payload of that size, as mutators do.
func oneByOne(name string, n, size int) Contender {
	return Contender{name, func() (func(), func()) {
		var g chain.Guard
		ctx, payload := context.Background(), text(KiB)
		if size > 0 {
			payload = text(size)
		}
		inv := core.Invocation{Event: core.EventToolsCall, Phase: core.PhaseRequest, Payload: payload}
		validator := core.Interceptor(onRequest.validators(1)[0])
		mutator := onRequest.mutators(1, keep)[0]
		return func() {
			for range n {
				if size == 0 {
					must(g.Do(ctx, core.TypeValidation, 5*time.Second, false, &inv, func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
						return core.Call(ctx, validator, inv)
					}))
					continue
				}
				own := inv
				own.Payload = bytes.Clone(payload)
				must(g.Do(ctx, core.TypeMutation, 5*time.Second, false, &own, func(ctx context.Context, inv *core.Invocation) (core.Answer, error) {
					return core.Call(ctx, mutator, inv)
				}))
			}
		}, func() {}
	}}
}

// mutatorsThatKeep are five that change nothing: each has a copy of its own, and
// nothing is encoded or decoded for them.
func mutatorsThatKeep() Case {
	const n = 5
	return Case{
		Name: "five mutators that change nothing",
		Contenders: []Contender{
			calls("0 mutators", text(64*KiB), onRequest.validators(1)...),
			calls("5 mutators, 1 KiB", text(KiB), onRequest.mutators(n, keep)...),
			oneByOne("5 calls, 1 KiB", n, KiB),
			calls("5 mutators, 64 KiB", text(64*KiB), onRequest.mutators(n, keep)...),
			oneByOne("5 calls, 64 KiB", n, 64*KiB),
		},
		Judge: func(f []Figure) []Line {
			return []Line{
				quoted("1 KiB: time", nanos(f[1]), Nanoseconds),
				atMost("1 KiB: whole phase against the five calls", f[1].Ratio(f[2]), 1.3, Ratio),
				atMost("64 KiB: bytes against one encoding and five copies", f[3].Bytes/(6*64*KiB), 1.2, Ratio),
				quoted("64 KiB: whole phase against the five calls", f[3].Ratio(f[4]), Ratio),
			}
		},
	}
}

// registered is what interceptors cost that are not hooked on the message.
func registered() Case {
	other := hook{event: core.EventPromptsGet, phase: core.PhaseRequest}
	contenders := make([]Contender, 0, 3)
	for _, n := range []int{1, 100, 10_000} {
		list := append(onRequest.validators(1), other.mutators(n-1, keep)...)
		contenders = append(contenders, calls(fmt.Sprint(n, " registered"), text(KiB), list...))
	}
	return Case{
		Name: "registered and not hooked", Contenders: contenders,
		Judge: func(f []Figure) []Line {
			return []Line{
				atMost("100 against 1", f[1].Ratio(f[0]), 1.2, Ratio),
				atMost("10,000 against 1", f[2].Ratio(f[0]), 1.2, Ratio),
			}
		},
	}
}

// Sizes of the pictures, and of the cases about growth.
var (
	hookedSizes  = []int{0, 1, 2, 5, 10, 20}
	payloadSizes = []int{KiB, 4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, 1024 * KiB}
)

// hooked is growth in the number of interceptors that run.
func hooked() Case {
	contenders := make([]Contender, 0, len(hookedSizes))
	for _, n := range hookedSizes {
		contenders = append(contenders, calls(fmt.Sprint(n, " validators"), text(KiB), onRequest.validators(n)...))
	}
	return Case{
		Name: "growth with interceptors", Contenders: contenders,
		Judge: func(f []Figure) []Line {
			early, late := (nanos(f[3])-nanos(f[1]))/4, (nanos(f[5])-nanos(f[4]))/10
			return []Line{
				quoted("each of 2 to 5", early, Nanoseconds),
				quoted("each of 11 to 20", late, Nanoseconds),
				atMost("linear: the later against the earlier", late/early, 1.5, Ratio),
			}
		},
	}
}

// payload is growth with the payload's size.
func payload() Case {
	contenders := make([]Contender, 0, 2*len(payloadSizes))
	for _, n := range payloadSizes {
		contenders = append(contenders, calls(fmt.Sprint(n/KiB, " KiB"), text(n), onRequest.validators(1)...))
	}
	for _, n := range payloadSizes {
		contenders = append(contenders, calls(fmt.Sprint(n/KiB, " KiB of records"), records(n), onRequest.validators(1)...))
	}
	return Case{
		Name: "growth with the payload", Contenders: contenders, Slow: true,
		Judge: func(f []Figure) []Line {
			last := len(payloadSizes) - 1
			return []Line{
				atMost("linear: a byte of 1 MiB against a byte of 64 KiB", (nanos(f[last])/nanos(f[3]))/16, 1.5, Ratio),
				atMost("records: the same", (nanos(f[len(f)-1])/nanos(f[last+4]))/16, 1.5, Ratio),
				quoted("1 MiB that is one string", nanos(f[last]), Nanoseconds),
				quoted("1 MiB of records", nanos(f[len(f)-1]), Nanoseconds),
			}
		},
	}
}

// whole is tools/call between a client and a server in memory.
func whole() Case {
	return Case{
		Name: "whole tools/call in memory, against the bare server", Slow: true,
		Contenders: []Contender{
			inMemory("bare, 1 KiB", text(KiB), nil),
			inMemory("nothing hooked", text(KiB), hook{event: core.EventPromptsGet, phase: core.PhaseRequest}.validators(1)),
			inMemory("1 validator", text(KiB), onRequest.validators(1)),
			inMemory("10 validators", text(KiB), onRequest.validators(10)),
			inMemory("5 mutators", text(KiB), onRequest.mutators(5, keep)),
			inMemory("bare, 64 KiB", text(64*KiB), nil),
			inMemory("1 validator, 64 KiB", text(64*KiB), onRequest.validators(1)),
			inMemory("bare, 1 MiB", text(KiB*KiB), nil),
			inMemory("1 validator, 1 MiB", text(KiB*KiB), onRequest.validators(1)),
		},
		Judge: func(f []Figure) []Line {
			lines := []Line{quoted("bare, 1 KiB", nanos(f[0]), Nanoseconds)}
			for _, at := range [][2]int{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {6, 5}, {8, 7}} {
				lines = append(lines, quoted(f[at[0]].Name, f[at[0]].Ratio(f[at[1]]), Ratio))
			}
			return lines
		},
	}
}
