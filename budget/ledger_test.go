package budget

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var (
	start = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	slo99 = quell.SLO{Metric: quell.P95, Threshold: 80 * time.Millisecond, Target: 0.99, Of: quell.OfTime, Over: 7 * 24 * time.Hour}
)

// book is a ledger with the clock by which it is told periods of ten seconds.
type book struct {
	Ledger
	wall time.Time
}

func newBook(slo quell.SLO) *book {
	l, _ := Ledger{}.For(slo)
	return &book{Ledger: l, wall: start}
}

// periods adds periods, all with the same part missed.
func (b *book) periods(n int, missed map[Cause]float64) {
	for range n {
		b.wall = b.wall.Add(10 * time.Second)
		p := Period{At: b.wall, Elapsed: 10 * time.Second, Judged: 10}
		if len(missed) > 0 {
			p.Missed = map[Cause]float64{}
			for c, part := range missed {
				p.Missed[c] = 10 * part
			}
		}
		b.Add(p)
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// An hour without a miss, ten minutes missed, and an hour without: the sums, their causes, and burn rates over the usual windows.
func TestWhatWasMissed(t *testing.T) {
	b := newBook(slo99)
	b.periods(360, nil)
	b.periods(30, map[Cause]float64{Neighbours: 1})
	b.periods(30, map[Cause]float64{OwnLoad: 1})
	r := b.Report(slo99)
	near(t, "burn in 5m", r.Burn["5m"], 100, 1)
	near(t, "burn in 1h", r.Burn["1h"], 100./6, 0.5)
	b.periods(360, nil)
	r = b.Report(slo99)
	near(t, "judged", r.Judged, 7800, 0)
	near(t, "missed", r.Missed, 600, 0)
	near(t, "by neighbours", r.By[Neighbours], 300, 0)
	near(t, "by own load", r.By[OwnLoad], 300, 0)
	near(t, "allowed in a week", r.Allowed, 6048, 10)
	near(t, "left", r.Left, 0.9, 0.01)
	near(t, "burn in 5m", r.Burn["5m"], 0, 0)
	near(t, "burn in 6h", r.Burn["6h"], 600./78, 0.01)
}

// The first periods allow no more time than the whole window.
func TestTheFirstPeriodsAllowNoMore(t *testing.T) {
	b := newBook(slo99)
	for range 3 {
		b.periods(1, nil)
		if r := b.Report(slo99); r.Allowed > 6048.001 {
			t.Errorf("%.0f of %.0f s may be missed after %.0f s", r.Allowed, r.OverS, r.Judged)
		}
	}
}

// After the window, what was missed no longer counts; the counters go on.
func TestTheWindowMoves(t *testing.T) {
	slo := slo99
	slo.Over = 24 * time.Hour
	b := newBook(slo)
	b.periods(60, map[Cause]float64{Failures: 1})
	b.periods(24*360+360, nil)
	if r := b.Report(slo); r.Missed != 0 || r.TotalBy[Failures] != 600 || r.Left != 1 || math.Abs(r.Judged-86400) > 700 {
		t.Errorf("%+v", r)
	}
	if n := len(b.Rings[0].Spans) + len(b.Rings[1].Spans) + len(b.Rings[2].Spans); n > 61+37+spans+30 {
		t.Errorf("%d spans are kept", n)
	}
}

// A day without traffic is no part of what was judged, and spends nothing.
func TestADayWithoutTraffic(t *testing.T) {
	b := newBook(slo99)
	b.periods(360, map[Cause]float64{Neighbours: 0.5})
	before := b.Report(slo99)
	for range 8640 {
		b.wall = b.wall.Add(10 * time.Second)
		b.Add(Period{At: b.wall, Elapsed: 10 * time.Second})
	}
	r := b.Report(slo99)
	if r.Judged != before.Judged || r.Missed != before.Missed || r.Burn["1h"] != 0 || len(r.Days) != 1 {
		t.Errorf("%+v", r)
	}
}

// The clock is set back by a day or forward by a year: what was missed keeps its age, while the controller runs and over a restart.
func TestAClockThatIsSet(t *testing.T) {
	for _, set := range []time.Duration{-24 * time.Hour, 365 * 24 * time.Hour} {
		b := newBook(slo99)
		b.periods(60, map[Cause]float64{OwnWork: 1})
		b.wall = b.wall.Add(set)
		b.periods(360, nil)
		r := b.Report(slo99)
		if r.Missed != 600 || r.Burn["5m"] != 0 || r.Burn["6h"] < 1 || !r.Since.Equal(start.Add(set+10*time.Second)) {
			t.Errorf("set by %v: %+v", set, r)
		}
	}
	b := newBook(slo99)
	b.periods(360, map[Cause]float64{OwnWork: 1})
	b.wall = b.wall.Add(-time.Hour)
	b.Add(Period{At: b.wall, Judged: 10}) // the first period after a restart
	if r := b.Report(slo99); r.Missed != 3600 || r.Judged != 3610 || r.Burn["5m"] < 90 {
		t.Errorf("set back over a restart: %+v", r)
	}
}

// A ledger is the same after it was stored and read.
func TestKeptOverARestart(t *testing.T) {
	b := newBook(slo99)
	b.periods(500, map[Cause]float64{Neighbours: 0.25, Unknown: 0.25})
	data, err := json.Marshal(b.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	var again Ledger
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if got, want := again.Report(slo99), b.Report(slo99); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(data) > 64<<10 {
		t.Errorf("%d bytes", len(data))
	}
}

// Target and window may change, and the count goes on; threshold, statistic and what is counted begin another one, also if several change.
func TestAnotherObjective(t *testing.T) {
	full := func() Ledger {
		b := newBook(slo99)
		b.periods(360*30, map[Cause]float64{Neighbours: 0.5})
		return b.Ledger
	}
	for name, c := range map[string]struct {
		change func(*quell.SLO)
		begun  bool
	}{
		"target":           {func(s *quell.SLO) { s.Target = 0.95 }, false},
		"a longer window":  {func(s *quell.SLO) { s.Over = 30 * 24 * time.Hour }, false},
		"a shorter window": {func(s *quell.SLO) { s.Over = 24 * time.Hour }, false},
		"threshold":        {func(s *quell.SLO) { s.Threshold *= 2 }, true},
		"of":               {func(s *quell.SLO) { s.Of = quell.OfRequests }, true},
		"two at once":      {func(s *quell.SLO) { s.Metric, s.Threshold, s.Target = quell.P99, time.Second, 0.9 }, true},
	} {
		slo := slo99
		c.change(&slo)
		next, begun := full().For(slo)
		r := next.Report(slo)
		if begun != c.begun || (r.Judged == 0) != c.begun {
			t.Errorf("%s: begun %t, %+v", name, begun, r)
		}
		if again, begun := next.For(slo); begun || again.Report(slo).Judged != r.Judged {
			t.Errorf("%s: it begins twice", name)
		}
		if want := min(30*3600, slo.Over.Seconds()); !c.begun && math.Abs(r.Judged-want) > 0.1*want {
			t.Errorf("%s: %v s judged, want %v", name, r.Judged, want)
		}
	}
}

// A longer window allows at once what it does in the long run, although only a part of it was kept, and also after the clock was set.
func TestAWindowThatBecomesLonger(t *testing.T) {
	b := newBook(slo99)
	minutes := func(n int) {
		for range n {
			b.wall = b.wall.Add(time.Minute)
			b.Add(Period{At: b.wall, Elapsed: time.Minute, Judged: 60})
		}
	}
	minutes(20 * 24 * 60)
	slo := slo99
	slo.Over = 30 * 24 * time.Hour
	b.Ledger, _ = b.For(slo)
	minutes(60)
	b.wall = b.wall.Add(-24 * time.Hour)
	minutes(60)
	r := b.Report(slo)
	near(t, "allowed in 30 days", r.Allowed, 0.01*30*24*3600, 300)
	near(t, "judged", r.Judged, 7*24*3600, 4*3600)
	if want := start.Add(time.Minute - 24*time.Hour); !r.Since.Equal(want) {
		t.Errorf("it began at %v, want %v", r.Since, want)
	}
}

// A neighbour is felt first and found a period later: the miss counts for it. What is never explained stays unknown. No total ever falls,
// also over a restart, and nothing is lost in them.
func TestACauseThatIsFoundLater(t *testing.T) {
	b := newBook(slo99)
	last := map[Cause]float64{}
	for _, c := range []struct {
		periods int
		cause   Cause // "": nothing is missed
	}{
		{2, Unknown}, {3, Neighbours}, {10, ""}, {4, Unknown}, {1, OwnLoad}, {1, ""}, {2, Unknown}, {1, ""}, {9, Unknown}, {1, ""},
	} {
		missed := map[Cause]float64{c.cause: 1}
		if c.cause == "" {
			missed = nil
		}
		for range c.periods {
			b.periods(1, missed)
			for cause, was := range last {
				if now := b.Report(slo99).TotalBy[cause]; now < was {
					t.Errorf("%s fell from %v to %v", cause, was, now)
				}
			}
			last = b.Report(slo99).TotalBy
			data, err := json.Marshal(b.Ledger)
			if err != nil {
				t.Fatal(err)
			}
			b.Ledger = Ledger{}
			if err := json.Unmarshal(data, &b.Ledger); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := b.Report(slo99)
	want := map[Cause]float64{Neighbours: 50, Unknown: 150, OwnLoad: 10}
	if !reflect.DeepEqual(r.By, want) || !reflect.DeepEqual(r.TotalBy, want) {
		t.Errorf("%v and %v, want %v", r.By, r.TotalBy, want)
	}
}
