package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Names in a store's folder.
const (
	stateName  = "state.json"
	backupName = "state.json.bak"
	lockName   = "lock"
	tempName   = "state.json.tmp-"
)

const (
	fileVersion = 1
	perm        = 0o600
	maxState    = 64 << 20
)

// File is a store in one file, for one process. Make one with [OpenFile].
//
// A commit writes a new file, has it on disk, and puts it in the old one's place
// in one step; the old one is kept beside it. A crash at any moment leaves the
// one or the other. What cannot be read is not guessed at.
type File struct {
	// Fixed at creation.
	dir  string
	lock *os.File

	mu       sync.Mutex
	contents Contents
	corrupt  error // what was wrong with the file that is there
	failed   error // of the last commit
	closed   bool
}

var _ Store = (*File)(nil)

// OpenFile opens the store in a folder, which it makes if need be. A folder that
// another process has is an error that wraps [ErrLocked]; one that cannot be
// written is any other error, and then a [Memory] with it as its reason is what is
// left. A file that cannot be read is no error here: Load returns it.
func OpenFile(dir string) (*File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	f := &File{dir: dir, lock: lock}
	f.sweep()
	f.contents, f.corrupt = f.load()
	return f, nil
}

// sweep removes what a crash has left of commits that did not come to an end.
func (f *File) sweep() {
	entries, _ := os.ReadDir(f.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempName) {
			_ = os.Remove(filepath.Join(f.dir, e.Name()))
		}
	}
}

// envelope is the file. The sum is over the bytes of the state as they stand.
type envelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	State   json.RawMessage `json:"state"`
}

// load reads the file. One that is not there is an empty state.
func (f *File) load() (Contents, error) {
	path := filepath.Join(f.dir, stateName)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Contents{}, nil
	case err != nil:
		return Contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case !info.Mode().IsRegular(): // a link could lead anywhere
		return Contents{}, fmt.Errorf("%w: not a regular file", ErrCorrupt)
	case info.Size() > maxState:
		return Contents{}, fmt.Errorf("%w: larger than %d bytes", ErrCorrupt, maxState)
	}
	file, err := os.Open(path)
	if err != nil {
		return Contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxState+1))
	if err != nil || len(raw) > maxState {
		return Contents{}, fmt.Errorf("%w: unreadable or larger than %d bytes", ErrCorrupt, maxState)
	}
	return decode(raw)
}

// decode reads what encode wrote, and nothing else.
func decode(raw []byte) (Contents, error) {
	var e envelope
	if err := strict(raw, &e); err != nil {
		return Contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if e.Version != fileVersion {
		return Contents{}, fmt.Errorf("%w: version %d", ErrCorrupt, e.Version)
	}
	if e.SHA256 != sum(e.State) {
		return Contents{}, fmt.Errorf("%w: the checksum does not match", ErrCorrupt)
	}
	var c Contents
	if err := strict(e.State, &c); err != nil {
		return Contents{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	sorted := slices.IsSortedFunc(c.Records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	for i, r := range c.Records {
		if !sorted || r.Revision > c.Revision || i > 0 && c.Records[i-1].Key == r.Key {
			return Contents{}, fmt.Errorf("%w: records contradict each other", ErrCorrupt)
		}
	}
	return c, nil
}

func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows")
	}
	return nil
}

func sum(raw []byte) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}

func encode(c *Contents) ([]byte, error) {
	state, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(envelope{fileVersion, sum(state), state})
	return append(raw, '\n'), err
}

// Load returns all records, or why the file cannot be read.
func (f *File) Load(context.Context) (Contents, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.contents.clone(), f.corrupt
}

// Commit changes records. When it returns they are on disk, unless Status says
// that they are not: a full disk must not keep anybody from turning a policy
// off. Then they hold in this process, and each later commit, and [File.Retry],
// writes them too.
func (f *File) Commit(_ context.Context, c Commit) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, fmt.Errorf("%w: closed", ErrUnavailable)
	}
	next, err := f.contents.with(c)
	if err != nil {
		return 0, err
	}
	f.contents = next
	f.save()
	return next.Revision, nil
}

// Retry writes what an earlier commit could not.
func (f *File) Retry() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil && !f.closed {
		f.save()
	}
	return f.failed
}

// save writes the contents. f.mu is held.
func (f *File) save() {
	if err := f.write(&f.contents); err != nil {
		f.failed = fmt.Errorf("%w: %w", ErrUnavailable, err)
		return
	}
	f.failed, f.corrupt = nil, nil
}

// write puts the new file in the old one's place.
func (f *File) write(c *Contents) error {
	raw, err := encode(c)
	if err != nil {
		return err
	}
	var chance [8]byte
	_, _ = rand.Read(chance[:]) // never fails (crypto/rand)
	temp := filepath.Join(f.dir, tempName+hex.EncodeToString(chance[:]))
	if err := writeSynced(temp, raw); err != nil {
		_ = os.Remove(temp)
		return err
	}
	path := filepath.Join(f.dir, stateName)
	if err := f.putAside(path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncDir(f.dir)
}

// putAside keeps the old file: as the previous generation, or under a name of
// its own if it could not be read, for somebody to look at.
func (f *File) putAside(path string) error {
	if f.corrupt != nil {
		err := os.Rename(path, path+".corrupt-"+sum([]byte(rand.Text()))[:8])
		if errors.Is(err, os.ErrNotExist) { // an earlier write did it, and went no further
			return nil
		}
		return err
	}
	backup := filepath.Join(f.dir, backupName)
	if err := os.Remove(backup); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// A link, so that the state is at its place all the time.
	if err := os.Link(path, backup); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func writeSynced(path string, raw []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = file.Write(raw)
	return errors.Join(err, file.Sync(), file.Close())
}

// syncDir has a folder's names on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Watch waits for the end of ctx: there are no others.
func (f *File) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// Status says whether the last commit reached the disk.
func (f *File) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{Kind: "file", Durable: f.failed == nil, Err: errors.Join(f.corrupt, f.failed)}
}

// Close gives the folder up.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.lock.Close() // which unlocks it
}
