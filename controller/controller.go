// Package controller runs the loop of a service: gather readings into a snapshot, decide, apply the difference to
// what is in force, and write down what was decided and why.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
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
	// Start begins to start n instances and returns their ids.
	Start(ctx context.Context, n int) ([]string, error)
	// Stop ends instances that no longer get requests, and forgets them.
	Stop(ctx context.Context, ids []string) error
	// InstanceSeconds is the cost so far: the sum over instances of start command to exit.
	InstanceSeconds(now time.Time) float64
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
	Fixed    bool          // the scaler cannot change the group: what plans ask of it is advice
	Drain    time.Duration // how long open requests of a removed instance may take
	// Lead reports whether this controller may act; nil means always. It is asked once a period.
	Lead   func(ctx context.Context) (bool, error)
	Logger *slog.Logger
	Now    func() time.Time // the clock that stamps snapshots; time.Now if nil
}

// Controller runs one service. Its methods are safe for concurrent use.
type Controller struct {
	opts   Options
	now    func() time.Time
	log    *slog.Logger
	gather *gather

	mu       sync.Mutex // guards what follows: one step, reload or command at a time
	engine   *policy.Engine
	noModels error // why the configured policy does not run; equal weights meanwhile
	mem      memory
	leading  bool
	members  []quell.Member
	status   Status
	counts   counts
}

// New checks the configuration and prepares a controller; nothing is touched yet.
func New(opts Options) (*Controller, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{opts: opts, now: opts.Now, log: opts.Logger, gather: newGather(opts.Service)}
	if err := c.configure(opts.Service, opts.Models); err != nil {
		return nil, err
	}
	return c, nil
}

// configure compiles a configuration. A policy that lacks models is replaced by equal weights until they come.
func (c *Controller) configure(service quell.Service, models *model.Models) error {
	engine, err := policy.NewEngine(service, models)
	var noModels error
	if errors.Is(err, quell.ErrNoData) {
		noModels = err
		fallback := service
		fallback.Policy.Name, fallback.Policy.Utilization = "static", 0
		engine, err = policy.NewEngine(fallback, nil)
	}
	if err != nil {
		return err
	}
	c.engine, c.noModels = engine, noModels
	c.opts.Service, c.opts.Models = service, models
	c.gather.setService(service)
	return nil
}

// Reload puts a new service configuration and models in force from the next period on. On an error the running
// ones stay. The service's name cannot change.
func (c *Controller) Reload(service quell.Service, models *model.Models) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if service.Name != c.opts.Service.Name {
		return &quell.UserError{Err: errors.New("the service's name cannot change while the controller runs: restart it")}
	}
	return c.configure(service, models)
}

// Observe takes in a reading that came at the given time of this machine's clock.
func (c *Controller) Observe(r quell.Reading, received time.Time) { c.gather.add(r, received) }

// Reject counts a reading that broke a rule.
func (c *Controller) Reject(err error) { c.gather.reject(err, c.log) }

// Run restores the memory and steps once per sampling period until ctx ends. Between periods it follows the
// instances' lives more closely. Errors of the parts it drives are logged and tried again, never fatal.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.restore(ctx); err != nil {
		return err
	}
	c.begin(ctx)
	c.tend(ctx)
	next := c.now().Add(c.sampling())
	for {
		pause := min(c.sampling()/4, 500*time.Millisecond)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(pause, max(0, next.Sub(c.now())))):
		}
		if c.now().Before(next) {
			c.tend(ctx)
			continue
		}
		next = next.Add(c.sampling())
		if behind := c.now(); next.Before(behind) {
			next = behind.Add(c.sampling())
		}
		c.Step(ctx)
	}
}

func (c *Controller) sampling() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opts.Service.Sampling
}

// Step runs the loop once: gather, decide, apply, write down.
func (c *Controller) Step(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead(ctx)
	view, err := c.look(ctx)
	if err != nil {
		c.failed("look", err)
		return
	}
	snapshot := c.gather.snapshot(c.now(), view)
	plan, state := c.decide(&snapshot)
	c.mem.State = state
	changes := c.carryOut(ctx, view, &plan)
	c.record(ctx, &snapshot, &plan, changes)
	c.report(view, &snapshot, &plan, changes)
}

func (c *Controller) lead(ctx context.Context) {
	if c.opts.Lead == nil {
		c.leading = true
		return
	}
	leading, err := c.opts.Lead(ctx)
	if err != nil {
		c.failed("lease", err)
	}
	if leading != c.leading {
		c.log.Info("lease", "leading", leading)
	}
	c.leading = leading
}

// decide runs the engine, and adds what people set by hand.
func (c *Controller) decide(s *quell.Snapshot) (quell.Plan, policy.State) {
	plan, state := c.engine.Decide(s, c.mem.State)
	if c.noModels != nil {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "no_models", Text: "equal weights until there are models: " + c.noModels.Error()})
	}
	policy.Override(&plan, c.mem.Overrides)
	return plan, state
}

// carryOut applies the plan if this controller may act, and returns what it changed, in words.
func (c *Controller) carryOut(ctx context.Context, view view, plan *quell.Plan) []string {
	if !c.acting() {
		return nil
	}
	changes, err := c.apply(ctx, view, plan)
	if err != nil {
		c.failed("apply", err)
	}
	if len(changes) > 0 {
		c.counts.decisions++
	}
	return changes
}

// acting says whether plans are carried out at present.
func (c *Controller) acting() bool {
	return c.leading && !c.mem.Paused && c.opts.Service.Mode == quell.Act
}

// record writes the plan, the snapshot and the memory down. A journal that fails does not stop the control.
func (c *Controller) record(ctx context.Context, s *quell.Snapshot, plan *quell.Plan, changes []string) {
	if !c.leading {
		return
	}
	entry := bus.Entry{At: s.At, Kind: bus.PlanEntry, Plan: plan, Applied: c.acting(), Mode: c.opts.Service.Mode, Changes: changes}
	if err := c.opts.Journal.Append(ctx, entry); err != nil {
		c.failed("journal", err)
	}
	if err := c.opts.Journal.AppendSnapshot(ctx, *s); err != nil {
		c.failed("journal", err)
	}
	if err := c.save(ctx); err != nil {
		c.failed("memory", err)
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
		c.counts.failures, c.counts.lastFailure = map[string]int{}, map[string]string{}
	}
	c.counts.failures[part]++
	if c.counts.lastFailure[part] != err.Error() {
		c.log.Error("part failed", "part", part, "error", err)
	}
	c.counts.lastFailure[part] = err.Error()
}

// counts are totals since the start, for metrics.
type counts struct {
	decisions   int
	failures    map[string]int
	lastFailure map[string]string
}
