package history

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"time"
)

// An Outcome says what became of an attempt.
type Outcome string

// The outcomes.
const (
	Applied   Outcome = "applied"   // it holds
	Noop      Outcome = "noop"      // it held already
	Rejected  Outcome = "rejected"  // it was refused
	Expired   Outcome = "expired"   // its time was over
	Recovered Outcome = "recovered" // it held, but had not been written down
)

// An Actor is who did it, as far as that was proved.
type Actor struct {
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	// Method is how the actor was authenticated.
	Method string `json:"method,omitempty"`
	// Remote is the address that the request came from.
	Remote string `json:"remote,omitempty"`
	// Claim is on whose behalf the actor says it acts. Nothing proves it.
	Claim string `json:"claim,omitempty"`
}

// A Record is one line. It holds names, modes and reasons that operators gave;
// no payloads and no secrets.
type Record struct {
	// Seq counts records from 1, without a gap.
	Seq uint64 `json:"seq"`
	// ID is the record's own; it is fit for a URL.
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Revision uint64    `json:"revision,omitempty"`
	Actor    Actor     `json:"actor"`
	// Surface is where it came in: api, file, system.
	Surface string `json:"surface"`
	// Action is what was attempted: override.set, override.clear,
	// break-glass.set, break-glass.clear, breaker.reset, host.refresh, config.load,
	// start, gap.
	Action string `json:"action"`
	// Target is the interceptor or the host; empty where all are meant.
	Target  string  `json:"target,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Before and After are modes where the mode is what changed.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Change is the new layer, in full.
	Change    json.RawMessage `json:"change,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Ticket    string          `json:"ticket,omitempty"`
	ExpiresAt *time.Time      `json:"expiresAt,omitempty"`
	// Problem is why a rejected attempt was: the type of the problem.
	Problem       string `json:"problem,omitempty"`
	RequestID     string `json:"requestId,omitempty"`
	TraceID       string `json:"traceId,omitempty"`
	Unconditional bool   `json:"unconditional,omitempty"`
	DryRun        bool   `json:"dryRun,omitempty"`
	// Unrecorded is how many refused attempts were only counted before this one.
	Unrecorded uint64 `json:"unrecorded,omitempty"`
	// Gap is how many records could not be written before this one.
	Gap uint64 `json:"gap,omitempty"`
	// LetGo, on the record that begins a file, is the sequence of the oldest
	// record that is kept: the files before it were full, and too many.
	LetGo uint64 `json:"letGo,omitempty"`

	PrevHash string `json:"prevHash"`
	// Hash is that of the record without this member, keyed if the log is.
	Hash string `json:"hash,omitempty"`
}

// A Head names the last record of a log.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// seal sets the record's hash.
func (r *Record) seal(key []byte) error {
	r.Hash = ""
	raw, err := encode(r)
	if err != nil {
		return err
	}
	r.Hash = digest(key, raw)
	return nil
}

// resealed seals the record and returns it as a line without its end.
func (r *Record) resealed(key []byte) ([]byte, error) {
	if err := r.seal(key); err != nil {
		return nil, err
	}
	return encode(r)
}

// sealed reports whether the hash is that of the record.
func (r *Record) sealed(key []byte) bool {
	c := *r
	return c.seal(key) == nil && hmac.Equal([]byte(c.Hash), []byte(r.Hash))
}

func digest(key, raw []byte) string {
	var h hash.Hash
	if len(key) > 0 {
		h = hmac.New(sha256.New, key)
	} else {
		h = sha256.New()
	}
	h.Write(raw)
	return hex.EncodeToString(h.Sum(nil))
}

// encode writes a record as one line without its end.
func encode(r *Record) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// decode reads one line. Members that this version does not know are an error:
// the hash would not cover them.
func decode(line []byte) (*Record, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var r Record
	if err := dec.Decode(&r); err != nil {
		return nil, err
	}
	// One line has one spelling: what decodes to the same and is spelled
	// otherwise has been written by somebody else.
	if again, err := encode(&r); err != nil || !bytes.Equal(again, line) {
		return nil, errSpelling
	}
	return &r, nil
}
