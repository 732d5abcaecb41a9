package admin

import "slices"

// A Role says what somebody may do. Each includes the ones before it.
type Role string

// The roles.
const (
	RoleRead       Role = "read"        // look at everything
	RoleOperate    Role = "operate"     // set and clear overrides
	RoleBreakGlass Role = "break-glass" // weaken everything at once
	RoleAdmin      Role = "admin"       // weaken without an end
)

// roles returns the roles, the weakest first.
func roles() []Role { return []Role{RoleRead, RoleOperate, RoleBreakGlass, RoleAdmin} }

// rank is the role's place; 0 for what is no role.
func (r Role) rank() int { return slices.Index(roles(), r) + 1 }

// Includes reports whether the role may do what the other may. What is no role
// may do nothing.
func (r Role) Includes(other Role) bool { return r.rank() > 0 && r.rank() >= other.rank() }

// ParseRole reads a role.
func ParseRole(s string) (Role, bool) {
	r := Role(s)
	return r, r.rank() > 0
}
