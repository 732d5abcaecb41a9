package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-mcp/headgate/admin/control"
	"github.com/headgate-mcp/headgate/admin/history"
	"github.com/headgate-mcp/headgate/admin/store"
	"github.com/headgate-mcp/headgate/core"
)

// A Plane controls chains. Make one with [New], serve it with [Plane.Serve] or mount
// its [Plane.Handler], and end it with [Plane.Close]. Its methods may be called
// from several goroutines at once.
type Plane struct {
	// Fixed at creation.
	opts      Options
	started   time.Time
	store     store.Store
	ownStore  bool
	history   *history.Log
	watchers  map[string]*watcher
	unwatch   []func()
	enlisted  bool // metrics are registered
	hub       *hub
	stats     *statBook
	decisions *ring
	decided   chan *tally
	refused   *recorder
	metrics   *metrics
	limits    *limiter
	hosts     *hostList
	handler   httpHandler

	tokens atomic.Pointer[[]Token]
	state  atomic.Pointer[state]

	life  context.Context
	end   context.CancelFunc
	loops sync.WaitGroup
	wake  chan struct{} // has the loop look at everything again
	own   atomic.Bool   // a policy change is the plane's own
	// listening counts streams that want decisions, so that nobody makes them up
	// for nobody.
	listening atomic.Int64

	write sync.Mutex // held by one change at a time
	// Guarded by write.
	memory   *memory
	degraded map[string]string // causes, by what they are about
	warned   map[string]time.Duration
	stuck    map[string]bool // keys whose end the store did not take, and which try again
	lastSync time.Time
	up       map[string]bool // hosts at the last look, by chain and name
	altered  uint64          // faults of the history that have been told

	swap sync.RWMutex // held while chains and state change, so that readers see both or neither
}

// New returns a plane that has taken over its chains: what was kept holds from
// now on. Nothing is served yet.
//
// A state that cannot be read is no error: what is configured holds, and the
// plane says that it is degraded. A folder that another process has is one.
func New(opts *Options) (*Plane, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plane{
		opts: o, started: time.Now(), hub: newHub(), stats: newStatBook(), decisions: newRing(o.Decisions),
		decided: make(chan *tally, maxQueued), refused: newRecorder(), limits: newLimiter(), hosts: newHostList(o.Hosts),
		watchers: map[string]*watcher{}, wake: make(chan struct{}, 1), degraded: map[string]string{}, warned: map[string]time.Duration{},
		stuck: map[string]bool{}, up: map[string]bool{},
	}
	p.life, p.end = context.WithCancel(context.Background())
	if err := p.SetTokens(o.Tokens); err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	if err := p.begin(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open opens store and history.
func (p *Plane) open() error {
	p.store = p.opts.Store
	if p.store == nil {
		s, err := openStore(p.opts.StateDir)
		if err != nil {
			return err
		}
		p.store, p.ownStore = s, true
	}
	if st := p.store.Status(); p.ownStore && st.Kind == "memory" && st.Err != nil {
		p.opts.Logger.Error("nothing that is changed will survive a restart", "state_dir", p.opts.StateDir, "err", st.Err)
	}
	p.load()
	p.openHistory()
	return nil
}

// load takes in what the store holds.
func (p *Plane) load() {
	contents, err := p.store.Load(p.life)
	if err != nil {
		p.degraded["state"] = "the state cannot be read; what is configured holds"
		p.opts.Logger.Error("state cannot be read, what is configured holds", "err", err)
		contents = store.Contents{}
	}
	p.memory = remember(contents)
	for _, key := range p.memory.strange {
		p.opts.Logger.Warn("a record of the state is not understood and left alone", "key", key)
	}
}

// openHistory opens the history, in memory if it cannot be on disk.
func (p *Plane) openHistory() {
	opts := &history.Options{Dir: p.opts.StateDir, Key: p.opts.HistoryKey, Since: p.opts.HistorySince}
	if p.ownStore {
		if p.store.Status().Kind == "memory" {
			opts.Dir = "" // whoever may not keep the state may not keep its history either
		}
		head := p.memory.head()
		opts.Head = &head // in a store of somebody else's, another process's may stand
	}
	log, err := history.Open(opts)
	if err != nil {
		p.degraded["history"] = "the history cannot be kept on disk"
		p.opts.Logger.Error("history is kept in memory only", "err", err)
		log, _ = history.Open(nil)
	}
	p.history = log
	for _, fault := range log.Found().Faults {
		p.opts.Logger.Error("the history does not hold", "fault", fault)
	}
	p.judge()
}

// judge notes whether somebody has changed the history. That does not end before
// somebody has looked at it and says so.
func (p *Plane) judge() {
	faults := p.history.Faults()
	if faults == p.altered {
		return
	}
	p.altered = faults
	p.degraded["history-altered"] = "somebody else has changed the history, or a part of it is gone: headgate ctl history verify"
	if len(p.history.Found().Faults) == 0 {
		p.opts.Logger.Error("the history was changed by somebody else while it was written")
	}
}

// openStore returns the store in a folder, or memory and why.
func openStore(dir string) (store.Store, error) {
	if dir == "" {
		return store.NewMemory(nil), nil
	}
	file, err := store.OpenFile(dir)
	switch {
	case errors.Is(err, store.ErrLocked):
		return nil, fmt.Errorf("admin: %w", err)
	case err != nil:
		return store.NewMemory(err), nil
	}
	return file, nil
}

// begin loads, takes the chains over, and starts the loop.
func (p *Plane) begin() error {
	p.write.Lock()
	defer p.write.Unlock()
	for name, ch := range p.opts.Chains {
		p.watchers[name] = &watcher{plane: p, name: name, chain: ch}
	}
	p.metrics = newMetrics(p)
	if p.opts.Registerer != nil {
		if err := p.opts.Registerer.Register(p.metrics); err != nil {
			return fmt.Errorf("admin: %w", err)
		}
		p.enlisted = true
	}
	if err := p.configure(p.opts.Configured, history.Actor{Name: "system:start"}, "system"); err != nil {
		return err
	}
	for _, w := range p.watchers {
		p.unwatch = append(p.unwatch, w.chain.AddObserver(w))
	}
	p.watchBreakers()
	p.recover()
	p.handler = p.newHandler()
	p.reportCoverage()
	p.loops.Go(p.loop)
	p.loops.Go(p.follow)
	return nil
}

// recover writes down what the history does not know, and where it ends.
func (p *Plane) recover() {
	head, known := p.memory.head(), p.history.Head()
	r := history.Record{Actor: history.Actor{Name: "system:start"}, Surface: "system", Action: "start", Outcome: history.Applied}
	switch last := p.history.Revision(); {
	case p.memory.contents.Revision > last && known.Seq > 0:
		r.Action, r.Outcome = "recover", history.Recovered
		r.Reason = fmt.Sprintf("the state is at revision %d, the history ends at %d", p.memory.contents.Revision, last)
	case head.Seq < known.Seq && last > p.memory.contents.Revision && p.degraded["state"] == "":
		r.Action, r.Outcome = "recover", history.Recovered
		r.Reason = fmt.Sprintf("revision %d was never in force: the state is at %d", last, p.memory.contents.Revision)
	}
	r.Revision = p.memory.contents.Revision
	p.record(r, true)
	p.noteHead()
}

// noteHead has the state know the last record, also where that came without a
// change of the state: then it cannot be cut off without notice. p.write is held.
func (p *Plane) noteHead() {
	head := p.history.Head()
	if !p.ownStore || !p.history.Durable() || head == p.memory.head() {
		return
	}
	note, err := core.Encode(head)
	if err != nil {
		return
	}
	if _, err := p.store.Commit(context.WithoutCancel(p.life), store.Commit{Note: note}); err != nil {
		return // the next one will
	}
	p.memory.contents.Note = note
}

// SetTokens replaces the tokens, as after a change of their file.
func (p *Plane) SetTokens(tokens []Token) error {
	seen, secrets := map[string]bool{}, map[[32]byte]bool{}
	for i := range tokens {
		if err := tokens[i].check(); err != nil {
			return err
		}
		if seen[tokens[i].ID] {
			return fmt.Errorf("admin: two tokens are called %q", tokens[i].ID)
		}
		if secrets[tokens[i].SHA256] {
			return fmt.Errorf("admin: token %q has the secret of another", tokens[i].ID)
		}
		seen[tokens[i].ID], secrets[tokens[i].SHA256] = true, true
	}
	if len(tokens) > maxTokens {
		return fmt.Errorf("admin: more than %d tokens", maxTokens)
	}
	list := append([]Token{}, tokens...)
	p.tokens.Store(&list)
	return nil
}

// current returns the state, as of one moment together with the chains.
func (p *Plane) current() *state {
	p.swap.RLock()
	defer p.swap.RUnlock()
	return p.state.Load()
}

// apply works out what holds and tells the chains. p.write is held.
func (p *Plane) apply(now time.Time) {
	next := p.memory.state(p.opts.Chains, now)
	overrides := p.memory.chainOverrides(next)
	before := p.state.Load()
	p.own.Store(true)
	p.swap.Lock()
	for name, w := range p.watchers {
		if reflect.DeepEqual(w.told, overrides) {
			continue // compiling anew would change nothing
		}
		if err := w.chain.SetStanding(overrides); err != nil {
			p.degraded["chain "+name] = "what holds could not be applied"
			p.opts.Logger.Error("policy not applied", "chain", name, "err", err)
			continue
		}
		w.told = overrides
		delete(p.degraded, "chain "+name)
	}
	p.state.Store(next)
	p.swap.Unlock()
	p.own.Store(false)
	p.lastSync = now
	for name, it := range next.items {
		if before == nil || before.items[name] == nil || sameEffective(&before.items[name].effective, &it.effective) {
			continue
		}
		policies := map[string]uint64{}
		for _, c := range it.chains {
			policies[c] = p.watchers[c].chain.Snapshot().Number()
		}
		p.stats.flipped(name, now, policies)
	}
}

func sameEffective(a, b *control.Effective) bool {
	x, y := a.Chain(), b.Chain()
	rawX, errX := json.Marshal(x)
	rawY, errY := json.Marshal(y)
	return a.Mode == b.Mode && errX == nil && errY == nil && string(rawX) == string(rawY)
}

// poke has the loop look at the chains again, after a change that is not the
// plane's own.
func (p *Plane) poke() {
	if !p.own.Load() {
		p.nudge()
	}
}

// nudge has the loop look again, since there may be an earlier end.
func (p *Plane) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close ends the plane. The chains keep the policy that holds.
func (p *Plane) Close() error {
	p.end()
	p.hub.close()
	for _, stop := range p.unwatch {
		stop()
	}
	p.loops.Wait()
	p.write.Lock()
	defer p.write.Unlock()
	var errs []error
	if p.enlisted {
		p.opts.Registerer.Unregister(p.metrics)
	}
	if p.history != nil {
		if p.memory != nil {
			p.noteHead()
		}
		errs = append(errs, p.history.Close())
	}
	if p.ownStore {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// log returns the logger with a change's attributes.
func (p *Plane) log(r *history.Record) *slog.Logger {
	return p.opts.Logger.With("action", r.Action, "target", r.Target, "actor", r.Actor.Name, "outcome", string(r.Outcome),
		"before", r.Before, "after", r.After, "revision", r.Revision, "request_id", r.RequestID, "reason", r.Reason)
}
