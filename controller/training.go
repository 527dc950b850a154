package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// trainings are on instances that are out of rotation.
type trainings struct{ *orders }

// forTraining is Held.Why of an instance that is out of rotation for a training.
const forTraining = "training"

// train begins, continues or ends a training on an instance. It is out of rotation for a time that each part of the training extends, so it
// is put back however the training ends.
func (c *trainings) train(ctx context.Context, cmd bus.Command) bus.Reply {
	switch {
	case c.opts.Agents == nil:
		return bus.Reply{Error: "this controller has no agents: a training needs that of the instance"}
	case cmd.Training != nil:
		return c.trainOn(ctx, cmd)
	case cmd.ForS == 0:
		return c.endTraining(ctx, cmd)
	}
	return c.beginTraining(ctx, cmd)
}

// beginTraining takes an instance out of rotation, if its agent agrees and the others suffice. The agent is asked first: without its
// consent nothing else matters.
func (c *trainings) beginTraining(ctx context.Context, cmd bus.Command) bus.Reply {
	if reply := c.ifLeading(ctx, func() error { return c.untrained(cmd.Instance) }); reply.Error != "" {
		return reply
	}
	if _, err := c.askTrainee(ctx, cmd.Instance, bus.Training{ForS: cmd.ForS}); err != nil {
		return bus.Reply{Error: err.Error()}
	}
	text := fmt.Sprintf("%s taken out of rotation by %s for a training", cmd.Instance, cmd.By)
	reply := c.change(ctx, text, func(ctx context.Context) error {
		v, err := c.look(ctx)
		if err := errors.Join(err, c.trainable(cmd)); err != nil {
			return err
		}
		if err := c.drainable(v, bus.Command{Instance: cmd.Instance}); err != nil {
			return err
		}
		c.mem.TakeOut(cmd.Instance, quell.Held{By: cmd.By, Since: c.now(), Why: forTraining})
		c.mem.Temporary.Holds = with(c.mem.Temporary.Holds, cmd.Instance, newTerm(c.now(), cmd.For()))
		return nil
	})
	if reply.Error != "" {
		c.notTaken(ctx, cmd.Instance)
	}
	return c.enforced(ctx, cmd, reply)
}

// notTaken tells an agent that has agreed to a training that there will be none. Somebody else's may have begun there meanwhile.
func (c *trainings) notTaken(ctx context.Context, instance string) {
	c.work.Lock()
	defer c.release()
	if c.mem.Held[instance].Why != forTraining {
		c.tellEnded(ctx, instance)
	}
}

// ifLeading calls check with the lock held.
func (c *orders) ifLeading(ctx context.Context, check func() error) bus.Reply {
	ctx, done := c.turn(ctx)
	defer done()
	if !c.leads(ctx) {
		return c.notLeading()
	}
	if err := check(); err != nil {
		return bus.Reply{Error: err.Error()}
	}
	return bus.Reply{}
}

// trainable returns why no training may begin on an instance, nil if it may. With Force it may even if it is not known what the others can
// take.
func (c *trainings) trainable(cmd bus.Command) error {
	return cmp.Or(c.untrained(cmd.Instance), c.spared(cmd))
}

// untrained returns an error if an instance is out of rotation, or another one is trained on.
func (c *trainings) untrained(instance string) error {
	if held, out := c.fleet.Out[instance]; out {
		return fmt.Errorf("%s is out of rotation already, by %s: quell undrain %s puts it back", instance, held.By, instance)
	}
	for _, id := range slices.Sorted(maps.Keys(c.mem.Held)) {
		if c.mem.Held[id].Why == forTraining {
			return fmt.Errorf("%s trains on %s: one instance is trained on at a time", c.mem.Held[id].By, id)
		}
	}
	return nil
}

// spared returns why an instance cannot be done without now, nil if it can.
func (c *trainings) spared(cmd bus.Command) error {
	if why := c.idle(); why != "" {
		return fmt.Errorf("a training needs a controller that acts, so that the others get the instance's share: %s", why)
	}
	t := &c.mem.Temporary
	for _, id := range slices.Sorted(maps.Keys(t.Overrides)) {
		return fmt.Errorf("the share of %s is set by %s until %s UTC: a red-line test runs, or an override with an end is in force", id,
			t.Overrides[id].By, t.Overrides[id].Until.UTC().Format(time.TimeOnly))
	}
	if t.Comparison != nil {
		return fmt.Errorf("a comparison is in progress until %s UTC: quell compare stop ends it", t.Comparison.Until.UTC().Format(time.DateTime))
	}
	least := c.opts.Service.Group.Min
	if c.opts.Fixed { // then it is the size of the list
		least = 1
	}
	return Without(c.status.Instances, cmd.Instance).suffice(least, cmd.Force)
}

// Others is what is known of a group without one instance.
type Others struct {
	Instance  string
	Known     bool     // the group has the instance
	Left      int      // instances in rotation without it
	Load, Can float64  // requests per second: those of the whole group, and those that the others can take within the objective
	Unknown   []string // others of which it is not known what they can take
}

// Without computes what is left of a group without one instance.
func Without(rows []InstanceStatus, instance string) (o Others) {
	o.Instance = instance
	for _, row := range rows {
		if row.RequestRate != nil {
			o.Load += *row.RequestRate
		}
		switch {
		case row.ID == instance:
			o.Known = true
		case row.State != quell.Ready || row.Held != nil || row.Health != "":
		case row.CanTakeRate == nil:
			o.Left++
			o.Unknown = append(o.Unknown, row.ID)
		default:
			o.Left++
			o.Can += *row.CanTakeRate
		}
	}
	return o
}

// suffice returns why the others are not enough, nil if they are. least is the smallest size of the group.
func (o Others) suffice(least int, unsure bool) error {
	switch {
	case !o.Known:
		return fmt.Errorf("no instance %q; `quell status` lists them", o.Instance)
	case o.Left == 0:
		return fmt.Errorf("%s is the only instance in rotation", o.Instance)
	case o.Left < least:
		return fmt.Errorf("without %s, %d would be in rotation, and group.min is %d", o.Instance, o.Left, least)
	case len(o.Unknown) > 0 && !unsure:
		return fmt.Errorf("it is not known what %s can take within the objective. Use --force if you know that the others suffice",
			strings.Join(o.Unknown, ", "))
	case len(o.Unknown) == 0 && o.Load > o.Can:
		return fmt.Errorf("the other %d can take %.3g requests/s within the objective, and there are %.3g", o.Left, o.Can, o.Load)
	}
	return nil
}

// trainOn does a part of a training, and extends the time for which the instance is out of rotation.
func (c *trainings) trainOn(ctx context.Context, cmd bus.Command) bus.Reply {
	if reply := c.ifLeading(ctx, func() error { return c.renewTraining(cmd) }); reply.Error != "" {
		return reply
	}
	done, err := c.askTrainee(ctx, cmd.Instance, *cmd.Training)
	if err != nil {
		return bus.Reply{Error: err.Error()}
	}
	return replyWith(done)
}

// renewTraining extends a training, or says why it must end.
func (c *trainings) renewTraining(cmd bus.Command) error {
	if err := c.ownTraining(cmd); err != nil {
		return err
	}
	if err := c.spared(cmd); err != nil {
		return err
	}
	if cmd.Training.Use > 0 && !c.fleet.Out[cmd.Instance].Empty {
		return fmt.Errorf("requests are still open at %s", cmd.Instance)
	}
	if cmd.ForS > 0 { // stored with the next decision: a controller that has not stored it ends the training sooner
		c.mem.Temporary.Holds = with(c.mem.Temporary.Holds, cmd.Instance, newTerm(c.now(), cmd.For()))
	}
	return nil
}

// ownTraining returns an error unless an instance is out of rotation for a training of the sender.
func (c *trainings) ownTraining(cmd bus.Command) error {
	switch held, out := c.mem.Held[cmd.Instance]; {
	case !out || held.Why != forTraining:
		return fmt.Errorf("%s is not out of rotation for a training: its time was over, or an operator put it back", cmd.Instance)
	case held.By != cmd.By:
		return fmt.Errorf("%s is out of rotation for a training by %s", cmd.Instance, held.By)
	}
	return nil
}

// askTrainee asks an instance's agent to do a part of a training.
func (c *group) askTrainee(ctx context.Context, instance string, t bus.Training) (bus.Trained, error) {
	ctx, cancel := context.WithTimeout(ctx, traineeWait)
	defer cancel()
	return c.opts.Agents.Train(ctx, instance, t)
}

// traineeWait is how long an agent may take to start an interferer: shorter than an operator waits for the answer.
const traineeWait = 5 * time.Second

// endTraining ends the interferers and puts the instance back.
func (c *trainings) endTraining(ctx context.Context, cmd bus.Command) bus.Reply {
	reply := c.change(ctx, fmt.Sprintf("%s put back by %s: the training is over", cmd.Instance, cmd.By), func(context.Context) error {
		if err := c.ownTraining(cmd); err != nil {
			return err
		}
		c.mem.Held, c.mem.Temporary.Holds = without(c.mem.Held, cmd.Instance), without(c.mem.Temporary.Holds, cmd.Instance)
		return nil
	})
	return c.enforced(ctx, cmd, reply)
}

// endedTrainings tells the agents of instances that are no longer out of rotation for a training, for whatever reason, to end it. An agent
// that cannot be told ends it when it is not renewed.
func (c *group) endedTrainings(ctx context.Context) {
	before := c.training
	c.training = map[string]bool{}
	for id, h := range c.fleet.Out {
		if h.Why == forTraining {
			c.training[id] = true
		}
	}
	for id := range before {
		if c.training[id] {
			continue
		}
		c.trained[id] = c.now().Add(2 * c.opts.Service.Sampling)
		if c.opts.Agents != nil {
			c.tellEnded(ctx, id)
		}
	}
}

// tellEnded tells an agent that its training is over, without waiting for the answer.
func (c *group) tellEnded(ctx context.Context, instance string) {
	wait := agentWait(c.opts.Service.Sampling)
	c.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
		defer cancel()
		if _, err := c.askTrainee(ctx, instance, bus.Training{}); err != nil {
			c.log.Warn("an agent could not be told that its training is over: it ends by itself", "instance", instance, "error", err)
		}
	})
}

// leaveOutTrainings removes what was measured of instances during a training: the load and the neighbours are made up.
func (c *group) leaveOutTrainings(s *quell.Snapshot) {
	for i := range s.Instances {
		in := &s.Instances[i]
		until, was := c.trained[in.ID]
		if was && !c.now().Before(until) {
			delete(c.trained, in.ID)
			was = false
		}
		if was || in.Held != nil && in.Held.Why == forTraining {
			in.Observation = nil
		}
	}
}
