package store

import (
	"context"
	"encoding/json"
	"errors"
)

// A Record is a value under a key. A removed one stays, with an empty value, so
// that its revision does not go back.
type Record struct {
	Key string `json:"key"`
	// Revision is that of the commit that wrote the value.
	Revision uint64          `json:"revision"`
	Value    json.RawMessage `json:"value,omitempty"`
}

// Contents are all records of a store at one moment.
type Contents struct {
	// Revision is that of the last commit; 0 if there was none.
	Revision uint64   `json:"revision"`
	Records  []Record `json:"records"`
	// Note is what the last commit that had one left beside the records.
	Note json.RawMessage `json:"note,omitempty"`
}

// A Commit is a change of several records, all or none.
type Commit struct {
	// Writes are the new values. Without any and without a Floor, the note alone
	// is replaced and the revision stays.
	Writes []Write
	// Note, if any, replaces Contents.Note.
	Note json.RawMessage
	// Floor is a revision that was used already, by a state that is lost; the
	// new one is higher.
	Floor uint64
}

// A Write is one record's new value.
type Write struct {
	Key string
	// Was is the revision of the record that the writer has seen; 0 for none.
	Was   uint64
	Value json.RawMessage
}

// Errors of stores.
var (
	// ErrConflict is wrapped by the error of a commit that somebody else was
	// faster than.
	ErrConflict = errors.New("store: written by somebody else meanwhile")
	// ErrUnavailable is wrapped by errors of a store that cannot be reached or
	// written. What it held still holds.
	ErrUnavailable = errors.New("store: not available")
	// ErrCorrupt is wrapped by the error of loading what cannot be read. The
	// store can be committed to: what is there is put aside.
	ErrCorrupt = errors.New("store: cannot be read")
	// ErrLocked is wrapped by the error of opening what another process has.
	ErrLocked = errors.New("store: in use by another process")
)

// Status says how a store fares.
type Status struct {
	// Kind is memory, file, or what a store of yours is.
	Kind string `json:"kind"`
	// Durable says that what was committed survives a restart.
	Durable bool `json:"durable"`
	// Err is why it is not as it should be; nil if it is.
	Err error `json:"-"`
}

// A Store keeps records. Its methods may be called from several goroutines at
// once.
type Store interface {
	// Load returns all records.
	Load(ctx context.Context) (Contents, error)
	// Commit changes records, all or none, and returns the revision of the
	// change, which is higher than any before.
	Commit(ctx context.Context, c Commit) (revision uint64, err error)
	// Watch calls changed after commits of others, until ctx ends. It is a
	// hint to load again. A store that has no others waits for the end.
	Watch(ctx context.Context, changed func()) error
	// Status says how the store fares.
	Status() Status
	// Close gives up what the store holds.
	Close() error
}
