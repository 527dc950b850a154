package controller

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/tick"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/switchback"
)

// Alive returns an error if the loop of Run hangs: if it has not come round for longer than any step may take.
func (c *Controller) Alive() error {
	period := c.sampling()
	return c.beat.Late(2*period + 3*StepLimit(period))
}

// Note records something that happened outside the controller as an event.
func (c *Controller) Note(ctx context.Context, text string) {
	ctx, done := c.turn(ctx)
	defer done()
	c.event(ctx, text)
}

// Run makes one step per sampling period, when that period's readings should have arrived, until ctx ends. Between steps it checks the
// instances more often. Errors of scaler and balancer are logged and the call is repeated. Run ends early only if the stored memory cannot
// be read.
func (c *Controller) Run(ctx context.Context) error {
	defer c.background.Wait()
	defer c.disown()
	if err := c.enter(ctx); err != nil {
		return err
	}
	c.tend(ctx)
	next := c.nextStep(time.Time{})
	soon, fast := c.nextFastStep(time.Time{})
	for {
		c.beat.Mark()
		pause := min(life.Watch(c.sampling()), max(0, next.Sub(c.now())))
		if fast {
			pause = min(pause, max(0, soon.Sub(c.now())))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		switch now := c.now(); {
		case !now.Before(next):
			c.Step(ctx)
			next = c.nextStep(next)
		case fast && !now.Before(soon):
			c.FastStep(ctx)
			soon, fast = c.nextFastStep(soon)
		default:
			c.tend(ctx)
			if !fast { // a reload may have added a fast policy
				soon, fast = c.nextFastStep(time.Time{})
			}
		}
	}
}

// nextStep returns when the readings of the next period should have arrived.
func (c *Controller) nextStep(last time.Time) time.Time {
	period := c.sampling()
	settle := tick.Settle(period)
	return tick.After(last.Add(-settle), c.now().Add(-settle), period).Add(settle)
}

// enter begins a controller's life: it tries to become the leader. If the stored memory is damaged, enter fails for good, because a
// controller without its memory would not know of a pause.
func (c *leadership) enter(ctx context.Context) error {
	limited, done := c.turn(ctx)
	defer done()
	c.living = ctx
	if damaged := new(damagedError); errors.As(c.lead(limited), &damaged) {
		return damaged
	}
	return nil
}

// finish carries out a plan within the time limit, and records the outcome.
func (c *deciding) finish(ctx, limited context.Context, view *view, plan *quell.Plan) {
	pending := c.pending(view)
	o := c.carryOut(limited, view, plan)
	c.tell(plan, o)
	c.record(ctx, view.snapshot, plan, o)
	c.report(view, plan, o, pending)
}

// lead checks whether this controller may act, and tells the balancer.
func (c *leadership) lead(ctx context.Context) error {
	err := c.ask(ctx)
	c.own(ctx)
	return err
}

// ask asks for the lease. When this controller becomes the leader, it continues from what the previous leader stored.
func (c *leadership) ask(ctx context.Context) error {
	leading, err := true, error(nil)
	if c.opts.Lead != nil {
		leading, err = c.opts.Lead(ctx)
	}
	standby := errors.Is(err, ErrStandby)
	if standby && !errors.Is(c.behind, ErrStandby) {
		c.log.Info(err.Error())
	} else if err != nil && !standby {
		c.failed("lease", err)
	}
	if leading && !c.leading {
		if err = c.restore(ctx); err != nil {
			c.failed("memory", err)
			leading = false
		}
	}
	if leading != c.leading {
		c.log.Info("lease", "leading", leading)
	}
	c.leading, c.behind, c.remembers = leading, err, leading || c.remembers && !standby
	return err
}

// decide computes a plan with the policy, the weights that people set and the fast policy's cuts.
func (c *deciding) decide(s *quell.Snapshot) (quell.Plan, policy.State) {
	s.Set(c.mem.overrides())
	c.mem.inherit(c.now(), &c.mem.State, c.opts.Service.Policy.Name)
	if c.fast == nil { // the configuration no longer has a fast policy
		c.mem.inherit(c.now(), &c.mem.Fast, "")
		c.mem.Fast, c.mem.Factors, c.fastReasons = policy.State{}, nil, nil
	}
	if s.Turn = c.comparedTurn(); c.handedBack() {
		c.mem.Factors, c.mem.Cutting = nil, false
	}
	s.Cut(c.mem.Factors)
	plan, state := c.mem.lent(c.mem.State, func(state policy.State) (quell.Plan, policy.State) { return c.engine.Decide(s, state) })
	lasts := time.Duration(0)
	if c.acting() {
		lasts = c.samplingNow()
	}
	c.mem.takeBack(s, &plan, lasts)
	if s.Turn != nil && s.Turn.Back {
		switchback.HandBack(&plan, s)
	}
	if c.noModels != nil {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "no_models", Text: c.missing()})
	}
	return plan, state
}

// carryOut applies the plan if this controller may act.
func (c *deciding) carryOut(ctx context.Context, view *view, plan *quell.Plan) outcome {
	defer c.inform(ctx, view, plan)
	if why := c.idle(); why != "" {
		c.adopt = true // another controller decides: its weights are adopted when this one acts again
		return outcome{why: why, would: c.asks(view, plan)}
	}
	c.keepOriginals(ctx, plan)
	changes, err := c.apply(ctx, view, plan)
	if len(changes) > 0 {
		c.counts.decisions++
	}
	if err != nil {
		c.failed("apply", err)
		return outcome{changes: changes, why: "failed: " + err.Error()}
	}
	return outcome{changes: changes, applied: true}
}

// keepOriginals stores the memory before parameters of servers are ordered, if their values of before are not stored yet: after a kill the
// changed values would count as those.
func (c *deciding) keepOriginals(ctx context.Context, plan *quell.Plan) {
	if len(plan.Settings) == 0 {
		return
	}
	changed := [2]changes{c.mem.State.Changed(), c.mem.Fast.Changed()}
	if reflect.DeepEqual(changed, c.originals) {
		return
	}
	if c.remember(ctx); c.unsaved == nil {
		c.originals = changed
	}
}
