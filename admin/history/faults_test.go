package history

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openClosed() (*os.File, error) {
	f, err := os.CreateTemp("", "closed")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	return f, f.Close()
}

func record(action string) Record {
	return Record{Time: time.Unix(1_700_000_000, 0), Actor: Actor{Name: "alice"}, Surface: "api", Action: action, Outcome: Applied}
}

// A record whose sync failed was not written: it is taken back before the next
// one, which has its place in the chain.
func TestAFailedSyncLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(&Options{Dir: dir})
	require.NoError(t, err)
	_, err = l.Append(record("first"), true)
	require.NoError(t, err)
	l.flush = func(*os.File) error { return os.ErrDeadlineExceeded }
	_, err = l.Append(record("second"), true)
	require.Error(t, err)
	l.flush = (*os.File).Sync
	r, err := l.Append(record("third"), true)
	require.NoError(t, err)
	require.Equal(t, uint64(2), r.Seq)
	require.Equal(t, uint64(1), r.Gap)
	require.NoError(t, l.Close())
	report, err := Verify(&VerifyOptions{Dir: dir, Head: &Head{r.Seq, r.Hash}})
	require.NoError(t, err)
	require.Equal(t, 2, report.Records)
	require.Equal(t, uint64(1), report.Missing)
}

// A file that was put aside when no new one could be begun does not end the log.
func TestARotationThatFailsHalfwayIsMended(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(&Options{Dir: dir, MaxFile: 300})
	require.NoError(t, err)
	_, err = l.Append(record("first"), false)
	require.NoError(t, err)
	// As the rotation leaves it when it cannot open the new file.
	require.NoError(t, l.file.Close())
	l.file = nil
	require.NoError(t, os.Rename(filepath.Join(dir, current), filepath.Join(dir, "history-00000000000000000001.jsonl")))
	for range 3 {
		_, err = l.Append(record("next"), false)
	}
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = Verify(&VerifyOptions{Dir: dir})
	require.NoError(t, err)
}
