package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// view is what scaler and balancer say at one moment.
type view struct {
	members  []quell.Member
	backends map[string]quell.BackendState
	leaving  map[string]time.Time // members that are to drain, and since when
	held     map[string]hold      // members that a person took out
}

func (c *Controller) look(ctx context.Context) (view, error) {
	members, err := c.opts.Scaler.Members(ctx)
	if err != nil {
		return view{}, fmt.Errorf("asking the scaler: %w", err)
	}
	states, err := c.opts.Balancer.State(ctx)
	if err != nil {
		return view{}, fmt.Errorf("asking the balancer: %w", err)
	}
	c.firstLook(members, states)
	v := view{members: members, backends: make(map[string]quell.BackendState, len(states)), leaving: c.mem.Draining}
	for _, s := range states {
		v.backends[s.ID] = s
	}
	c.keepMissing(ctx, &v)
	c.members = v.members
	c.noteHolds(ctx, &v)
	return v, nil
}

// firstLook logs that scaler and balancer answer.
func (c *Controller) firstLook(members []quell.Member, states []quell.BackendState) {
	if c.looked {
		return
	}
	c.looked = true
	c.log.Info("scaler and balancer answer", "instances", len(members), "backends", len(states))
}

// tend follows the instances' lives between periods: one that became ready is shown to the balancer without
// traffic, so that health checks and probes can begin; one that has drained is stopped. It also puts back what the
// balancer lost or somebody changed there.
func (c *Controller) tend(ctx context.Context) {
	c.work.Lock()
	defer c.release()
	defer c.endDrained(ctx)
	limited, cancel := c.limit(ctx)
	defer cancel()
	if c.leading {
		_ = c.lead(limited) // counted there
	}
	if !c.acting() && !c.first {
		return
	}
	v, err := c.look(limited)
	if err != nil {
		c.failed("look", err)
		return
	}
	if c.judge(limited, v); !c.acting() {
		return
	}
	c.begin(limited, v)
	if err := c.reconcile(limited, v, c.weightsInForce(v)); err != nil {
		c.failed("apply", err)
	}
}

// begin starts the first instances of a group that has none.
func (c *Controller) begin(ctx context.Context, v view) {
	if c.begun || len(v.members) > 0 || c.opts.Fixed {
		c.begun = true
		return
	}
	group := c.opts.Service.Group
	ids, err := c.opts.Scaler.Start(ctx, min(max(group.Min, group.Initial), group.Max))
	if err != nil {
		c.failed("apply", fmt.Errorf("starting the first instances: %w", err))
	}
	if len(ids) > 0 {
		c.begun = true
		c.event(ctx, "started the first instances: "+strings.Join(ids, ", "))
	}
}

// weightsInForce is what the last plan said. A controller that begins to act takes over what the balancer has, and so
// changes nothing by itself. Where that would send nothing anywhere, weights are equal at once: traffic does not wait
// for the next decision.
func (c *Controller) weightsInForce(v view) map[string]float64 {
	if c.adopt {
		c.adoptWeights(v)
	}
	var ready []string
	var sum float64
	for _, m := range v.members {
		if _, draining := c.mem.Draining[m.ID]; m.State == quell.Ready && !draining && !v.holds(m.ID) {
			ready = append(ready, m.ID)
			sum += c.mem.Weights[m.ID]
		}
	}
	if sum > 0 {
		return c.mem.Weights
	}
	weights := make(map[string]float64, len(ready))
	for _, id := range ready {
		weights[id] = 1 / float64(len(ready))
	}
	return weights
}

func (c *Controller) adoptWeights(v view) {
	found := map[string]float64{}
	for id, b := range v.backends {
		if b.Weight > 0 && !b.Draining {
			found[id] = b.Weight
		}
	}
	if len(found) > 0 {
		c.mem.Weights = found
	}
	c.adopt = false
}

// apply carries out the difference between the plan and what is in force, group first, and says what it changed.
func (c *Controller) apply(ctx context.Context, v view, plan *quell.Plan) ([]string, error) {
	var changes []string
	var groupErr error
	if !plan.Group.Empty() && !c.opts.Fixed {
		changes, groupErr = c.changeGroup(ctx, plan.Group)
	}
	weights := plan.Weights
	if len(weights) == 0 { // nobody is ready, perhaps for a balancer that has just started and checked nobody yet
		weights = c.weightsInForce(v)
	}
	moved := c.moved(v, weights)
	err := c.reconcile(ctx, v, weights)
	if err == nil {
		c.mem.Weights, c.adopt = weights, false
		if moved != "" {
			changes = append(changes, moved)
		}
	}
	return changes, errors.Join(groupErr, err)
}

func (c *Controller) changeGroup(ctx context.Context, change *quell.GroupChange) ([]string, error) {
	var changes []string
	for _, id := range change.Remove {
		if _, already := c.mem.Draining[id]; !already {
			c.mem.Draining[id] = c.now()
			changes = append(changes, "remove "+id)
		}
	}
	if change.Add == 0 {
		return changes, nil
	}
	ids, err := c.opts.Scaler.Start(ctx, change.Add)
	if len(ids) > 0 {
		changes = append(changes, "add "+strings.Join(ids, ", "))
	}
	if err != nil {
		return changes, fmt.Errorf("starting %d instance(s): %w", change.Add, err)
	}
	return changes, nil
}

// moved describes how the plan's weights differ from those in force; empty if they do not.
func (c *Controller) moved(v view, weights map[string]float64) string {
	var parts []string
	for id, w := range weights {
		b, ok := v.backends[id]
		if !ok || math.Abs(b.Weight-w) > weightResolution {
			parts = append(parts, fmt.Sprintf("%s=%.3f", id, w))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return "weights " + strings.Join(parts, " ")
}

// weightResolution is the difference of weights that no balancer could show.
const weightResolution = 1e-6

// reconcile makes the balancer's backends what they should be: ready members with their weights, draining ones
// until they are empty, failed ones until they are given up. Where nothing differs, nothing is touched.
func (c *Controller) reconcile(ctx context.Context, v view, weights map[string]float64) error {
	wanted, done := c.wanted(v, weights)
	if differs(wanted, v.backends) {
		if err := c.opts.Balancer.Apply(ctx, wanted); err != nil {
			return fmt.Errorf("setting the balancer: %w", err)
		}
	}
	c.finished = append(c.finished, done...)
	return nil
}

// endWait bounds one attempt to end instances. They get their own time to end in, so that is long.
const endWait = 5 * time.Minute

// endDrained lets the scaler end what has drained, beside the loop: an instance may take its time. One that could not
// be ended stays marked as drained, and is tried again.
func (c *Controller) endDrained(ctx context.Context) {
	ids := c.finished
	c.finished = nil
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		c.ending[id] = true
	}
	c.background.Go(func() {
		limited, cancel := context.WithTimeout(ctx, endWait)
		defer cancel()
		err := c.opts.Scaler.Stop(limited, ids)
		c.work.Lock()
		defer c.release()
		if err == nil {
			return // they are forgotten once the scaler no longer lists them
		}
		for _, id := range ids {
			delete(c.ending, id)
		}
		if ctx.Err() == nil {
			c.failed("apply", fmt.Errorf("stopping %s: %w", strings.Join(ids, ", "), err))
		}
	})
}

// wanted lists the backends that should be there, and the members that have drained and can be stopped.
func (c *Controller) wanted(v view, weights map[string]float64) (backends []quell.Backend, done []string) {
	for _, m := range v.members {
		state, known := v.backends[m.ID]
		if known && state.Draining && !v.holds(m.ID) && !state.Held {
			c.adoptDrain(m.ID)
		}
		_, held := c.mem.Held[m.ID]
		since, draining := c.mem.Draining[m.ID]
		switch {
		case draining && m.State == quell.Draining, c.ending[m.ID]:
			// The scaler is already ending it.
		case draining && c.drained(m, state, known, since):
			done = append(done, m.ID)
		case draining:
			backends = append(backends, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Draining: true})
		case held:
			backends = append(backends, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Draining: true, Held: true})
		case m.State == quell.Ready || m.State == quell.Failed && known:
			backends = append(backends, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Weight: weights[m.ID]})
		}
	}
	c.forgetGone(v)
	return backends, done
}

// adoptDrain goes on with a drain that an earlier controller began and could not write down.
func (c *Controller) adoptDrain(id string) {
	if _, ok := c.mem.Draining[id]; !ok {
		c.mem.Draining[id] = c.now()
	}
}

// drained says whether an instance can be stopped: the balancer knows that it drains and has no open request
// there, or it never served, or it has exited, or its time is up.
func (c *Controller) drained(m quell.Member, b quell.BackendState, known bool, since time.Time) bool {
	late := c.opts.Drain > 0 && c.now().Sub(since) >= c.opts.Drain
	return m.State == quell.Failed || !known || late || b.Draining && b.InFlight == 0
}

func (c *Controller) forgetGone(v view) {
	present := make(map[string]bool, len(v.members))
	for _, m := range v.members {
		present[m.ID] = true
	}
	maps.DeleteFunc(c.mem.Draining, func(id string, _ time.Time) bool { return !present[id] })
	maps.DeleteFunc(c.ending, func(id string, _ bool) bool { return !present[id] })
	c.forgetHolds(present)
}

func differs(wanted []quell.Backend, inForce map[string]quell.BackendState) bool {
	if len(wanted) != len(inForce) {
		return true
	}
	for _, w := range wanted {
		b, ok := inForce[w.ID]
		if !ok || b.Address != w.Address || b.Probe != w.Probe {
			return true
		}
		if b.ByHand != nil {
			continue // its state is somebody's own business
		}
		if b.Draining != w.Draining || b.Held != w.Held || math.Abs(b.Weight-w.Weight) > weightResolution {
			return true
		}
	}
	return false
}

// Members are the instances that the last look at the scaler showed.
func (c *Controller) Members() []quell.Member {
	return c.shown.read().members
}
