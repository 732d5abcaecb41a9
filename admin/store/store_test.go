package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// lockedDir has the test binary try to open a folder that another process has.
const lockedDir = "HEADGATE_TEST_LOCKED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockedDir); dir != "" {
		_, err := store.OpenFile(dir)
		fmt.Println(err)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, dir string) *store.File {
	t.Helper()
	f, err := store.OpenFile(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// commit writes one key, whatever revision it is at.
func commit(t *testing.T, s store.Store, key, value string) uint64 {
	t.Helper()
	c, _ := s.Load(t.Context())
	var was uint64
	for _, r := range c.Records {
		if r.Key == key {
			was = r.Revision
		}
	}
	rev, err := s.Commit(t.Context(), store.Commit{Writes: []store.Write{{Key: key, Was: was, Value: json.RawMessage(value)}}})
	require.NoError(t, err)
	return rev
}

func load(t *testing.T, s store.Store) store.Contents {
	t.Helper()
	c, err := s.Load(t.Context())
	require.NoError(t, err)
	return c
}

// stores are both kinds.
func stores(t *testing.T) map[string]store.Store {
	return map[string]store.Store{"memory": store.NewMemory(nil), "file": open(t, t.TempDir())}
}

func TestCommitsAreAllOrNothing(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			require.Equal(t, uint64(1), commit(t, s, "a", `1`))
			require.Equal(t, uint64(2), commit(t, s, "b", `2`))
			_, err := s.Commit(t.Context(), store.Commit{Writes: []store.Write{
				{Key: "a", Was: 1, Value: json.RawMessage(`9`)}, {Key: "b", Was: 1, Value: json.RawMessage(`9`)},
			}})
			require.ErrorIs(t, err, store.ErrConflict)
			want := store.Contents{Revision: 2, Records: []store.Record{
				{Key: "a", Revision: 1, Value: json.RawMessage(`1`)}, {Key: "b", Revision: 2, Value: json.RawMessage(`2`)},
			}}
			require.Equal(t, want, load(t, s))
		})
	}
}

func TestOneWriterWinsARevision(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			won := make(chan bool)
			for range 16 {
				go func() {
					_, err := s.Commit(context.Background(), store.Commit{Writes: []store.Write{{Key: "a", Value: json.RawMessage(`1`)}}})
					won <- err == nil
				}()
			}
			wins := 0
			for range 16 {
				if <-won {
					wins++
				}
			}
			require.Equal(t, 1, wins)
		})
	}
}

func TestRevisionsNeverGoBack(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			rev, err := s.Commit(t.Context(), store.Commit{Floor: 41, Note: json.RawMessage(`{"seq":7}`)})
			require.NoError(t, err)
			require.Equal(t, uint64(42), rev, "above the floor")
			rev, err = s.Commit(t.Context(), store.Commit{Floor: 3})
			require.NoError(t, err)
			require.Equal(t, uint64(43), rev)
			require.JSONEq(t, `{"seq":7}`, string(load(t, s).Note), "a commit without a note keeps it")
		})
	}
}

func TestWhatWasLoadedIsACopy(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			commit(t, s, "a", `1`)
			load(t, s).Records[0] = store.Record{Key: "z"}
			require.Equal(t, "a", load(t, s).Records[0].Key)
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, s.Watch(ctx, func() {}), context.Canceled)
		})
	}
}

func TestMemorySaysWhyItIsUsed(t *testing.T) {
	m := store.NewMemory(os.ErrPermission)
	st := m.Status()
	require.Equal(t, "memory", st.Kind)
	require.False(t, st.Durable)
	require.ErrorIs(t, st.Err, os.ErrPermission)
	require.NoError(t, m.Close())
}

func TestAFileComesBack(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	require.Equal(t, store.Contents{}, load(t, f), "nothing at first")
	commit(t, f, "override:a/b %\"\u2028", `{"mode":"audit"}`)
	commit(t, f, "b", `null`)
	want := load(t, f)
	require.True(t, f.Status().Durable)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close(), "twice")
	_, err := f.Commit(t.Context(), store.Commit{})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.NoError(t, f.Retry())

	info, err := os.Stat(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, want, load(t, open(t, dir)))
}

// The generation before is kept beside the state, and can be read by people.
func TestPreviousGenerationIsKept(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	commit(t, f, "a", `1`)
	first, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	commit(t, f, "a", `2`)
	kept, err := os.ReadFile(filepath.Join(dir, "state.json.bak"))
	require.NoError(t, err)
	require.Equal(t, string(first), string(kept))
}

func TestLeftoversOfACrashAreSwept(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "state.json.tmp-0011")
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	other := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	f := open(t, dir)
	require.NoFileExists(t, left)
	require.FileExists(t, other)
	commit(t, f, "a", `1`)
	require.Empty(t, glob(t, dir, "state.json.tmp-*"))
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	return found
}

// small writes a state and returns its bytes.
func small(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	f := open(t, dir)
	commit(t, f, "a", `{"mode":"audit"}`)
	require.NoError(t, f.Close())
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	return raw
}

// A file that is cut off anywhere, or has one bit turned, is no state.
func TestNoPartOfAFileIsAState(t *testing.T) {
	raw := small(t)
	for n := range len(raw) - 1 { // the last byte is the end of the line
		_, err := store.Decode(raw[:n])
		require.ErrorIs(t, err, store.ErrCorrupt, "cut after %d bytes", n)
	}
	for i := range len(raw) - 1 {
		bad := append([]byte{}, raw...)
		bad[i] ^= 1
		if c, err := store.Decode(bad); err == nil { // a bit of a hex digit's case, or of a space
			t.Fatalf("byte %d: %q was read as %v", i, bad, c)
		}
	}
}

// What cannot be read is no state; it stays where it is until the next change,
// which puts it aside for somebody to look at.
func TestUnreadableFiles(t *testing.T) {
	good := string(small(t))
	for name, raw := range map[string]string{
		"empty":            "",
		"not JSON":         "hello",
		"another version":  strings.Replace(good, `"version":1`, `"version":2`, 1),
		"an unknown field": strings.Replace(good, `{"version"`, `{"extra":1,"version"`, 1),
		"something after":  good + `{}`,
		"a wrong checksum": strings.Replace(good, `"audit"`, `"off"`, 1),
		"half":             good[:len(good)/2],
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.json")
			require.NoError(t, os.WriteFile(path, []byte(raw), 0o600))
			f := open(t, dir)
			c, err := f.Load(t.Context())
			require.ErrorIs(t, err, store.ErrCorrupt)
			require.Equal(t, store.Contents{}, c, "nothing is guessed")
			require.ErrorIs(t, f.Status().Err, store.ErrCorrupt)
			require.FileExists(t, path)

			commit(t, f, "b", `1`)
			require.NoError(t, f.Status().Err)
			aside := glob(t, dir, "state.json.corrupt-*")
			require.Len(t, aside, 1)
			kept, err := os.ReadFile(aside[0])
			require.NoError(t, err)
			require.Equal(t, raw, string(kept))
			require.NoError(t, f.Close())
			require.Len(t, load(t, open(t, dir)).Records, 1)
		})
	}
}

func TestALinkIsNoState(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "elsewhere.json")
	require.NoError(t, os.WriteFile(target, small(t), 0o600))
	require.NoError(t, os.Symlink(target, filepath.Join(dir, "state.json")))
	f := open(t, dir)
	_, err := f.Load(t.Context())
	require.ErrorIs(t, err, store.ErrCorrupt)
	commit(t, f, "b", `1`)
	raw, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, string(small(t)), string(raw), "what the link leads to is not written")
}

func TestALockThatIsALinkIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "x"), filepath.Join(dir, "lock")))
	_, err := store.OpenFile(dir)
	require.Error(t, err)
}

func TestAnOversizeFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 64<<20+1)) // sparse
	_, err := open(t, dir).Load(t.Context())
	require.ErrorIs(t, err, store.ErrCorrupt)
}

func TestContentsThatContradictThemselvesAreRefused(t *testing.T) {
	for name, c := range map[string]store.Contents{
		"a record of the future": {Revision: 1, Records: []store.Record{{Key: "a", Revision: 2}}},
		"not sorted":             {Revision: 2, Records: []store.Record{{Key: "b", Revision: 1}, {Key: "a", Revision: 2}}},
		"one key twice":          {Revision: 2, Records: []store.Record{{Key: "a", Revision: 1}, {Key: "a", Revision: 2}}},
	} {
		raw, err := store.Encode(&c)
		require.NoError(t, err)
		_, err = store.Decode(raw)
		require.ErrorIs(t, err, store.ErrCorrupt, name)
	}
}

// A folder belongs to one process, and is free when that ends, however it ends.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	_, err := store.OpenFile(dir)
	require.ErrorIs(t, err, store.ErrLocked, "in this process too")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other := func() string {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), lockedDir+"="+dir, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	require.Contains(t, other(), store.ErrLocked.Error())
	require.NoError(t, f.Close())
	require.Equal(t, "<nil>\n", other())
	_ = open(t, dir)
}

// A folder that cannot be made or written is an error that is not ErrLocked.
func TestAFolderThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := store.OpenFile(filepath.Join(file, "below"))
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrLocked)
}

// What cannot be written holds all the same, is reported, and is written by the
// next commit or Retry that can.
func TestWhatCannotBeWrittenHolds(t *testing.T) {
	for name, again := range map[string]func(*testing.T, *store.File){
		"by the next commit": func(t *testing.T, f *store.File) { commit(t, f, "c", `3`) },
		"by Retry":           func(t *testing.T, f *store.File) { require.NoError(t, f.Retry()) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := open(t, dir)
			commit(t, f, "a", `1`)
			gone := dir + "-gone"
			require.NoError(t, os.Rename(dir, gone)) // works for root too, unlike permissions
			commit(t, f, "b", `2`)
			st := f.Status()
			require.False(t, st.Durable)
			require.ErrorIs(t, st.Err, store.ErrUnavailable)
			require.Len(t, load(t, f).Records, 2)
			require.ErrorIs(t, f.Retry(), store.ErrUnavailable)

			require.NoError(t, os.Rename(gone, dir))
			again(t, f)
			require.True(t, f.Status().Durable)
			want := load(t, f)
			require.NoError(t, f.Close())
			require.Equal(t, want, load(t, open(t, dir)))
		})
	}
}

// A fault between two steps of a write leaves the old state or the new one.
func TestFaultsBetweenTheSteps(t *testing.T) {
	block := func(t *testing.T, path string) { // a folder that is not empty can be neither replaced nor removed
		require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
	}
	t.Run("the previous generation cannot be replaced", func(t *testing.T) {
		dir := t.TempDir()
		f := open(t, dir)
		commit(t, f, "a", `1`)
		block(t, filepath.Join(dir, "state.json.bak"))
		commit(t, f, "a", `2`)
		require.False(t, f.Status().Durable)
		require.Empty(t, glob(t, dir, "state.json.tmp-*"), "nothing is left behind")
		require.NoError(t, f.Close())
		require.Equal(t, `1`, string(load(t, open(t, dir)).Records[0].Value))
	})
	t.Run("a corrupt file was put aside, and the new one did not come", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "state.json")
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		f := open(t, dir)
		require.NoError(t, os.Remove(path)) // as if it had been put aside already
		commit(t, f, "a", `1`)
		require.True(t, f.Status().Durable, "%v", f.Status().Err)
		require.NoError(t, f.Close())
		require.Len(t, load(t, open(t, dir)).Records, 1)
	})
}

func FuzzDecode(f *testing.F) {
	good, err := store.Encode(&store.Contents{Revision: 3, Records: []store.Record{{Key: "a", Revision: 2, Value: json.RawMessage(`{"x":1}`)}}})
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"version":1,"sha256":"","state":null}`))
	f.Add([]byte(`{"version":1,"sha256":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","state":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := store.Decode(raw)
		if err != nil {
			assert.ErrorIs(t, err, store.ErrCorrupt)
			return
		}
		again, err := store.Encode(&c)
		require.NoError(t, err)
		back, err := store.Decode(again)
		require.NoError(t, err)
		require.Equal(t, c.Revision, back.Revision)
	})
}
