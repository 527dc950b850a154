package controller

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
)

// The last instance in rotation is not taken out, even if a new instance is to replace it.
func TestAFreshInstanceIsNotInRotation(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Min, r.opts.Service.Group.Max = 1, 1 }, func(r *rig) {
		r.run(3 * time.Second)
		r.opts.Service.Guard.SlowStart = time.Minute
		if err := r.c.Reload(r.opts.Service, nil, false); err != nil {
			t.Fatal(err)
		}
		r.do(replaceFirst)
		r.wantPending("replace i1 (asked for by ann): i2 is younger than guard.slow_start")
		if reply := r.ask(bus.Command{Name: bus.Drain, Instance: "i1"}); !strings.Contains(reply.Error, "no other instance is in rotation") {
			t.Errorf("%s %s", reply.Body, reply.Error)
		}
	})
}

// full is a service of two instances with group.max 2.
func full(r *rig) { r.opts.Service.Group.Max = 2 }

var replaceFirst = bus.Command{Name: bus.Replace, Instance: "i1"}

// wantPending waits for the next decision, and checks the state of the replacement.
func (r *rig) wantPending(want string) {
	r.t.Helper()
	r.pass(2 * time.Second)
	if got := strings.Join(r.c.Status().Pending, "; "); got != want {
		r.t.Errorf("pending %q, want %q", got, want)
	}
}

// A group of the largest size (group.max) has one more instance while one is replaced.
func TestReplacement(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.slow = true })
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i1"], b.sick["i3"] = 2, true })
		r.do(replaceFirst)
		r.wantPending("replace i1 (asked for by ann): i3 is starting")
		r.wantIDs("i1", "i2", "i3")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		if s := r.journal.newest().Instances[2]; s.Replaces != "i1" || s.State != quell.Starting {
			t.Errorf("%+v", s)
		}
		r.scaler.state("i3", quell.Ready)
		r.wantPending("replace i1 (asked for by ann): i3 is starting")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5, "i3": 0}) // health checks and probes can begin
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = false })
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": 0, "i2": .5, "i3": .5})
		r.wantDraining("i1")
		r.balancer.set(func(b *fakeBalancer) { b.inFlight["i1"] = 0 })
		r.wantPending("")
		r.wantIDs("i2", "i3")
		r.wantOrders(2, 1)
		r.wantEvent("replacement of i1 asked for by ann")
		r.wantEvent("started i3 in place of i1: asked for by ann")
		r.wantEvent("i3 takes the place of i1, which drains")
		r.untouched(func() { r.pass(patience) })
		for _, applied := range r.balancer.applied {
			for _, b := range applied {
				if b.Draining && (b.ID != "i1" || b.Weight != 0) {
					t.Errorf("%+v", b)
				}
			}
		}
	})
}

// An instance that is kept goes on running out of rotation, and counts against group.max.
func TestReplacementThatKeepsTheOldOne(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		keep := bus.Command{Name: bus.Replace, Instance: "i1", Keep: true}
		if reply := r.ask(keep); !strings.Contains(reply.Error, "counts against group.max, which is 2") {
			t.Errorf("%s %s", reply.Body, reply.Error)
		}
		r.opts.Service.Group.Max = 3
		if err := r.c.Reload(r.opts.Service, nil, false); err != nil {
			t.Fatal(err)
		}
		r.do(keep)
		r.pass(6 * time.Second)
		r.wantIDs("i1", "i2", "i3")
		r.wantEvent("i3 takes the place of i1, which goes on running out of rotation")
		r.wantOrders(2, 1)
		row := r.c.Status().Instances[0]
		if row.ID != "i1" || row.Held == nil || row.Held.By != "ann" || row.Held.Why != "replaced by i3, and kept for a look" {
			t.Errorf("%+v, held %+v", row, row.Held)
		}
		r.untouched(func() { r.pass(patience) })
		if reply := r.ask(replaceFirst); !strings.Contains(reply.Error, "held by ann") {
			t.Errorf("%s %s", reply.Body, reply.Error)
		}
	})
}

// protect reloads the configuration with instances that are protected from now on.
func (r *rig) protect(ids ...string) {
	r.t.Helper()
	r.opts.Service.Group.Protected = ids
	if err := r.c.Reload(r.opts.Service, nil, false); err != nil {
		r.t.Fatal(err)
	}
}

// An instance that is protected while it is being replaced stays, before and after the new one has taken its place. A restart with it
// protected has the same effect as a reload.
func TestAReloadProtects(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.slow = true })
		r.do(replaceFirst)
		r.pass(2 * time.Second)
		r.protect("i1")
		r.scaler.state("i3", quell.Ready)
		r.pass(5 * time.Second)
		r.wantEvent("replacement of i1 is called off: i1 is protected")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		r.wantIDs("i1", "i2")
	})
	for name, protect := range map[string]func(*rig){
		"reload":  func(r *rig) { r.protect("i1") },
		"restart": func(r *rig) { r.opts.Service.Group.Protected = []string{"i1"}; r.restart(); r.run(0) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				r.balancer.set(func(b *fakeBalancer) { b.inFlight["i1"] = 1 })
				r.do(replaceFirst)
				r.pass(4 * time.Second)
				r.wantDraining("i1")
				protect(r)
				r.pass(patience) // longer than balancer.drain
				if ended := r.scaler.ended(); slices.Contains(ended, "i1") {
					t.Errorf("stopped %v", ended)
				}
				if b, _ := r.balancer.backend("i1"); b.Draining || b.Weight == 0 {
					t.Errorf("the balancer has %+v", b)
				}
			})
		})
	}
}

func TestReplacementThatIsNamedLater(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.later = true })
		r.do(replaceFirst)
		r.wantPending("replace i1 (asked for by ann): a fresh instance is not listed yet")
		if s := r.c.Status(); s.Coming != 0 {
			t.Errorf("%d count as coming, and none is for the group to grow", s.Coming)
		}
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
		r.scaler.appear(1)
		r.pass(4 * time.Second)
		r.wantIDs("i2", "i3")
		r.wantWeights(map[string]float64{"i2": .5, "i3": .5})
		r.wantOrders(2, 1)
	})
}

func TestTheOnlyInstanceIsReplaced(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Min, r.opts.Service.Group.Max = 1, 1 }, func(r *rig) {
		r.run(3 * time.Second)
		r.do(replaceFirst)
		r.pass(5 * time.Second)
		r.wantIDs("i2")
		r.wantWeights(map[string]float64{"i2": 1})
		for _, applied := range r.balancer.applied {
			if !slices.ContainsFunc(applied, func(b quell.Backend) bool { return b.Weight > 0 }) {
				t.Errorf("nobody had a share: %+v", applied)
			}
		}
	})
}

func TestReplacementsOneAfterTheOther(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.do(replaceFirst)
		r.do(bus.Command{Name: bus.Replace, Instance: "i2"})
		most := 0
		for range 60 {
			r.pass(200 * time.Millisecond)
			most = max(most, len(r.scaler.ids()))
		}
		r.wantIDs("i3", "i4")
		if most != 3 {
			t.Errorf("there were up to %d instances", most)
		}
	})
}

func TestWhatCannotBeReplaced(t *testing.T) {
	refused := func(r *rig, id, want string) {
		r.t.Helper()
		if reply := r.ask(bus.Command{Name: bus.Replace, Instance: id}); !strings.Contains(reply.Error, want) {
			r.t.Errorf("replace %s: %q, want %q", id, reply.Error, want)
		}
	}
	play(t, func(r *rig) { r.opts.Service.Group.Protected = []string{"i2"} }, func(r *rig) {
		r.run(3 * time.Second)
		refused(r, "i9", `no instance "i9"`)
		refused(r, "i2", "i2 is protected")
		r.do(bus.Command{Name: bus.Drain, Instance: "i1"})
		refused(r, "i1", "i1 is held by ann")
		r.do(bus.Command{Name: bus.Undrain, Instance: "i1"})
		r.do(replaceFirst)
		refused(r, "i1", "part of a replacement already")
	})
	play(t, func(r *rig) { r.opts.Service.Mode = quell.Advise }, func(r *rig) {
		r.scaler.add()
		r.run(3 * time.Second)
		refused(r, "i1", "mode is advise: Quell changes nothing. It would start a fresh instance")
		if e := r.follow(func(p *quell.Plan) { p.Replace = []string{"i1"} }); !slices.Contains(e.Would, "replace i1") {
			t.Errorf("would %q", e.Would)
		}
	})
	play(t, func(r *rig) { r.opts.Fixed = true }, func(r *rig) {
		r.scaler.add()
		r.run(3 * time.Second)
		refused(r, "i1", "the fleet is fixed (scaler.kind): Quell neither starts nor stops its instances. `quell drain i1` takes")
	})
	play(t, func(r *rig) { r.opts.Service.Mode, r.opts.Fixed = quell.Advise, true }, func(r *rig) { // no promise in advise mode either
		r.scaler.add()
		r.run(3 * time.Second)
		refused(r, "i9", `no instance "i9"`)
		refused(r, "i1", "the fleet is fixed")
		e := r.follow(func(p *quell.Plan) { p.Replace = []string{"i1"} })
		if text := strings.Join(e.Would, "; "); !strings.Contains(text, "not replace i1: the fleet is fixed") {
			t.Errorf("would %q", text)
		}
	})
}

func TestAPauseStopsAReplacement(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Pause})
		if reply := r.ask(replaceFirst); !strings.Contains(string(reply.Body), "it begins when the pause ends") {
			t.Errorf("%s %s", reply.Body, reply.Error)
		}
		r.untouched(func() { r.pass(patience) })
		r.scaler.set(func(s *fakeScaler) { s.slow = true })
		r.do(bus.Command{Name: bus.Resume})
		r.wantPending("replace i1 (asked for by ann): i3 is starting")
		r.do(bus.Command{Name: bus.Pause})
		r.scaler.state("i3", quell.Ready)
		r.untouched(func() { r.pass(patience) })
		r.do(bus.Command{Name: bus.Resume})
		r.pass(5 * time.Second)
		r.wantIDs("i2", "i3")
	})
}

func TestAPersonsHoldEndsAReplacement(t *testing.T) {
	for id, want := range map[string]string{"i1": "i1 is held by ann", "i3": "i3 is held by ann"} {
		play(t, full, func(r *rig) {
			r.run(3 * time.Second)
			r.scaler.set(func(s *fakeScaler) { s.slow = true })
			r.do(replaceFirst)
			r.wantPending("replace i1 (asked for by ann): i3 is starting")
			r.do(bus.Command{Name: bus.Drain, Instance: id})
			r.pass(3 * time.Second)
			r.wantEvent("replacement of i1 is called off: " + want)
			if !slices.Contains(r.scaler.ids(), "i1") || slices.Contains(r.scaler.ids(), "i3") != (id == "i3") {
				t.Errorf("%s is held; instances %v", id, r.scaler.ids())
			}
		})
	}
}

func TestFreshInstancesThatFail(t *testing.T) {
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.slow = true })
		r.do(replaceFirst)
		for _, id := range []string{"i3", "i4", "i5"} {
			r.wantPending("replace i1 (asked for by ann): " + id + " is starting")
			r.scaler.state(id, quell.Failed)
		}
		r.pass(5 * time.Second)
		r.wantIDs("i1", "i2")
		r.wantOrders(2, 1, 1, 1)
		r.wantEvent("replacement of i1 is called off: i5 has failed, and 3 were tried")
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
	})
	play(t, full, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.fault.set(nil)
		r.opts.Scaler = &fullScaler{r.scaler}
		r.restart()
		r.run(time.Second)
		r.do(replaceFirst)
		r.pass(6 * time.Second)
		r.wantIDs("i1", "i2")
		r.wantEvent("replacement of i1 is called off: no fresh instance appeared, and 3 were tried (every slot is taken)")
		r.untouched(func() { r.pass(patience) })
	})
}

// fullScaler is a scaler that cannot start more instances.
type fullScaler struct{ *fakeScaler }

func (*fullScaler) Start(context.Context, int) ([]string, error) { return nil, errFull }

var errFull = errorText("every slot is taken")

type errorText string

func (e errorText) Error() string { return string(e) }

// If the old instance fails meanwhile, the new instance replaces it, and no second one is started.
func TestTheOldInstanceFailsMeanwhile(t *testing.T) {
	for name, fail := range map[string]func(*rig){
		"it exits":               func(r *rig) { r.scaler.state("i1", quell.Failed) },
		"its health check fails": func(r *rig) { r.balancer.set(func(b *fakeBalancer) { b.sick["i1"] = true }) },
	} {
		for _, named := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				play(t, nil, func(r *rig) {
					r.run(3 * time.Second)
					r.scaler.set(func(s *fakeScaler) { s.slow, s.later = true, !named })
					r.do(replaceFirst)
					r.pass(2 * time.Second)
					fail(r)
					r.pass(5 * time.Second)
					if !named {
						r.scaler.appear(1)
					}
					r.scaler.state("i3", quell.Ready)
					r.pass(5 * time.Second)
					r.wantIDs("i2", "i3")
					r.wantOrders(2, 1)
					r.wantWeights(map[string]float64{"i2": .5, "i3": .5})
				})
			})
		}
	}
}

func TestPlansAskForReplacements(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Protected = []string{"i2"} }, func(r *rig) {
		r.run(3 * time.Second)
		r.kill() // from here on the test makes the controller's steps
		r.c.living = context.Background()
		ask := func(ids ...string) bus.Entry {
			return r.follow(func(p *quell.Plan) { p.Replace = ids })
		}
		if e := ask("i1"); !e.Applied || !slices.Contains(e.Changes, "replace i1") {
			t.Errorf("applied %t, changes %q", e.Applied, e.Changes)
		}
		if e := ask("i1"); !e.Applied || len(e.Changes) > 0 {
			t.Errorf("again: applied %t, changes %q", e.Applied, e.Changes)
		}
		if e := ask("i2"); e.Applied || e.Why != "failed: replace: i2 is protected (group.protected): it is never replaced" {
			t.Errorf("applied %t, why %q", e.Applied, e.Why)
		}
		for range 4 {
			r.step()
			r.pass(time.Second)
		}
		r.wantIDs("i2", "i3")
		if e := ask("i3"); !e.Applied || len(e.Changes) > 0 {
			t.Errorf("too soon after the last: applied %t, changes %q", e.Applied, e.Changes)
		}
		r.pass(r.opts.Service.Group.Replace.Every)
		if e := ask("i3"); !slices.Contains(e.Changes, "replace i3") {
			t.Errorf("in its time: changes %q", e.Changes)
		}
	})
}

// mortal counts a controller's actions. After a given number it counts the controller as killed: later actions have no effect.
type mortal struct {
	left atomic.Int64
}

func (m *mortal) dead() bool { return m.left.Load() < 0 }

// does counts an action, and returns whether the controller is still alive for it.
func (m *mortal) does() bool { return m.left.Add(-1) >= 0 }

type mortalMemory struct {
	*fakeMemory
	m *mortal
}

func (x mortalMemory) Put(ctx context.Context, key string, value []byte) error {
	if !x.m.does() {
		return errBroken
	}
	return x.fakeMemory.Put(ctx, key, value)
}

type mortalBalancer struct {
	*fakeBalancer
	m *mortal
}

func (x mortalBalancer) Apply(ctx context.Context, b []quell.Backend) error {
	if !x.m.does() {
		return errBroken
	}
	return x.fakeBalancer.Apply(ctx, b)
}

type mortalScaler struct {
	*fakeScaler
	m *mortal
}

func (x mortalScaler) Start(ctx context.Context, n int) ([]string, error) {
	if !x.m.does() {
		return nil, errBroken
	}
	return x.fakeScaler.Start(ctx, n)
}

func (x mortalScaler) Stop(ctx context.Context, ids []string) error {
	if !x.m.does() {
		return errBroken
	}
	return x.fakeScaler.Stop(ctx, ids)
}

// After whichever action the controller is killed, the next controller continues the replacement and starts no second instance.
func TestAReplacementOutlivesTheController(t *testing.T) {
	for _, named := range []bool{true, false} {
		for effects := int64(0); effects < 25; effects++ {
			play(t, full, func(r *rig) {
				r.run(3 * time.Second)
				r.scaler.set(func(s *fakeScaler) { s.later = !named })
				r.kill()
				m := &mortal{}
				m.left.Store(1000)
				opts := r.opts
				r.opts.Memory, r.opts.Balancer, r.opts.Scaler = mortalMemory{r.memory, m}, mortalBalancer{r.balancer, m}, mortalScaler{r.scaler, m}
				r.restart()
				r.run(time.Second)
				r.balancer.set(func(b *fakeBalancer) { b.inFlight["i1"] = 1 })
				r.do(replaceFirst)
				m.left.Store(effects)
				for range 40 {
					r.pass(250 * time.Millisecond)
					if !named {
						r.scaler.appear(ordered(r.scaler))
					}
					if m.dead() {
						break
					}
				}
				r.kill()
				r.opts = opts
				r.restart()
				r.run(3 * time.Second)
				r.balancer.set(func(b *fakeBalancer) { b.inFlight["i1"] = 0 })
				for range 80 { // an order that was written down and never given may have worked for as long as life.Doubt
					r.pass(5 * time.Second)
					r.scaler.appear(ordered(r.scaler))
				}
				r.wantIDs("i2", "i3")
				r.wantOrders(2, 1)
				r.wantWeights(map[string]float64{"i2": .5, "i3": .5})
				if ended := r.scaler.ended(); !slices.Equal(slices.Compact(ended), []string{"i1"}) {
					t.Errorf("after %d effects: ended %v", effects, ended)
				}
				for _, applied := range r.balancer.applied {
					if !slices.ContainsFunc(applied, func(b quell.Backend) bool { return b.Weight > 0 }) {
						t.Errorf("after %d effects nobody had a share: %+v", effects, applied)
					}
				}
			})
		}
	}
}

// ordered returns how many ordered instances the fake has not listed yet.
func ordered(s *fakeScaler) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ordered
}
