package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/agentless"
	"github.com/quellhq/quell/life"
)

// deciding makes plans and carries them out.
type deciding struct {
	*board
	settings  settingsActuator
	outside   agentless.View // of instances without an agent
	originals [2]changes     // what the main and the fast policy had changed when keepOriginals last stored the memory
	composed  outcome        // of the fast policy's last plan
}

// actuator carries out one part of plans.
type actuator interface {
	// differs describes what a plan asks for that is not in force yet.
	differs(v *view, plan *quell.Plan) []string
	// apply puts the plan's part in force. It describes what it changed, even if it returns an error.
	apply(ctx context.Context, v *view, plan *quell.Plan) (changes []string, err error)
	// readBack describes what was applied earlier and is not yet reported as being in force.
	readBack(v *view) []string
}

// actuated is a part of plans with its actuator.
type actuated struct {
	part quell.Part
	by   actuator
}

// actuators lists the actuators in the order of the parts. If a plan has a part without an actuator, that is an error.
func (c *deciding) actuators() []actuated {
	all := []actuated{{quell.GroupPart, groupActuator{c}}, {quell.ReplacePart, replaceActuator{c}}, {quell.WeightsPart, weightsActuator{c}}}
	if c.fast != nil {
		all = append(all, actuated{quell.FactorPart, composed{}})
	}
	if c.opts.Agents != nil {
		all = append(all, actuated{quell.SettingsPart, &c.settings})
	}
	return all
}

// asks describes what a plan would change, and which parts of the plan could not be carried out.
func (c *deciding) asks(v *view, plan *quell.Plan) []string {
	var parts []string
	for _, a := range c.actuators() {
		parts = append(parts, a.by.differs(v, plan)...)
	}
	if err := c.nobodyFor(plan); err != nil {
		parts = append(parts, err.Error())
	}
	return parts
}

// apply carries out those parts of the plan that are not in force, and describes what it changed.
func (c *deciding) apply(ctx context.Context, v *view, plan *quell.Plan) ([]string, error) {
	var changes []string
	var errs []error
	for _, a := range c.actuators() {
		changed, err := a.by.apply(ctx, v, plan)
		changes, errs = append(changes, changed...), append(errs, err)
	}
	return changes, errors.Join(append(errs, c.nobodyFor(plan))...)
}

// nobodyFor returns an error if a plan has a part without an actuator.
func (c *deciding) nobodyFor(plan *quell.Plan) error {
	has := map[quell.Part]bool{}
	for _, a := range c.actuators() {
		has[a.part] = true
	}
	var missing []string
	for _, part := range plan.Asks() {
		if !has[part] {
			missing = append(missing, string(part))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("policy %s asks for %s, and this controller has nothing that carries that out", plan.Policy, strings.Join(missing, ", "))
}

// pending describes what was applied but is not yet reported as being in force.
func (c *deciding) pending(v *view) (words []string) {
	for _, a := range c.actuators() {
		words = append(words, a.by.readBack(v)...)
	}
	return words
}

// groupActuator starts instances and drains those that are removed.
type groupActuator struct{ c *deciding }

func (a groupActuator) differs(_ *view, plan *quell.Plan) (words []string) {
	if plan.Group.Empty() || a.c.opts.Fixed {
		return nil
	}
	if plan.Group.Add > 0 {
		words = append(words, fmt.Sprintf("add %d", plan.Group.Add))
	}
	for _, id := range plan.Group.Remove {
		words = append(words, "remove "+id)
	}
	return words
}

// apply does nothing for a fixed group, because a plan's changes of such a group are only advice.
func (a groupActuator) apply(ctx context.Context, _ *view, plan *quell.Plan) ([]string, error) {
	if plan.Group.Empty() || a.c.opts.Fixed {
		return nil, nil
	}
	return a.c.changeGroup(ctx, plan.Group)
}

func (a groupActuator) readBack(v *view) []string {
	var words []string
	if v.Coming > 0 {
		words = append(words, fmt.Sprintf("%d instance(s) ordered, and not listed by the scaler yet", v.Coming))
	}
	if v.MayCome > 0 {
		words = append(words, fmt.Sprintf("%d instance(s) ordered, no longer waited for, and perhaps started: they count against group.max",
			v.MayCome))
	}
	return words
}

// composed is the actuator of a fast policy's cuts. It has nothing to do, because a plan's weights already contain the cuts.
type composed struct{}

func (composed) differs(*view, *quell.Plan) []string                         { return nil }
func (composed) apply(context.Context, *view, *quell.Plan) ([]string, error) { return nil, nil }
func (composed) readBack(*view) []string                                     { return nil }

// weightsActuator sets the balancer's backends: shares, which instances drain, and which are removed.
type weightsActuator struct{ c *deciding }

func (a weightsActuator) differs(v *view, plan *quell.Plan) []string {
	if moved := v.Moved(plan.Weights); moved != "" {
		return []string{"set " + moved}
	}
	return nil
}

// apply sets the plan's shares. If no instance is ready, the plan has no shares, and apply leaves those in force: a balancer that has just
// started may not have checked any instance yet.
func (a weightsActuator) apply(ctx context.Context, v *view, plan *quell.Plan) ([]string, error) {
	c, weights := a.c, plan.Weights
	if len(weights) == 0 {
		weights = c.weightsInForce(*v)
	}
	changed := v.Moved(weights)
	if err := c.reconcile(ctx, *v, weights); err != nil {
		return nil, err
	}
	c.mem.Weights, c.adopt = weights, false
	if changed == "" {
		return nil, nil
	}
	return []string{changed}, nil
}

// readBack compares the balancer with the last plan. Shares that the balancer lost are set again when the balancer is asked the next time.
func (a weightsActuator) readBack(v *view) []string {
	if !a.c.acting() || a.c.adopt {
		return nil
	}
	in := map[string]float64{}
	for id, w := range a.c.mem.Weights {
		if b, known := v.Backends[id]; known && !b.Draining && b.ByHand == nil && life.Moves(b, known, w) {
			in[id] = w
		}
	}
	if lost := v.Moved(in); lost != "" {
		return []string{"the balancer does not have " + lost}
	}
	return nil
}
