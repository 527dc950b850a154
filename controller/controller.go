// Package controller runs the loop of a service: gather readings into a snapshot, decide, apply the difference to
// what is in force, and write down what was decided and why.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/outage"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Balancer spreads traffic over backends.
type Balancer interface {
	// Apply makes the balancer's backends exactly these.
	Apply(ctx context.Context, backends []quell.Backend) error
	// State reads back what is in force.
	State(ctx context.Context) ([]quell.BackendState, error)
}

// Scaler owns the instances' lives.
type Scaler interface {
	// Members returns every known instance; one that exited by itself is failed until it is stopped.
	Members(ctx context.Context) ([]quell.Member, error)
	// Start begins to start n instances and returns the ids that are known already. Without an error the others come too: Members shows
	// them once they have ids. With an error only those were started that it returns.
	Start(ctx context.Context, n int) ([]string, error)
	// Stop ends instances that no longer get requests, and forgets them.
	Stop(ctx context.Context, ids []string) error
}

// Journal keeps what was decided, and snapshots.
type Journal interface {
	Append(ctx context.Context, e bus.Entry) error
	AppendSnapshot(ctx context.Context, s quell.Snapshot) error
}

// Memory keeps the controller's memory over restarts. Get returns an error wrapping quell.ErrNoData for a new key.
type Memory interface {
	Put(ctx context.Context, key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
}

// Options are what a controller is made of. Balancer, Scaler, Journal and Memory are required.
type Options struct {
	Service  quell.Service
	Models   *model.Models // nil until there are some
	Balancer Balancer
	Scaler   Scaler
	Journal  Journal
	Memory   Memory
	Marker   Marker       // tells a first start from a lost memory; nil: every start without memory is a first one
	Reopen   func() error // opens the store in a data folder that was emptied; nil: there is none of ours
	Fixed    bool         // the scaler cannot change the group: what plans ask of it is advice
	// OwnMembers and OwnBackends say that instances, and what a balancer has, are there by this service's controller only.
	OwnMembers, OwnBackends bool
	Drain                   time.Duration // how long open requests of a removed instance may take
	Agents                  Agents        // put limits and settings in force; nil: plans that ask for any fail
	// Amend adds to each decision's plan before it is carried out; nil: nothing. Tests ask for limits and settings by it, of which no policy
	// asks yet.
	Amend func(*quell.Snapshot, *quell.Plan)
	// Lead reports whether this controller may act, for at least StepLimit from when it was asked; nil means always. It
	// is asked before anything is done, so it should be cheap.
	Lead func(ctx context.Context) (bool, error)
	// Bus says why the bus cannot be reached, for status, metrics and /readyz; nil: it always can.
	Bus    func() error
	Name   string // of this controller, for people who find it as a balancer's owner
	Logger *slog.Logger
	Now    func() time.Time // the clock that stamps snapshots; time.Now if nil
}

// Controller runs one service. Its methods are safe for concurrent use.
type Controller struct {
	opts   Options
	now    func() time.Time
	log    *slog.Logger
	gather *gather
	shown  shown

	// work guards what follows: one step, reload or command at a time. It is held while drivers work, so what others
	// look at is in shown.
	work     sync.Mutex
	engine   *policy.Engine
	fast     *policy.Fast // nil: there is none
	cutting  bool         // shares are cut, or on their way back
	noModels error        // why the configured policy does not run; equal weights meanwhile
	mem      memory
	leading  bool
	looked   bool            // scaler and balancer have answered
	refused  error           // the balancer obeys another controller
	adopt    bool            // the weights that the balancer has are to be taken up as ours
	forgot   bool            // the memory began empty: holds that the balancer has are taken up too
	begun    bool            // the group has had instances
	stepped  time.Time       // when the last step was
	held     map[string]hold // who is out of rotation by a person's hand, as the last look found it
	first    bool            // nothing was remembered: a first start, unless the first look finds what is ours
	marked   int             // orders in the mark that is kept
	unsaved  error           // why the memory is not in the store as it is here
	behind   error           // why this controller does not lead
	finished []string        // instances that have drained, to be ended once the step is over
	ending   map[string]bool // those that the scaler was told to end
	members  []quell.Member
	unlisted map[string]*unlisted // that the scaler no longer lists
	status   Status               // of the last decision
	told     string               // the last decision that was logged
	counts   counts
	turn     string                 // for what the replacement that is under way waits
	last     map[string]quell.State // of instances, in the last snapshot
	limits   insideActuator
	settings insideActuator

	background sync.WaitGroup // what outlives a step
}

// StepLimit bounds how long the scaler and the balancer may take in one step: a driver that hangs costs decisions, not
// the loop.
func StepLimit(sampling time.Duration) time.Duration {
	return min(max(5*time.Second, sampling), time.Minute)
}

// ErrStandby says that another controller leads.
var ErrStandby = errors.New("standing by")

// New checks the configuration and prepares a controller; nothing is touched yet.
func New(opts Options) (*Controller, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{opts: opts, now: opts.Now, log: opts.Logger, gather: newGather(opts.Service, opts.Logger), ending: map[string]bool{},
		unlisted: map[string]*unlisted{}, mem: newMemory()}
	c.limits = insideActuator{agents: opts.Agents, wanted: limitsOf, inForce: limitInForce, now: c.now, sampling: c.samplingNow}
	c.settings = insideActuator{agents: opts.Agents, wanted: settingsOf, inForce: settingInForce, now: c.now, sampling: c.samplingNow}
	if err := c.configure(opts.Service, opts.Models); err != nil {
		return nil, err
	}
	c.show()
	return c, nil
}

// configure compiles a configuration. A policy that lacks models is replaced by equal weights until they come.
func (c *Controller) configure(service quell.Service, models *model.Models) error {
	engine, err := policy.NewEngine(service, models)
	var noModels error
	if errors.Is(err, quell.ErrNoData) {
		noModels = err
		fallback := service
		fallback.Policy = quell.Policy{Name: policy.Plain}
		engine, err = policy.NewEngine(fallback, nil)
	}
	if err != nil {
		return err
	}
	fast, err := policy.NewFast(service)
	if err != nil {
		return err
	}
	c.engine, c.fast, c.noModels = engine, fast, noModels
	c.opts.Service, c.opts.Models = service, models
	c.gather.setService(service)
	return nil
}

// Reload puts a new service configuration and models in force from the next period on. On an error the running
// ones stay. The service's name cannot change.
func (c *Controller) Reload(service quell.Service, models *model.Models) error {
	c.work.Lock()
	defer c.release()
	if service.Name != c.opts.Service.Name {
		return &quell.UserError{Err: errors.New("the service's name cannot change while the controller runs: restart it")}
	}
	return c.configure(service, models)
}

// Knows says whether an instance belongs to the service. Before the first look at the group every one may.
func (c *Controller) Knows(instance string) bool { return c.gather.knows(instance) }

// Note writes down something that happened to the controller from outside, as an event.
func (c *Controller) Note(ctx context.Context, text string) {
	c.work.Lock()
	defer c.release()
	ctx, cancel := c.limit(ctx)
	defer cancel()
	c.event(ctx, text)
}

// Observe takes in a reading that came at the given time of this machine's clock.
func (c *Controller) Observe(r quell.Reading, received time.Time) { c.gather.add(r, received) }

// Reject counts a reading that broke a rule.
func (c *Controller) Reject(err error) { c.gather.reject(err) }

// Run steps once per sampling period, as soon as its readings should have come, until ctx ends. Between steps it follows
// the instances' lives more closely.
// Errors of the parts it drives are logged and tried again. Only a memory that is there and cannot be read ends it.
func (c *Controller) Run(ctx context.Context) error {
	defer c.background.Wait()
	defer c.disown()
	if err := c.enter(ctx); err != nil {
		return err
	}
	c.tend(ctx)
	next := c.nextStep(time.Time{})
	soon, hurries := c.nextGlance(time.Time{})
	for {
		pause := min(life.Watch(c.sampling()), max(0, next.Sub(c.now())))
		if hurries {
			pause = min(pause, max(0, soon.Sub(c.now())))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		switch now := c.now(); {
		case !now.Before(next):
			c.Step(ctx)
			next = c.nextStep(next)
		case hurries && !now.Before(soon):
			c.Glance(ctx)
			soon, hurries = c.nextGlance(soon)
		default:
			c.tend(ctx)
			if !hurries { // a reload may have brought a fast policy
				soon, hurries = c.nextGlance(time.Time{})
			}
		}
	}
}

// nextStep is when the readings of the period after that of the last step should have come.
func (c *Controller) nextStep(last time.Time) time.Time {
	period := c.sampling()
	settle := tick.Settle(period)
	return tick.After(last.Add(-settle), c.now().Add(-settle), period).Add(settle)
}

// enter asks for the lead. A memory that is damaged is final: going on without it would forget a pause.
func (c *Controller) enter(ctx context.Context) error {
	c.work.Lock()
	defer c.release()
	limited, cancel := c.limit(ctx)
	defer cancel()
	if damaged := new(damagedError); errors.As(c.lead(limited), &damaged) {
		return damaged
	}
	return nil
}

func (c *Controller) sampling() time.Duration { return c.shown.read().sampling }

// samplingNow is that of the configuration in force; it belongs to a piece of work.
func (c *Controller) samplingNow() time.Duration { return c.opts.Service.Sampling }

// limit bounds a step's work.
func (c *Controller) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, StepLimit(c.opts.Service.Sampling))
}

// Step runs the loop once: gather, decide, apply, write down.
func (c *Controller) Step(ctx context.Context) {
	c.work.Lock()
	defer c.release()
	defer c.endDrained(ctx)
	c.forgive()
	limited, cancel := c.limit(ctx)
	defer cancel()
	_ = c.lead(limited) // counted there
	c.watchClock(limited)
	view, err := c.look(limited)
	if err != nil {
		c.failed("look", err)
		return
	}
	c.askScaler()
	c.judgeMissing(limited, &view)
	c.judge(limited, view)
	c.replaceNext(limited, &view)
	snapshot := c.gather.snapshot(c.now(), view)
	c.freed(&snapshot)
	c.noteStates(&snapshot)
	view.snapshot = &snapshot
	plan, state := c.decide(&snapshot)
	c.mem.State = state
	c.finish(ctx, limited, &view, &plan)
}

// noteStates keeps the instances' states of a snapshot until the next one.
func (c *Controller) noteStates(s *quell.Snapshot) {
	c.last = make(map[string]quell.State, len(s.Instances))
	for i := range s.Instances {
		c.last[s.Instances[i].ID] = s.Instances[i].State
	}
}

// finish carries a plan out within the limited time, and writes down what came of it.
func (c *Controller) finish(ctx, limited context.Context, view *view, plan *quell.Plan) {
	pending := c.pending(view)
	o := c.carryOut(limited, view, plan)
	c.tell(plan, o)
	c.record(ctx, view.snapshot, plan, o)
	c.report(view, plan, o, pending)
}

// lead finds out whether this controller may act. One that begins to goes on from what the last one remembered.
func (c *Controller) lead(ctx context.Context) error {
	leading, err := true, error(nil)
	if c.opts.Lead != nil {
		leading, err = c.opts.Lead(ctx)
	}
	if err != nil {
		c.failed("lease", err)
	}
	if leading && !c.leading {
		if err = c.restore(ctx); err != nil {
			c.failed("memory", err)
			leading = false
		}
	}
	if leading != c.leading {
		c.log.Info("lease", "leading", leading)
	}
	c.leading, c.behind = leading, err
	c.own(ctx)
	return err
}

// decide runs the engine, with what people set by hand and what the fast policy cuts.
func (c *Controller) decide(s *quell.Snapshot) (quell.Plan, policy.State) {
	s.Set(c.mem.Overrides)
	if c.fast == nil {
		c.mem.Fast, c.mem.Factors = policy.State{}, nil // of one that the configuration no longer has
	}
	s.Cut(c.mem.Factors)
	plan, state := c.engine.Decide(s, c.mem.State)
	if c.opts.Amend != nil {
		c.opts.Amend(s, &plan)
	}
	if c.noModels != nil {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "no_models", Text: c.missing()})
	}
	return plan, state
}

// missing says what the configured policy waits for.
func (c *Controller) missing() string {
	if c.opts.Models == nil {
		return "no models yet: weights are equal and interference is not judged. Set `models:` (docs/guide.md#train)"
	}
	return fmt.Sprintf("%v: weights are equal and interference is not judged. Train and fit it (docs/guide.md#train)", c.noModels)
}

// carryOut applies the plan if this controller may act.
func (c *Controller) carryOut(ctx context.Context, view *view, plan *quell.Plan) outcome {
	if why := c.idle(); why != "" {
		c.adopt = true // somebody else decides: their weights are taken up when this controller acts again
		return outcome{why: why, would: c.asks(view, plan)}
	}
	changes, err := c.apply(ctx, view, plan)
	if len(changes) > 0 {
		c.counts.decisions++
	}
	if err != nil {
		c.failed("apply", err)
		return outcome{changes: changes, why: "failed: " + err.Error()}
	}
	return outcome{changes: changes, applied: true}
}

// acting says whether plans are carried out at present.
func (c *Controller) acting() bool { return c.idle() == "" }

// record writes the plan, the snapshot and the memory down, also when the controller is told to end meanwhile. A journal that fails does
// not stop the control.
func (c *Controller) record(ctx context.Context, s *quell.Snapshot, plan *quell.Plan, o outcome) {
	if !c.leading {
		return
	}
	ctx, cancel := c.limit(context.WithoutCancel(ctx))
	defer cancel()
	written := c.opts.Journal.Append(ctx, c.entry(plan, o))
	if err := errors.Join(written, c.opts.Journal.AppendSnapshot(ctx, *s)); err != nil {
		c.failed("journal", err) // one report of both: two that take turns would each be new in the log
	}
	c.remember(ctx)
}

// entry is a plan as the journal keeps it.
func (c *Controller) entry(plan *quell.Plan, o outcome) bus.Entry {
	return bus.Entry{At: plan.At, Kind: bus.PlanEntry, Plan: plan, Applied: o.applied, Why: o.why, Would: o.would, Mode: c.opts.Service.Mode,
		Changes: o.changes}
}

// remember stores the memory.
func (c *Controller) remember(ctx context.Context) {
	c.watchFolder(ctx)
	if c.unsaved = c.save(ctx); c.unsaved != nil {
		c.failed("memory", c.unsaved)
	}
}

// event writes down something that happened outside a plan.
func (c *Controller) event(ctx context.Context, text string) {
	c.log.Info(text)
	entry := bus.Entry{At: c.now(), Kind: bus.EventEntry, Text: text, Mode: c.opts.Service.Mode}
	if err := c.opts.Journal.Append(ctx, entry); err != nil {
		c.failed("journal", err)
	}
}

// failed counts an error by the part it came from and logs it when it is new: the same one would repeat each period.
func (c *Controller) failed(part string, err error) {
	if c.counts.failures == nil {
		c.counts.failures, c.counts.last = map[string]int{}, map[string]failure{}
	}
	c.counts.failures[part]++
	now := failure{err.Error(), c.now()}
	if last := c.counts.last[part]; outage.Kind(last.text) != outage.Kind(now.text) || c.over(last) {
		if part == "look" && !c.looked { // as before the balancer was ever started
			c.log.Warn("nothing is started or changed until scaler and balancer answer", "error", err)
		} else {
			c.log.Error("part failed", "part", part, "error", err)
		}
	}
	c.counts.last[part] = now
}

// forgive logs the end of failures, and forgets them.
func (c *Controller) forgive() {
	for _, part := range slices.Sorted(maps.Keys(c.counts.last)) {
		if f := c.counts.last[part]; c.over(f) {
			c.log.Info("part works again", "part", part, "last_failure", f.at, "failures", c.counts.failures[part])
			delete(c.counts.last, part)
		}
	}
}

// over says whether a failure has not come back for so long that it is no problem any more.
func (c *Controller) over(f failure) bool {
	return c.now().Sub(f.at) > max(10*time.Second, 3*c.opts.Service.Sampling)
}

// counts are totals since the start, for metrics.
type counts struct {
	decisions int
	failures  map[string]int
	last      map[string]failure // by part, as the totals
}

type failure struct {
	text string
	at   time.Time
}
