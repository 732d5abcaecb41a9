package history_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 12, 1, 3, 0, 0, 123456789, time.UTC)

func record(action string) history.Record {
	return history.Record{
		Time: at, Actor: history.Actor{Name: "alice", Role: "operate"}, Surface: "api", Action: action, Target: "guard",
		Outcome: history.Applied, Reason: "<why> & \u2028 because", Change: json.RawMessage(`{"mode":"audit"}`),
	}
}

func open(t testing.TB, opts history.Options) *history.Log {
	t.Helper()
	l, err := history.Open(&opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t testing.TB, l *history.Log, n int) (last history.Record) {
	t.Helper()
	for range n {
		var err error
		last, err = l.Append(record("override.set"), true)
		require.NoError(t, err)
	}
	return last
}

// written makes a history of five records and returns its lines and head.
func written(t testing.TB, dir string, key []byte) (lines []string, head *history.Head) {
	t.Helper()
	l := open(t, history.Options{Dir: dir, Key: key})
	add(t, l, 5)
	h := l.Head()
	require.NoError(t, l.Close())
	raw, err := os.ReadFile(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	return strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n"), &h
}

func verify(dir string, key []byte, head *history.Head) (*history.Report, error) {
	return history.Verify(&history.VerifyOptions{Dir: dir, Key: key, Head: head})
}

func TestRecordsAreChained(t *testing.T) {
	l := open(t, history.Options{})
	first := add(t, l, 1)
	second := add(t, l, 1)
	assert.Equal(t, []uint64{1, 2}, []uint64{first.Seq, second.Seq})
	assert.Empty(t, first.PrevHash)
	assert.Equal(t, first.Hash, second.PrevHash)
	assert.Equal(t, history.Head{Seq: 2, Hash: second.Hash}, l.Head())
	assert.NotEqual(t, first.ID, second.ID)
	assert.Equal(t, at.Truncate(time.Millisecond), first.Time)
}

func TestIDsSortByTime(t *testing.T) {
	before := history.NewID(at)
	for i := range 36 { // four years
		next := history.NewID(at.Add(time.Duration(1<<i) * time.Millisecond))
		require.Less(t, before, next)
		require.NotContains(t, next, "/")
		before = next
	}
}

// Whatever is done to the files shows.
func TestVerifyTellsTampering(t *testing.T) {
	join := func(lines []string) string { return strings.TrimSuffix(strings.Join(lines, ""), "\n") + "\n" }
	for name, tamper := range map[string]func([]string) string{
		"an edited member": func(l []string) string { return strings.Replace(join(l), "alice", "mallory", 1) },
		"an edited hash":   func(l []string) string { return strings.Replace(join(l), `"hash":"`, `"hash":"0`, 1) },
		"a member more":    func(l []string) string { return strings.Replace(join(l), `{"seq":2`, `{"x":1,"seq":2`, 1) },
		"another spelling": func(l []string) string { return strings.Replace(join(l), `{"seq":2`, `{ "seq":2`, 1) },
		"a duplicate member": func(l []string) string {
			return strings.Replace(join(l), `"action":"override.set"`, `"action":"x","action":"override.set"`, 1)
		},
		"a line taken out":   func(l []string) string { return join(append(append([]string{}, l[:2]...), l[3:]...)) },
		"two lines swapped":  func(l []string) string { return join([]string{l[0], l[2], l[1], l[3], l[4] + "\n"}) },
		"a line twice":       func(l []string) string { return join([]string{l[0], l[1], l[1], l[2], l[3], l[4]}) },
		"the tail cut off":   func(l []string) string { return join(l[:4]) },
		"all of it gone":     func([]string) string { return "" },
		"a line of nonsense": func(l []string) string { return join(append([]string{"nonsense\n"}, l...)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lines, head := written(t, dir, nil)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "history.jsonl"), []byte(tamper(lines)), 0o600))
			report, err := verify(dir, nil, head)
			require.ErrorIs(t, err, history.ErrBroken)
			require.NotEmpty(t, report.Faults)
			for _, f := range report.Faults {
				assert.NotContains(t, f, "because", "faults do not quote records")
			}
		})
	}
}

// Somebody who has looked at what does not hold can have it judged from there on.
func TestWhatHasBeenLookedAt(t *testing.T) {
	dir := t.TempDir()
	lines, head := written(t, dir, nil)
	cut := append([]string{"nonsense\n"}, lines[2:]...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "history.jsonl"), []byte(strings.Join(cut, "")+"\n"), 0o600))
	_, err := verify(dir, nil, head)
	require.ErrorIs(t, err, history.ErrBroken)
	report, err := history.Verify(&history.VerifyOptions{Dir: dir, Head: head, Since: 3})
	require.NoError(t, err)
	require.Equal(t, uint64(3), report.First)
	require.Equal(t, 3, report.Records)
	_, err = history.Verify(&history.VerifyOptions{Dir: dir, Head: head, Since: 2})
	require.ErrorIs(t, err, history.ErrBroken)
}

// Whatever was done to the files before a restart still shows after it, however
// much is written since.
func TestTamperingShowsAfterARestart(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, path string, lines []string){
		"the tail cut off": func(t *testing.T, path string, lines []string) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[:3], "")), 0o600))
		},
		"the beginning cut off": func(t *testing.T, path string, lines []string) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[2:], "")+"\n"), 0o600))
		},
		"all of it emptied": func(t *testing.T, path string, _ []string) {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		},
		"the file removed": func(t *testing.T, path string, _ []string) { require.NoError(t, os.Remove(path)) },
		"an edited member": func(t *testing.T, path string, lines []string) {
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(strings.Join(lines, "")+"\n", "alice", "mallory", 1)), 0o600))
		},
		"built anew": func(t *testing.T, path string, _ []string) { rebuilt(t, filepath.Dir(path), nil) },
		"built anew, and longer": func(t *testing.T, path string, _ []string) {
			rebuilt(t, filepath.Dir(path), nil)
			l := open(t, history.Options{Dir: filepath.Dir(path)})
			add(t, l, 3)
			require.NoError(t, l.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lines, head := written(t, dir, nil)
			tamper(t, filepath.Join(dir, "history.jsonl"), lines)
			for range 2 { // restarts
				l := open(t, history.Options{Dir: dir, Head: head})
				require.NotEmpty(t, l.Found().Faults)
				require.NotZero(t, l.Faults())
				add(t, l, 2)
				h := l.Head()
				head = &h
				require.NoError(t, l.Close())
				_, err := verify(dir, nil, head)
				require.ErrorIs(t, err, history.ErrBroken)
			}
		})
	}
}

// The file of a log that is open is its own: what others do to it shows, and
// what is recorded afterwards is where it will be found.
func TestTamperingUnderAnOpenLog(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, path string){
		"emptied": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"cut within a line": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()-20))
		},
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		},
		"a line added": func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("{}\n")
			require.NoError(t, errors.Join(err, f.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "history.jsonl")
			l := open(t, history.Options{Dir: dir})
			add(t, l, 3)
			require.Zero(t, l.Faults())
			tamper(t, path)
			last := add(t, l, 1)
			require.Equal(t, uint64(1), l.Faults())
			add(t, l, 1)
			require.Equal(t, uint64(1), l.Faults(), "told once")
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			line, err := history.Encode(&last)
			require.NoError(t, err)
			require.Contains(t, "\n"+string(raw), "\n"+string(line)+"\n", "after an end of a line, or at the beginning")
			_, err = verify(dir, nil, nil)
			require.ErrorIs(t, err, history.ErrBroken)
		})
	}
}

func TestALinkIsNotFollowed(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(elsewhere, nil, 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "history.jsonl")))
	_, err := history.Open(&history.Options{Dir: dir})
	require.Error(t, err)
	_, err = verify(dir, nil, nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, history.ErrBroken)
}

// rebuilt is a history of the same length that somebody else made.
func rebuilt(t *testing.T, dir string, key []byte) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, "history.jsonl")))
	l := open(t, history.Options{Dir: dir, Key: key})
	for range 5 {
		r := record("override.set")
		r.Actor.Name = "nobody"
		_, err := l.Append(r, false)
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
}

func TestARebuiltChain(t *testing.T) {
	key := []byte("a key that is kept elsewhere")
	t.Run("holds by itself without a key", func(t *testing.T) {
		dir := t.TempDir()
		written(t, dir, nil)
		rebuilt(t, dir, nil)
		_, err := verify(dir, nil, nil)
		require.NoError(t, err)
	})
	t.Run("is not the one that the state knows", func(t *testing.T) {
		dir := t.TempDir()
		_, head := written(t, dir, nil)
		rebuilt(t, dir, nil)
		report, err := verify(dir, nil, head)
		require.ErrorIs(t, err, history.ErrBroken)
		require.Contains(t, report.Faults[0], "built anew")
	})
	t.Run("cannot be made without the key", func(t *testing.T) {
		dir := t.TempDir()
		written(t, dir, key)
		_, err := verify(dir, key, nil)
		require.NoError(t, err)
		_, err = verify(dir, nil, nil)
		require.ErrorIs(t, err, history.ErrBroken, "another key is no key")
		rebuilt(t, dir, nil)
		_, err = verify(dir, key, nil)
		require.ErrorIs(t, err, history.ErrBroken)
	})
}

// A last line without an end is a crash's: it is told, and cut off by the next
// that opens the log.
func TestATornLastLine(t *testing.T) {
	dir := t.TempDir()
	lines, head := written(t, dir, nil)
	path := filepath.Join(dir, "history.jsonl")
	last := strings.TrimSuffix(lines[4], "\n")
	for n := range len(last) {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[:4], "")+last[:n]), 0o600))
		report, err := verify(dir, nil, &history.Head{Seq: 4, Hash: hashOf(t, lines[3])})
		require.NoError(t, err)
		require.Equal(t, n > 0, report.Torn)
	}
	_, err := verify(dir, nil, head)
	require.ErrorIs(t, err, history.ErrBroken, "unless the state knows of it")
	l := open(t, history.Options{Dir: dir})
	require.Equal(t, uint64(5), add(t, l, 1).Seq)
	require.NoError(t, l.Close())
	report, err := verify(dir, nil, nil)
	require.NoError(t, err)
	require.Equal(t, 5, report.Records)
	require.False(t, report.Torn)
}

func hashOf(t *testing.T, line string) string {
	t.Helper()
	r, err := history.Decode([]byte(strings.TrimSuffix(line, "\n")))
	require.NoError(t, err)
	return r.Hash
}

func TestALogGoesOnWhereItEnded(t *testing.T) {
	dir := t.TempDir()
	_, head := written(t, dir, nil)
	l := open(t, history.Options{Dir: dir})
	require.Equal(t, *head, l.Head())
	r := add(t, l, 1)
	require.Equal(t, uint64(6), r.Seq)
	require.Equal(t, head.Hash, r.PrevHash)
	records, lost := l.Since(0)
	require.Len(t, records, 6)
	require.False(t, lost)
	info, err := os.Stat(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// Rotation keeps the chain over files, and their number and size within bounds.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	opts := history.Options{Dir: dir, MaxFile: 2000, MaxFiles: 3}
	for range 3 { // over restarts too
		l := open(t, opts)
		add(t, l, 20)
		require.NoError(t, l.Close())
	}
	files, err := filepath.Glob(filepath.Join(dir, "history*.jsonl"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(2000))
	}
	report, err := verify(dir, nil, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(60), report.Last)
	require.Greater(t, report.First, uint64(1))
	require.NoError(t, os.Remove(files[0]))
	_, err = verify(dir, nil, nil)
	require.ErrorIs(t, err, history.ErrBroken, "what the log did not let go of")
}

func TestAFileMissingInTheMiddleShows(t *testing.T) {
	dir := t.TempDir()
	l := open(t, history.Options{Dir: dir, MaxFile: 2000})
	add(t, l, 30)
	require.NoError(t, l.Close())
	files, err := filepath.Glob(filepath.Join(dir, "history-*.jsonl"))
	require.NoError(t, err)
	require.Greater(t, len(files), 2)
	require.NoError(t, os.Remove(files[1]))
	_, err = verify(dir, nil, nil)
	require.ErrorIs(t, err, history.ErrBroken)
}

// What could not be written is counted, and the next record that is written says
// how many are missing before it.
func TestAWriteThatFailsIsAGap(t *testing.T) {
	dir := t.TempDir()
	l := open(t, history.Options{Dir: dir})
	first := add(t, l, 1)
	mend := l.Break()
	for range 3 {
		_, err := l.Append(record("override.set"), true)
		require.Error(t, err)
	}
	failures, missing := l.Health()
	require.Equal(t, []uint64{3, 3}, []uint64{failures, missing})
	require.Equal(t, first.Seq, l.Head().Seq)
	mend()
	r := add(t, l, 1)
	require.Equal(t, uint64(3), r.Gap)
	require.Equal(t, first.Hash, r.PrevHash, "the chain has no hole")
	failures, missing = l.Health()
	require.Equal(t, []uint64{3, 0}, []uint64{failures, missing})
	require.NoError(t, l.Close())
	report, err := verify(dir, nil, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(3), report.Missing)
}

// A full disk takes half a line: it is cut off before the next record. A limit
// on the size of files stands in for the disk.
func TestHalfALineOfAFullDiskIsCutOff(t *testing.T) {
	dir := t.TempDir()
	l := open(t, history.Options{Dir: dir})
	add(t, l, 1)
	info, err := os.Stat(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 40, Max: old.Max}))
	_, failed := l.Append(record("override.set"), true)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old))
	require.Error(t, failed)
	require.Equal(t, uint64(2), add(t, l, 1).Seq)
	require.NoError(t, l.Close())
	report, err := verify(dir, nil, nil)
	require.NoError(t, err)
	require.Equal(t, 2, report.Records)
	require.Equal(t, uint64(1), report.Missing)
}

func TestAFolderThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "history.jsonl"), 0o700))
	_, err := history.Open(&history.Options{Dir: dir})
	require.Error(t, err)
	_, err = history.Open(&history.Options{Dir: filepath.Join(dir, "not", "there")})
	require.Error(t, err)
	_, err = verify(filepath.Join(dir, "not", "there"), nil, nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, history.ErrBroken)
}

func TestSinceTellsWhatIsKeptNoMore(t *testing.T) {
	l := open(t, history.Options{Keep: 3})
	records, lost := l.Since(0)
	require.Empty(t, records)
	require.False(t, lost, "nothing was, so nothing is lost")
	add(t, l, 5)
	for _, tt := range []struct {
		after, first uint64
		n            int
		lost         bool
	}{{0, 3, 3, true}, {1, 3, 3, true}, {2, 3, 3, false}, {3, 4, 2, false}, {5, 0, 0, false}, {9, 0, 0, false}} {
		records, lost := l.Since(tt.after)
		require.Len(t, records, tt.n, "after %d", tt.after)
		require.Equal(t, tt.lost, lost, "after %d", tt.after)
		if tt.n > 0 {
			require.Equal(t, tt.first, records[0].Seq)
		}
	}
}

func TestAppendingAtOnceKeepsTheChain(t *testing.T) {
	dir := t.TempDir()
	l := open(t, history.Options{Dir: dir, MaxFile: 5000})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				_, err := l.Append(record("override.set"), false)
				assert.NoError(t, err)
				l.Since(3)
				l.Head()
			}
		})
	}
	group.Wait()
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err := l.Append(record("override.set"), false)
	require.ErrorIs(t, err, history.ErrClosed)
	report, err := verify(dir, nil, nil)
	require.NoError(t, err)
	require.Equal(t, 160, report.Records)
}

// A line is read if it is spelled as it would be written, and not otherwise.
func FuzzLine(f *testing.F) {
	l := open(f, history.Options{})
	r := add(f, l, 1)
	line, err := history.Encode(&r)
	require.NoError(f, err)
	f.Add(string(line))
	f.Add(`{}`)
	f.Add(`{"seq":1,"id":"","time":"0001-01-01T00:00:00Z","actor":{"name":""},"surface":"","action":"","outcome":"","prevHash":""}`)
	f.Fuzz(func(t *testing.T, line string) {
		r, err := history.Decode([]byte(line))
		if err != nil {
			return
		}
		again, err := history.Encode(r)
		require.NoError(t, err)
		require.Equal(t, line, string(again))
	})
}
