package admin

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/chain"
	"github.com/prometheus/client_golang/prometheus"
)

// Options configures [New]. Chains and a way to authenticate are wanted; all else
// has safe defaults.
type Options struct {
	// Chains are the chains to control, by name. An override reaches every
	// chain that has an interceptor of its name.
	Chains map[string]*chain.Chain
	// Tokens are the bearer tokens that are known. [Plane.SetTokens] replaces
	// them.
	Tokens []Token
	// Authenticator says who sends a request, in place of tokens. Its error is
	// logged and answered with 401.
	Authenticator Authenticator
	// Anonymous is the role of whoever has no token. Empty, the default, means
	// none: only health can be asked for.
	Anonymous Role
	// Configured is the layer between what authors declare and what operators
	// override. [Plane.Configure] replaces it.
	Configured *control.Configuration
	// Limits bound what operators may ask for.
	Limits control.Limits

	// Store keeps the state. Nil means a file in StateDir or, if that is empty
	// or cannot be written, memory: then each reply says so. The plane closes
	// what it opened itself.
	Store store.Store
	// StateDir is the folder of state and history; empty for none.
	StateDir string
	// HistoryKey makes the hashes of the history keyed. Who can write the files
	// and does not have it cannot forge them.
	HistoryKey []byte
	// HistorySince is the first record of the history that is judged at start,
	// after what comes before was found not to hold and somebody has looked at
	// it; zero means all.
	HistorySince uint64

	// Hosts are names that the plane may be reached under, beside those of a
	// loopback address and of the address that it listens on.
	Hosts []string
	// Metrics, if not nil, is served at /metrics.
	Metrics http.Handler
	// Registerer takes the metrics of the plane itself; nil for none.
	Registerer prometheus.Registerer
	// Logger takes what happens. Nil logs nothing.
	Logger *slog.Logger
	// Decisions is how many messages that something was decided on are kept for
	// questions, and as many again that were only changed; zero means 1024.
	Decisions int
	// Service is what the plane calls itself; zero means headgate.
	Service string
}

const (
	defaultDecisions = 1024
	defaultService   = "headgate"
)

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if len(out.Chains) == 0 {
		return out, errors.New("admin: no chains to control")
	}
	if len(out.Tokens) == 0 && out.Authenticator == nil && out.Anonymous == "" {
		return out, errors.New("admin: nobody could be let in: give Tokens, an Authenticator or, knowing what it means, Anonymous")
	}
	if out.Anonymous != "" && out.Anonymous.rank() == 0 {
		return out, errors.New("admin: Anonymous is not a role")
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Decisions <= 0 {
		out.Decisions = defaultDecisions
	}
	if out.Service == "" {
		out.Service = defaultService
	}
	out.Limits = out.Limits.WithDefaults()
	return out, nil
}

// tick is how often the plane looks at the clock, whatever it is waiting for:
// wall clocks jump.
const tick = 5 * time.Second
