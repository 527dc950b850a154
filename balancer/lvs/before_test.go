package lvs

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quellhq/quell"
)

// Weights of before are told as base weights, left while the shares agree, and come back after a restart.
func TestWeightsOfBeforeComeBack(t *testing.T) {
	k := newTable()
	k.put(web, "10.0.0.11:80", 30)
	k.put(web, "10.0.0.12:80", 60)
	k.put(web, "10.0.0.13:80", 30)
	r := newRig(t, k, web)
	before := k.weights(web)
	states := r.states()
	for _, s := range states {
		if s.Base == nil {
			t.Fatalf("%s has no base weight: %+v", s.ID, states)
		}
	}
	r.apply(backends(0.25, 0.5, 0.25))
	if got := k.weights(web); !slices.Equal(got, before) {
		t.Fatalf("shares by base weight changed the weights to %v", got)
	}
	r.apply(backends(0.8, 0.1, 0.1))
	r.restart()
	unknown, err := r.Restore(t.Context())
	if got := k.weights(web); err != nil || len(unknown) > 0 || !slices.Equal(got, before) {
		t.Errorf("after the release %v, want %v; not known: %v, %v", got, before, unknown, err)
	}
	r.apply(backends(0.8, 0.1, 0.1))
	if err := os.Remove(r.o.Memory); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if unknown, err = r.Restore(t.Context()); err != nil || !strings.Contains(strings.Join(unknown, " "), "record") {
		t.Errorf("without the memory: not known %v, %v", unknown, err)
	}
}

// A weight of 0 from before Quell is a hold, also if the first request is for a share of 0 there.
func TestAZeroOfBeforeIsAHold(t *testing.T) {
	k := newTable()
	k.put(web, "10.0.0.11:80", 1)
	k.put(web, "10.0.0.12:80", 0)
	k.put(web, "10.0.0.13:80", 1)
	r := newRig(t, k, web)
	for range 2 {
		if s := r.states()["i2"]; s.ByHand == nil {
			t.Fatalf("%+v", s)
		}
		r.apply(backends(0.5, 0, 0.5))
		r.restart()
	}
}

// An instance of a fixed group that is taken out of the list and put back gets requests again: the 0 was Quell's. Its weight of before
// stays known, and so does a hold of a person.
func TestAnInstanceOfAFixedGroupComesBack(t *testing.T) {
	all, two := backends(0.4, 0.3, 0.3), backends(0.5, 0.5)
	listed := func(r *rig, n int) {
		r.o.Members = members()[:n]
		r.restart()
	}
	leave := func(prepare func(*rig)) *rig {
		k := newTable()
		k.put(web, "10.0.0.13:80", 30)
		r := newRig(t, k)
		r.reconcile(all)
		if prepare != nil {
			prepare(r)
		}
		listed(r, 2)
		r.reconcile(two)
		if s, shown := r.states()["i3"]; shown || len(r.states()) != 2 || k.weights(web)[2] != 0 {
			t.Errorf("it left: %+v, weights %v", s, k.weights(web))
		}
		if r.restart(); len(r.states()) != 2 {
			t.Errorf("with the next controller: %+v", r.states())
		}
		return r
	}
	r := leave(nil)
	listed(r, 3)
	if s := r.states()["i3"]; s.ByHand != nil || s.ID != "i3" || s.Weight != 0 {
		t.Errorf("listed again: %+v", s)
	}
	r.reconcile(all)
	if s := r.states()["i3"]; s.ByHand != nil || s.Weight != 0.3 || s.Base == nil {
		t.Errorf("it is back: %+v, weights %v", s, r.weights(web))
	}

	r = leave(nil)
	if unknown, err := r.Restore(t.Context()); err != nil || len(unknown) > 0 || !slices.Equal(r.weights(web), []int{10, 10, 30}) {
		t.Errorf("a release while it is out: %v, not known %v, %v", r.weights(web), unknown, err)
	}

	r = leave(func(r *rig) { r.put(web, "10.0.0.13:80", 0); r.apply(all) })
	listed(r, 3)
	r.reconcile(all)
	if s := r.states()["i3"]; s.ByHand == nil || r.weights(web)[2] != 0 {
		t.Errorf("a person had taken it out: %+v, weights %v", s, r.weights(web))
	}

	r = leave(nil)
	r.put(web, "10.0.0.13:80", 7) // somebody uses it for something else
	r.reconcile(two)
	r.apply(two)
	if unknown, err := r.Restore(t.Context()); r.weights(web)[2] != 7 || err != nil || len(unknown) > 0 {
		t.Errorf("somebody gave it a weight: %v, not known %v, %v", r.weights(web), unknown, err)
	}

	r = leave(nil)
	r.put(web, "10.0.0.13:80", -1)
	r.apply(two)
	if len(r.entries) != 2 {
		t.Errorf("without a real server: %+v", r.entries)
	}
	renamed := append(backends(0.4, 0.3), quell.Backend{ID: "new", Address: "10.0.0.13:80", Weight: 0.3})
	r = leave(nil)
	r.o.Members = append(members()[:2], quell.Member{ID: "new", Address: "10.0.0.13:80"})
	r.restart()
	r.reconcile(renamed)
	if s := r.states()["new"]; s.ByHand != nil || s.Weight != 0.3 {
		t.Errorf("under another name: %+v", s)
	}
}
