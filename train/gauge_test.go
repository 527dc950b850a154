package train

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// The rate is found within a few percent for requests of any cost, beside what the machine uses without them.
func TestPerSecondFindsWhatRequestsUse(t *testing.T) {
	for _, cost := range []float64{1e-4, 1e-3, 0.02, 0.3} { // of the whole resource, in seconds per request
		for _, idle := range []float64{0, 0.05, 0.4} {
			highest := 0.0
			got, err := PerSecond(func(rate float64) (Gauged, error) {
				highest = max(highest, idle+rate*cost)
				return Gauged{Rate: rate, Use: idle + rate*cost}, nil
			})
			if err != nil || math.Abs(got*cost-1) > 0.03 {
				t.Errorf("cost %v, idle %v: %v per second, %v", cost, idle, got, err)
			}
			if highest > 0.95 && cost < 0.1 {
				t.Errorf("cost %v, idle %v: a trial used %v of the resource", cost, idle, highest)
			}
		}
	}
}

func TestPerSecondThatCannotBeFound(t *testing.T) {
	broken := errors.New("broken")
	for want, trial := range map[string]func(rate float64) (Gauged, error){
		"hardly use":             func(rate float64) (Gauged, error) { return Gauged{Rate: rate, Use: 0.01}, nil },
		"fail at":                func(rate float64) (Gauged, error) { return Gauged{Rate: rate, Failed: rate / 100}, nil },
		"something else runs on": func(rate float64) (Gauged, error) { return Gauged{Use: 0.9}, nil },
		"broken":                 func(rate float64) (Gauged, error) { return Gauged{}, broken },
	} {
		if _, err := PerSecond(trial); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
