package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
)

// Memory is a store that forgets. Make one with [NewMemory].
type Memory struct {
	why error

	mu       sync.Mutex
	contents Contents
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store. Why, if not nil, is what keeps a better one
// from being used; it is part of the status.
func NewMemory(why error) *Memory { return &Memory{why: why} }

// Load returns all records.
func (m *Memory) Load(context.Context) (Contents, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.contents.clone(), nil
}

// Commit changes records.
func (m *Memory) Commit(_ context.Context, c Commit) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.contents.with(c)
	if err != nil {
		return 0, err
	}
	m.contents = next
	return next.Revision, nil
}

// Watch waits for the end of ctx.
func (m *Memory) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// Status says that nothing lasts.
func (m *Memory) Status() Status { return Status{Kind: "memory", Err: m.why} }

// Close does nothing.
func (m *Memory) Close() error { return nil }

func (c *Contents) clone() Contents {
	out := *c
	out.Records = slices.Clone(c.Records)
	return out
}

// with returns the contents after a commit.
func (c *Contents) with(commit Commit) (Contents, error) {
	out := c.clone()
	if len(commit.Writes) > 0 || commit.Floor > 0 {
		out.Revision = max(c.Revision, commit.Floor) + 1
	}
	if commit.Note != nil {
		out.Note = commit.Note
	}
	for _, w := range commit.Writes {
		i, found := slices.BinarySearchFunc(out.Records, w.Key, func(r Record, key string) int { return cmp.Compare(r.Key, key) })
		var was uint64
		if found {
			was = out.Records[i].Revision
		}
		if was != w.Was {
			return Contents{}, fmt.Errorf("%w: %q is at revision %d", ErrConflict, w.Key, was)
		}
		r := Record{Key: w.Key, Revision: out.Revision, Value: w.Value}
		if found {
			out.Records[i] = r
		} else {
			out.Records = slices.Insert(out.Records, i, r)
		}
	}
	return out, nil
}
