package proof_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the servers and the interceptor hosts of its tests:
// run with peerKind set it is that, until its standard input ends.
const (
	peerKind = "HEADGATE_PROOF_PEER"
	peerSpec = "HEADGATE_PROOF_SPEC" // what the peer is to be, as its kind reads it

	seedVariable  = "HEADGATE_PROOF_SEED"
	scaleVariable = "HEADGATE_PROOF_SCALE"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(peerKind); kind != "" {
		if err := servePeer(kind, os.Getenv(peerSpec)); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", kind, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// servePeer is what a child process does instead of tests.
func servePeer(kind, spec string) error {
	switch kind {
	case subjectPeer:
		return serveSubject(spec)
	case guardPeer:
		return serveGuard(spec)
	}
	return fmt.Errorf("unknown kind of peer %q", kind)
}

// peer returns a command that runs this binary as a peer.
func peer(kind, spec string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// The race detector would make each process take a second to end.
	cmd.Env = append(os.Environ(), peerKind+"="+kind, peerSpec+"="+spec, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// seed returns the seed of this run, and has it printed if the test fails.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to draw the same again: %s=%d", seedVariable, s)
		}
	})
	return s
}

// scaled returns n times what the run was asked to be scaled by, at least one.
func scaled(t testing.TB, n int) int {
	t.Helper()
	text := os.Getenv(scaleVariable)
	if text == "" {
		return n
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", scaleVariable, err)
	}
	return max(1, int(float64(n)*factor))
}

// Dice draw everything that is left to chance. What is drawn under the same
// seed for the same purpose is the same, in any process.
type dice struct{ *rand.Rand }

func newDice(seed uint64, purpose string) dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return dice{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// chance is true once in n times.
func (d dice) chance(n int) bool { return d.IntN(n) == 0 }

// pick draws one of a list.
func pick[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }
