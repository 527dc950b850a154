package controller

import (
	"testing"
	"time"

	"github.com/quellhq/quell/internal/tick"
)

func TestAStepWaitsForTheReadingsOfItsPeriod(t *testing.T) {
	play(t, nil, func(r *rig) {
		time.Sleep(300 * time.Millisecond) // the controller begins in the middle of a period
		uses := []float64{.1, .2, .3}
		go func() {
			for _, use := range uses {
				time.Sleep(tick.Until(time.Now(), time.Second) + 50*time.Millisecond) // the reading is delayed
				r.c.Observe(agentReading("i1", use), time.Now())
			}
		}()
		r.run(2*time.Second + 700*time.Millisecond)
		first := r.c.Status().Instances[0]
		if first.ID != "i1" || first.Utilization == nil || *first.Utilization != uses[2] {
			t.Errorf("decided by %+v, want i1 at %v, the utilisation of the period that has just ended", first, uses[2])
		}
	})
}

// If a step takes most of a period, the next decision is still made on time.
func TestASlowStepKeepsThePeriods(t *testing.T) {
	play(t, nil, func(r *rig) {
		first := r.c.nextStep(time.Time{})
		time.Sleep(time.Until(first) + 900*time.Millisecond)
		if next := r.c.nextStep(first); next.Sub(first) != time.Second {
			t.Errorf("the next step comes %v after one that took 900 ms, want a second", next.Sub(first))
		}
		time.Sleep(500 * time.Millisecond)
		if next := r.c.nextStep(first); next.Sub(first) != 2*time.Second {
			t.Errorf("the next step comes %v after one that took 1.4 s, want two seconds", next.Sub(first))
		}
	})
}
