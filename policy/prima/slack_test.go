package prima

import (
	"testing"
	"time"

	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/policy"
)

// missing decides on a group whose response times are ms, for some periods of 10 s, and returns what is left free then.
func missing(t *testing.T, st policy.State, from, periods int, ms float64) (policy.State, float64) {
	t.Helper()
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	for period := range periods {
		s := together(4, 0.3)
		s.At = s.At.Add(time.Duration(from+period) * 10 * time.Second)
		for i := range s.Instances {
			s.Instances[i].Observation.At, s.Instances[i].Observation.LatencyMS.Mean = s.At, &ms
		}
		_, st = e.Decide(s, st)
	}
	return st, st.Memory.(*memory).Budget.Held
}

// TestBudget: a miss lowers headroom by as much as 99 times as long without one gives back. A long miss counts once, and there is an end.
func TestBudget(t *testing.T) {
	st, held := missing(t, policy.State{}, 0, 5, 20)
	if held != 0 {
		t.Errorf("nothing was missed, and %.4f is left free", held)
	}
	st, first := missing(t, st, 5, 1, 60)
	if want := budget.SlackStep * 99 * budget.LongestMiss; first < 0.99*want || first > 1.01*want {
		t.Errorf("after a period that was missed %.4f is left free, want %.4f", first, want)
	}
	if st, held = missing(t, st, 6, 3, 60); held != first {
		t.Errorf("a miss that goes on counts again: %.4f, was %.4f", held, first)
	}
	st, held = missing(t, st, 9, 10, 20)
	if want := first - 100*budget.SlackStep; held < 0.99*want || held > 1.01*want {
		t.Errorf("after 100 s without a miss %.4f is left free, want %.4f", held, want)
	}
	for round := range 20 {
		st, _ = missing(t, st, 100+2*round, 1, 60)
		st, held = missing(t, st, 101+2*round, 1, 20)
	}
	if held > 0.9-minHeadroom {
		t.Errorf("%.4f is left free, more than headroom has", held)
	}
}
