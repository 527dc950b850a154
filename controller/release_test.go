package controller

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell/bus"
)

// Agents put back what they changed. One that does not hear it is told again, and the release survives a kill meanwhile. Nothing is set
// again until an operator resumes.
func TestReleaseReachesAgents(t *testing.T) {
	agents := &fakeAgents{values: map[string]float64{}, fault: map[string]error{}}
	play(t, func(r *rig) { r.opts.Agents = agents }, func(r *rig) {
		r.step()
		r.step()
		for _, id := range []string{"i1", "i2"} {
			r.report(id, map[string]float64{"apache.MaxRequestWorkers": 120})
		}
		r.step()
		for _, id := range []string{"i1", "i2"} {
			agents.values[id+" apache.MaxRequestWorkers"] = 120
		}
		agents.fault["i2"] = errors.New("it is away")
		reply := r.ask(bus.Command{Name: bus.Release, By: "anna"})
		if reply.Error != "" || !strings.Contains(string(reply.Body), "it is away") {
			t.Fatalf("the reply is %s %s", reply.Error, reply.Body)
		}
		want := map[string]float64{"i2 apache.MaxRequestWorkers": 120}
		if !maps.Equal(agents.values, want) {
			t.Errorf("in force: %v", agents.values)
		}
		r.untouched(func() { r.step(); r.step() })
		r.restart()
		agents.fault = nil
		for range 3 {
			for _, id := range []string{"i1", "i2"} {
				r.report(id, map[string]float64{"apache.MaxRequestWorkers": 120})
			}
			r.untouched(r.step)
		}
		if left := r.c.Status().Released; left == nil || len(left.Left) > 0 || len(agents.values) > 0 {
			t.Errorf("left: %+v, in force: %v", left, agents.values)
		}
		r.do(bus.Command{Name: bus.Resume, By: "anna"})
		if r.c.Status().Released != nil || r.c.Status().Paused {
			t.Errorf("after resume: %+v", r.c.Status())
		}
	})
}

// A release puts instances back that were taken out of rotation, also where the balancer restores nothing by itself, and once it can be
// reached.
func TestReleasePutsInstancesBack(t *testing.T) {
	for _, forS := range []float64{0, 60} {
		play(t, nil, func(r *rig) {
			r.step()
			r.step()
			r.do(bus.Command{Name: bus.Drain, Instance: "i2", ForS: forS})
			r.wantDraining("i2")
			r.balancer.refuse.set(errBroken)
			r.do(bus.Command{Name: bus.Release})
			r.wantDraining("i2")
			r.balancer.refuse.set(nil)
			r.step()
			r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
			if b, _ := r.balancer.backend("i2"); b.Draining || b.Held {
				t.Errorf("%+v", b)
			}
			if left := r.c.Status().Released; left == nil || len(left.Left) > 0 {
				t.Errorf("left: %+v", left)
			}
			r.untouched(r.step)
		})
	}
}

// An instance that is put back while nothing is decided gets as many requests as the others do.
func TestAnInstanceThatComesBackInAPauseGetsAnEqualShare(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Group.Initial = 3 }, func(r *rig) {
		r.run(3 * time.Second)
		r.do(bus.Command{Name: bus.Drain, Instance: "i2"})
		r.pass(2 * time.Second)
		r.wantWeights(map[string]float64{"i1": .5, "i2": 0, "i3": .5})
		r.do(bus.Command{Name: bus.Pause})
		r.do(bus.Command{Name: bus.Undrain, Instance: "i2"})
		r.wantWeights(map[string]float64{"i1": .5, "i2": .5, "i3": .5})
		r.untouched(func() { r.pass(3 * time.Second) })
	})
}
