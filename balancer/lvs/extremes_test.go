package lvs

import (
	"math"
	"slices"
	"testing"
)

// A checker's weights grow to the largest that IPVS has, as they did with misc_dynamic. Shares, base weights and what Quell sets stay
// right, and the weights come back. (acassen/keepalived#2720)
func TestTheLargestWeights(t *testing.T) {
	k := newTable()
	before := []int{math.MaxInt32, math.MaxInt32, 1}
	for i, w := range before {
		k.put(web, members()[i].Address, w)
	}
	r := newRig(t, k, web)
	for id, s := range r.states() {
		want := map[string]float64{"i1": 0.5, "i2": 0.5, "i3": 0.5 / math.MaxInt32}[id]
		if math.Abs(s.Weight-want) > 1e-9 || s.Base == nil || math.Abs(*s.Base-3*want) > 1e-8 {
			t.Errorf("%s: share %v, want %v; base %v", id, s.Weight, want, s.Base)
		}
	}
	for _, shares := range [][]float64{{0.5, 0.25, 0.25}, {1. / 3, 1. / 3, 1. / 3}} {
		r.reconcile(backends(shares...))
		for i, m := range members() {
			if got := r.states()[m.ID].Weight; math.Abs(got-shares[i]) > 0.01 {
				t.Errorf("%s: share %v, want %v; weights %v", m.ID, got, shares[i], k.weights(web))
			}
		}
		k.put(web, members()[0].Address, math.MaxInt32) // and grows again
	}
	if _, err := r.Restore(t.Context()); err != nil || !slices.Equal(k.weights(web), before) {
		t.Errorf("after the release %v, %v", k.weights(web), err)
	}
}

// A reload that changes the weights of the others leaves the 0 of a failed check: the instance stays failed until its own weight changes.
// (acassen/keepalived#187)
func TestAZeroOutlastsAReload(t *testing.T) {
	r := newRig(t, newTable())
	r.o.Zero = ZeroFailed
	r.restart()
	r.reconcile(backends(0.4, 0.3, 0.3))
	r.put(web, "10.0.0.12:80", 0)
	r.states()
	for _, w := range []int{5, 50, 500} {
		r.put(web, "10.0.0.11:80", w)
		r.put(web, "10.0.0.13:80", w)
		r.apply(backends(0.5, 0, 0.5))
		if s := r.states()["i2"]; s.Healthy || s.Weight != 0 || r.weights(web)[1] != 0 {
			t.Errorf("others at %d: %+v, weights %v", w, s, r.weights(web))
		}
		r.restart()
	}
	r.put(web, "10.0.0.12:80", 5)
	r.apply(backends(0.5, 0, 0.5))
	r.reconcile(backends(0.4, 0.3, 0.3))
	if s := r.states()["i2"]; !s.Healthy || s.Weight != 0.3 {
		t.Errorf("with a weight again: %+v", s)
	}
}
