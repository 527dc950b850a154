package controller

import (
	"context"
	"fmt"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

// replaceNext makes the next step of the present replacement, and orders an instance for it. It stores the end of a replacement before the
// balancer is changed.
func (c *group) replaceNext(ctx context.Context, v *view) {
	if !c.acting() {
		c.fleet.Waits = ""
		return
	}
	service := &c.opts.Service
	rules := life.RulesOf(service, c.opts.Policies.Feels(service.Policy.Name), c.mem.State.HasSeverity)
	turn, r, text := c.fleet.Replace(c.now(), &v.View, rules)
	switch {
	case turn == life.Renew:
		c.renew(ctx, &r, text)
	case text != "":
		c.event(ctx, text)
		if c.unsaved = c.save(ctx); c.unsaved != nil {
			c.failed("memory", c.unsaved)
		}
	}
}

// renew orders a new instance in place of another one.
func (c *group) renew(ctx context.Context, r *life.Replacement, why string) {
	started, err := c.order(ctx, 1, r.Old)
	if err != nil {
		c.failed("apply", fmt.Errorf("starting an instance in place of %s: %w", r.Old, err))
		c.fleet.Waits = err.Error()
		return
	}
	c.event(ctx, fmt.Sprintf("started %s in place of %s: %s", started, r.Old, why))
}

// replace accepts a person's order to replace an instance. The replacement begins with the next decision that is carried out.
func (c *orders) replace(ctx context.Context, cmd bus.Command) bus.Reply {
	text := fmt.Sprintf("replacement of %s asked for by %s", cmd.Instance, cmd.By)
	if c.shown.read().status.Paused {
		text += ": it begins when the pause ends"
	}
	return c.change(ctx, text, func(ctx context.Context) error {
		if c.refused != nil {
			return c.refused
		}
		v, err := c.look(ctx)
		if err != nil {
			return err
		}
		if err := c.fleet.Replaceable(&v.View, cmd.Instance, &c.opts.Service.Group, c.opts.Fixed); err != nil {
			return err
		}
		if c.opts.Service.Mode != quell.Act {
			return fmt.Errorf("mode is %s: Quell changes nothing. It would start a fresh instance, let it take the place of %s, and end that",
				c.opts.Service.Mode, cmd.Instance)
		}
		if most := c.opts.Service.Group.Max; cmd.Keep && c.fleet.Alive(&v.View) >= most {
			return fmt.Errorf("an instance that is kept counts against group.max, which is %d: raise it first, or leave out --keep", most)
		}
		c.mem.AskToReplace(life.Replacement{Old: cmd.Instance, By: cmd.By, At: c.now(), Keep: cmd.Keep})
		return nil
	})
}

// replaceActuator starts the replacements that plans ask for.
type replaceActuator struct{ c *deciding }

func (a replaceActuator) differs(v *view, plan *quell.Plan) []string {
	return a.c.fleet.WouldReplace(&v.View, plan, &a.c.opts.Service.Group, a.c.opts.Fixed)
}

func (a replaceActuator) apply(_ context.Context, v *view, plan *quell.Plan) ([]string, error) {
	return a.c.fleet.TakeUp(a.c.now(), &v.View, plan, &a.c.opts.Service.Group, a.c.opts.Fixed)
}

func (a replaceActuator) readBack(*view) []string { return a.c.fleet.Replacements() }
