package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/train"
)

// An instance's first window is a half to one and a half periods long. The number of its probes is in proportion to its length.
func TestProbesAreScaledToTheWindow(t *testing.T) {
	sc := plainScenario(1, 0.3, 40e6, time.Second)
	shortest, longest := math.Inf(1), 0.0
	for seed := range uint64(20) {
		s, err := newSimulation(Options{
			Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn}, Seed: seed + 1,
			Probing: Probing{Count: 40},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.schedule()
		for len(s.instances) == 0 || s.instances[0].probers == nil {
			s.w.step()
		}
		length := s.untilEnd() / s.service.Sampling.Seconds()
		shortest, longest = min(shortest, length), max(longest, length)
		if got := len(s.instances[0].probers[0].slots); math.Abs(float64(got)-40*length) > 0.5 {
			t.Errorf("seed %d: %d probes in a window of %.2f periods, want 40 a period", seed+1, got, length)
		}
	}
	if shortest > 0.7 || longest < 1.3 {
		t.Errorf("windows of %.2f to %.2f periods test nothing", shortest, longest)
	}
}

// A training run probes as often as an instance will be probed, throughout the run. The first probe does not count.
func TestTrainingProbesForAsLongAsTheRun(t *testing.T) {
	m := &Trainer{Scenario: plainScenario(1, 0.3, 40e6, time.Second), Probing: Probing{Count: 50}} // a period is 10 s
	for run, want := range map[time.Duration]int{10 * time.Second: 49, 30 * time.Second: 149} {
		row, err := m.Measure(t.Context(), train.RunRequest{Resource: quell.Network, Cell: train.Cell{Level: 0.2}, WarmUp: time.Second, Run: run,
			Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		if row.ProbeMS.N != want {
			t.Errorf("%d probes counted in %v, want %d", row.ProbeMS.N, run, want)
		}
	}
}
