package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/scaler"
)

// group asks scaler and balancer, and changes what they have.
type group struct {
	*core
	begun    bool                 // the group has had instances
	trained  map[string]time.Time // those that were trained on, and until when their readings are not used
	training map[string]bool      // those that are out of rotation for a training, as of the last look
	finished []string             // those that have drained, and are stopped when the step is over
}

// view is what scaler and balancer report when they are asked once (a look).
type view struct {
	life.View
	snapshot *quell.Snapshot // made from this view; nil between two decisions
}

// look asks scaler and balancer. Like everything that calls them, it gets a context with the time limit of a step.
func (c *group) look(ctx context.Context) (view, error) {
	members, err := c.opts.Scaler.Members(ctx)
	if err != nil {
		return view{}, fmt.Errorf("asking the scaler: %w", err)
	}
	states, err := c.opts.Balancer.State(ctx)
	if err != nil {
		return view{}, fmt.Errorf("asking the balancer: %w", err)
	}
	c.firstLook(members, states)
	seen, told := c.fleet.Look(c.now(), members, states, life.Looking{
		Sampling: c.opts.Service.Sampling, Startup: c.opts.Service.Group.Startup, Protected: c.opts.Service.Group.Protected,
		Listed: c.opts.Listed, Leads: c.leading, Acts: c.acting(),
	})
	c.tellEvents(ctx, told)
	c.endedTrainings(ctx)
	return view{View: seen}, nil
}

// tellEvents tells people what was seen of the group.
func (c *group) tellEvents(ctx context.Context, told []life.Event) {
	for _, e := range told {
		if e.Failure != "" {
			c.failed(e.Failure, errors.New(e.Text))
		} else {
			c.note(ctx, e.Text)
		}
	}
}

// firstLook logs that scaler and balancer have answered for the first time.
func (c *group) firstLook(members []quell.Member, states []quell.BackendState) {
	if c.looked {
		return
	}
	c.looked = true
	c.log.Info("scaler and balancer answer", "instances", len(members), "backends", len(states))
}

// keep makes sure that the last plan stays in force, if this controller may act. In advise mode it keeps Quell's own balancer in use.
func (c *group) keep(ctx context.Context, v view) {
	if c.serves() {
		c.serve(ctx, v)
	}
	if !c.acting() {
		return
	}
	c.begin(ctx, v)
	if err := c.reconcile(ctx, v, c.weightsInForce(v)); err != nil {
		c.failed("apply", err)
	}
}

// begin starts the first instances of an empty group.
func (c *group) begin(ctx context.Context, v view) {
	if c.begun || len(v.Members) > 0 || v.Coming > 0 || c.opts.Fixed {
		c.begun = true
		return
	}
	n := min(life.First(c.opts.Service.Group), c.opts.Service.Group.Max-v.MayCome)
	if n <= 0 {
		return
	}
	started, err := c.order(ctx, n, "")
	if err != nil {
		c.failed("apply", fmt.Errorf("starting the first instances: %w", err))
	}
	if started != "" {
		c.begun = true
		c.event(ctx, "started the first instances: "+started)
	}
}

// weightsInForce returns the last plan's weights. A controller that begins to act adopts the balancer's weights, so
// that taking over changes nothing.
func (c *group) weightsInForce(v view) map[string]float64 {
	if c.adopt {
		c.adoptWeights(v)
	}
	return life.InForce(v.Group(), c.mem.Weights)
}

func (c *group) adoptWeights(v view) {
	found := map[string]float64{}
	for id, b := range v.Backends {
		if b.Weight > 0 && !b.Draining {
			found[id] = b.Weight
		}
	}
	if len(found) > 0 {
		c.mem.Weights = found
	}
	c.adopt = false
}

// changeGroup marks instances as removed and makes the scaler start new ones.
func (c *group) changeGroup(ctx context.Context, change *quell.GroupChange) ([]string, error) {
	var changes []string
	for _, id := range change.Remove {
		if c.fleet.Remove(c.now(), id) {
			changes = append(changes, "remove "+id)
		}
	}
	if change.Add == 0 {
		return changes, nil
	}
	started, err := c.order(ctx, change.Add, "")
	if started != "" {
		changes = append(changes, "add "+started)
	}
	if err != nil {
		return changes, fmt.Errorf("starting %d instance(s): %w", change.Add, err)
	}
	return changes, nil
}

// reconcile sets the balancer's backends: ready members with their weights, draining members until they have no open request, and failed
// members until they are given up. If nothing differs, it does not call the balancer.
func (c *group) reconcile(ctx context.Context, v view, weights map[string]float64) error {
	group, steps := v.Group(), life.Steps{}
	c.gather.note(c.now(), group)
	c.fleet.Follow(c.now(), &v.View, group, weights, c.opts.Drain, &steps)
	c.forgetHolds()
	if life.Differs(steps.Backends, v.Backends) {
		if err := c.setBackends(ctx, steps.Backends); err != nil {
			return err
		}
	}
	c.finished = append(c.finished, steps.Stop...)
	c.tellDrained(v)
	return nil
}

// Waiter is a scaler whose platform can wait, before it ends an instance, until its open requests have finished.
type Waiter interface {
	// Drained says that these instances, which the platform is ending, have no requests. It is called again and again, and must be fast.
	Drained(ids []string)
}

// tellDrained tells the scaler which of the instances that the platform is ending have no requests any more.
func (c *group) tellDrained(v view) {
	waiter, ok := c.opts.Scaler.(Waiter)
	if !ok {
		return
	}
	var ids []string
	for _, m := range v.Members {
		b, known := v.Backends[m.ID]
		if m.State == quell.Draining && (!known || b.Draining && b.InFlight == 0) {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) > 0 {
		waiter.Drained(ids)
	}
}

// endDrained makes the scaler stop drained instances. It does so in the background, because that may take long, and goes on when the
// command is answered that led to it. If an instance could not be stopped, it stays marked as drained, and stopping is tried again after a
// pause. Until it is gone, it counts against group.max.
func (c *group) endDrained() {
	ids := c.finished
	c.finished = nil
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		c.fleet.Ending[id] = time.Time{}
	}
	ctx, meant := c.living, c.fleet.Leavers
	c.background.Go(func() {
		running, err := scaler.StopEach(ctx, c.opts.Scaler, ids, life.EndWait, func(m *quell.Member) bool { return meant[m.ID].Is(m) })
		c.work.Lock()
		defer c.release()
		if ctx.Err() != nil {
			for _, id := range ids {
				delete(c.fleet.Ending, id) // it may run on
			}
			return
		}
		for _, id := range ids {
			if _, ends := c.fleet.Ending[id]; !ends {
				continue // another controller has led since
			}
			c.fleet.Ending[id] = c.now() // it is forgotten when the scaler no longer lists it
			if slices.Contains(running, id) {
				delete(c.fleet.Ending, id)
				c.fleet.Stuck.Note(c.now(), id)
			}
		}
		if err != nil {
			c.failed("apply", err)
		}
	})
}

// Members returns the instances that the scaler listed when it was last asked.
func (c *Controller) Members() []quell.Member {
	return c.shown.read().members
}
