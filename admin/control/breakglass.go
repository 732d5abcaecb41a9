package control

import (
	"fmt"
	"time"

	"github.com/headgate-mcp/headgate/core"
)

// A BreakGlassInput is what an operator sends.
type BreakGlassInput struct {
	Action    *string    `json:"action"`
	Except    []string   `json:"except"`
	TTL       *string    `json:"ttl"`
	ExpiresAt *time.Time `json:"expiresAt"`
	Reason    *string    `json:"reason"`
	Ticket    *string    `json:"ticket"`
}

// ParseBreakGlass reads the body of a request for break-glass.
func ParseBreakGlass(raw []byte) (*BreakGlassInput, error) {
	var in BreakGlassInput
	if err := Strict(raw, &in); err != nil {
		return nil, err
	}
	var f Faults
	f.nulls(raw)
	return &in, f.err()
}

// BreakGlass returns what the input asks for.
func (in *BreakGlassInput) BreakGlass(limits Limits, now time.Time) (*BreakGlass, error) {
	var f Faults
	b := &BreakGlass{Since: now, Except: in.Except}
	if in.Action == nil || *in.Action != AuditAll && *in.Action != OffAll {
		f.add(Malformed, "/action", "audit-all or off-all is wanted")
	} else {
		b.Action = *in.Action
	}
	if len(in.Except) > maxExcept {
		f.add(Invalid, "/except", fmt.Sprintf("more than %d", maxExcept))
	}
	for i, name := range in.Except {
		if core.CheckName(name) != nil {
			f.add(Invalid, fmt.Sprintf("/except/%d", i), "not a name")
		}
	}
	b.Reason, b.Ticket = f.reason(in.Reason), f.ticket(in.Ticket)
	b.ExpiresAt = in.end(&f, limits, now)
	if err := f.err(); err != nil {
		return nil, err
	}
	return b, nil
}

func (in *BreakGlassInput) end(f *Faults, limits Limits, now time.Time) time.Time {
	end := now.Add(limits.BreakGlassTTL)
	switch {
	case in.TTL != nil && in.ExpiresAt != nil:
		f.add(Invalid, "/ttl", "ttl and expiresAt exclude each other")
	case in.TTL != nil:
		d, err := ParseTTL(*in.TTL)
		if err != nil {
			f.add(Invalid, "/ttl", err.Error())
		}
		end = now.Add(d)
	case in.ExpiresAt != nil:
		end = *in.ExpiresAt
	}
	if left := end.Sub(now); len(*f) == 0 && (left <= 0 || left > limits.BreakGlassTTL) {
		f.add(Invalid, "/ttl", fmt.Sprintf("more than 0 and at most %v is wanted", limits.BreakGlassTTL))
	}
	return end.UTC().Round(0)
}
