package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/policy"
)

// Command carries out a person's command: status, pause, resume, release, override, clear, authority, forget, drain, undrain or replace.
// Changes are recorded in the journal and survive a restart. A controller that is not the leader waits before it answers, so that the
// leader answers first; if the leader is busy, who asks knows by Reply.Standby that its answer is still to come.
func (c *Controller) Command(ctx context.Context, cmd bus.Command) bus.Reply {
	if !c.shown.read().status.Leading {
		select {
		case <-ctx.Done():
		case <-time.After(standbyPause):
		}
	}
	switch cmd.Name {
	case bus.Status:
		return replyWith(c.Status())
	case bus.Pause:
		return c.change(ctx, "paused by "+cmd.By, func(context.Context) error {
			c.mem.Paused, c.mem.PausedBy, c.mem.Temporary.Comparison = true, cmd.By, nil
			return nil
		})
	case bus.Resume:
		return c.change(ctx, "resumed by "+cmd.By, func(context.Context) error { c.mem.resume(); return nil })
	case bus.Release:
		return c.releaseAll(ctx, cmd)
	case bus.Authority:
		return c.change(ctx, authorityText(cmd), func(context.Context) error { return c.mem.authorize(c.now(), cmd) })
	case bus.Forget:
		return c.change(ctx, "what was learned is forgotten, by "+cmd.By, func(context.Context) error { c.mem.forget(); return nil })
	case bus.Override:
		return c.change(ctx, overrideText(cmd), func(context.Context) error { return c.override(cmd) })
	case bus.Clear:
		text := fmt.Sprintf("override of %s cleared by %s", cmd.Instance, cmd.By)
		return c.change(ctx, text, func(context.Context) error { return c.mem.clear(cmd) })
	case bus.Compare:
		return c.change(ctx, compareText(cmd), func(context.Context) error { return c.compare(cmd) })
	case bus.Drain:
		return c.drain(ctx, cmd)
	case bus.Undrain:
		return c.undrain(ctx, cmd)
	case bus.Train:
		return c.train(ctx, cmd)
	case bus.Replace:
		return c.replace(ctx, cmd)
	}
	return bus.Reply{Error: fmt.Sprintf("unknown command %q", cmd.Name)}
}

// resume ends a pause, a release, and the waiting after a loss of memory.
func (m *memory) resume() {
	m.Paused, m.PausedBy, m.Lost, m.Released = false, "", "", nil
}

// standbyPause is how much later than the leader another controller answers.
const standbyPause = 500 * time.Millisecond

// notLeading is the answer to what only the leader may do. If another controller leads, the answer of that one counts.
func (c *core) notLeading() bus.Reply {
	return bus.Reply{Standby: errors.Is(c.behind, ErrStandby),
		Error: "this controller does not hold the lease of the service: another one leads, or none does yet"}
}

func overrideText(cmd bus.Command) string {
	if cmd.Weight == nil {
		return ""
	}
	return fmt.Sprintf("weight of %s set to %.3f by %s%s", cmd.Instance, *cmd.Weight, cmd.By, forText(cmd))
}

func (c *orders) override(cmd bus.Command) error {
	if cmd.Weight == nil || math.IsNaN(*cmd.Weight) || *cmd.Weight < 0 || *cmd.Weight > 1 {
		return fmt.Errorf("an override wants a weight from 0 to 1, the fraction of traffic")
	}
	if !slices.ContainsFunc(c.status.Instances, func(i InstanceStatus) bool { return i.ID == cmd.Instance }) {
		return fmt.Errorf("no instance %q; `quell status` lists them", cmd.Instance)
	}
	if cmd.ForS > 0 {
		return c.overrideFor(cmd)
	}
	c.mem.Overrides = with(c.mem.Overrides, cmd.Instance, *cmd.Weight)
	c.mem.Temporary.Overrides = without(c.mem.Temporary.Overrides, cmd.Instance)
	c.mem.Temporary.Before = withShare(c.mem.Temporary.Before, cmd.Instance, *cmd.Weight)
	return nil
}

// authorize sets how far the policy may go, and ends the watching of its last change. Without a level the policy begins as it did at first,
// and earns its authority.
func (m *memory) authorize(now time.Time, cmd bus.Command) error {
	if cmd.ForS > 0 {
		m.authorizeFor(now, cmd)
		return nil
	}
	m.Temporary.Authority = nil
	switch {
	case cmd.Level == "":
		m.State.Trust = policy.Trust{}
	case slices.Contains(quell.Authorities, cmd.Level):
		m.State.Trust = policy.Trust{Level: cmd.Level, ByHand: cmd.By}
	default:
		return fmt.Errorf("authority %q is unknown; known are advise, step and full", cmd.Level)
	}
	return nil
}

// forget drops what was learned about the service, and what the policy has earned with it. A level that a person set stays.
func (m *memory) forget() {
	m.State.Learned = nil
	if m.State.Trust.ByHand == "" {
		m.State.Trust = policy.Trust{}
	}
}

// authorityText says what a command does to the authority.
func authorityText(cmd bus.Command) string {
	if cmd.Level == "" {
		return "authority no longer set by hand: changed by " + cmd.By
	}
	return fmt.Sprintf("authority set to %s by %s%s", cmd.Level, cmd.By, forText(cmd))
}

func (m *memory) clear(cmd bus.Command) error {
	_, lasting := m.Overrides[cmd.Instance]
	_, ends := m.Temporary.Overrides[cmd.Instance]
	if !lasting && !ends {
		return fmt.Errorf("no override of %q is in force", cmd.Instance)
	}
	if cmd.Weight != nil {
		return m.clearOwn(cmd)
	}
	if lasting {
		m.Overrides = without(m.Overrides, cmd.Instance)
		m.Temporary.Before = withShare(m.Temporary.Before, cmd.Instance, 1/float64(max(1, len(m.Temporary.Before))))
	}
	if ends {
		m.Temporary.endOverride(cmd.Instance)
	}
	return nil
}

// clearOwn ends a share that the sender set for a time. What somebody has set since then stays.
func (m *memory) clearOwn(cmd bus.Command) error {
	if o, ends := m.Temporary.Overrides[cmd.Instance]; !ends || o.Weight != *cmd.Weight || o.By != cmd.By {
		return fmt.Errorf("the share of %q was set anew since then", cmd.Instance)
	}
	m.Temporary.endOverride(cmd.Instance)
	return nil
}
