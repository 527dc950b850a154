package switchback

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// blocks plays whole blocks of two turns of six periods; each says what an instance did in a period of a turn.
func blocks(n int, each func(back bool) []quell.Instance) *Result {
	const sampling = 10 * time.Second
	c := Collect(Options{SLO: slo, Sampling: sampling, CarryS: 30})
	schedule := New(5, time.Minute, time.Duration(2*n)*time.Minute)
	back := false
	for i := range 12*n + 1 {
		s := &quell.Snapshot{At: began.Add(time.Duration(i) * sampling), Instances: each(back)}
		if s.Turn, _ = schedule.At(began, s.At.Sub(began)); s.Turn != nil {
			back = s.Turn.Back
		}
		c.Add(s)
	}
	return c.Result()
}

func did(id string, requests int, ms float64) quell.Instance {
	return quell.Instance{ID: id, State: quell.Ready, Observation: &quell.Observation{LatencyMS: &quell.Latency{Mean: &ms, N: requests}}}
}

// An instance from which acting takes most requests is judged in both turns, or in none.
func TestTheSameInstancesAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		acting, back int // requests of the slow one in a period
		want         Verdict
		missed       float64 // seconds of each acting turn above the objective
	}{
		"slow in both, few requests while acting":      {15, 90, Neither, 30},
		"slow in both, too few requests in both":       {10, 40, Neither, 0},
		"slow in both, hardly any request while it is": {3, 90, Better, 0},
	} {
		r := blocks(8, func(back bool) []quell.Instance {
			n := c.acting
			if back {
				n = c.back
			}
			return []quell.Instance{did("fast", 100, 20), did("slow", n, 80)}
		})
		if got := r.Acting.MissedS / 8; r.Blocks != 8 || r.Verdict != c.want || got != c.missed || r.Thin > 0 {
			t.Errorf("%s: %.0f s of a turn, %s", name, got, r.Text())
		}
	}
}

// Blocks in which nobody has enough requests are not used, and the result says so.
func TestFewRequestsAreTheReason(t *testing.T) {
	r := blocks(8, func(bool) []quell.Instance { return []quell.Instance{did("a", 12, 20), did("b", 9, 20)} })
	if text := r.Text(); r.Verdict != Few || r.Thin != 8 || !strings.Contains(text, "8 more could not be used") ||
		!strings.Contains(text, "30 requests in a sampling period (at most 12)") {
		t.Errorf("%+v: %s", r, text)
	}
	if text := blocks(2, func(bool) []quell.Instance { return []quell.Instance{did("a", 60, 20)} }).Text(); strings.Contains(text, "more") {
		t.Error(text)
	}
}

// A period of the second turn does not make a block: it would count as much as a whole one.
func TestABlockThatHasOnlyBegun(t *testing.T) {
	const sampling = 10 * time.Second
	c := Collect(Options{SLO: slo, Sampling: sampling, CarryS: 30})
	schedule := New(5, time.Minute, time.Hour)
	for i := range 12*7 + 1 {
		s := &quell.Snapshot{At: began.Add(time.Duration(i) * sampling), Instances: []quell.Instance{did("a", 100, 20)}}
		s.Turn, _ = schedule.At(began, s.At.Sub(began))
		const sixBlocks, turn, carried = 12 * 6, 6, 3
		first := i == sixBlocks+turn+carried+1 // the first period of the last turn that is used
		if first {
			s.Instances = []quell.Instance{did("a", 100, 80)}
		}
		c.Add(s)
		if r := c.Result(); first && (r.Blocks != 6 || r.Verdict != Neither || r.Turns != 14 || r.SavedS.Value != 0) {
			t.Errorf("%+v: %s", r, r.Text())
		}
	}
	if r := c.Result(); r.Blocks != 7 || r.SavedS.Value == 0 {
		t.Errorf("a whole block: %+v", r)
	}
}
