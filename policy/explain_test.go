package policy_test

import (
	"math"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// TestUsed: a plan says which part of its capacity an instance carries, whatever the units of its capacity are.
func TestUsed(t *testing.T) {
	ofTypes := func(base string) *model.Models { // within 40 ms small machines carry 0.75 of their link, and big ones 0.875
		m := lawModels(0)
		m.Live()[quell.Network][base].N *= 2
		return m
	}
	ignored := snap(t, 0, "a weight=1 use=0.2 sf=0")
	ignored.Instances[0].Observation.Utilization[quell.Disk] = 0.5
	learned := learningService("prima")
	for _, c := range []struct {
		name     string
		service  quell.Service
		models   *model.Models
		snapshot *quell.Snapshot
		id       string
		capacity float64 // in the group's units
		used     float64
	}{
		{"a machine of size 2", learned, ofTypes("small"), bothTypes(0.1, 0.84), "big", 1.74, 0.965},
		{"a machine of size 1/2", learned, ofTypes("big"), bothTypes(0.36, 0.1), "small", 0.375, 0.48},
		{"the processor binds, and half of what it can is used", both(0), twins(goldenModels(t)),
			snap(t, 0, "a weight=1 use=0.1 sf=0.5 cpu=0.24 cpusf=0"), "a", 0.1 / 0.48, 0.48},
		{"the processor binds, and other instances use less of it", both(0), twins(goldenModels(t)),
			snap(t, 0, "a weight=0.5 use=0.1 sf=0 cpu=0.4 cpusf=0", "b weight=0.5 use=0.3 sf=0 cpu=0.2 cpusf=0"), "a", 1. / 3, 0.8},
		{"the policy ignores the disk", golden("prima", 75, 0), goldenModels(t), ignored, "a", 0.5, 0.4},
		{"it can carry nothing", golden("prima", 75, 0), goldenModels(t), snap(t, 0, "a weight=1 use=0.2 sf=1"), "a", 0, 10},
	} {
		plan, _ := engine(t, c.service, c.models).Decide(c.snapshot, policy.State{})
		if math.Abs(plan.Capacity[c.id]-c.capacity) > 0.01 || math.Abs(plan.Used[c.id]-c.used) > 0.01 {
			t.Errorf("%s: %.3f of %.3f, want %.3f of %.3f", c.name, plan.Used[c.id], plan.Capacity[c.id], c.used, c.capacity)
		}
	}
}
