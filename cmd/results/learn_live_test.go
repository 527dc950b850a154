package main

import (
	"testing"

	"github.com/quellhq/quell/lab/scenario"
)

// Between two sizes the violation is on the line between theirs; beyond all it is that of the nearest.
func TestViolationAt(t *testing.T) {
	size := func(cost, violation float64) scenario.Result {
		return scenario.Result{InstanceSeconds: cost, SLO: scenario.SLOResult{ViolationS: violation}}
	}
	for cost, want := range map[float64]float64{100: 60, 240: 60, 300: 50, 360: 40, 420: 20, 480: 0, 600: 0} {
		if got := violationAt([]scenario.Result{size(360, 40), size(480, 0), size(240, 60)}, cost); got != want {
			t.Errorf("at %v instance-seconds %v s, want %v", cost, got, want)
		}
	}
}
