// Package balancertest checks that a driver of a balancer keeps the contract that the controller relies on.
package balancertest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/balancer"
)

// patience is how long a driver may need until what was asked is in force.
const patience = 15 * time.Second

// Contract tests a driver. open makes a driver for the same balancer and the same files each time, as a controller that starts again does.
// instances are addresses at which instances answer, at least three. near is how far a share that is read back may differ, because a
// balancer may have whole weights only.
func Contract(t *testing.T, open func() balancer.Driver, instances []string, near float64) {
	t.Helper()
	if len(instances) < 3 {
		t.Fatalf("%d addresses of instances: give at least three", len(instances))
	}
	c := &contract{t: t, d: open(), near: near}
	for _, problem := range unfound(c.d, ofDriver) {
		t.Error(problem)
	}
	a, b, x := quell.Backend{ID: "a", Address: instances[0]}, quell.Backend{ID: "b", Address: instances[1], Probe: "127.0.0.1:9466"},
		quell.Backend{ID: "c", Address: instances[2]}
	with := func(b quell.Backend, weight float64) quell.Backend { b.Weight = weight; return b }

	c.apply("two instances", with(a, .75), with(b, .25))
	c.apply("the same again", with(a, .75), with(b, .25))
	c.apply("another order and other shares", with(b, .6), with(a, .4))
	c.apply("one more, without requests", with(a, .5), with(b, .5), x)
	draining := b
	draining.Draining = true
	c.apply("one drains", with(a, .5), draining, with(x, .5))
	c.apply("it is back", with(a, .4), with(b, .2), with(x, .4))
	held := b
	held.Draining, held.Held = true, true
	c.apply("a person takes it out with quell drain", with(a, .5), held, with(x, .5))
	c.apply("it is gone", with(a, .5), with(x, .5))
	moved := x
	moved.Address = instances[1]
	c.apply("an instance has another address", with(a, .5), with(moved, .5))

	for what, wrong := range map[string][]quell.Backend{
		"an id twice":         {with(a, .5), with(a, .5)},
		"no number":           {with(a, math.NaN())},
		"a share without end": {with(a, math.Inf(1))},
		"a negative share":    {with(a, -1)},
		"no address":          {with(a, .5), {ID: "new", Weight: .5}},
	} {
		if err := c.d.Apply(t.Context(), wrong); !errors.As(err, new(*quell.InvalidError)) {
			t.Errorf("%s: %v; want a *quell.InvalidError", what, err)
		}
		c.reads(what+" changes nothing", with(a, .5), with(moved, .5))
	}

	c.d, c.restarted = open(), true
	c.reads("after a restart of the controller", with(a, .5), with(moved, .5))
	c.restarted = false
	c.apply("one is left", with(a, 1))
	c.apply("none is left")
}

// Before tests a driver that nothing was applied to, and whose balancer has the instances of a fixed group with these shares: this is what
// the mode advise shows, and from where the first plan starts. A driver that does not list them makes a service look as if it were down.
func Before(t *testing.T, d balancer.Driver, members []quell.Member, shares ...float64) {
	t.Helper()
	c := &contract{t: t, d: d, near: 1e-6, before: true}
	want := make([]quell.Backend, len(members))
	for i, m := range members {
		want[i] = quell.Backend{ID: m.ID, Address: m.Address, Probe: m.Probe, Weight: shares[i]}
	}
	c.reads("before the first Apply", want...)
}

type contract struct {
	t         *testing.T
	d         balancer.Driver
	near      float64
	before    bool // nothing was applied yet
	restarted bool // a driver may not know yet whether what was in force still is: then it gives no address, and is told again
}

// apply sets backends, and again while something else is read back, as the controller does: servers may have to finish requests first.
func (c *contract) apply(what string, backends ...quell.Backend) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := c.d.Apply(c.t.Context(), backends); err != nil {
			c.t.Errorf("%s: Apply: %v", what, err)
		}
		if problems := c.problems(backends); problems == nil || c.t.Failed() || time.Now().After(end) {
			c.report(what, problems)
			return
		}
	}
}

// reads checks that exactly these backends are in force.
func (c *contract) reads(what string, want ...quell.Backend) {
	c.t.Helper()
	c.report(what, c.problems(want))
}

func (c *contract) report(what string, problems []string) {
	c.t.Helper()
	for _, problem := range problems {
		c.t.Errorf("%s: %s", what, problem)
	}
}

// problems describes how what is in force differs from what was asked for.
func (c *contract) problems(want []quell.Backend) (list []string) {
	states, err := c.d.State(c.t.Context())
	if err != nil {
		return []string{"State: " + err.Error()}
	}
	if len(states) != len(want) {
		list = append(list, fmt.Sprintf("%d backends are in force, want %d", len(states), len(want)))
	}
	for _, w := range want {
		i := slices.IndexFunc(states, func(s quell.BackendState) bool { return s.ID == w.ID })
		if i < 0 {
			list = append(list, w.ID+" is not in force")
		} else if problem := c.differs(&states[i], w); problem != "" {
			list = append(list, w.ID+" "+problem)
		}
	}
	return list
}

// differs describes how a state differs from what was asked for.
func (c *contract) differs(s *quell.BackendState, w quell.Backend) string {
	switch {
	case s.Address != w.Address && !(c.restarted && s.Address == ""):
		return fmt.Sprintf("is at %s, want %s", s.Address, w.Address)
	case s.Probe != w.Probe && s.Address != "":
		return fmt.Sprintf("is probed at %q, want %q", s.Probe, w.Probe)
	case s.Draining != w.Draining || s.Held != w.Held:
		return fmt.Sprintf("drains: %t, held: %t; want %t and %t", s.Draining, s.Held, w.Draining, w.Held)
	case !w.Draining && math.Abs(s.Weight-w.Weight) > c.near:
		return fmt.Sprintf("has the share %v, want %v", s.Weight, w.Weight)
	case s.ByHand != nil:
		return fmt.Sprintf("counts as taken out by %s", s.ByHand.By)
	case s.Foreign != c.before:
		return fmt.Sprintf("is Foreign: %t; only those count so that nothing was applied to yet", s.Foreign)
	}
	return ""
}
