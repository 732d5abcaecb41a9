package history

import (
	"errors"
	"fmt"
	"path/filepath"
)

// A Report is what [Verify] found.
type Report struct {
	// Records is how many were judged; First and Last are their sequences.
	Records int    `json:"records"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Head    Head   `json:"head"`
	// Missing counts records that could not be written when they were made, as
	// later ones say.
	Missing uint64 `json:"missing"`
	// Recovered counts starts at which the state was found ahead of the history,
	// or the history ahead of the state.
	Recovered uint64 `json:"recovered"`
	// Torn says that the last line has no end, as after a crash.
	Torn bool `json:"torn"`
	// Faults are what does not hold; none means that it does.
	Faults []string `json:"faults"`
}

// ErrBroken is wrapped by errors about a history that does not hold.
var ErrBroken = errors.New("history: the chain does not hold")

// VerifyOptions says what [Verify] checks, and against what.
type VerifyOptions struct {
	// Dir is the folder.
	Dir string
	// Key is the key of the hashes, if the log has one.
	Key []byte
	// Head is the last record that the state knows of. Without it a tail that
	// was cut off, and a chain that was built anew, cannot be told.
	Head *Head
	// Since is the first record that is judged; zero means all. What comes
	// before has been looked at by somebody.
	Since uint64
}

// Verify reads all files of a folder and checks each record's hash, the hash of
// the one before it, and that no record is missing: the oldest has sequence 1, or
// one that the log itself has let go up to. An error that wraps [ErrBroken]
// says that something does not hold; the report says what.
func Verify(opts *VerifyOptions) (*Report, error) {
	v := verification{key: opts.Key, head: opts.Head, since: opts.Since}
	if _, err := v.files(opts.Dir, nil); err != nil {
		return nil, err
	}
	v.end()
	if len(v.report.Faults) > 0 {
		return &v.report, fmt.Errorf("%w: %s", ErrBroken, v.report.Faults[0])
	}
	return &v.report, nil
}

type verification struct {
	key   []byte
	head  *Head
	since uint64

	report Report
	before *Record
	atHead string // the hash of the record that the state knows as the last
	letGo  uint64
}

// maxFaults bounds a report.
const maxFaults = 100

func (v *verification) fault(format string, args ...any) {
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, fmt.Sprintf(format, args...))
	}
}

// files judges all files, and calls each, if not nil, for every record. It
// returns how many bytes without an end the newest file ends in.
func (v *verification) files(dir string, each func(*Record)) (torn int64, err error) {
	files, err := list(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range files {
		line := 0
		torn, err = scan(filepath.Join(dir, name), func(text []byte) {
			line++
			if r := v.line(name, line, text); r != nil && each != nil {
				each(r)
			}
		})
		if err != nil {
			return 0, err
		}
		if torn > 0 && name != current {
			v.fault("%s: the last line has no end", name)
			torn = 0
		}
	}
	v.report.Torn = torn > 0
	return torn, nil
}

// line judges one line, and returns its record if it is one.
func (v *verification) line(file string, n int, text []byte) *Record {
	r, err := decode(text)
	if err != nil {
		if v.since == 0 || v.before != nil {
			v.fault("%s:%d: not a record", file, n)
		}
		return nil
	}
	if r.Seq < v.since {
		return r
	}
	if !r.sealed(v.key) {
		v.fault("%s:%d: record %d is not what was written, or another key was used", file, n, r.Seq)
	}
	v.follows(file, n, r)
	if v.head != nil && r.Seq == v.head.Seq {
		v.atHead = r.Hash
	}
	v.letGo = max(v.letGo, r.LetGo)
	v.report.Records++
	v.report.Missing += r.Gap
	if r.Outcome == Recovered {
		v.report.Recovered++
	}
	v.report.Last, v.report.Head = r.Seq, Head{r.Seq, r.Hash}
	v.before = r
	return r
}

// follows judges a record's place.
func (v *verification) follows(file string, n int, r *Record) {
	switch b := v.before; {
	case b == nil:
		v.report.First = r.Seq
	case r.Seq != b.Seq+1:
		v.fault("%s:%d: record %d follows record %d", file, n, r.Seq, b.Seq)
	case r.PrevHash != b.Hash:
		v.fault("%s:%d: record %d does not belong to the one before it", file, n, r.Seq)
	}
}

// rebuilt reports whether the record that the state knows is another one here.
func (v *verification) rebuilt() bool {
	return v.head != nil && v.atHead != "" && v.atHead != v.head.Hash
}

// end judges the whole. A record is written before the state names it, so that no
// crash leaves one out.
func (v *verification) end() {
	if first := v.report.First; first > max(1, v.since, v.letGo) {
		v.fault("the records before %d are gone, and the log has not let go of them", first)
	}
	switch head := v.head; {
	case head == nil || head.Seq < v.since:
	case v.rebuilt():
		v.fault("record %d is another than the one that the state knows: the chain was built anew", head.Seq)
	case head.Seq > v.report.Last:
		v.fault("the state knows of record %d, the last one here is %d: the tail was cut off", head.Seq, v.report.Last)
	}
}
