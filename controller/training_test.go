package controller

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// training is a group of three, so that one can be done without.
func training(r *rig) {
	r.opts.Service.Group.Initial = 3
	withAgents(r)
}

func trainFor(id string, d time.Duration) bus.Command {
	return bus.Command{Name: bus.Train, Instance: id, ForS: d.Seconds(), Force: true}
}

// part is a part of a training that the agent carries out.
func part(id string, use float64) bus.Command {
	cmd := trainFor(id, 10*time.Second)
	cmd.Training = &bus.Training{Resource: quell.CPU, Use: use, ForS: 10}
	return cmd
}

// trainings returns the parts that the agents were asked for, and forgets them.
func (r *rig) trainings() []bus.Training {
	r.agents.mu.Lock()
	defer r.agents.mu.Unlock()
	parts := r.agents.trainings
	r.agents.trainings = nil
	return parts
}

// A training takes the instance out of rotation, and each part of it extends that. At its end the instance is put back at once.
func TestATrainingFromBeginningToEnd(t *testing.T) {
	play(t, training, func(r *rig) {
		r.run(3 * time.Second)
		r.do(trainFor("i2", 10*time.Second))
		if b, _ := r.balancer.backend("i2"); !b.Draining {
			t.Fatalf("i2 is in rotation: %+v", b)
		}
		for range 5 {
			r.pass(8 * time.Second)
			r.do(part("i2", 0.5))
		}
		if row := r.row("i2"); row.Held == nil || row.Held.Why != forTraining || row.HeldUntil == nil || row.Utilization != nil {
			t.Errorf("the status shows %+v", row)
		}
		r.trainings()
		r.do(bus.Command{Name: bus.Train, Instance: "i2"})
		r.pass(time.Second)
		if b, _ := r.balancer.backend("i2"); b.Draining {
			t.Errorf("i2 is still out: %+v", b)
		}
		if parts := r.trainings(); len(parts) != 1 || parts[0] != (bus.Training{}) {
			t.Errorf("the agent was told %+v", parts)
		}
		r.wantEvent("i2 taken out of rotation by ann for a training")
		r.wantEvent("i2 put back by ann: the training is over")
	})
}

// The instance is put back, and its agent is told, when nothing renews the training, when somebody puts it back, when the service is
// released, and when the next controller takes over.
func TestATrainingEndsByItself(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"not renewed": func(r *rig) { r.pass(11 * time.Second) },
		"undrain":     func(r *rig) { r.do(bus.Command{Name: bus.Undrain, Instance: "i2"}) },
		"released":    func(r *rig) { r.do(bus.Command{Name: bus.Release}); r.do(bus.Command{Name: bus.Resume}) },
		"another controller": func(r *rig) {
			r.restart()
			r.run(time.Second)
			r.pass(11 * time.Second)
		},
		"paused": func(r *rig) { r.do(bus.Command{Name: bus.Pause}); r.pass(11 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, training, func(r *rig) {
				r.run(3 * time.Second)
				r.do(trainFor("i2", 10*time.Second))
				r.pass(time.Second)
				r.do(part("i2", 0.5))
				r.trainings()
				end(r)
				r.pass(2 * time.Second)
				if b, _ := r.balancer.backend("i2"); b.Draining {
					t.Errorf("i2 is still out: %+v", b)
				}
				if parts := r.trainings(); len(parts) != 1 || parts[0].ForS != 0 {
					t.Errorf("the agent was told %+v", parts)
				}
				if reply := r.ask(part("i2", 0.5)); !strings.Contains(reply.Error, "not out of rotation for a training") {
					t.Errorf("it goes on: %q", reply.Error)
				}
			})
		})
	}
}

func TestTrainingsThatAreRefused(t *testing.T) {
	begin := trainFor("i2", time.Minute)
	careful, foreign := begin, part("i2", 0.5)
	careful.Force, foreign.By = false, "bob"
	for name, c := range map[string]struct {
		before func(*rig)
		cmd    bus.Command
		want   string
	}{
		"unknown":         {func(*rig) {}, trainFor("i9", time.Minute), `no instance "i9"`},
		"drained":         {func(r *rig) { r.do(bus.Command{Name: bus.Drain, Instance: "i2"}) }, begin, "out of rotation already, by ann"},
		"beside another":  {func(r *rig) { r.do(trainFor("i1", time.Minute)) }, begin, "one instance is trained on at a time"},
		"below group.min": {func(r *rig) { r.c.opts.Service.Group.Min = 3 }, begin, "group.min is 3"},
		"paused":          {func(r *rig) { r.do(bus.Command{Name: bus.Pause}) }, begin, "paused by ann"},
		"red line":        {func(r *rig) { r.overrideFor("i1", .6, time.Minute) }, begin, "a red-line test runs"},
		"comparison": {func(r *rig) { r.do(bus.Command{Name: bus.Compare, ForS: 3600, TurnS: 60}) }, begin,
			"a comparison is in progress"},
		"no consent":         {func(r *rig) { r.agents.refusal = errBroken }, begin, errBroken.Error()},
		"not stored":         {func(r *rig) { r.memory.fault.set(errBroken) }, begin, errBroken.Error()},
		"capacity unknown":   {func(*rig) {}, careful, "not known what i1, i3"},
		"not begun":          {func(*rig) {}, part("i2", 0.5), "not out of rotation for a training"},
		"another person's":   {func(r *rig) { r.do(begin) }, foreign, "for a training by ann"},
		"end of no training": {func(*rig) {}, bus.Command{Name: bus.Train, Instance: "i2"}, "not out of rotation for a training"},
		"requests are open": {func(r *rig) {
			r.balancer.set(func(b *fakeBalancer) { b.inFlight["i2"] = 1 })
			r.do(begin)
		}, part("i2", 0.5), "requests are still open"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, training, func(r *rig) {
				r.run(3 * time.Second)
				c.before(r)
				r.pass(time.Second)
				held := len(r.c.mem.Held)
				r.trainings()
				cmd := c.cmd
				cmd.By = cmp.Or(cmd.By, "ann")
				if reply := r.c.Command(context.Background(), cmd); !strings.Contains(reply.Error, c.want) {
					t.Errorf("%q, want %q", reply.Error, c.want)
				}
				if len(r.c.mem.Held) != held {
					t.Error("it was taken out all the same")
				}
				r.pass(time.Millisecond)
				parts := r.trainings()
				begun := len(parts) > 0 && r.agents.refusal == nil
				if begun != (len(parts) == 2 && parts[1] == (bus.Training{})) {
					t.Errorf("the agent was told %+v", parts)
				}
			})
		})
	}
}

// An agent that has agreed to two people is not told that its training is over when the second one is refused.
func TestATrainingThatCameFirst(t *testing.T) {
	play(t, training, func(r *rig) {
		r.run(3 * time.Second)
		r.agents.asked = func() { r.do(trainFor("i2", time.Minute)) }
		second := trainFor("i2", time.Minute)
		second.By = "bob"
		if reply := r.c.Command(context.Background(), second); !strings.Contains(reply.Error, "out of rotation already, by ann") {
			t.Errorf("%q", reply.Error)
		}
		r.pass(time.Millisecond)
		if parts := r.trainings(); len(parts) != 2 || parts[1].ForS == 0 {
			t.Errorf("the agent was told %+v", parts)
		}
	})
}

// What the others can take decides, where it is known; --force does not overrule it.
func TestTheOthersMustSuffice(t *testing.T) {
	row := func(id string, rate, can float64) InstanceStatus {
		r := InstanceStatus{ID: id, State: quell.Ready, RequestRate: &rate}
		if can > 0 {
			r.CanTakeRate = &can
		}
		return r
	}
	held := row("i3", 0, 100)
	held.Held = &quell.Held{By: "ann"}
	for name, c := range map[string]struct {
		rows  []InstanceStatus
		least int
		force bool
		want  string
	}{
		"enough":             {[]InstanceStatus{row("i1", 40, 50), row("i2", 40, 90)}, 1, false, ""},
		"too little":         {[]InstanceStatus{row("i1", 40, 90), row("i2", 40, 50)}, 1, true, "can take 50 requests/s"},
		"not known":          {[]InstanceStatus{row("i1", 40, 90), row("i2", 40, 0)}, 1, false, "not known what i2"},
		"not known, forced":  {[]InstanceStatus{row("i1", 40, 90), row("i2", 40, 0)}, 1, true, ""},
		"one is held":        {[]InstanceStatus{row("i1", 40, 90), held}, 1, true, "only instance"},
		"below the smallest": {[]InstanceStatus{row("i1", 1, 90), row("i2", 1, 90)}, 2, true, "group.min is 2"},
		"none":               {nil, 0, true, "no instance"},
	} {
		err := Without(c.rows, "i1").suffice(c.least, c.force)
		if got := errText(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
