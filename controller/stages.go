package controller

import (
	"context"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
)

// occasion is why the loop runs once.
type occasion uint8

// The occasions.
const (
	decision occasion = 1 << iota // a sampling period is over
	fastStep                      // a fast policy's period is over
	watch                         // in between
)

// always stands for all occasions.
const always = decision | fastStep | watch

// round is one run of the loop, from the first stage to the last.
type round struct {
	occasion
	ctx     context.Context // ends with the controller
	limited context.Context // ends also when the time of a step is over
	view    view
	plan    quell.Plan
	over    bool // the later stages are left out
}

// stage is one thing that the loop does.
type stage struct {
	name string
	on   occasion // the occasions on which it is done
	run  func(c *Controller, r *round)
}

// stages are all that the loop does, in this order. Some orders matter: whether this controller leads is asked before anything is
// changed; orders that end do so before the group is looked at, so that their end is part of the same decision; and a replacement makes its
// step before the decision, which then sees the effects.
var stages = []stage{
	{"forget failures that are over", decision, func(c *Controller, _ *round) { c.forgive() }},
	{"ask for the lease", always, (*Controller).askForLease},
	{"look at the clock and the meter", decision, func(c *Controller, r *round) { c.watchClock(r.limited); c.watchMeter() }},
	{"put back what a release left", decision, func(c *Controller, r *round) { c.putBack(r.limited) }},
	{"end orders whose time is over", always, func(c *Controller, r *round) { c.expire(r.limited) }},
	{"end here if nothing may be done", fastStep | watch, (*Controller).endIfIdle},
	{"look at scaler and balancer", always, (*Controller).lookAtGroup},
	{"judge missing instances", decision, (*Controller).judgeMissing},
	{"judge whether this is a first start", always, func(c *Controller, r *round) { c.judge(r.limited, r.view) }},
	{"make the next step of a replacement", decision, func(c *Controller, r *round) { c.replaceNext(r.limited, &r.view) }},
	{"make the snapshot", decision, (*Controller).takeSnapshot},
	{"test an instance by night", decision, (*Controller).testByNight},
	{"decide, and again before a removal", decision, (*Controller).decideTwice},
	{"judge from outside what has no agent", decision, judgeOutside},
	{"account for the error budget", decision, func(c *Controller, r *round) { c.account(r.limited, r.view.snapshot, &r.plan) }},
	{"carry out, record and report", decision, func(c *Controller, r *round) { c.finish(r.ctx, r.limited, &r.view, &r.plan) }},
	{"cut shares by the fast policy", fastStep, (*Controller).cutShares},
	{"keep the last plan in force", watch, func(c *Controller, r *round) { c.keep(r.limited, r.view) }},
}

// judgeOutside says in the plan what is seen of instances without an agent. It changes no shares: a machine's own work looks the same from
// outside, and how much of a resource is in use is not known.
func judgeOutside(c *Controller, r *round) {
	needed := c.noModels == nil && (c.engine.Learns() || c.opts.Models != nil)
	r.plan.Reasons = append(r.plan.Reasons, c.outside.Look(r.view.snapshot, &c.opts.Service, needed)...)
	for _, id := range c.outside.Ended {
		c.log.Info("no agent reports: judged from outside", "instance", id)
	}
	for _, id := range c.outside.Back {
		c.log.Info("an agent reports again: its readings count", "instance", id)
	}
}

// Step makes one step of the loop: it gathers readings, decides, applies the plan and records it.
func (c *Controller) Step(ctx context.Context) { c.loop(ctx, decision) }

// FastStep runs the fast policy once. It applies the policy's cuts at once, to the last decision's weights. If there is nothing to cut, it
// does what tend does.
func (c *Controller) FastStep(ctx context.Context) { c.loop(ctx, fastStep) }

// tend does what is needed between decisions. An instance that became ready is added to the balancer without traffic, so that health checks
// and probes can begin. An instance that has drained is stopped. Backends that the balancer lost, or that somebody changed, are restored.
func (c *Controller) tend(ctx context.Context) { c.loop(ctx, watch) }

// loop runs the stages of an occasion, within the time limit of a step.
func (c *Controller) loop(ctx context.Context, on occasion) {
	limited, done := c.turn(ctx)
	defer done()
	defer c.endDrained()
	r := &round{occasion: on, ctx: ctx, limited: limited}
	for i := range stages {
		if stages[i].on&on != 0 && !r.over {
			stages[i].run(c, r)
		}
	}
}

// askForLease finds out whether this controller leads. One that stands by asks at decisions only.
func (c *Controller) askForLease(r *round) {
	if r.occasion == decision || c.leading {
		_ = c.lead(r.limited) // c.lead itself counts an error
	}
	if !c.leading {
		c.accounted = time.Time{} // another controller enters periods into the budget meanwhile
	}
}

// endIfIdle ends a round between two decisions if there is nothing to do. Then others may set weights.
func (c *Controller) endIfIdle(r *round) {
	if !c.acting() {
		c.fleet.Weights = life.SetWeights{}
	}
	if r.occasion == fastStep {
		r.over = c.fast == nil || !c.leading || c.handedBack()
	} else {
		r.over = !c.acting() && !c.first && !c.serves()
	}
}

func (c *deciding) lookAtGroup(r *round) {
	var err error
	if r.view, err = c.look(r.limited); err != nil {
		c.failed("look", err)
		r.over = true
	}
}

func (c *deciding) judgeMissing(r *round) {
	c.askScaler()
	c.tellEvents(r.limited, c.fleet.JudgeMissing(c.now(), &r.view.View, c.opts.Service.Sampling, c.acting()))
}

func (c *deciding) takeSnapshot(r *round) {
	snapshot := c.gather.snapshot(c.now(), r.view)
	snapshot.IdleFirst = c.idleFirst()
	if c.opts.Shared != nil {
		c.opts.Shared.Enter(&snapshot)
	}
	c.leaveOutTrainings(&snapshot)
	snapshot.Coming += c.mem.Freed(&snapshot)
	c.fleet.NoteStates(&snapshot)
	c.exclude(&snapshot)
	r.view.snapshot = &snapshot
}

// cutShares applies the fast policy's cuts. If there are none, it keeps the last plan in force.
func (c *deciding) cutShares(r *round) {
	snapshot := c.gather.fastSnapshot(c.now(), r.view)
	snapshot.IdleFirst = c.idleFirst()
	c.leaveOutTrainings(&snapshot)
	r.view.snapshot = &snapshot
	snapshot.Set(c.mem.overrides())
	c.mem.inherit(c.now(), &c.mem.Fast, c.opts.Service.Policy.Fast.Name)
	before := c.mem.Factors
	wanted, act := c.fast.Step(&snapshot, &c.mem.Cuts)
	if c.fastReasons = withTimes(wanted.Reasons, c.fastReasons, snapshot.At); !act {
		c.composed = outcome{}
		c.keep(r.limited, r.view)
		return
	}
	c.compose(r.ctx, r.limited, &r.view, &wanted, differ(before, wanted.Factor))
}
