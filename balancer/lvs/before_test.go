package lvs

import (
	"os"
	"slices"
	"strings"
	"testing"
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
