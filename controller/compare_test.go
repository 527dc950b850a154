package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/rivals"
)

func compareFor(r *rig, d time.Duration) {
	r.t.Helper()
	r.do(bus.Command{Name: bus.Compare, ForS: d.Seconds(), TurnS: 6, Seed: 4})
}

// turns counts the turns of each kind in the recorded snapshots, and checks that plans have the shares of their turn.
func (r *rig) turns() (acting, back int) {
	r.t.Helper()
	seen := map[int]bool{}
	weights := map[int64]map[string]float64{}
	for _, e := range r.journal.plans() {
		weights[e.Plan.At.UnixNano()] = e.Plan.Weights
		if back := hasReason(e.Plan, "handed_back"); len(e.Plan.Weights) == 2 && back != (e.Plan.Weights["i1"] == .5) {
			r.t.Errorf("handed back is %v with the shares %v", back, e.Plan.Weights)
		}
	}
	for _, s := range r.journal.snapshots {
		if s.Turn == nil || seen[s.Turn.Number] {
			continue
		}
		if seen[s.Turn.Number] = true; s.Turn.Back {
			back++
		} else {
			acting++
		}
		if even := weights[s.At.UnixNano()]["i1"] == .5; even != s.Turn.Back {
			r.t.Errorf("turn %d, handed back %v, has the shares %v", s.Turn.Number, s.Turn.Back, weights[s.At.UnixNano()])
		}
	}
	return acting, back
}

// unequal is a controller whose plans have the shares 0.8 and 0.2.
func unequal(r *rig) {
	r.opts.Policies = amended(rivals.Static, func(g *policy.Group, _ *quell.Plan) {
		if len(g.Ready) == 2 {
			g.Ready[0].Planned, g.Ready[1].Planned = .8, .2
		}
	})
}

// A comparison hands control back in half of its turns, also over a kill of the controller, and ends by itself.
func TestComparison(t *testing.T) {
	for name, meanwhile := range map[string]func(*rig){
		"nothing happens":          func(r *rig) { r.pass(80 * time.Second) },
		"the controller is killed": func(r *rig) { r.pass(20 * time.Second); r.restart(); r.run(60 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, unequal, func(r *rig) {
				r.run(3 * time.Second)
				compareFor(r, 72*time.Second)
				if s := r.c.Status(); s.Comparison == nil || s.Comparison.By != "ann" {
					t.Errorf("status %+v", s.Comparison)
				}
				if got := r.get("/metrics").Body.String(); !strings.Contains(got, `quell_comparison{service="shop",turn="handed_back"}`) {
					t.Errorf("no quell_comparison in\n%s", got)
				}
				if reply := r.ask(bus.Command{Name: bus.Override, Instance: "i1", Weight: new(float64), ForS: 10}); !strings.Contains(reply.Error,
					"a comparison is in progress") {
					t.Errorf("a share for a time: %+v", reply)
				}
				meanwhile(r)
				if acting, back := r.turns(); acting != 6 || back != 6 {
					t.Errorf("%d turns acting, %d handed back, want 6 of each", acting, back)
				}
				r.wantWeights(map[string]float64{"i1": .8, "i2": .2})
				r.wantEvent("the comparison that ann began is over")
				if s := r.c.Status(); s.Comparison != nil {
					t.Errorf("afterwards: %+v", s.Comparison)
				}
			})
		})
	}
}

// A stop, a pause and a release end a comparison.
func TestAComparisonIsEnded(t *testing.T) {
	for _, by := range []bus.Command{{Name: bus.Compare}, {Name: bus.Pause}, {Name: bus.Release}} {
		t.Run(string(by.Name), func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				compareFor(r, 72*time.Second)
				r.pass(8 * time.Second)
				r.do(by)
				r.pass(2 * time.Second)
				if s := r.c.Status(); s.Comparison != nil {
					t.Errorf("status %+v", s.Comparison)
				}
				if s := r.journal.newest(); s.Turn != nil {
					t.Errorf("turn %+v", s.Turn)
				}
			})
		})
	}
}

func TestComparisonsThatAreRefused(t *testing.T) {
	begin := bus.Command{Name: bus.Compare, ForS: 72, TurnS: 6}
	for name, c := range map[string]struct {
		before func(*rig)
		cmd    bus.Command
		want   string
	}{
		"nothing to stop": {func(*rig) {}, bus.Command{Name: bus.Compare}, "no comparison is in progress"},
		"paused":          {func(r *rig) { r.do(bus.Command{Name: bus.Pause}) }, begin, "paused by ann"},
		"a second one":    {func(r *rig) { r.do(begin) }, begin, "a comparison is in progress"},
		"a share is set":  {func(r *rig) { r.overrideFor("i1", .9, time.Minute) }, begin, "a share is set for a time"},
		"short turns":     {func(*rig) {}, bus.Command{Name: bus.Compare, ForS: 72, TurnS: 2}, "too short: at least 6s"},
		"few turns":       {func(*rig) {}, bus.Command{Name: bus.Compare, ForS: 60, TurnS: 6}, "only 10 turns"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(r *rig) {
				r.run(3 * time.Second)
				c.before(r)
				if reply := r.ask(c.cmd); reply.Error == "" || !strings.Contains(reply.Error, c.want) {
					t.Errorf("%+v, want %q", reply, c.want)
				}
			})
		})
	}
}

// Periods of a comparison, and of a share that is set for a time, teach the reserve of the error budget nothing.
func TestTurnsTeachTheReserveNothing(t *testing.T) {
	played(t, func(r *rig) {
		r.pass(2 * time.Second)
		if s := r.journal.newest(); s.Excluded != "" {
			t.Errorf("before: %q", s.Excluded)
		}
		compareFor(r, 72*time.Second)
		r.pass(2 * time.Second)
		if s := r.journal.newest(); !strings.Contains(s.Excluded, "a comparison") {
			t.Errorf("in a comparison: %q", s.Excluded)
		}
		r.do(bus.Command{Name: bus.Compare})
		r.overrideFor("i1", .6, 10*time.Second)
		r.pass(2 * time.Second)
		if s := r.journal.newest(); !strings.Contains(s.Excluded, "set for a time") {
			t.Errorf("with an override for a time: %q", s.Excluded)
		}
	})
}
