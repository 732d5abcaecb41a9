package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reopen opens the file, which may be a new one, in place of the one that was
// open. If that is not how the file was left, somebody else has changed it.
func (l *Log) reopen() error {
	// A link could lead anywhere.
	f, err := os.OpenFile(l.path(), os.O_CREATE|os.O_APPEND|os.O_RDWR|noFollow, perm)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if l.info != nil && (!os.SameFile(l.info, info) || info.Size() != l.size && !l.broken) {
		l.faults++
	}
	if l.file != nil {
		_ = l.file.Close() // what it holds is on disk, or was counted as missing
	}
	l.file, l.info, l.size, l.broken = f, info, info.Size(), false
	if err := l.endLine(); err != nil {
		return err
	}
	return syncDir(l.opts.Dir) // so that the name of a new file is on disk, too
}

// endLine sees to it that the next line has one of its own.
func (l *Log) endLine() error {
	var last [1]byte
	if l.size == 0 {
		return nil
	}
	if _, err := l.file.ReadAt(last[:], l.size-1); err != nil || last[0] == '\n' {
		return err
	}
	n, err := l.file.WriteString("\n")
	l.size += int64(n)
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// mend makes the file one that a line can be added to: it takes off the end what
// a failed write has left, and sees to it that records go where they will be
// found.
func (l *Log) mend() error {
	if l.file == nil {
		return l.reopen()
	}
	if l.broken {
		if err := l.file.Truncate(l.size); err != nil {
			return err
		}
		l.broken = false
	}
	untouched, err := l.untouched()
	if err != nil || untouched {
		return err
	}
	return l.reopen()
}

// untouched reports whether the file is still at its place, and ends where this
// log has left it.
func (l *Log) untouched() (bool, error) {
	open, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(l.path())
	return err == nil && os.SameFile(open, there) && open.Size() == l.size, nil
}

// rotate puts the full file aside under the sequence that ends it.
func (l *Log) rotate(next uint64) error {
	if l.file != nil {
		if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
			return err
		}
		l.file, l.info = nil, nil
	}
	aside := filepath.Join(l.opts.Dir, fmt.Sprintf("history-%020d.jsonl", next-1))
	err := os.Rename(l.path(), aside)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // or it was put aside already, and no new one could be begun
		return err
	}
	return l.reopen()
}

// surplus returns the files that are to be let go of, and the sequence of the
// first record that is kept; 0 if all are.
func (l *Log) surplus() (names []string, first uint64) {
	files, err := list(l.opts.Dir)
	if err != nil || len(files) <= l.opts.MaxFiles {
		return nil, 0
	}
	names = files[:len(files)-l.opts.MaxFiles]
	var last uint64
	if _, err := fmt.Sscanf(names[len(names)-1], "history-%d.jsonl", &last); err != nil {
		return nil, 0 // somebody else's, and not to be removed
	}
	return names, last + 1
}

func (l *Log) path() string { return filepath.Join(l.opts.Dir, current) }

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
func scan(path string, f func(line []byte)) (torn int64, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
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
		f(bytes.TrimSuffix(line, []byte("\n")))
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
