package switchback

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

var (
	slo   = quell.SLO{Metric: quell.Mean, Threshold: 50 * time.Millisecond}
	began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Every block has one turn of each kind, in both orders, and the schedule is the same for the same seed.
func TestSchedule(t *testing.T) {
	s := New(7, time.Minute, 61*time.Minute)
	if s.Turns != 60 || s.Length() != time.Hour {
		t.Fatalf("%+v", s)
	}
	first := 0
	for block := range 30 {
		a, _ := s.At(began, time.Duration(2*block)*time.Minute)
		b, _ := s.At(began, time.Duration(2*block+1)*time.Minute+20*time.Second)
		if a.Back == b.Back || a.Number != 2*block || b.AgeS != 20 {
			t.Fatalf("block %d: %+v, %+v", block, a, b)
		}
		if a.Back {
			first++
		}
	}
	if first < 8 || first > 22 {
		t.Errorf("control is handed back first in %d of 30 blocks", first)
	}
	for _, outside := range []time.Duration{-1, time.Hour, 1e18} {
		if turn, ok := s.At(began, outside); ok {
			t.Errorf("at %v there is %+v", outside, turn)
		}
	}
	if s := New(1, time.Minute, time.Minute); s.Turns != 0 {
		t.Errorf("a minute has %d turns", s.Turns)
	}
}

// play lets each period of a comparison miss the objective by chance, and the first two periods of a turn as the turn before did.
func play(seed uint64, periods int, acting, back float64) *Collector {
	const sampling = 10 * time.Second
	c := Collect(Options{SLO: slo, Sampling: sampling, CarryS: CarryOver(sampling).Seconds()})
	schedule := New(seed, 2*time.Minute, time.Duration(periods)*sampling)
	rng := rand.New(rand.NewPCG(seed, 1))
	var before *quell.Turn
	for i := range periods + 2 {
		s := &quell.Snapshot{At: began.Add(time.Duration(i) * sampling)}
		s.Turn, _ = schedule.At(began, s.At.Sub(began))
		ms, chance := 30.0, acting
		if in := before; in != nil && in.Back != (in.AgeS < 20) { // what carries over is that of the other kind
			chance = back
		}
		if rng.Float64() < chance {
			ms = 80
		}
		s.Instances = []quell.Instance{{ID: "i1", State: quell.Ready, Observation: &quell.Observation{
			LatencyMS: &quell.Latency{Mean: &ms, N: 100}}}}
		c.Add(s)
		before = s.Turn
	}
	return c
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		periods      int
		acting, back float64
		want         Verdict
	}{
		"better":     {720, 0.02, 0.3, Better},
		"worse":      {720, 0.3, 0.02, Worse},
		"the same":   {720, 0, 0, Neither},
		"too short":  {60, 0, 1, Few},
		"all missed": {720, 1, 1, Neither},
	} {
		t.Run(name, func(t *testing.T) {
			r := play(3, c.periods, c.acting, c.back).Result()
			if r.Verdict != c.want {
				t.Errorf("%s: %s", r.Verdict, r.Text())
			}
			if want := 3600 * (c.back - c.acting); r.SavedS != nil && (r.SavedS.Low > want || r.SavedS.High < want) {
				t.Errorf("the interval of %s lacks %.0f", r.Text(), want)
			}
		})
	}
}

// In at least 90 of 100 comparisons of what does not differ, the interval contains 0; it is one of 95%.
func TestTheIntervalHolds(t *testing.T) {
	inside := 0
	for seed := range uint64(100) {
		if r := play(seed, 360, 0.2, 0.2).Result(); r.Verdict == Neither {
			inside++
		}
	}
	if inside < 90 {
		t.Errorf("%d of 100", inside)
	}
}

// Gaps, a clock that is set back, periods without requests and a second comparison do no harm.
func TestOddRecords(t *testing.T) {
	c := play(3, 720, 0, 1)
	whole := c.Result()
	c.Add(&quell.Snapshot{At: began.Add(-time.Hour)})
	c.Add(&quell.Snapshot{At: began.Add(48 * time.Hour), Turn: &quell.Turn{Began: whole.Began, Number: 59, Back: true, AgeS: 60}})
	c.Add(&quell.Snapshot{At: began.Add(72 * time.Hour)})
	if r := c.Result(); r.Blocks != whole.Blocks || math.Abs(r.Back.Seconds-whole.Back.Seconds) > 1e-9 {
		t.Errorf("%+v, before %+v", r, whole)
	}
	c.Add(&quell.Snapshot{At: began.Add(73 * time.Hour), Turn: &quell.Turn{Began: began.Add(73 * time.Hour)}})
	if r := c.Result(); r != nil {
		t.Errorf("after the begin of another comparison: %+v", r)
	}
	if r := Collect(Options{SLO: slo, Sampling: time.Second}).Result(); r != nil {
		t.Errorf("of nothing: %+v", r)
	}
}

// Handing back sets the weights that people gave, and leaves the policy's other wishes.
func TestHandBack(t *testing.T) {
	three, zero := 3.0, 0.0
	s := &quell.Snapshot{Turn: &quell.Turn{Back: true}, Instances: []quell.Instance{
		{ID: "a", State: quell.Ready, Base: &three}, {ID: "b", State: quell.Ready}, {ID: "c", State: quell.Failed},
		{ID: "d", State: quell.Ready}}}
	plan := quell.Plan{Weights: map[string]float64{"a": .1, "b": .8, "c": .1}, Group: &quell.GroupChange{Remove: []string{"d"}}}
	given := plan.Weights
	HandBack(&plan, s)
	if plan.Weights["a"] != .75 || plan.Weights["b"] != .25 || plan.Weights["c"] != 0 || len(plan.Weights) != 3 || plan.Group == nil {
		t.Errorf("%+v", plan)
	}
	if given["b"] != .8 {
		t.Error("the policy's own shares were changed")
	}
	set := 0.1
	s.Instances[0].Override = &set
	plan.Weights = map[string]float64{"a": .1, "b": .8, "d": .1}
	if HandBack(&plan, s); plan.Weights["a"] != .1 || plan.Weights["b"] != .45 || plan.Weights["d"] != .45 {
		t.Errorf("with an override of a: %v", plan.Weights)
	}
	s.Instances[0].Override, s.Instances[0].Base, s.Instances[1].Base = nil, &zero, &zero
	plan.Weights = map[string]float64{"a": .4, "b": .6}
	if HandBack(&plan, s); plan.Weights["b"] != .6 {
		t.Errorf("base weights of 0 give %v", plan.Weights)
	}
}
