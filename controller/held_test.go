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

// three is a service that keeps three instances.
func three(r *rig) { r.opts.Service.Group.Initial, r.opts.Service.Group.Min = 3, 3 }

// takeOut takes an instance out at the balancer, as a person does without using Quell.
func (r *rig) takeOut(id string) {
	r.balancer.set(func(b *fakeBalancer) { b.byHand[id] = quell.Held{By: "haproxy"} })
}

func (r *rig) putBack(id string) {
	r.balancer.set(func(b *fakeBalancer) { delete(b.byHand, id) })
}

func (r *rig) row(id string) InstanceStatus {
	r.t.Helper()
	for _, row := range r.c.Status().Instances {
		if row.ID == id {
			return row
		}
	}
	r.t.Fatalf("no %s in the status", id)
	return InstanceStatus{}
}

func (r *rig) wantEvent(words ...string) {
	r.t.Helper()
	is := func(text string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}
	if n := len(slices.DeleteFunc(r.journal.events(), func(text string) bool { return !is(text) })); n != 1 {
		r.t.Errorf("%d events with %q among %q, want 1", n, words, r.journal.events())
	}
}

// If a person sets a state at the balancer, the state is shown, the other instances take the load, and no plan changes the state. It ends
// when the person ends it there.
func TestAnInstanceHeldAtTheBalancer(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		began := time.Now()
		r.takeOut("i3")
		r.pass(5 * time.Second)
		r.wantEvent("i3 was taken out of rotation by hand at haproxy", "quell undrain i3")
		r.wantIDs("i1", "i2", "i3", "i4") // group.min counts instances in rotation
		in := r.journal.newest().Instances[2]
		if in.Held == nil || in.Held.By != "haproxy" || in.Held.Since.Before(began) || in.Held.Since.After(began.Add(time.Second)) ||
			in.Weight != nil || in.State != quell.Ready {
			t.Errorf("the snapshot says %+v", in)
		}
		if row := r.row("i3"); row.Held == nil || row.Held.By != "haproxy" || row.Weight != nil || !row.Empty {
			t.Errorf("the status says %+v", row)
		}
		for _, want := range []string{`quell_instance_held{by="haproxy",member="i3",service="shop"} 1`,
			`quell_instances{service="shop",state="held"} 1`} {
			if got := r.get("/metrics").Body.String(); !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		since := in.Held.Since
		r.restart()
		r.run(3 * time.Second)
		if in := r.journal.newest().Instances[2]; in.Held == nil || !in.Held.Since.Equal(since) {
			t.Errorf("after a restart %+v", in.Held)
		}
		r.untouched(func() { r.pass(patience) })
		r.wantEvent("i3 was taken out of rotation by hand")

		r.putBack("i3")
		r.pass(3 * time.Second)
		r.wantEvent("i3 was put back at haproxy")
		if row := r.row("i3"); row.Held != nil || row.Weight == nil || *row.Weight != .25 {
			t.Errorf("put back: %+v", row)
		}
	})
}

// If a balancer says that an instance took itself out, or follows another server, that is shown with its reason, and nothing is stopped or
// replaced.
func TestAnInstanceThatTookItselfOut(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		for _, why := range []string{"it took itself out", "it tracks infra/web, which is in maintenance"} {
			r.balancer.set(func(b *fakeBalancer) {
				b.byHand = map[string]quell.Held{"i3": {By: "haproxy", Why: why}}
				b.sick["i3"] = true
			})
			r.pass(patience)
			r.wantEvent("i3 is out of rotation at haproxy: " + why + ". It gets no requests until that ends")
			if row := r.row("i3"); row.Held == nil || row.Held.Why != why || row.State == quell.Failed {
				t.Errorf("the status says %+v", row)
			}
		}
		if ended := r.scaler.ended(); len(ended) > 0 {
			t.Errorf("stopped %v", ended)
		}
		r.balancer.set(func(b *fakeBalancer) { b.byHand, b.sick["i3"] = nil, false })
		r.pass(3 * time.Second)
		r.wantEvent("i3 was put back at haproxy")
	})
}

// When an instance is held, all traffic goes to the others even before the next decision. If its health checks fail, it is not replaced.
func TestAHeldInstanceThatFails(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.takeOut("i3")
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = true })
		r.pass(patience)
		r.wantIDs("i1", "i2", "i3", "i4")
		if ended := r.scaler.ended(); len(ended) > 0 {
			t.Errorf("stopped %v", ended)
		}
		r.putBack("i3")
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = false })
		r.pass(2 * time.Second)
		if row := r.row("i3"); row.State != quell.Ready {
			t.Errorf("put back: %+v", row)
		}
	})
}

func TestDrainAndUndrain(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 2 })
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		if b, _ := r.balancer.backend("i3"); !b.Draining || !b.Held || b.Weight != 0 {
			t.Fatalf("at once: %+v", b)
		}
		r.pass(2 * time.Second)
		if row := r.row("i3"); row.Held == nil || row.Held.By != "ann" || row.Open == nil || *row.Open != 2 || row.Empty {
			t.Errorf("%+v", row)
		}
		r.wantEvent("i3 taken out of rotation by ann")
		r.restart()
		r.untouched(func() { r.run(3 * time.Second) })
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i3"] = 0 })
		r.untouched(func() { r.pass(patience) }) // longer than balancer.drain
		r.wantEvent("i3 is empty")
		if row := r.row("i3"); !row.Empty || *row.Open != 0 {
			t.Errorf("%+v", row)
		}
		r.wantIDs("i1", "i2", "i3", "i4")
		r.do(bus.Command{Name: bus.Undrain, Instance: "i3"})
		r.pass(2 * time.Second)
		r.wantEvent("i3 put back by ann")
		if b, _ := r.balancer.backend("i3"); b.Draining || b.Held || b.Weight != .25 {
			t.Errorf("put back: %+v", b)
		}
	})
}

func TestUndrainOfWhatWasTakenOutAtTheBalancer(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.takeOut("i3")
		r.pass(2 * time.Second)
		r.do(bus.Command{Name: bus.Undrain, Instance: "i3"})
		r.pass(2 * time.Second)
		if row := r.row("i3"); row.Held != nil || row.Weight == nil || *row.Weight == 0 {
			t.Errorf("%+v", row)
		}
	})
}

func TestDrainIsRefused(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		refused := func(cmd bus.Command, words string) {
			t.Helper()
			if reply := r.ask(cmd); !strings.Contains(reply.Error, words) {
				t.Errorf("%s %s: %q, want %q", cmd.Name, cmd.Instance, reply.Error, words)
			}
		}
		refused(bus.Command{Name: bus.Drain, Instance: "i9"}, `no instance "i9"`)
		refused(bus.Command{Name: bus.Undrain, Instance: "i1"}, "not held")
		r.balancer.set(func(b *fakeBalancer) { b.sick["i2"] = true })
		refused(bus.Command{Name: bus.Drain, Instance: "i1"}, "--force")
		r.balancer.set(func(b *fakeBalancer) { b.sick["i2"] = false })
		r.do(bus.Command{Name: bus.Drain, Instance: "i2"})
		refused(bus.Command{Name: bus.Drain, Instance: "i2"}, "taken out already, by ann")
		refused(bus.Command{Name: bus.Drain, Instance: "i1"}, "no other instance is in rotation")
		r.do(bus.Command{Name: bus.Drain, Instance: "i1", Force: true})
		if b, _ := r.balancer.backend("i1"); !b.Draining {
			t.Errorf("forced: %+v", b)
		}
	})
	play(t, func(r *rig) { r.opts.Service.Mode = quell.Advise }, func(r *rig) {
		r.scaler.set(func(s *fakeScaler) { s.add(); s.add() })
		r.run(3 * time.Second)
		if reply := r.ask(bus.Command{Name: bus.Drain, Instance: "i1"}); !strings.Contains(reply.Error, "Quell changes nothing") {
			t.Errorf("in advise mode: %q", reply.Error)
		}
	})
}

// During a pause a person can still drain and undrain; nothing else is changed.
func TestDrainInAPause(t *testing.T) {
	play(t, lopsided, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Pause})
		before := r.balancer.weights()
		r.do(bus.Command{Name: bus.Drain, Instance: "i2"})
		if b, _ := r.balancer.backend("i2"); !b.Draining {
			t.Errorf("drained: %+v", b)
		}
		if got := r.balancer.weights(); got["i1"] != before["i1"] {
			t.Errorf("i1 has %v, had %v", got, before)
		}
		r.untouched(func() { r.pass(5 * time.Second) })
		r.do(bus.Command{Name: bus.Undrain, Instance: "i2"})
		r.wantWeights(before)
	})
}

// strictBalancer refuses a list in which an address is missing, as the built-in balancer, nginx and Envoy do.
type strictBalancer struct{ *fakeBalancer }

func (b strictBalancer) Apply(ctx context.Context, backends []quell.Backend) error {
	if slices.ContainsFunc(backends, func(x quell.Backend) bool { return x.Address == "" }) {
		return errBroken
	}
	return b.fakeBalancer.Apply(ctx, backends)
}

// A held instance whose machine is stopped, so that it has no address any more, keeps no other from getting its share.
func TestAHeldInstanceWithoutAnAddress(t *testing.T) {
	play(t, func(r *rig) { three(r); r.opts.Balancer = strictBalancer{r.balancer} }, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		r.pass(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.members[2].Address, s.members[2].State = "", quell.Failed })
		r.do(bus.Command{Name: bus.Override, Instance: "i1", Weight: at(.5)})
		r.pass(3 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": .25, "i3": 0, "i4": .25})
		if b, _ := r.balancer.backend("i3"); b.Address != "10.0.0.3:80" || !b.Held {
			t.Errorf("the balancer has %+v", b)
		}
		r.restart()
		r.run(3 * time.Second)
		if s := r.c.Status(); s.LastFailure["apply"] != "" || r.row("i3").Held == nil {
			t.Errorf("after a restart: %+v", s)
		}
	})
}

// A backend that is not in force everywhere has no address. In a pause, an order about another one gives it to the balancer with the
// address that the scaler knows: a balancer may refuse a list with an instance without an address.
func TestDrainBesideWhatIsNotInForce(t *testing.T) {
	play(t, lopsided, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Pause})
		r.balancer.set(func(b *fakeBalancer) { b.vague = map[string]bool{"i1": true} })
		before, _ := r.balancer.backend("i1")
		r.do(bus.Command{Name: bus.Drain, Instance: "i2"})
		if after, _ := r.balancer.backend("i1"); after != before || after.Address == "" {
			t.Errorf("i1 was %+v and is %+v", before, after)
		}
		if b, _ := r.balancer.backend("i2"); !b.Draining {
			t.Errorf("drained: %+v", b)
		}
	})
}

// A controller without memory does not mistake a person's drain for its own. The difference matters, because after its own drain it stops
// the instance.
func TestHoldsSurviveALostMemory(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i3"})
		r.takeOut("i2")
		r.pass(2 * time.Second)
		r.memory.values = map[string][]byte{}
		r.restart()
		r.run(patience)
		if ended := r.scaler.ended(); len(ended) > 0 {
			t.Fatalf("stopped %v", ended)
		}
		for _, id := range []string{"i2", "i3"} {
			if row := r.row(id); row.Held == nil {
				t.Errorf("%s: %+v", id, row)
			}
		}
	})
}
