package controller

import (
	"context"
	"errors"
	"fmt"
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
}

func (c *Controller) look(ctx context.Context) (view, error) {
	members, err := c.opts.Scaler.Members(ctx)
	if err != nil {
		return view{}, fmt.Errorf("asking the scaler: %w", err)
	}
	c.members = members
	states, err := c.opts.Balancer.State(ctx)
	if err != nil {
		return view{}, fmt.Errorf("asking the balancer: %w", err)
	}
	v := view{members: members, backends: make(map[string]quell.BackendState, len(states))}
	for _, s := range states {
		v.backends[s.ID] = s
	}
	return v, nil
}

// begin starts the first instances of a group that has none.
func (c *Controller) begin(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead(ctx)
	members, err := c.opts.Scaler.Members(ctx)
	if err != nil {
		c.failed("look", fmt.Errorf("asking the scaler: %w", err))
		return
	}
	if len(members) > 0 || !c.acting() || c.opts.Fixed {
		return
	}
	group := c.opts.Service.Group
	ids, err := c.opts.Scaler.Start(ctx, min(max(group.Min, group.Initial), group.Max))
	if err != nil {
		c.failed("apply", fmt.Errorf("starting the first instances: %w", err))
	}
	if len(ids) > 0 {
		c.event(ctx, "started the first instances: "+strings.Join(ids, ", "))
	}
}

// tend follows the instances' lives between periods: one that became ready is shown to the balancer without
// traffic, so that health checks and probes can begin; one that has drained is stopped.
func (c *Controller) tend(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.acting() {
		return
	}
	v, err := c.look(ctx)
	if err != nil {
		c.failed("look", err)
		return
	}
	if err := c.reconcile(ctx, v, c.weightsInForce(v)); err != nil {
		c.failed("apply", err)
	}
}

// weightsInForce is what the balancer has, so that a restarted controller changes nothing by itself. A balancer
// that sends nothing anywhere gets equal weights at once: traffic does not wait for the first decision.
func (c *Controller) weightsInForce(v view) map[string]float64 {
	weights := make(map[string]float64, len(v.members))
	var sum float64
	for id, b := range v.backends {
		weights[id] = b.Weight
		sum += b.Weight
	}
	if sum > 0 {
		return weights
	}
	var ready []string
	for _, m := range v.members {
		if _, draining := c.mem.Draining[m.ID]; m.State == quell.Ready && !draining {
			ready = append(ready, m.ID)
		}
	}
	for _, id := range ready {
		weights[id] = 1 / float64(len(ready))
	}
	return weights
}

// apply carries out the difference between the plan and what is in force, group first, and says what it changed.
func (c *Controller) apply(ctx context.Context, v view, plan *quell.Plan) ([]string, error) {
	var changes []string
	var errs []error
	if !plan.Group.Empty() && !c.opts.Fixed {
		changed, err := c.changeGroup(ctx, plan.Group)
		changes = append(changes, changed...)
		errs = append(errs, err)
	}
	if moved := c.moved(v, plan.Weights); moved != "" {
		changes = append(changes, moved)
	}
	errs = append(errs, c.reconcile(ctx, v, plan.Weights))
	return changes, errors.Join(errs...)
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
	var errs []error
	if differs(wanted, v.backends) {
		if err := c.opts.Balancer.Apply(ctx, wanted); err != nil {
			return fmt.Errorf("setting the balancer: %w", err)
		}
	}
	if len(done) > 0 {
		if err := c.opts.Scaler.Stop(ctx, done); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", strings.Join(done, ", "), err))
		}
		for _, id := range done {
			delete(c.mem.Draining, id)
		}
	}
	return errors.Join(errs...)
}

// wanted lists the backends that should be there, and the members that have drained and can be stopped.
func (c *Controller) wanted(v view, weights map[string]float64) (backends []quell.Backend, done []string) {
	for _, m := range v.members {
		state, known := v.backends[m.ID]
		if known && state.Draining {
			c.adoptDrain(m.ID)
		}
		since, draining := c.mem.Draining[m.ID]
		switch {
		case draining && m.State == quell.Draining:
			// The scaler is already ending it.
		case draining && c.drained(m, state, known, since):
			done = append(done, m.ID)
		case draining:
			backends = append(backends, quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Draining: true})
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
	for id := range c.mem.Draining {
		if !slices.ContainsFunc(v.members, func(m quell.Member) bool { return m.ID == id }) {
			delete(c.mem.Draining, id)
		}
	}
}

func differs(wanted []quell.Backend, inForce map[string]quell.BackendState) bool {
	if len(wanted) != len(inForce) {
		return true
	}
	for _, w := range wanted {
		b, ok := inForce[w.ID]
		if !ok || b.Address != w.Address || b.Probe != w.Probe || b.Draining != w.Draining || math.Abs(b.Weight-w.Weight) > weightResolution {
			return true
		}
	}
	return false
}

// Members are the instances that the last look at the scaler showed.
func (c *Controller) Members() []quell.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members
}
