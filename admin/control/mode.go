package control

import (
	"fmt"

	"github.com/headgate-mcp/headgate/core"
)

// A Mode is what an operator can say of an interceptor: SEP-2624's modes, and off.
type Mode string

// The modes, the strongest first.
const (
	Active Mode = "active"
	Audit  Mode = "audit"
	Off    Mode = "off" // it does not run, and is not listed
)

// ParseMode reads a mode. The older name enforce is read as active.
func ParseMode(s string) (Mode, error) {
	switch s {
	case string(Active), "enforce":
		return Active, nil
	case string(Audit), string(Off):
		return Mode(s), nil
	}
	return "", fmt.Errorf("mode is none of active, audit and off")
}

// rank orders modes by what they hold back.
func (m Mode) rank() int {
	switch m {
	case Active:
		return 2
	case Audit:
		return 1
	}
	return 0
}

// declared returns the mode that an author declared.
func declared(m core.Mode) Mode {
	if m == core.ModeAudit {
		return Audit
	}
	return Active
}
