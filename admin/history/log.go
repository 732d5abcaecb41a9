package history

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options configures a [Log]. The zero value is ready to use.
type Options struct {
	// Dir is the folder of the files; empty keeps the records in memory alone.
	Dir string
	// Key makes the hashes keyed, so that who can write the files but does not
	// know it cannot make a chain that holds.
	Key []byte
	// MaxFile is the size in bytes at which a file is full; zero means 16 MiB.
	// MaxFiles is how many are kept; zero means 16.
	MaxFile  int64
	MaxFiles int
	// Keep is how many records can be asked for; zero means 4096.
	Keep int
}

const (
	defaultMaxFile  = 16 << 20
	defaultMaxFiles = 16
	defaultKeep     = 4096

	current = "history.jsonl"
	perm    = 0o600
)

var (
	errSpelling = errors.New("history: not as this program writes it")
	// ErrClosed is returned by a log that has been closed.
	ErrClosed = errors.New("history: closed")
)

// A Log appends records. Its methods may be called from several goroutines at
// once.
type Log struct {
	// Fixed at creation.
	opts  Options
	flush func(*os.File) error // has what was written on disk

	mu     sync.Mutex
	file   *os.File // nil without a folder
	size   int64
	head   Head
	kept   []Record
	last   uint64 // the highest revision of a change, also of those that are kept no more
	gap    uint64 // records that could not be written
	fails  uint64 // of writes, ever
	torn   int64  // bytes of a last line that had no end when the log was opened
	broken bool   // the file ends in half a line
	closed bool
}

// Open opens or begins a log. A last line without an end is a crash's and cut
// off; what comes before it is not looked at: see [Verify].
func Open(opts *Options) (*Log, error) {
	l := &Log{flush: (*os.File).Sync}
	if opts != nil {
		l.opts = *opts
	}
	l.opts.MaxFile = or(l.opts.MaxFile, defaultMaxFile)
	l.opts.MaxFiles = or(l.opts.MaxFiles, defaultMaxFiles)
	l.opts.Keep = or(l.opts.Keep, defaultKeep)
	if l.opts.Dir == "" {
		return l, nil
	}
	if err := l.read(); err != nil {
		return nil, err
	}
	if err := l.reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// read takes in the newest records of all files.
func (l *Log) read() error {
	files, err := list(l.opts.Dir)
	if err != nil {
		return err
	}
	for _, name := range files {
		path := filepath.Join(l.opts.Dir, name)
		torn, err := scan(path, func(line []byte) error {
			if r, err := decode(line); err == nil { // what is broken is Verify's to tell
				l.keep(r)
				l.head = Head{r.Seq, r.Hash}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if torn > 0 && name == current {
			l.torn = torn
			if err := cut(path, torn); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) reopen() error {
	path := filepath.Join(l.opts.Dir, current)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, perm)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size, l.broken = f, info.Size(), false
	return syncDir(l.opts.Dir) // so that the name of a new file is on disk, too
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// next completes a record.
func (l *Log) next(r Record) (Record, error) {
	r.Seq, r.PrevHash, r.Gap = l.head.Seq+1, l.head.Hash, l.gap
	if r.ID == "" {
		r.ID = NewID(r.Time)
	}
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	return r, r.seal(l.opts.Key)
}

// Append completes a record with its place in the chain and writes it. With sync
// it returns when the record is on disk. After an error the next record that is
// written says how many are missing before it.
func (l *Log) Append(r Record, sync bool) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return r, ErrClosed
	}
	r, err := l.next(r)
	if err != nil {
		return r, err
	}
	if err := l.write(&r, sync); err != nil {
		l.gap++
		l.fails++
		return r, fmt.Errorf("history: %w", err)
	}
	l.gap, l.head = 0, Head{r.Seq, r.Hash}
	l.keep(&r)
	return r, nil
}

func (l *Log) write(r *Record, sync bool) error {
	if l.file == nil && l.opts.Dir == "" {
		return nil
	}
	line, err := encode(r)
	if err != nil {
		return err
	}
	if l.size > 0 && l.size+int64(len(line)) > l.opts.MaxFile {
		if err := l.rotate(r.Seq); err != nil {
			return err
		}
	}
	if err := l.mend(); err != nil {
		return err
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil {
		l.broken = n > 0
		return err
	}
	if sync {
		if err := l.flush(l.file); err != nil {
			l.broken = true // the line counts as not written, and is taken back
			return err
		}
	}
	l.size += int64(n)
	return nil
}

// mend takes off the end what a failed write has left.
func (l *Log) mend() error {
	if l.file == nil {
		return l.reopen()
	}
	if !l.broken {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	l.broken = false
	return nil
}

// rotate puts the full file aside under the sequence that begins the next one,
// and lets go of the oldest.
func (l *Log) rotate(next uint64) error {
	if l.file != nil {
		if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
			return err
		}
		l.file = nil
	}
	dir := l.opts.Dir
	name := fmt.Sprintf("history-%020d.jsonl", next-1)
	err := os.Rename(filepath.Join(dir, current), filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // or it was put aside already, and no new one could be begun
		return err
	}
	if files, err := list(dir); err == nil {
		for len(files) > l.opts.MaxFiles-1 {
			_ = os.Remove(filepath.Join(dir, files[0]))
			files = files[1:]
		}
	}
	return l.reopen()
}

func (l *Log) keep(r *Record) {
	if len(l.kept) >= l.opts.Keep {
		l.kept = slices.Delete(l.kept, 0, len(l.kept)-l.opts.Keep+1)
	}
	l.kept = append(l.kept, *r)
	if r.Outcome == Applied || r.Outcome == Expired || r.Outcome == Recovered {
		l.last = max(l.last, r.Revision)
	}
}

// Revision returns the highest revision that a change of the log has.
func (l *Log) Revision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Since returns the kept records after a sequence, the oldest first, and
// whether some after it are kept no more.
func (l *Log) Since(seq uint64) (records []Record, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.kept)
	for i > 0 && l.kept[i-1].Seq > seq {
		i--
	}
	records = slices.Clone(l.kept[i:])
	first := l.head.Seq + 1
	if len(l.kept) > 0 {
		first = l.kept[0].Seq
	}
	return records, first > seq+1
}

// Head returns the last record's.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Durable reports whether records go to files.
func (l *Log) Durable() bool { return l.opts.Dir != "" }

// Health says how many writes have failed, and how many records are missing on
// disk at the moment.
func (l *Log) Health() (failures, missing uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fails, l.gap
}

// Close writes what the system still holds back and closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.file == nil {
		return nil
	}
	return errors.Join(l.file.Sync(), l.file.Close())
}

// NewID returns an id that sorts by time: milliseconds, then chance.
func NewID(at time.Time) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	ms := strconv.FormatInt(at.UnixMilli(), 36)
	return strings.Repeat("0", max(0, 9-len(ms))) + ms + hex.EncodeToString(b[:])
}

// list returns the names of the files, the oldest first.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var old []string
	now := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == current:
			now = true
		case strings.HasPrefix(name, "history-") && strings.HasSuffix(name, ".jsonl"):
			old = append(old, name)
		}
	}
	slices.Sort(old)
	if now {
		old = append(old, current)
	}
	return old, nil
}

// scan calls f for each line that has an end, and returns the length of what
// comes after the last one.
func scan(path string, f func(line []byte) error) (torn int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("history: %w", err)
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		switch {
		case err == io.EOF:
			return int64(len(line)), nil
		case err != nil:
			return 0, fmt.Errorf("history: %w", err)
		}
		if err := f(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return 0, err
		}
	}
}

// cut takes bytes off the end of a file.
func cut(path string, n int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if err := os.Truncate(path, info.Size()-n); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}
