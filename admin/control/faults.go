package control

import "strings"

// A Kind says what sort of fault an input has.
type Kind int

// The kinds, the gravest first: of several faults the first decides.
const (
	Malformed    Kind = iota // it is not what it should be at all
	Invalid                  // it is, and makes no sense
	Incompatible             // it makes sense, and not for this interceptor
	Pinned                   // it would weaken what must not be
	Forbidden                // it takes a higher role
)

// A Fault is one thing that is wrong with an input. Its detail is fit for whoever
// sent the input, and does not quote it.
type Fault struct {
	Kind Kind `json:"-"`
	// Pointer is where, as an RFC 6901 JSON pointer.
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
	// Role is the one that it takes.
	Role string `json:"-"`
}

// Faults are all that is wrong with an input; it is an error if there is any.
type Faults []Fault

// Error says what is wrong, for people.
func (f Faults) Error() string {
	var parts []string
	for _, x := range f {
		at := x.Pointer
		if at != "" {
			at += ": "
		}
		parts = append(parts, at+x.Detail)
	}
	return strings.Join(parts, "; ")
}

// Kind is the gravest one's.
func (f Faults) Kind() Kind {
	kind := Forbidden
	for _, x := range f {
		kind = min(kind, x.Kind)
	}
	return kind
}

func (f *Faults) add(kind Kind, pointer, detail string) {
	*f = append(*f, Fault{Kind: kind, Pointer: pointer, Detail: detail})
}

// err returns the faults as an error; nil for none.
func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}
