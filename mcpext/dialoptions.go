package mcpext

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Dialer opens a session with an interceptor server: it connects, or starts a
// process. The session's client must have been given to [RegisterSendingMethods].
// Each call is for a new session; the one before has been closed.
type Dialer func(ctx context.Context) (*mcp.ClientSession, error)

// DialOptions configures [DialHost]. The zero value is ready to use.
type DialOptions struct {
	SessionOptions
	// DialTimeout bounds one attempt to dial and list. Zero means 10 s.
	DialTimeout time.Duration
	// MinBackoff and MaxBackoff bound the wait between attempts, which doubles
	// and is spread by chance. Zero means 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// CheckEvery is how often the host is listed again: that shows whether it is
	// there, where the SDK has no keep-alive, and what it has now. Zero means
	// 15 s, negative never.
	CheckEvery time.Duration
}

func (o *DialOptions) withDefaults() DialOptions {
	var out DialOptions
	if o != nil {
		out = *o
	}
	set := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
	}
	set(&out.DialTimeout, 10*time.Second)
	set(&out.MinBackoff, 100*time.Millisecond)
	set(&out.MaxBackoff, 10*time.Second)
	set(&out.CheckEvery, 15*time.Second)
	return out
}
