package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// With a release of twice the demand, requests to the host take twice as long from then on, and the others as long as before.
func TestARelease(t *testing.T) {
	sc := plainScenario(2, 0.01, 40e6, 40*time.Second)
	sc.Judge.Window = 20 * time.Second
	sc.Judge.Requests = 1
	sc.Timeline = []scenario.Event{{At: 20 * time.Second, Release: &scenario.Release{Host: "h2", Demand: 2}}}
	var windows []Window
	played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin},
		Windows: func(w Window) { windows = append(windows, w) }})
	const alone = 50_000 * 8 / 40e6 * 1000
	if len(windows) != 2 {
		t.Fatalf("%d windows", len(windows))
	}
	for i, want := range []map[int]float64{{0: alone, 1: alone}, {0: alone, 1: 2 * alone}} {
		for instance, ms := range want {
			if got := windows[i].ByMS[instance]; math.Abs(got/ms-1) > 0.06 {
				t.Errorf("window %d, instance %d: %v ms, want %v", i, instance, got, ms)
			}
		}
	}
}
