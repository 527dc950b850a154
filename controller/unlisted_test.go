package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
)

// lose removes instances from the scaler's list; they keep running.
func (r *rig) lose(ids ...string) (lost []quell.Member) {
	r.scaler.set(func(s *fakeScaler) {
		s.members = slices.DeleteFunc(s.members, func(m quell.Member) bool {
			gone := slices.Contains(ids, m.ID)
			if gone {
				lost = append(lost, m)
			}
			return gone
		})
	})
	return lost
}

// If the scaler's list is empty for a while, no instance is removed or started. The empty list is reported as long as it lasts.
func TestAnEmptyListRemovesNobody(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.run(3 * time.Second)
		before := r.balancer.weights()
		lost := r.lose("i1", "i2")
		r.untouched(func() { r.pass(5 * time.Minute) })
		r.wantEvent("i1 is missing from the scaler's list")
		s := r.c.Status()
		if text := s.LastFailure["list"]; !strings.Contains(text, "does not list i1, i2") ||
			!strings.Contains(text, "nothing else would be left") {
			t.Errorf("the status says %q", text)
		}
		if row := r.row("i1"); row.Missing == nil || row.State != quell.Ready {
			t.Errorf("%+v", row)
		}
		if got := r.get("/metrics").Body.String(); !strings.Contains(got, `quell_instance_missing{member="i1",service="shop"} 1`) {
			t.Error(got)
		}
		r.restart()
		r.untouched(func() { r.run(time.Minute) })
		r.scaler.set(func(s *fakeScaler) { s.members = lost })
		r.untouched(func() { r.pass(patience) })
		r.wantEvent("i2 is listed by the scaler again")
		r.wantWeights(before)
		if s := r.c.Status(); s.LastFailure["list"] != "" || r.row("i1").Missing != nil {
			t.Errorf("%+v", s)
		}
	})
}

// An instance that is missing from the list for longer than the limit is given up if other instances serve requests, but only one per
// decision.
func TestAShrunkenListIsBelievedInTheEnd(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.lose("i2", "i3")
		wait := life.MissingWait(r.opts.Service.Sampling)
		r.untouched(func() { r.pass(wait - 2*time.Second) })
		seen := map[int]bool{}
		for range 8 {
			r.pass(500 * time.Millisecond)
			n := 0
			for _, id := range []string{"i2", "i3"} {
				if _, there := r.balancer.backend(id); there {
					n++
				}
			}
			seen[n] = true
		}
		if !seen[2] || !seen[1] || !seen[0] {
			t.Errorf("of two, so many were there: %v; want 2, then 1, then 0", seen)
		}
		if ended := r.scaler.ended(); len(ended) > 0 {
			t.Errorf("%v stopped, which the scaler does not know", ended)
		}
		r.wantEvent("i2 is given up: the scaler has not listed it for")
		r.wantIDs("i1", "i4", "i5")
	})
}

// An instance that is not in the list and does not answer health checks is removed.
func TestAnInstanceThatIsReallyGone(t *testing.T) {
	play(t, three, func(r *rig) {
		r.run(3 * time.Second)
		r.lose("i3")
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = true })
		r.pass(2 * time.Second)
		if _, there := r.balancer.backend("i3"); there {
			t.Error("it is still there")
		}
		r.wantIDs("i1", "i2", "i4")
	})
	play(t, three, func(r *rig) { // it dies while it is missing
		r.run(3 * time.Second)
		r.lose("i3")
		r.pass(5 * time.Second)
		r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = true })
		r.pass(2 * time.Second)
		if _, there := r.balancer.backend("i3"); there {
			t.Error("it is still there")
		}
		r.wantEvent("i3 is given up: the scaler does not list it and the balancer does not find it healthy")
	})
	play(t, three, func(r *rig) { // a person removes it from the balancer
		r.run(3 * time.Second)
		r.lose("i3")
		r.pass(5 * time.Second)
		r.balancer.set(func(b *fakeBalancer) {
			b.backends = slices.DeleteFunc(slices.Clone(b.backends), func(x quell.Backend) bool { return x.ID == "i3" })
		})
		r.pass(2 * time.Second)
		r.wantEvent("i3 is gone: the scaler does not list it and the balancer does not have it any more")
	})
}

// A hold lasts until a person ends it, also if the scaler's list lacks the instance for a while. It ends when the instance has long been
// gone.
func TestAHoldOutlivesAGapInTheList(t *testing.T) {
	wait := life.MissingWait(testService().Sampling)
	for name, tc := range map[string]struct {
		gap  time.Duration
		lost []string
		sick bool
		held bool
	}{
		"one list":                 {time.Second, []string{"i3"}, false, true},
		"an empty list":            {time.Second, []string{"i1", "i2", "i3", "i4"}, false, true},
		"its health checks fail":   {time.Second, []string{"i3"}, true, true},
		"it is given up":           {wait + 5*time.Second, []string{"i3"}, false, true},
		"it has long been gone":    {3 * wait, []string{"i3"}, false, false},
		"nobody else is ever left": {3 * wait, []string{"i1", "i2", "i3", "i4"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, three, func(r *rig) {
				r.run(3 * time.Second)
				r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = tc.sick })
				r.do(bus.Command{Name: bus.Drain, Instance: "i3", ForS: 3600})
				r.pass(3 * time.Second)
				lost := r.lose(tc.lost...)
				r.pass(tc.gap)
				if b, _ := r.balancer.backend("i3"); tc.gap < wait && !b.Held {
					t.Errorf("meanwhile the balancer has %+v", b)
				}
				r.scaler.set(func(s *fakeScaler) { s.members = append(s.members, lost...) })
				r.balancer.set(func(b *fakeBalancer) { b.sick["i3"] = false })
				r.pass(3 * time.Second)
				b, _ := r.balancer.backend("i3")
				if row := r.row("i3"); (row.Held != nil) != tc.held || (row.HeldUntil != nil) != tc.held || b.Draining != tc.held || b.Held != tc.held {
					t.Errorf("the status shows %+v, the balancer has %+v", row, b)
				}
				if ended := r.scaler.ended(); slices.Contains(ended, "i3") && tc.held {
					t.Errorf("stopped %v", ended)
				}
			})
		})
	}
}

// If a person writes the list, a removed entry takes effect at once. Backends that the balancer had before Quell are not adopted.
func TestWhatIsNotMissing(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"a fleet that stays": func(r *rig) { r.opts.Fixed, r.opts.Listed = true, true },
		"foreign servers":    func(r *rig) { r.balancer.foreign = true },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) {
				change(r)
				r.scaler.add()
				r.scaler.add()
				for i := range 3 {
					r.balancer.backends = append(r.balancer.backends,
						quell.Backend{ID: fmt.Sprintf("i%d", i+1), Address: fmt.Sprintf("10.0.0.%d:80", i+1), Weight: 1. / 3})
				}
			}, func(r *rig) {
				r.run(3 * time.Second)
				r.wantWeights(map[string]float64{"i1": .5, "i2": .5})
			})
		})
	}
}

func TestWhatTheScalerReportsIsShown(t *testing.T) {
	play(t, nil, func(r *rig) {
		r.scaler.report = errBroken
		r.run(3 * time.Second)
		if s := r.c.Status(); s.LastFailure["scaler"] != errBroken.Error() || s.Failures["scaler"] == 0 {
			t.Errorf("%+v", s.LastFailure)
		}
	})
}

// Where others keep the list and choose the number, an instance that they add gets requests, one that they take away is given up in the
// end, and Quell starts and stops nothing.
func TestAListThatOthersKeep(t *testing.T) {
	play(t, func(r *rig) {
		r.opts.Fixed, r.opts.Service.Group.Fixed = true, true
		for range 3 {
			r.scaler.add()
		}
	}, func(r *rig) {
		r.run(3 * time.Second)
		r.scaler.set(func(s *fakeScaler) { s.add() })
		r.pass(2 * time.Second)
		r.wantIDs("i1", "i2", "i3", "i4")
		r.lose("i2")
		r.pass(life.MissingWait(r.opts.Service.Sampling) + 5*time.Second)
		r.wantIDs("i1", "i3", "i4")
		r.wantEvent("i2 is given up: the scaler has not listed it for")
		r.lose("i1", "i3", "i4")
		r.pass(5 * time.Minute)
		if left := r.balancer.weights(); len(left) != 3 {
			t.Errorf("an empty list left %v", left)
		}
		if ended := r.scaler.ended(); len(ended) > 0 {
			t.Errorf("%v were stopped", ended)
		}
	})
}
