package credit

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestDivide(t *testing.T) {
	for _, tc := range []struct {
		why     string
		holders []Holder
		load    float64
		want    []float64
		seconds float64 // 0: the baselines suffice
	}{
		{"equal ones share equally", []Holder{{0.2, 100, 1}, {0.2, 100, 1}}, 0.6, []float64{0.3, 0.3}, 1000},
		{"who has more, carries more, and both are empty at once", []Holder{{0.2, 100, 1}, {0.2, 300, 1}}, 0.8, []float64{0.3, 0.5}, 1000},
		{"an empty one gets its baseline", []Holder{{0.2, 0, 1}, {0.2, 300, 1}}, 0.8, []float64{0.2, 0.6}, 750},
		{"nobody gets more than it can carry", []Holder{{0.2, 100, 1}, {0.2, 1e6, 0.5}}, 0.8, []float64{0.3, 0.5}, 1000},
		{"an instance without credits carries all it can", []Holder{{0.7, 0, 0.7}, {0.2, 300, 1}}, 1.2, []float64{0.7, 0.5}, 1000},
		{"the baselines suffice: the full one carries more", []Holder{{0.2, 0, 1}, {0.2, 0.2 * longest, 1}}, 0.3, []float64{0.1, 0.2}, 0},
		{"no load", []Holder{{0.2, 100, 1}}, 0, []float64{0}, 0},
	} {
		got, seconds, lasts, ok := Divide(tc.holders, tc.load)
		if !ok || lasts != (tc.seconds > 0) || lasts && math.Abs(seconds-tc.seconds) > 1e-6*tc.seconds {
			t.Errorf("%s: lasts %v s, %v, %v", tc.why, seconds, lasts, ok)
			continue
		}
		for i, want := range tc.want {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%s: got %v, want %v", tc.why, got, tc.want)
				break
			}
		}
	}
	for why, holders := range map[string][]Holder{
		"too much": {{0.2, 100, 1}, {0.2, 100, 1}}, "nobody": nil, "nobody with credits": {{0.2, 0, 1}},
	} {
		if got, _, _, ok := Divide(holders, 2.5); ok {
			t.Errorf("%s: got %v", why, got)
		}
	}
}

// The parts sum to the load, nobody gets more than its most, and credits that are spent last equally long, which no division exceeds: all
// of them together last sum(credits) / (load - earned) if nobody is at its most.
func TestDivideIsThePooledBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var holders []Holder
		var credits, earned, most float64
		for range rapid.IntRange(1, 12).Draw(t, "holders") {
			h := Holder{Baseline: rapid.Float64Range(0.05, 0.5).Draw(t, "baseline"),
				Balance: rapid.SampledFrom([]float64{0, 1, 50, 1000, 20000}).Draw(t, "balance"), Most: rapid.Float64Range(0.3, 1).Draw(t, "most")}
			holders = append(holders, h)
			credits, earned, most = credits+h.Balance, earned+math.Min(h.Baseline, h.Most), most+h.Most
		}
		load := rapid.Float64Range(0, 1.1).Draw(t, "load") * most
		got, seconds, lasts, ok := Divide(holders, load)
		if !ok {
			if quiet := load <= earned; quiet {
				t.Fatalf("a load of %v is refused, and the baselines carry %v", load, earned)
			}
			return
		}
		sum, bounded := 0.0, false
		for i, h := range holders {
			sum += got[i]
			if got[i] > h.Most*(1+1e-9) || got[i] < 0 || math.IsNaN(got[i]) {
				t.Fatalf("%+v gets %v", h, got[i])
			}
			bounded = bounded || got[i] > h.Most*(1-1e-9)
			if over := got[i] - h.Baseline; lasts && over > 1e-9 && got[i] < h.Most*(1-1e-9) && math.Abs(h.Balance/over-seconds) > 1e-5*seconds {
				t.Fatalf("%+v is empty after %v s, all are after %v s", h, h.Balance/over, seconds)
			}
		}
		if math.Abs(sum-load) > 1e-9*math.Max(1, load) {
			t.Fatalf("the parts sum to %v, the load is %v", sum, load)
		}
		if lasts && !bounded && math.Abs(credits/(load-earned)-seconds) > 1e-5*seconds {
			t.Fatalf("lasts %v s, the pooled bound is %v s", seconds, credits/(load-earned))
		}
	})
}

func BenchmarkDivide(b *testing.B) {
	holders := make([]Holder, 1000)
	for i := range holders {
		holders[i] = Holder{0.2, float64(i % 97 * 100), 0.9}
	}
	for b.Loop() {
		Divide(holders, 500)
	}
}
