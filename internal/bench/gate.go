package bench

import (
	"context"
	"fmt"
)

// A Band is a ratio that is held: what the second contender of a pair takes
// against the first, in one run. Both do much the same things, allocate alike
// and give way to other goroutines alike, so that a busy machine is as hard on
// one as on the other.
type Band struct {
	Name      string
	Reference Contender
	Measured  Contender
	// Usual is the ratio on a machine with nothing else to do. More than a
	// fifth above it is too much.
	Usual float64
}

// Slack is by how much a ratio may leave its band.
const Slack = 1.2

// Bands returns the ratios that are held.
func Bands() []Band {
	other := hook{event: "prompts/get", phase: onRequest.phase}
	many := append(onRequest.validators(1), other.mutators(999, keep)...)
	return []Band{
		{"1,000 registered against 1", calls("1", text(KiB), onRequest.validators(1)...), calls("1,000", text(KiB), many...), 1.0},
		{"ten validators against one by one", oneByOne("10 one by one", 10, 0), calls("10 validators", text(KiB), onRequest.validators(10)...), 0.85},
		{"five mutators against their calls", oneByOne("5 calls", 5, KiB), calls("5 mutators", text(KiB), onRequest.mutators(5, keep)...), 1.2},
		{"a change of 64 KiB of records against handler and decoding", handlerAndDecode("least", records(64*KiB)), calls("change", records(64*KiB), onRequest.mutators(1, stamp)...), 1.1},
		{"a change of a string of 64 KiB against handler and decoding", handlerAndDecode("least", text(64*KiB)), calls("change", text(64*KiB), onRequest.mutators(1, stamp)...), 0.85},
		{"20 validators against 10, each", calls("10", text(KiB), onRequest.validators(10)...), calls("20", text(KiB), onRequest.validators(20)...), 1.9},
	}
}

// Hold measures the band and returns an error if the ratio is out of it. One
// that is out is measured again, for longer: only what stays out counts.
func (b *Band) Hold(ctx context.Context, p Plan) (ratio float64, err error) {
	for try := 1; ; try++ {
		f := p.Measure(ctx, b.Reference, b.Measured)
		ratio = f[1].Ratio(f[0])
		if ctx.Err() != nil || ratio <= b.Usual*Slack {
			return ratio, ctx.Err()
		}
		if try == 3 {
			return ratio, fmt.Errorf("bench: %s: %.2f×, usually %.2f× and at most %.2f×", b.Name, ratio, b.Usual, b.Usual*Slack)
		}
		p.Rounds *= 2
	}
}
