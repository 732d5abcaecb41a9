package history

import (
	"errors"
	"fmt"
	"path/filepath"
)

// A Report is what [Verify] found.
type Report struct {
	// Records is how many were read; First and Last are their sequences.
	Records     int    `json:"records"`
	First, Last uint64 `json:"-"`
	Head        Head   `json:"head"`
	// Missing counts records that could not be written when they were made, as
	// later ones say.
	Missing uint64 `json:"missing"`
	// Torn says that the last line has no end, as after a crash.
	Torn bool `json:"torn"`
	// Faults are what does not hold; none means that it does.
	Faults []string `json:"faults"`
}

// ErrBroken is wrapped by errors about a history that does not hold.
var ErrBroken = errors.New("history: the chain does not hold")

// Verify reads all files of a folder and checks each record's hash, the hash of
// the one before it, and the sequence. With head, which the state keeps, it
// also tells a tail that was cut off, and a chain that was built anew. The oldest
// record may be any: earlier files are let go of. An error that wraps
// [ErrBroken] says that something does not hold; the report says what.
func Verify(dir string, key []byte, head *Head) (*Report, error) {
	files, err := list(dir)
	if err != nil {
		return nil, err
	}
	v := verification{key: key}
	for _, name := range files {
		line := 0
		torn, err := scan(filepath.Join(dir, name), func(text []byte) error {
			line++
			v.line(name, line, text)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if torn > 0 && name != current {
			v.fault("%s: the last line has no end", name)
		}
		v.report.Torn = torn > 0
	}
	v.end(head)
	if len(v.report.Faults) > 0 {
		return &v.report, fmt.Errorf("%w: %s", ErrBroken, v.report.Faults[0])
	}
	return &v.report, nil
}

type verification struct {
	key    []byte
	report Report
	before *Record
	heads  map[uint64]string
}

// maxFaults bounds a report.
const maxFaults = 100

func (v *verification) fault(format string, args ...any) {
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, fmt.Sprintf(format, args...))
	}
}

func (v *verification) line(file string, n int, text []byte) {
	r, err := decode(text)
	if err != nil {
		v.fault("%s:%d: not a record", file, n)
		return
	}
	if !r.sealed(v.key) {
		v.fault("%s:%d: record %d is not what was written, or another key was used", file, n, r.Seq)
	}
	if b := v.before; b != nil {
		if r.Seq != b.Seq+1 {
			v.fault("%s:%d: record %d follows record %d", file, n, r.Seq, b.Seq)
		} else if r.PrevHash != b.Hash {
			v.fault("%s:%d: record %d does not belong to the one before it", file, n, r.Seq)
		}
	} else {
		v.report.First = r.Seq
	}
	v.report.Records++
	v.report.Missing += r.Gap
	v.report.Last, v.report.Head = r.Seq, Head{r.Seq, r.Hash}
	if v.heads == nil {
		v.heads = map[uint64]string{}
	}
	v.heads[r.Seq] = r.Hash
	v.before = r
}

// end holds the records against the head that the state keeps. A record is
// written before the state names it, so that no crash leaves one out.
func (v *verification) end(head *Head) {
	if head == nil || head.Seq == 0 {
		return
	}
	hash, found := v.heads[head.Seq]
	switch {
	case found && hash != head.Hash:
		v.fault("record %d is another than the one that the state knows: the chain was built anew", head.Seq)
	case !found && head.Seq > v.report.Last:
		v.fault("the state knows of record %d, the last one here is %d: the tail was cut off", head.Seq, v.report.Last)
	}
}
