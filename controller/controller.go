// Package controller runs the control loop of a service. Each step gathers readings into a snapshot, decides on a plan, changes what is not
// yet as planned, and records the decision with its reasons.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// Balancer spreads traffic over backends.
type Balancer interface {
	// Apply replaces the balancer's backends by exactly these.
	Apply(ctx context.Context, backends []quell.Backend) error
	// State reads back the backends in force.
	State(ctx context.Context) ([]quell.BackendState, error)
}

// Scaler starts and stops instances.
type Scaler interface {
	// Members returns every known instance. An instance that exited by itself is listed as failed until it is stopped.
	Members(ctx context.Context) ([]quell.Member, error)
	// Start begins to start n instances and returns the ids that are already known. If there is no error, Members lists the remaining
	// instances as soon as they have ids. If there is an error, only the returned instances were started, unless it is a
	// *quell.UnsureError: then the others may have been started, too.
	Start(ctx context.Context, n int) ([]string, error)
	// Stop stops instances that get no more requests, and forgets them.
	Stop(ctx context.Context, ids []string) error
}

// Journal stores decisions and snapshots.
type Journal interface {
	Append(ctx context.Context, e bus.Entry) error
	AppendSnapshot(ctx context.Context, s quell.Snapshot) error
}

// Memory stores the controller's memory for restarts. Get returns an error wrapping quell.ErrNoData for a key that
// was never put.
type Memory interface {
	Put(ctx context.Context, key string, value []byte) error
	Get(ctx context.Context, key string) ([]byte, error)
}

// Shared knows what other services of the same controller use of the instances that this one shares with them.
type Shared interface {
	// Enter notes what a snapshot says of this service's requests, and sets Observation.Others in it.
	Enter(s *quell.Snapshot)
}

// Options configure a controller. Policies, Balancer, Scaler, Journal and Memory are required.
type Options struct {
	Service  quell.Service
	Policies policy.Table  // one of them is the service's
	Models   *model.Models // nil while there are none
	Learn    bool          // models are learned from the service's readings, beginning with Models
	Balancer Balancer
	Scaler   Scaler
	Journal  Journal
	Memory   Memory
	Marker   Marker       // tells a first start from a lost memory; nil: a start without memory always counts as the first
	Earlier  Earlier      // tells of a release that was carried out while no controller ran; nil: there was none
	Reopen   func() error // reopens the store if its data folder was emptied; nil: the controller has no store of its own
	Fixed    bool         // the scaler cannot change the group: a plan's changes of the group are only advice
	Listed   bool         // a person wrote the list of instances, so it is not wrong
	// OwnMembers and OwnBackends mean that nobody but this service's controller can have made the instances and the balancer's backends.
	OwnMembers, OwnBackends bool
	OwnBalancer             bool          // the balancer is Quell's own, which has no backends without a controller
	Drain                   time.Duration // how long open requests of a removed instance may take
	Rows                    Rows          // stores training rows of red-line tests by night; nil: nothing does
	Shared                  Shared        // what other services use of the instances; nil: there are none
	Agents                  Agents        // apply settings; nil: a plan that asks for any is an error
	// Lead returns whether this controller may act for at least StepLimit from now; nil means always. It is called before every action, so it
	// should be fast.
	Lead func(ctx context.Context) (bool, error)
	// Measured returns why not all requests of the last period were measured, nil if they were. If Measured is nil, they count as measured.
	Measured func() error
	// Bus returns why the bus cannot be reached, for status, metrics and /readyz. If Bus is nil, the bus counts as reachable.
	Bus    func() error
	Name   string // this controller's name, shown to people as the balancer's owner
	Logger *slog.Logger
	Now    func() time.Time // the clock of snapshots; nil: time.Now
}

// changes are parameters of servers that a policy has changed, by instance and parameter.
type changes = map[string]map[string]policy.ChangedSetting

// Controller runs one service. Its methods are safe for concurrent use. It consists of parts that know only those which they embed: what
// changes the group, what ends by itself, tests by night, what people are told, decisions; and people's orders, trainings, releases, and
// whether this controller leads.
type Controller struct {
	*core
	*group
	*endings
	*nights
	*board
	*deciding
	*orders
	*trainings
	*releases
	*leadership
	beat tick.Beat // of the loop in Run
}

// core is what all parts share.
type core struct {
	opts     Options
	now      func() time.Time
	log      *slog.Logger
	gather   *gather
	shown    shown
	publish  func()                    // updates shown
	askLease func(ctx context.Context) // asks whether this controller still leads

	// work guards the fields below and those of the parts, because only one step, reload or command may run at a time. It is held while
	// scaler and balancer are called, so other goroutines read the copy in shown instead.
	work sync.Mutex
	compiled
	standing
	mem memory
	stored
	fleet *life.Fleet // what is known of the instances; its memory is in mem
	reporting

	living     context.Context // ends with Run
	background sync.WaitGroup  // goroutines that outlive a step
}

// standing is whether this controller may act.
type standing struct {
	leading   bool
	behind    error // why this controller is not the leader
	remembers bool  // its memory is the leader's: it has led, and no other controller since
	refused   error // the balancer obeys another controller
	owns      bool  // the balancer obeys this one, or may do so
	looked    bool  // scaler and balancer have both answered at least once
	adopt     bool  // the balancer's present weights must be adopted
	first     bool  // the memory was empty: this is a first start, unless own instances are found
}

// stored is what is known of the memory in the store.
type stored struct {
	marked  int    // orders counted in the stored mark
	wrote   []byte // what this process stored last
	emptied bool   // the data folder was emptied, and the store is not open again
	unsaved error  // why the memory could not be stored
	untaken bool   // Earlier still tells of a release that the memory has
}

// reporting is what people and metrics are told.
type reporting struct {
	status Status // as of the last decision
	counts counts
	totals totals    // what metrics sum up
	born   time.Time // when this process made the controller
}

// StepLimit limits how long the scaler and the balancer may take in one step. A driver that hangs delays decisions but
// not the loop.
func StepLimit(sampling time.Duration) time.Duration {
	return min(max(5*time.Second, sampling), time.Minute)
}

// ErrStandby says that another controller is the leader, so this one waits.
var ErrStandby = errors.New("standing by")

// New checks the configuration and prepares a controller. It changes nothing yet.
func New(opts Options) (*Controller, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	c := assemble(&core{opts: opts, now: opts.Now, log: opts.Logger, gather: newGather(opts.Service, opts.Logger),
		reporting: reporting{born: opts.Now()}, mem: newMemory(), living: context.Background()})
	if err := c.configure(opts.Service, opts.Models, opts.Learn); err != nil {
		return nil, err
	}
	c.publish()
	return c, nil
}

// assemble makes the parts of a controller.
func assemble(shared *core) *Controller {
	shared.fleet = life.NewFleet(&shared.mem.Memory)
	c := &Controller{core: shared, group: &group{core: shared, trained: map[string]time.Time{}}}
	c.endings = &endings{c.group}
	c.nights = &nights{endings: c.endings}
	c.board = &board{nights: c.nights}
	c.deciding = &deciding{board: c.board}
	c.settings = settingsActuator{agents: shared.opts.Agents, now: shared.now, sampling: shared.samplingNow}
	c.orders = &orders{c.endings}
	c.trainings, c.releases = &trainings{c.orders}, &releases{c.orders}
	c.leadership = &leadership{c.releases}
	shared.publish = c.show
	shared.askLease = func(ctx context.Context) { _ = c.ask(ctx) } // c.ask itself counts an error
	return c
}

// configure prepares a configuration for use. If the policy's models are missing, weights are equal until the models are there.
func (c *Controller) configure(service quell.Service, models *model.Models, learn bool) error {
	parts, err := compile(c.opts.Policies, service, models, learn)
	if err != nil {
		return err
	}
	c.compiled = parts
	c.opts.Service, c.opts.Models, c.opts.Learn = service, models, learn
	c.gather.setService(service)
	return nil
}

// compiled is a configuration that is ready for use.
type compiled struct {
	engine   *policy.Engine
	fast     *policy.Fast // nil: there is no fast policy
	noModels error        // why the configured policy does not run; until it does, shares are equal
}

func compile(policies policy.Table, service quell.Service, models *model.Models, learn bool) (parts compiled, err error) {
	compileEngine := policies.NewEngine
	if learn {
		compileEngine = policies.NewLearningEngine
	}
	parts.engine, err = compileEngine(service, models)
	if errors.Is(err, quell.ErrNoData) {
		parts.noModels = err
		fallback := service
		fallback.Policy = quell.Policy{Name: policies.Plain()}
		parts.engine, err = policies.NewEngine(fallback, nil)
	}
	if err != nil {
		return parts, err
	}
	parts.fast, err = policies.NewFast(service, models)
	return parts, err
}

// Check returns the error that Reload would return for this configuration, unless the service's name has changed.
func Check(policies policy.Table, service quell.Service, models *model.Models, learn bool) error {
	_, err := compile(policies, service, models, learn)
	return err
}

// Reload applies a new service configuration and new models from the next period on. If it returns an error, the present ones stay in
// force. The service's name cannot change.
func (c *Controller) Reload(service quell.Service, models *model.Models, learn bool) error {
	c.work.Lock()
	defer c.release()
	if service.Name != c.opts.Service.Name {
		return &quell.UserError{Err: errors.New("the service's name cannot change while the controller runs: restart it")}
	}
	return c.configure(service, models, learn)
}

// Knows returns whether an instance belongs to the service. Until the first snapshot it returns true for every instance.
func (c *Controller) Knows(instance string) bool { return c.gather.knows(instance) }

// Reports returns whether an agent has reported of an instance in the last three sampling periods.
func (c *Controller) Reports(instance string) bool {
	return c.gather.reports(instance, c.now().Add(-3*c.sampling()))
}

// Observe accepts a reading that arrived at the given time by this machine's clock.
func (c *Controller) Observe(r quell.Reading, received time.Time) { c.gather.add(r, received) }

// Reject counts a reading that broke a rule.
func (c *Controller) Reject(err error) { c.gather.reject(err) }

// samplingNow returns the sampling period in force. The caller holds c.work.
func (c *core) samplingNow() time.Duration { return c.opts.Service.Sampling }

// limit returns a context with the time limit of a step, whose cause tells the limit.
func (c *core) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	most := StepLimit(c.opts.Service.Sampling)
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %s: %w", most, context.DeadlineExceeded))
}

// turn waits until nobody else works, and returns a context with the time limit of a step. The caller calls done at the end.
func (c *core) turn(ctx context.Context) (limited context.Context, done func()) {
	c.work.Lock()
	limited, cancel := c.limit(ctx)
	return limited, func() { cancel(); c.release() }
}

// release unlocks c.work and publishes the status.
func (c *core) release() {
	c.publish()
	c.work.Unlock()
}
