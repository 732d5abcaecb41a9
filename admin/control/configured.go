package control

import (
	"fmt"

	"github.com/headgate-mcp/headgate/core"
)

// A Configuration is the layer that a file, or the embedder, sets.
type Configuration struct {
	// Interceptors are settings by name. Names that no host lists are kept.
	Interceptors map[string]Configuring `json:"interceptors"`
}

// Configuring is what is configured for one interceptor.
type Configuring struct {
	Settings
	// Pinned keeps operators from weakening it.
	Pinned bool `json:"pinned,omitempty"`
	// Config is the interceptor's own configuration. It may hold secrets and is
	// shown to nobody but the interceptor.
	Config map[string]any `json:"config,omitempty"`
}

// configuringInput is Configuring as it is read: strictly.
type configuringInput struct {
	OverrideInput
	Pinned bool           `json:"pinned"`
	Config map[string]any `json:"config"`
}

// ParseConfiguration reads a configuration. Faults are joined; each says where.
func ParseConfiguration(raw []byte) (*Configuration, error) {
	var file struct {
		Interceptors map[string]configuringInput `json:"interceptors"`
	}
	if err := Strict(raw, &file); err != nil {
		return nil, err
	}
	var f Faults
	c := &Configuration{Interceptors: map[string]Configuring{}}
	for name, in := range file.Interceptors {
		at := "/interceptors/" + name
		if core.CheckName(name) != nil {
			f.add(Invalid, at, "not a name")
			continue
		}
		var own Faults
		var o Override
		in.settings(&own, &o)
		if in.TTL != nil || in.ExpiresAt != nil || in.OnExpiry != nil || in.Reason != nil || in.Ticket != nil {
			own.add(Malformed, "", "ttl, expiresAt, onExpiry, reason and ticket are for overrides")
		}
		for _, x := range own {
			f.add(x.Kind, at+x.Pointer, x.Detail)
		}
		c.Interceptors[name] = Configuring{Settings: o.Settings, Pinned: in.Pinned, Config: in.Config}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Check says whether the configuration fits interceptors that are known: it may
// narrow their hooks only.
func (c *Configuration) Check(declared map[string][]core.Hook) error {
	var f Faults
	for name, s := range c.Interceptors {
		hooks, known := declared[name]
		if !known {
			continue
		}
		for _, h := range Widens(hooks, s.Hooks) {
			f.add(Incompatible, "/interceptors/"+name+"/hooks", fmt.Sprintf("%s of %s is not declared", h.Phase, h.Events[0]))
		}
	}
	return f.err()
}
