package experiment

import (
	"fmt"
	"time"

	"github.com/quellhq/quell/train"
)

// Alternation is a set of runs, one at each of three loads, in which a neighbour of one strength comes and goes (ICE, section IV).
type Alternation struct {
	Use  float64 // of the neighbour
	Test bool    // the runs are not for training: they test the detector that was trained with the others
}

// Alternations lists the runs of a detector's training and its test. The test has a neighbour that is stronger than any in the training,
// one between, and one that is weaker.
func Alternations() []Alternation {
	return []Alternation{{0.3, false}, {0.5, false}, {0.55, true}, {0.4, true}, {0.2, true}}
}

// Name is the folder of the runs.
func (a Alternation) Name() string {
	if a.Test {
		return fmt.Sprintf("test-%.0f", 100*a.Use)
	}
	return fmt.Sprintf("training-%.0f", 100*a.Use)
}

// Plan is the plan of the runs, which take about four minutes on three machines. They are measured second by second.
func (a Alternation) Plan() train.Plan {
	const there = 2 * time.Minute
	return train.Plan{
		Levels: []float64{0.2, 0.3, 0.4}, Interference: []float64{a.Use}, Most: 1, Run: 2 * there, WarmUp: 10 * time.Second,
		Repeat: 1, MaxRepeat: 1, Interval: 0.05, Confidence: 0.95, Alternate: &train.Alternation{Away: there, There: there, Window: time.Second},
	}
}
