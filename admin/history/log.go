package history

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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
	// Head is the last record that the state knows of; nil if it knows none. The
	// log goes on after it whatever the files hold, so that a tail that was cut
	// off stays a hole for [Verify] to find.
	Head *Head
	// Since is the first record that is judged when the log is opened: what comes
	// before has been looked at by somebody.
	Since uint64
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
	file   *os.File    // nil without a folder
	info   os.FileInfo // of file, as it was opened
	size   int64
	head   Head
	kept   []Record
	last   uint64 // the highest revision of a change, also of those that are kept no more
	gap    uint64 // records that could not be written
	fails  uint64 // of writes, ever
	found  Report // what was there when the log was opened
	faults uint64 // found then, or since
	broken bool   // the file ends in half a line
	closed bool
}

// Open opens or begins a log. A last line without an end is a crash's and cut
// off. What does not hold of the rest is no error: [Log.Found] tells it, and it
// stays where it is.
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

// read takes in the newest records of all files, and judges them all.
func (l *Log) read() error {
	v := verification{key: l.opts.Key, head: l.opts.Head, since: l.opts.Since}
	torn, err := v.files(l.opts.Dir, func(r *Record) {
		l.keep(r)
		l.head = Head{r.Seq, r.Hash}
	})
	if err != nil {
		return err
	}
	v.end()
	l.found, l.faults = v.report, uint64(len(v.report.Faults))
	if torn > 0 {
		if err := cut(filepath.Join(l.opts.Dir, current), torn); err != nil {
			return err
		}
	}
	if known := l.opts.Head; known != nil && known.Seq > 0 && (known.Seq > l.head.Seq || v.rebuilt()) {
		l.head = Head{max(known.Seq, l.head.Seq), known.Hash}
	}
	return nil
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
	if l.opts.Dir == "" {
		return nil
	}
	line, err := encode(r)
	if err != nil {
		return err
	}
	var surplus []string
	if l.size > 0 && l.size+int64(len(line)) > l.opts.MaxFile {
		if err := l.rotate(r.Seq); err != nil {
			return err
		}
		if surplus, r.LetGo = l.surplus(); r.LetGo > 0 {
			if line, err = r.resealed(l.opts.Key); err != nil {
				return err
			}
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
	for _, name := range surplus { // the record that says so is written
		_ = os.Remove(filepath.Join(l.opts.Dir, name))
	}
	return nil
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

// Found says how the files were when the log was opened, as [Verify] would have.
func (l *Log) Found() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found
}

// Faults counts what was found not to hold when the log was opened, and how often
// since somebody else has changed the file that is written.
func (l *Log) Faults() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
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
