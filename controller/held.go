package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// Releaser is a balancer that can put an instance back in rotation that a person took out there.
type Releaser interface {
	Release(ctx context.Context, id string) error
}

// note logs an event, and records it in the journal if this controller leads.
func (c *core) note(ctx context.Context, text string) {
	if c.leading {
		c.event(ctx, text)
	} else {
		c.log.Info(text)
	}
}

// forgetHolds forgets the ends of holds of which nothing else is remembered: of instances that are gone.
func (c *group) forgetHolds() {
	for id := range c.mem.Temporary.Holds {
		if _, held := c.mem.Held[id]; !held {
			c.mem.Temporary.Holds = without(c.mem.Temporary.Holds, id)
		}
	}
}

// drain takes an instance out of rotation until undrain. Its open requests may take any time, and the instance is neither stopped nor
// replaced. The reply says what was done; the status shows when no request is open any more.
func (c *orders) drain(ctx context.Context, cmd bus.Command) bus.Reply {
	text := fmt.Sprintf("%s taken out of rotation by %s%s", cmd.Instance, cmd.By, forText(cmd))
	reply := c.change(ctx, text, func(ctx context.Context) error {
		if cmd.ForS > 0 && c.mem.Released != nil {
			return fmt.Errorf("it can be taken out for a time only while Quell may put it back: it was released, and quell resume ends that")
		}
		v, err := c.look(ctx)
		if err != nil {
			return err
		}
		if err := c.drainable(v, cmd); err != nil {
			return err
		}
		c.mem.TakeOut(cmd.Instance, quell.Held{By: cmd.By, Since: c.now()})
		c.mem.Temporary.Holds = without(c.mem.Temporary.Holds, cmd.Instance)
		if cmd.ForS > 0 {
			c.mem.Temporary.Holds = with(c.mem.Temporary.Holds, cmd.Instance, newTerm(c.now(), cmd.For()))
		}
		return nil
	})
	return c.enforced(ctx, cmd, reply)
}

// drainable returns why an instance cannot be taken out of rotation, nil if it can.
func (c *orders) drainable(v view, cmd bus.Command) error {
	others := 0
	found := false
	for _, m := range v.Members {
		b, known := v.Backends[m.ID]
		_, leaving := c.mem.Draining[m.ID]
		switch {
		case m.ID == cmd.Instance && leaving:
			return fmt.Errorf("%s is being removed already", m.ID)
		case m.ID == cmd.Instance:
			found = true
		case m.State == quell.Ready && known && b.Healthy && !b.Draining && !leaving && !v.Holds(m.ID) && v.Places[m.ID] == "":
			others++
		}
	}
	held, already := c.mem.Held[cmd.Instance]
	_, ends := c.mem.Temporary.Holds[cmd.Instance]
	switch {
	case c.refused != nil:
		return c.refused
	case c.opts.Service.Mode != quell.Act:
		return fmt.Errorf("mode is %s: Quell changes nothing. Take %s out at the balancer", c.opts.Service.Mode, cmd.Instance)
	case !found:
		return fmt.Errorf("no instance %q; `quell status` lists them", cmd.Instance)
	case already && !ends && cmd.ForS > 0:
		return fmt.Errorf("%s was taken out already, by %s at %s, without an end: quell undrain puts it back, and a new drain may have one",
			cmd.Instance, held.By, held.Since.UTC().Format(time.RFC3339))
	case already && !ends:
		return fmt.Errorf("%s was taken out already, by %s at %s", cmd.Instance, held.By, held.Since.UTC().Format(time.RFC3339))
	case already: // the order gives it another end, or none
		return nil
	case others == 0 && !cmd.Force:
		return fmt.Errorf("no other instance is in rotation and healthy: without %s every request would fail. Use --force if that is meant",
			cmd.Instance)
	}
	return nil
}

// undrain puts an instance back in rotation, whoever took it out. The instance gets its share with the next decision.
func (c *orders) undrain(ctx context.Context, cmd bus.Command) bus.Reply {
	reply := c.change(ctx, fmt.Sprintf("%s put back by %s", cmd.Instance, cmd.By), func(ctx context.Context) error {
		_, held := c.mem.Held[cmd.Instance]
		byHand, atBalancer := c.mem.ByHand[cmd.Instance]
		if !held && !atBalancer {
			return fmt.Errorf("%s is not held: nobody took it out", cmd.Instance)
		}
		if c.refused != nil {
			return c.refused
		}
		if atBalancer {
			if err := c.releaseAt(ctx, cmd.Instance, byHand.By); err != nil {
				return err
			}
		}
		c.mem.PutBack(cmd.Instance)
		c.mem.Temporary.Holds = without(c.mem.Temporary.Holds, cmd.Instance)
		return nil
	})
	return c.enforced(ctx, cmd, reply)
}

func (c *orders) releaseAt(ctx context.Context, id, by string) error {
	releaser, ok := c.opts.Balancer.(Releaser)
	if !ok {
		return fmt.Errorf("%s was taken out at %s: put it back there", id, by)
	}
	if err := releaser.Release(ctx, id); err != nil {
		return fmt.Errorf("putting %s back at %s: %w", id, by, err)
	}
	return nil
}

// enforced applies a hold that began or ended to the balancer. It does so at once, and even during a pause, because a person asked for it.
// If it fails, it is tried again regularly.
func (c *orders) enforced(ctx context.Context, cmd bus.Command, reply bus.Reply) bus.Reply {
	if reply.Error != "" {
		return reply
	}
	ctx, done := c.turn(ctx)
	defer done()
	defer c.endDrained()
	if !c.leads(ctx) {
		why := c.notLeading().Error
		return bus.Reply{Error: string(cmd.Name) + ": this is written down, and the controller that leads carries it out: " + why}
	}
	v, err := c.look(ctx)
	switch {
	case err != nil:
	case c.acting():
		err = c.reconcile(ctx, v, c.weightsInForce(v))
	default:
		err = c.setOne(ctx, v, cmd.Instance)
	}
	if err == nil {
		_, err = c.look(ctx) // read the state that is in force
	}
	if err != nil {
		c.failed("apply", err)
		return bus.Reply{Error: fmt.Sprintf("%s: this is written down and will be tried again, but the balancer could not be told yet: %v",
			cmd.Name, err)}
	}
	return reply
}

// setOne changes one backend and leaves the others as the balancer has them.
func (c *endings) setOne(ctx context.Context, v view, id string) error {
	return c.setBackends(ctx, v.Altered(func(b *quell.Backend) {
		if b.ID != id {
			return
		}
		_, b.Held = c.mem.Held[id]
		b.Draining = b.Held
		b.Weight = 0
		if !b.Held {
			b.Weight = cmp.Or(c.mem.Weights[id], v.LikeOthers(id))
		}
	}))
}

// setBackends puts backends in force.
func (c *group) setBackends(ctx context.Context, backends []quell.Backend) error {
	c.fleet.Weights.Note(backends)
	if err := c.opts.Balancer.Apply(ctx, backends); err != nil {
		return fmt.Errorf("setting the balancer: %w", err)
	}
	return nil
}

// showLook updates a status's rows with what scaler and balancer reported last, and with the cuts that are not over.
func (c *board) showLook(rows []InstanceStatus) []InstanceStatus {
	rows = slices.Clone(rows) // other goroutines may be reading the old rows
	for i := range rows {
		row := &rows[i]
		row.Held, row.Open, row.Empty, row.Missing, row.HeldUntil = nil, nil, false, nil, nil
		row.Cut = cutOf(c.mem.Factors, row.ID, c.now())
		if m := c.fleet.Missing[row.ID]; m != nil {
			row.Missing = new(m.Since)
		}
		if h, held := c.fleet.Out[row.ID]; held {
			row.Held, row.Open, row.Empty = &h.Held, &h.Open, h.Empty
			if term, ends := c.mem.Temporary.Holds[row.ID]; ends {
				row.HeldUntil = &term.Until
			}
		}
	}
	return rows
}
