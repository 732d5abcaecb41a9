package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/chain"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Environment of the processes that the test binary starts of itself.
const (
	flipLoopDir    = "HEADGATE_TEST_FLIP_LOOP"
	secondPlaneDir = "HEADGATE_TEST_SECOND_PLANE"
)

// bare is a plane over one guard, in a process of its own.
func bare(dir string) (*admin.Plane, error) {
	ext := mcpext.New(nil)
	if err := ext.AddInterceptor(ct.Validator("guard", ct.Deny)); err != nil {
		return nil, err
	}
	ch, err := ext.Chain(nil)
	if err != nil {
		return nil, err
	}
	return admin.New(&admin.Options{
		Chains: map[string]*chain.Chain{"main": ch}, Anonymous: admin.RoleAdmin, StateDir: dir,
	})
}

// flipLoop is a process that changes the timeout to a number that goes up, and
// prints each one that was acknowledged with its revision. Break-glass is exempt
// from limits of rate, overrides are not: so it makes a plane for each hundred.
func flipLoop(dir string) {
	for i := 1 + rand.IntN(500_000); ; { // elsewhere than the process before, whose number may stand
		plane, err := bare(dir)
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		for range 90 {
			body := fmt.Sprintf(`{"timeoutMs":%d,"reason":"one more of a loop"}`, i)
			req := httptest.NewRequest(http.MethodPut, "/v1/interceptors/guard/override", strings.NewReader(body))
			req.Host = "127.0.0.1:1"
			req.Header.Set("If-Match", "*")
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			plane.Handler().ServeHTTP(w, req)
			if w.Code != http.StatusOK {
				fmt.Println("error", w.Code, w.Body.String())
				os.Exit(1)
			}
			fmt.Printf("ack %d %s\n", i, strings.Trim(w.Header().Get("ETag"), `"`))
			i++
		}
		if err := plane.Close(); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
}

// secondPlane wants a folder.
func secondPlane(dir string) {
	plane, err := bare(dir)
	if err != nil {
		fmt.Println(errors.Is(err, store.ErrLocked))
		return
	}
	_ = plane.Close()
	fmt.Println("opened")
}

// A process that is killed at any moment leaves a state that was acknowledged, or
// the one change that was under way; its history holds; and revisions never go
// back. (Seen to fail with a store that writes in place, and with history after
// state.)
func TestKilledAtRandomMoments(t *testing.T) {
	runs := 20
	if testing.Short() {
		runs = 2
	}
	for range runs { // a folder of its own each, since to verify a long history takes its time
		killRepeatedly(t, t.TempDir(), 10)
	}
}

// killRepeatedly kills that many processes, one after the other, over one folder.
func killRepeatedly(t *testing.T, dir string, kills int) {
	t.Helper()
	var floor uint64
	for range kills {
		acked, revision := killOne(t, dir)
		s, err := store.OpenFile(dir)
		require.NoError(t, err)
		c, err := s.Load(t.Context())
		require.NoError(t, err, "the file is whole")
		require.NoError(t, s.Close())
		require.GreaterOrEqual(t, c.Revision, max(revision, floor), "what was acknowledged stands, and nothing goes back")
		floor = c.Revision
		if acked > 0 {
			require.LessOrEqual(t, c.Revision, revision+1, "at most the one under way")
			found := string(c.Records[len(c.Records)-1].Value)
			assert.True(t, strings.Contains(found, fmt.Sprintf(`"timeoutMs":%d,`, acked)) ||
				strings.Contains(found, fmt.Sprintf(`"timeoutMs":%d,`, acked+1)), "%d: %s", acked, found)
		}
		_, err = history.Verify(&history.VerifyOptions{Dir: dir, Head: headOf(t, c)})
		require.NoError(t, err)
		log, err := history.Open(&history.Options{Dir: dir})
		require.NoError(t, err)
		require.GreaterOrEqual(t, log.Revision(), c.Revision, "what holds was written down before")
		require.NoError(t, log.Close())
	}
	plane, err := bare(dir)
	require.NoError(t, err)
	require.NoError(t, plane.Close())
	report, err := history.Verify(&history.VerifyOptions{Dir: dir})
	require.NoError(t, err)
	require.Zero(t, report.Missing)
}

// headOf reads the head that the state keeps of the history.
func headOf(t *testing.T, c store.Contents) *history.Head {
	t.Helper()
	var h history.Head
	if c.Note != nil {
		require.NoError(t, jsonInto(c.Note, &h))
	}
	return &h
}

// killOne runs the loop and kills it some moments after its first line. It returns
// the last number and revision that were printed.
func killOne(t *testing.T, dir string) (number int, revision uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), flipLoopDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	in := bufio.NewReader(out)
	first, err := in.ReadString('\n')
	require.NoError(t, err)
	kill := time.AfterFunc(time.Duration(rand.IntN(20_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	rest, _ := io.ReadAll(in)
	_ = cmd.Wait()
	for line := range bytes.Lines(append([]byte(first), rest...)) {
		text, whole := strings.CutSuffix(string(line), "\n")
		fields := strings.Fields(text)
		if !whole || len(fields) == 0 {
			break // cut off
		}
		require.Equal(t, "ack", fields[0], text)
		number, err = strconv.Atoi(fields[1])
		require.NoError(t, err)
		revision, err = strconv.ParseUint(strings.Split(fields[2], "-")[1], 10, 64)
		require.NoError(t, err)
	}
	return number, revision
}

// Two processes never share a folder: the second does not start, and takes over
// when the first has ended.
func TestOneProcessPerFolder(t *testing.T) {
	dir := t.TempDir()
	first, err := bare(dir)
	require.NoError(t, err)
	second := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), secondPlaneDir+"="+dir, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	assert.Equal(t, "true", second(), "the error is ErrLocked")
	require.NoError(t, first.Close())
	assert.Equal(t, "opened", second())
}
