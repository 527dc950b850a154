package sim

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
)

// The windows agree with the run's result. They cover the whole run once and in order, and contain all its violations and requests.
func TestWindowsAddUp(t *testing.T) {
	sc := noisyNeighbour()
	var windows []Window
	r := played(t, Options{
		Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin, Fixed: 3},
		Windows: func(w Window) { windows = append(windows, w) },
	})
	var end, violated time.Duration
	var requests, failed, over int64
	for _, w := range windows {
		if w.Start != end {
			t.Errorf("a window begins at %v, the one before ended at %v", w.Start, end)
		}
		end = w.Start + w.Length
		requests += w.Requests
		failed += w.Failed
		over += w.Over
		if w.Violated {
			violated += w.Length
		}
		missed := w.Failed > 0 || w.WorstMS != nil && *w.WorstMS > sc.Service.SLO.ThresholdMS()
		if missed != w.Violated {
			t.Errorf("at %v: worst %v, %d failed, violated %v", w.Start, w.WorstMS, w.Failed, w.Violated)
		}
		if w.MeanMS == nil || w.WorstMS != nil && *w.MeanMS > *w.WorstMS {
			t.Errorf("at %v the mean over all is %v, the worst instance's %v", w.Start, w.MeanMS, w.WorstMS)
		}
	}
	if end != sc.Duration || violated.Seconds() != r.SLO.ViolationS || violated == 0 {
		t.Errorf("windows end at %v with %v violated, the result has %v s", end, violated, r.SLO.ViolationS)
	}
	if requests+failed != r.Requests || failed != r.Errors {
		t.Errorf("windows hold %d requests and %d failures, the result %d and %d", requests, failed, r.Requests, r.Errors)
	}
	if over+failed != r.SLO.RequestsOver || over == 0 {
		t.Errorf("windows hold %d requests over the threshold, the result %d", over, r.SLO.RequestsOver)
	}
}
