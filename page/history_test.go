package page

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func ms(t time.Time) int64 { return t.UnixMilli() }

func value(v float64) *float64 { return &v }

// A month of points leaves a bounded number of them, over a day, with the newest in full and no peak lost.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const period = 10 * time.Second
	n := int(30 * 24 * time.Hour / period / 10)
	peak := ms(begin.Add(time.Duration(n-4000) * period))
	for i := range n {
		at := begin.Add(time.Duration(i) * period)
		latency := 10.0
		if ms(at) == peak {
			latency = 500
		}
		h.Add(Point{At: ms(at), WorstMS: &latency, Worst: "i1", Machines: 3, Rate: value(100)})
	}
	points, _ := h.Points(0)
	if len(points) > mostPoints || len(points) < mostPoints/2 {
		t.Fatalf("%d points", len(points))
	}
	seen := false
	for i, p := range points {
		if i > 0 && p.At <= points[i-1].At {
			t.Fatal("the points are not in order")
		}
		if math.Abs(*p.Rate-100) > 1e-9 || p.Machines != 3 {
			t.Fatalf("merged to %+v", p)
		}
		seen = seen || *p.WorstMS == 500
	}
	if last := len(points) - 1; points[last].At-points[last-100].At != 100*period.Milliseconds() {
		t.Error("the newest points were merged")
	}
	if reach := time.Duration(points[len(points)-1].At-points[0].At) * time.Millisecond; !seen || reach < 11*time.Hour || reach > keptFor {
		t.Errorf("the peak is there: %v; the points reach back %s", seen, reach)
	}
}

// Whatever arrives, a reader that asks for what is new ends with the times of the points that are there, or is told to begin again.
func TestReadersCatchUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		var have []Point
		at := int64(1_000_000)
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 300).Draw(t, "points") {
				at += int64(rapid.IntRange(-3, 60).Draw(t, "seconds")) * 1000
				h.Add(Point{At: at})
			}
			after := int64(0)
			if len(have) > 0 {
				after = have[len(have)-1].At
			}
			points, whole := h.Points(after)
			if whole {
				have = nil
			}
			have = append(have, points...)
			if len(h.points) > 0 && have[len(have)-1].At != h.points[len(h.points)-1].At {
				t.Fatal("the newest point is missing")
			}
			for i := 1; i < len(have); i++ {
				if have[i].At <= have[i-1].At {
					t.Fatal("the reader's points are not in order")
				}
			}
		}
	})
}

// A clock that is set back by a day or more begins anew; a smaller step waits until time has caught up.
func TestClockSetBack(t *testing.T) {
	var h History
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	h.Add(Point{At: ms(now)})
	h.Add(Point{At: ms(now.Add(-time.Hour))})
	if points, _ := h.Points(0); len(points) != 1 || points[0].At != ms(now) {
		t.Errorf("after an hour back: %+v", points)
	}
	h.Add(Point{At: ms(now.Add(-48 * time.Hour))})
	if points, _ := h.Points(0); len(points) != 1 || points[0].At != ms(now.Add(-48*time.Hour)) {
		t.Errorf("after two days back: %+v", points)
	}
}

// Marks are bounded, numbered, and repeated advice is one mark.
func TestMarks(t *testing.T) {
	var h History
	for range 3 * mostMarks {
		h.Mark(Mark{Kind: Change, Changes: []string{"x"}})
	}
	if !h.Mark(Mark{Kind: Advice, Changes: []string{"y"}}) || h.Mark(Mark{Kind: Advice, Changes: []string{"y"}}) {
		t.Error("advice: want the first one only")
	}
	all := h.Marks(0)
	if len(all) != mostMarks || all[len(all)-1].ID != 3*mostMarks+1 || len(h.Marks(3*mostMarks)) != 1 || len(h.Marks(3*mostMarks+1)) != 0 {
		t.Errorf("%d marks, the last is %d", len(all), all[len(all)-1].ID)
	}
	h.AddOlderMarks([]Mark{{Kind: Event, Text: "old"}})
	if got := h.Marks(0); len(got) != mostMarks || got[len(got)-1].Kind != Advice {
		t.Errorf("with an older one: %d", len(got))
	}
}
