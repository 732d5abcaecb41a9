package admin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func persisted(a answer) []any { return []any{a.at("persisted", "local"), a.at("persisted", "audit")} }

// Without a folder, or with one that cannot be used, what is changed holds in
// memory, and each reply says so.
func TestInMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, dir := range map[string]string{"no folder": "", "a folder that cannot be made": filepath.Join(file, "below")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, admin.Options{StateDir: dir}, guard())
			a := r.flip("guard", auditBody)
			assert.Equal(t, []any{false, false}, persisted(a))
			assert.False(t, r.denied())
			assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "store"))
			assert.Zero(t, r.metric("headgate_control_store_up", "store", "memory"))
			assert.Equal(t, "memory", r.get("/v1/state").at("store", "kind"))
		})
	}
}

// A folder that goes away keeps nobody from turning a policy off, and what was
// changed meanwhile is written when it is back.
func TestADiskThatIsFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	r := newRig(t, admin.Options{StateDir: dir}, guard())
	assert.Equal(t, []any{true, true}, persisted(r.flip("guard", `{"mode":"off",`+why+`}`)))
	require.NoError(t, os.Rename(dir, dir+"-gone"))
	a := r.flip("guard", auditBody)
	assert.Equal(t, false, a.at("persisted", "local"))
	assert.Equal(t, "audit", r.mode("guard"))
	assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "store"))
	require.NoError(t, os.Rename(dir+"-gone", dir))
	assert.Equal(t, []any{true, true}, persisted(r.flip("guard", `{"mode":"off","ttl":"1h",`+why+`}`)))
	assert.Equal(t, map[string]any{}, r.get("/readyz?verbose").at("degraded"))
	r.stop()
	r.begin(admin.Options{StateDir: dir})
	assert.Equal(t, "off", r.mode("guard"))
}

// A history that cannot be written keeps nobody from turning a policy off: the
// flip stands, and says that it was not written down.
func TestAHistoryThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "history.jsonl"), 0o700))
	r := newRig(t, admin.Options{StateDir: dir}, guard())
	a := r.flip("guard", auditBody)
	assert.Equal(t, []any{true, false}, persisted(a))
	assert.False(t, r.denied())
	assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "history"))
}

// With a store of one's own and no folder the history is in memory: no reply says
// that it is kept.
func TestAStoreOfOnesOwn(t *testing.T) {
	s, err := store.OpenFile(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	r := newRig(t, admin.Options{Store: s}, guard())
	assert.Equal(t, []any{true, false}, persisted(r.flip("guard", auditBody)))
	r.stop()
	r.begin(admin.Options{Store: s})
	assert.Equal(t, "audit", r.mode("guard"), "the plane does not close what it did not open")
}

// A state that cannot be read is not guessed at: what is configured holds, and
// the plane says so until the next change, which puts the file aside. Revisions
// go on.
func TestAStateThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, admin.Options{StateDir: dir}, guard())
	r.flip("guard", `{"mode":"off",`+why+`}`)
	tag := r.flip("guard", auditBody).etag()
	r.stop()
	path := filepath.Join(dir, "state.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(raw), "audit", "xudit", 1)), 0o600))
	r.begin(admin.Options{StateDir: dir})
	assert.Equal(t, "active", r.mode("guard"))
	assert.True(t, r.denied())
	assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "state"))
	a := r.flip("guard", auditBody)
	assert.Greater(t, a.etag(), tag, "revisions do not go back")
	assert.Nil(t, r.get("/readyz?verbose").at("degraded", "state"))
	aside, err := filepath.Glob(path + ".corrupt-*")
	require.NoError(t, err)
	assert.Len(t, aside, 1)
	verify(t, dir, r)
}

// verify holds the history against the head that the state knows.
func verify(t *testing.T, dir string, r *rig) *history.Report {
	t.Helper()
	head := r.get("/v1/state").at("history").(map[string]any)
	r.stop()
	report, err := history.Verify(&history.VerifyOptions{
		Dir: dir, Head: &history.Head{Seq: uint64(head["seq"].(float64)), Hash: head["hash"].(string)},
	})
	require.NoError(t, err)
	return report
}

// Records that this version does not know are kept and reported.
func TestStrangeRecordsAreKept(t *testing.T) {
	dir := t.TempDir()
	s, err := store.OpenFile(dir)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), store.Commit{Writes: []store.Write{
		{Key: "future:x", Value: []byte(`{"a":1}`)}, {Key: "override:guard", Value: []byte(`{"mode":"audit","percent":50,"reason":"x","since":"2026-01-01T00:00:00Z","actor":"a","change":"c"}`)},
	}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	r := newRig(t, admin.Options{StateDir: dir}, guard(), named("b"))
	assert.Equal(t, "active", r.mode("guard"), "half an override is another override")
	assert.Contains(t, r.log.String(), "future:x")
	r.flip("b", auditBody)
	assert.Contains(t, readAll(t, dir), `"percent":50`)
	assert.Contains(t, readAll(t, dir), "future:x")
	r.flip("guard", auditBody)
	assert.Equal(t, "audit", r.mode("guard"))
}

// The history of a plane tells it all, over restarts, and what is done to it
// shows.
func TestHistoryOfAPlane(t *testing.T) {
	dir := t.TempDir()
	key := []byte("a key of the history")
	r := newRig(t, admin.Options{StateDir: dir, HistoryKey: key}, guard())
	r.flip("guard", auditBody)
	r.put("guard", readSecret, auditBody)
	r.stop()
	r.begin(admin.Options{StateDir: dir, HistoryKey: key})
	r.clear("guard", operateSecret)
	r.stop()
	report, err := history.Verify(&history.VerifyOptions{Dir: dir, Key: key})
	require.NoError(t, err)
	require.Equal(t, 5, report.Records, "start, set, refused, start, clear")
	path := filepath.Join(dir, "history.jsonl")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(raw), "\n")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[:3], "")), 0o600))
	r.begin(admin.Options{StateDir: dir, HistoryKey: key})
	assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "history-altered"))
	assert.Contains(t, r.log.String(), "the tail was cut off")
	r.flip("guard", auditBody)
	r.stop()
	_, err = history.Verify(&history.VerifyOptions{Dir: dir, Key: key})
	assert.ErrorIs(t, err, history.ErrBroken, "what is written since hides nothing")
	r.begin(admin.Options{StateDir: dir, HistoryKey: key})
	assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "history-altered"), "nor does a restart")
	r.stop()
	r.begin(admin.Options{StateDir: dir, HistoryKey: key, HistorySince: 6})
	assert.Nil(t, r.get("/readyz?verbose").at("degraded", "history-altered"), "somebody has looked")
}

// A history that is removed or emptied under the plane is noticed with the next
// record, which goes where it will be found.
func TestAHistoryThatIsTakenAway(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove, "emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := newRig(t, admin.Options{StateDir: dir}, guard())
			r.flip("guard", auditBody)
			require.NoError(t, take(filepath.Join(dir, "history.jsonl")))
			r.clear("guard", operateSecret)
			assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "history-altered"))
			assert.Contains(t, r.log.String(), "changed by somebody else")
			assert.NoError(t, testutil.GatherAndCompare(r.metrics, strings.NewReader(`
# HELP headgate_admin_history_faults What does not hold of the history's files: found at start, or changed by others since.
# TYPE headgate_admin_history_faults gauge
headgate_admin_history_faults 1
`), "headgate_admin_history_faults"))
			r.stop()
			raw, err := os.ReadFile(filepath.Join(dir, "history.jsonl"))
			require.NoError(t, err)
			assert.Contains(t, string(raw), "override.clear")
			_, err = history.Verify(&history.VerifyOptions{Dir: dir})
			assert.ErrorIs(t, err, history.ErrBroken)
		})
	}
}

// The state knows the last record also where that came without a change, so that
// it cannot be cut off without notice.
func TestARefusalCannotBeCutOff(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, admin.Options{StateDir: dir}, guard())
	r.flip("guard", auditBody)
	r.put("guard", readSecret, auditBody)
	r.stop()
	path := filepath.Join(dir, "history.jsonl")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(raw), "\n")
	require.Contains(t, lines[len(lines)-2], "rejected")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[:len(lines)-2], "")), 0o600))
	r.begin(admin.Options{StateDir: dir})
	assert.NotNil(t, r.get("/readyz?verbose").at("degraded", "history-altered"))
}

// A crash between history and state leaves a record of what never held; the next
// start says so. The other way round cannot be, but for a history that was put
// back: that is told too.
func TestRecovery(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, admin.Options{StateDir: dir}, guard())
	r.flip("guard", `{"mode":"off",`+why+`}`)
	state, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	past, err := os.ReadFile(filepath.Join(dir, "history.jsonl"))
	require.NoError(t, err)
	r.flip("guard", auditBody)
	newer, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	r.stop()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), state, 0o600))
	r.begin(admin.Options{StateDir: dir})
	last := r.last()
	assert.Equal(t, []any{"recover", "recovered"}, []any{last["action"], last["outcome"]})
	assert.Contains(t, last["reason"], "never in force")
	assert.Equal(t, "off", r.mode("guard"))
	r.stop()

	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), newer, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "history.jsonl"), past, 0o600))
	r.begin(admin.Options{StateDir: dir})
	assert.Contains(t, r.last()["reason"], "the history ends at")
	assert.Equal(t, "audit", r.mode("guard"))
}
