package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// refuse makes the provider refuse to end instances.
func (r *rig) refuse(ids ...string) {
	r.scaler.set(func(s *fakeScaler) {
		s.refuses = map[string]bool{}
		for _, id := range ids {
			s.refuses[id] = true
		}
	})
}

// If the provider refuses to end one instance, the others that leave with it end all the same. (hashicorp/nomad-autoscaler#511)
func TestOneThatCannotBeStoppedKeepsNoOther(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 5 }, func(r *rig) {
		r.run(3 * time.Second)
		r.refuse("i4")
		smaller := r.opts.Service
		smaller.Group.Initial, smaller.Group.Max = 0, 2
		if err := r.c.Reload(smaller, nil, false); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Second)
		r.wantIDs("i1", "i2", "i4")
		if text := r.c.Status().LastFailure["apply"]; text != "stopping i4: i4 is protected against termination" {
			t.Errorf("the status says %q", text)
		}
		r.refuse()
		r.pass(3 * time.Second)
		r.wantIDs("i1", "i2")
	})
}

// Two instances leave. The scaler stops the first and then fails, so the controller stops them one by one. Meanwhile a new instance has got
// the first one's id: it is not stopped.
func TestAStopIsNotRepeatedForAnotherInstance(t *testing.T) {
	for name, c := range map[string]struct {
		next quell.Member
		want []string
	}{
		"another uid":     {quell.Member{ID: "i3", UID: "new", Address: "10.0.0.3:80", State: quell.Ready}, []string{"i3", "i4", "i4"}},
		"another address": {quell.Member{ID: "i3", Address: "10.0.0.9:80", State: quell.Ready}, []string{"i3", "i4", "i4"}},
		"none":            {quell.Member{ID: "i9", Address: "10.0.0.9:80", State: quell.Ready}, []string{"i3", "i4", "i4"}},
		"the same":        {quell.Member{ID: "i3", UID: "old", Address: "10.0.0.3:80", State: quell.Ready}, []string{"i3", "i4", "i3", "i4"}},
	} {
		play(t, func(r *rig) { r.opts.Service.Group.Initial = 4 }, func(r *rig) {
			r.run(3 * time.Second)
			r.scaler.set(func(s *fakeScaler) {
				s.members[2].UID = "old"
				s.half = func() { s.members[2] = c.next }
			})
			r.pass(time.Second)
			r.c.work.Lock()
			r.c.mem.Draining["i3"], r.c.mem.Draining["i4"] = time.Now(), time.Now() // as after a plan
			r.c.work.Unlock()
			r.pass(3 * time.Second)
			if got := r.scaler.ended(); !slices.Equal(got, c.want) {
				t.Errorf("%s: stopped are %v, want %v", name, got, c.want)
			}
		})
	}
}

// A refusal may last for days: the provider is asked again after pauses that grow to a minute, and at once when a person gives an order.
func TestARefusedStopIsTriedSeldom(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 4 }, func(r *rig) {
		r.run(3 * time.Second)
		r.refuse("i4")
		r.c.work.Lock()
		r.c.mem.Draining["i4"] = time.Now() // as after a plan
		r.c.work.Unlock()
		r.pass(time.Minute)
		if tries := len(r.scaler.ended()); tries < 5 || tries > 10 {
			t.Errorf("%d tries in the first minute", tries)
		}
		r.pass(10 * time.Minute)
		before := len(r.scaler.ended())
		r.pass(10 * time.Minute)
		if tries := len(r.scaler.ended()) - before; tries < 9 || tries > 11 {
			t.Errorf("%d tries in ten later minutes", tries)
		}
		r.refuse()
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		r.pass(time.Second)
		r.wantIDs("i1", "i2", "i3")
	})
}

// An instance that the provider refuses to end counts against group.max: instances that fail one after the other are not replaced beyond
// it, and no further one is started for a replacement. (hashicorp/nomad-autoscaler#911)
func TestWhatCannotBeStoppedCountsAgainstTheBound(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Max = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		r.refuse("i1", "i2", "i3", "i4", "i5", "i6")
		for _, id := range []string{"i1", "i2", "i3", "i4"} {
			if slices.Contains(r.scaler.ids(), id) {
				r.scaler.state(id, quell.Failed)
			}
			r.pass(10 * time.Second)
		}
		r.wantIDs("i1", "i2", "i3", "i4")
		if in := r.journal.newest().Instances[0]; !in.Stuck {
			t.Errorf("%+v", in)
		}
		said := func(e quell.Reason) bool { return strings.Contains(e.Text, "of them impossible to stop") }
		if !slices.ContainsFunc(r.reasons(), said) {
			t.Errorf("nobody said why: %+v", r.reasons())
		}
		r.refuse()
		r.pass(65 * time.Second)
		r.wantIDs("i5", "i6")
	})
	play(t, func(r *rig) { r.opts.Service.Group.Max = 2 }, func(r *rig) {
		r.run(3 * time.Second)
		r.refuse("i1")
		r.do(bus.Command{Name: bus.Replace, Instance: "i1"})
		r.pass(time.Minute)
		r.wantIDs("i1", "i2", "i3")
		r.do(bus.Command{Name: bus.Replace, Instance: "i2"})
		r.pass(10 * time.Second)
		r.wantIDs("i1", "i2", "i3")
		r.refuse()
		r.pass(2 * time.Minute)
		r.wantIDs("i3", "i4")
	})
}

// A command of the page is over when its answer is sent, and the browser may leave sooner. An instance that is stopped meanwhile is.
func TestAStopOutlivesItsCommand(t *testing.T) {
	play(t, three, func(r *rig) {
		r.step()
		r.step()
		r.scaler.set(func(s *fakeScaler) { s.stopWait = time.Second })
		r.c.mem.Draining["i2"] = time.Now() // as after a plan
		r.step()
		r.wantDraining("i2")
		ctx, cancel := context.WithCancel(context.Background())
		if reply := r.c.Command(ctx, bus.Command{Name: bus.Drain, Instance: "i1", By: "ann"}); reply.Error != "" {
			t.Fatal(reply.Error)
		}
		cancel()
		r.pass(2 * time.Second)
		r.wantIDs("i1", "i3", "i4")
	})
}
