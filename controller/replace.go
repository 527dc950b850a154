package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

// placesOf returns which instances will replace which other ones.
func (c *Controller) placesOf() map[string]string {
	places := map[string]string{}
	for i := range c.mem.Replacing {
		if r := &c.mem.Replacing[i]; r.New != "" {
			places[r.New] = r.Old
		}
	}
	return places
}

// replaceNext makes the next step of the present replacement. There is only one at a time, so that the group has at most one instance more
// than group.max. It runs before a decision, so that the decision sees its effects.
func (c *Controller) replaceNext(ctx context.Context, v *view) {
	last := c.turn
	c.turn = ""
	if len(c.mem.Replacing) == 0 || !c.acting() {
		return
	}
	r := &c.mem.Replacing[0]
	turn, why := r.Next(c.now(), v.group(), c.mem.Inventory.ComingFor(r.Old) > 0, c.rules())
	switch turn {
	case life.Await:
		c.turn = why
	case life.Renew:
		c.renew(ctx, v, r, why)
	case life.TakeOver:
		if r.Keep {
			c.setAside(r)
			c.endReplacement(ctx, v, fmt.Sprintf("%s takes the place of %s, which goes on running out of rotation", r.New, r.Old))
			return
		}
		c.mem.Draining[r.Old] = c.now()
		c.endReplacement(ctx, v, fmt.Sprintf("%s takes the place of %s, which drains", r.New, r.Old))
	case life.Over:
		c.mem.Inventory.Release(r.Old)
		c.endReplacement(ctx, v, fmt.Sprintf("replacement of %s is over: %s", r.Old, why))
	case life.CallOff:
		if r.New == "" && last != "" {
			why += " (" + last + ")"
		}
		c.drop(r.New)
		c.mem.Inventory.Release(r.Old)
		c.endReplacement(ctx, v, fmt.Sprintf("replacement of %s is called off: %s", r.Old, why))
	}
}

// alive returns how many instances count against group.max.
func (c *Controller) alive(v *view) (n int) {
	for _, m := range v.members {
		if _, leaving := c.mem.Draining[m.ID]; !leaving && m.State != quell.Failed {
			n++
		}
	}
	return n
}

// setAside takes the old instance of a replacement out of rotation, as quell drain does.
func (c *Controller) setAside(r *life.Replacement) {
	c.mem.Held = maps.Clone(c.mem.Held)
	c.mem.Held[r.Old] = quell.Held{By: r.By, Since: c.now(), Why: "replaced by " + r.New + ", and kept for a look"}
}

// rules returns the conditions under which a new instance may take over.
func (c *Controller) rules() *life.Replacing {
	service := &c.opts.Service
	feels := c.opts.Policies.Feels(service.Policy.Name)
	return &life.Replacing{
		Startup: service.Group.Startup, SlowStart: service.Guard.SlowStart, Patience: life.Patience(service),
		Probed: func(id string) bool { return !feels || c.mem.State.Instances[id].Severity != nil },
	}
}

// renew orders a new instance. If an earlier attempt ordered an instance that did not work, renew removes that instance.
func (c *Controller) renew(ctx context.Context, v *view, r *life.Replacement, why string) {
	c.drop(r.New)
	if c.crowded(v) {
		c.turn = "instances that were ordered before may still come, or some cannot be stopped, and with another one the group could " +
			"exceed group.max"
		return
	}
	r.Order(c.now())
	if why == "" {
		why = "asked for by " + r.By
	}
	c.turn = "a fresh instance was ordered: " + why
	started, err := c.order(ctx, 1, r.Old)
	if err != nil {
		c.failed("apply", fmt.Errorf("starting an instance in place of %s: %w", r.Old, err))
		c.turn = err.Error()
		return
	}
	c.event(ctx, fmt.Sprintf("started %s in place of %s: %s", started, r.Old, why))
}

// drop removes a new instance that will not take over, unless a person holds it out of rotation.
func (c *Controller) drop(fresh string) {
	_, ordered := c.mem.Held[fresh]
	_, byHand := c.mem.ByHand[fresh]
	if _, leaves := c.mem.Draining[fresh]; fresh != "" && !leaves && !ordered && !byHand {
		c.mem.Draining[fresh] = c.now()
	}
}

// endReplacement removes the first replacement from the list. It stores this before the balancer is changed.
func (c *Controller) endReplacement(ctx context.Context, v *view, text string) {
	c.mem.Replacing = slices.Clone(c.mem.Replacing[1:])
	v.places = c.placesOf()
	v.coming, v.mayCome = c.mem.Inventory.Coming(), c.mem.Inventory.MayCome()
	c.event(ctx, text)
	if c.unsaved = c.save(ctx); c.unsaved != nil {
		c.failed("memory", c.unsaved)
	}
}

// nameFresh records which new instance will take the place of an old one.
func (c *Controller) nameFresh(old, fresh string) {
	for i := range c.mem.Replacing {
		if r := &c.mem.Replacing[i]; r.Old == old && r.New == "" {
			r.New = fresh
		}
	}
}

// freed handles replacements whose old instance has failed: the instances ordered for them join the group like other new instances.
func (c *Controller) freed(s *quell.Snapshot) {
	for i := range c.mem.Replacing {
		old := c.mem.Replacing[i].Old
		failed := func(in quell.Instance) bool { return in.ID == old && in.State == quell.Failed }
		if slices.ContainsFunc(s.Instances, failed) {
			s.Coming += c.mem.Inventory.ComingFor(old)
		}
	}
}

// replaceable returns why an instance cannot be replaced.
func (c *Controller) replaceable(v *view, id string) error {
	listed := slices.ContainsFunc(v.members, func(m quell.Member) bool { return m.ID == id })
	under := func(r life.Replacement) bool { return r.Old == id || r.New == id }
	_, leaving := c.mem.Draining[id]
	switch h, held := v.held[id]; {
	case !listed:
		return fmt.Errorf("no instance %q; `quell status` lists them", id)
	case c.opts.Fixed:
		return fmt.Errorf("the fleet is fixed (scaler.kind): Quell neither starts nor stops its instances. `quell drain %s` takes this one out "+
			"of rotation", id)
	case leaving:
		return fmt.Errorf("%s is being removed already", id)
	case slices.Contains(c.opts.Service.Group.Protected, id):
		return fmt.Errorf("%s is protected (group.protected): it is never replaced", id)
	case held:
		return fmt.Errorf("%s is held by %s: it is not replaced until `quell undrain %s`", id, h.By, id)
	case slices.ContainsFunc(c.mem.Replacing, under):
		return fmt.Errorf("%s is part of a replacement already; `quell status` shows it", id)
	}
	return nil
}

// replace accepts a person's order to replace an instance. The replacement begins with the next decision that is carried out.
func (c *Controller) replace(ctx context.Context, cmd bus.Command) bus.Reply {
	text := fmt.Sprintf("replacement of %s asked for by %s", cmd.Instance, cmd.By)
	if c.shown.read().status.Paused {
		text += ": it begins when the pause ends"
	}
	return c.change(ctx, text, func() error {
		if c.refused != nil {
			return c.refused
		}
		v, err := c.look(ctx)
		if err != nil {
			return err
		}
		if err := c.replaceable(&v, cmd.Instance); err != nil {
			return err
		}
		if c.opts.Service.Mode != quell.Act {
			return fmt.Errorf("mode is %s: Quell changes nothing. It would start a fresh instance, let it take the place of %s, and end that",
				c.opts.Service.Mode, cmd.Instance)
		}
		if most := c.opts.Service.Group.Max; cmd.Keep && c.alive(&v) >= most {
			return fmt.Errorf("an instance that is kept counts against group.max, which is %d: raise it first, or leave out --keep", most)
		}
		c.mem.Replacing = append(slices.Clone(c.mem.Replacing), life.Replacement{Old: cmd.Instance, By: cmd.By, At: c.now(), Keep: cmd.Keep})
		return nil
	})
}

// replaceActuator starts the replacements that plans ask for.
type replaceActuator struct{ c *Controller }

// fresh returns the instances that a plan wants replaced and that are not being replaced yet.
func (a replaceActuator) fresh(plan *quell.Plan) (ids []string) {
	for _, id := range plan.Replace {
		_, leaving := a.c.mem.Draining[id]
		known := slices.ContainsFunc(a.c.mem.Replacing, func(r life.Replacement) bool { return r.Old == id })
		if !known && !leaving {
			ids = append(ids, id)
		}
	}
	return ids
}

// differs also says why an instance cannot be replaced.
func (a replaceActuator) differs(v *view, plan *quell.Plan) (words []string) {
	for _, id := range a.fresh(plan) {
		if err := a.c.replaceable(v, id); err != nil {
			words = append(words, fmt.Sprintf("not replace %s: %v", id, err))
		} else {
			words = append(words, "replace "+id)
		}
	}
	return words
}

// apply starts the replacements one at a time, with at least group.replace.every in between. An instance that a person holds out of
// rotation is not replaced by a plan.
func (a replaceActuator) apply(_ context.Context, v *view, plan *quell.Plan) (changes []string, err error) {
	c := a.c
	var errs []error
	for _, id := range a.fresh(plan) {
		switch err := c.replaceable(v, id); {
		case v.holds(id):
		case err != nil:
			errs = append(errs, fmt.Errorf("replace: %w", err))
		case c.now().Sub(c.mem.Replaced) >= c.opts.Service.Group.Replace.Every:
			c.mem.Replaced = c.now()
			c.mem.Replacing = append(slices.Clone(c.mem.Replacing), life.Replacement{Old: id, By: "policy " + plan.Policy, At: c.now()})
			changes = append(changes, "replace "+id)
		}
	}
	return changes, errors.Join(errs...)
}

// readBack describes how far the replacements have come.
func (a replaceActuator) readBack(*view) (words []string) {
	for i := range a.c.mem.Replacing {
		r := &a.c.mem.Replacing[i]
		text := fmt.Sprintf("replace %s (asked for by %s)", r.Old, r.By)
		switch {
		case i > 0:
			text += ": after " + a.c.mem.Replacing[0].Old
		case a.c.turn != "":
			text += ": " + a.c.turn
		}
		words = append(words, text)
	}
	return words
}
