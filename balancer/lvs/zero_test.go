package lvs

import (
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// With zero: failed, a weight of 0 that Quell did not set is a failed check. When the checker ends it, its weight stays until a plan gives
// the instance a share, so that a check that fails again in between is seen, too.
func TestZeroOfAChecker(t *testing.T) {
	for _, zero := range []ZeroMeans{ZeroHeld, ZeroFailed} {
		r := newRig(t, newTable())
		r.o.Zero = zero
		r.restart()
		out := func(s quell.BackendState) bool {
			if zero == ZeroHeld {
				return s.ByHand != nil && s.Healthy && s.Weight == 0
			}
			return s.ByHand == nil && !s.Healthy && s.Health != "" && s.Weight == 0
		}
		all, without := backends(0.4, 0.3, 0.3), backends(0.5, 0, 0.5)
		r.reconcile(all)
		r.put(web, "10.0.0.12:80", 0)
		if s := r.states()["i2"]; !out(s) {
			t.Errorf("%s: %+v", zero, s)
		}
		for range 2 { // it fails, comes back, fails before the next plan, and comes back
			r.apply(without)
			if s := r.states()["i2"]; !out(s) {
				t.Errorf("%s: after a plan without it: %+v", zero, s)
			}
			r.restart()
			r.put(web, "10.0.0.12:80", 7)
			r.apply(without)
			if s := r.states()["i2"]; !s.Healthy || s.ByHand != nil || s.Draining || r.weights(web)[1] != 7 {
				t.Errorf("%s: put back: %+v, weights %v", zero, s, r.weights(web))
			}
			r.put(web, "10.0.0.12:80", 0)
			if s := r.states()["i2"]; !out(s) {
				t.Errorf("%s: failed again before a plan gave it a share: %+v", zero, s)
			}
		}
		r.put(web, "10.0.0.12:80", 7)
		r.apply(without)
		r.reconcile(all)
		if s := r.states()["i2"]; s.Weight != 0.3 {
			t.Errorf("%s: with a share: %+v", zero, s)
		}
		r.reconcile(without) // Quell's own 0
		if s := r.states()["i2"]; !s.Healthy || s.ByHand != nil || r.weights(web)[1] != 0 {
			t.Errorf("%s: Quell's own 0: %+v", zero, s)
		}
		r.reconcile(all)
		r.put(web, "10.0.0.12:80", 0)
		r.apply(without)
		r.put(web, "10.0.0.12:80", 7)
		r.apply(without)
		r.reconcile(backends(0.5, -1, 0.5)) // a drain is carried out
		if !slices.Equal(r.weights(web)[1:2], []int{0}) {
			t.Errorf("%s: not drained: %v", zero, r.weights(web))
		}
		if want := map[ZeroMeans]string{ZeroHeld: "set balancer.lvs.zero to failed", ZeroFailed: "the instance has failed"}[zero]; !strings.
			Contains(r.log.String(), want) {
			t.Errorf("%s: the log lacks %q: %s", zero, want, r.log.String())
		}
	}
	r := newRig(t, newTable()) // before the first plan
	r.o.Zero = ZeroFailed
	r.put(web, "10.0.0.12:80", 0)
	r.restart()
	if s := r.states()["i2"]; s.Healthy || s.ByHand != nil || !s.Foreign {
		t.Errorf("before the first plan: %+v", s)
	}
}
