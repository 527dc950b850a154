package credit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// instance is a simulated instance whose processors all compute without a rest.
type instance struct {
	bucket  Bucket
	balance float64
	noise   float64 // standard deviation of a window's speed, as a fraction
	ramp    float64 // credits from which the provider slows down gradually; 0: at once, when there are none
	counts  bool    // processor time includes what the provider withholds, as on some kernels
	random  *rand.Rand
}

// speed returns how many processors the provider gives.
func (i *instance) speed() float64 {
	if i.balance >= i.ramp && i.balance > 0 {
		return i.bucket.Burst
	}
	if i.ramp == 0 {
		return i.bucket.Baseline
	}
	return i.bucket.Baseline + (i.bucket.Burst-i.bucket.Baseline)*i.balance/i.ramp
}

// busy computes for a time and returns the window.
func (i *instance) busy(seconds float64) Busy {
	const step = 0.05
	const rounds = 3e8 // that a processor carries out in a second
	work := 0.0
	for t := 0.0; t < seconds-step/2; t += step {
		use := i.speed()
		i.balance = i.bucket.After(i.balance, use, step)
		work += use * step
	}
	work *= math.Max(0, 1+i.noise*i.random.NormFloat64())
	w := Busy{Seconds: seconds, RunS: work, Rounds: work * rounds * (1 + 0.002*i.random.NormFloat64())}
	if i.counts {
		w.RunS = seconds * i.bucket.Burst
	}
	return w
}

// measure keeps an instance busy until nothing more can be learned, or a number of windows is over.
func (i *instance) measure(seconds float64, most int) (m Measured, windows int) {
	var list []Busy
	for len(list) < most && !m.Settled {
		list = append(list, i.busy(seconds))
		m = Measure(i.bucket.Burst, list)
	}
	return m, len(list)
}

// An instance of any size, with any balance and with noise: its baseline is found within 3% of its processors, and the balance within 5%
// of what was spent. It stops within 20 windows and a little after the balance has run out.
func TestMeasuredCredits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		processors := float64(rapid.IntRange(1, 16).Draw(t, "processors"))
		share := rapid.Float64Range(0.05, 0.5).Draw(t, "baseline")
		seconds := rapid.SampledFrom([]float64{1, 5, 10}).Draw(t, "window")
		lasts := rapid.Float64Range(20, 300).Draw(t, "lasts") * seconds
		b := Bucket{Baseline: share * processors, Burst: processors, PerUse: wholeProcessor}
		counts := rapid.Bool().Draw(t, "counts withheld time")
		noise := rapid.Float64Range(0, 0.05).Draw(t, "noise")
		if counts {
			noise /= 4 // it also blurs what full speed is
		}
		i := &instance{bucket: b, balance: b.Drain(processors) * lasts, noise: noise, counts: counts,
			random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
		had := i.balance
		m, windows := i.measure(seconds, 1000)
		switch {
		case !m.Settled || m.Baseline == nil || m.Burst == nil || m.Balance == nil:
			t.Fatalf("after %d windows: %+v", windows, m)
		case math.Abs(m.Baseline.Middle()-b.Baseline) > 0.03*processors:
			t.Fatalf("baseline %+v, is %v", *m.Baseline, b.Baseline)
		case math.Abs(m.Burst.Middle()-processors) > 0.05*processors:
			t.Fatalf("burst %+v, is %v", *m.Burst, processors)
		case math.Abs(m.Balance.Middle()-had) > 0.05*had+0.03*m.Seconds*processors/60:
			t.Fatalf("balance %+v, was %v", *m.Balance, had)
		case float64(windows) > lasts/seconds+3*settling:
			t.Fatalf("%d windows; the balance lasted for %v", windows, lasts/seconds)
		}
	})
}

func TestMeasuredCases(t *testing.T) {
	b := Bucket{Baseline: 0.4, Burst: 2, PerUse: wholeProcessor}
	of := func(change func(*instance)) *instance {
		i := &instance{bucket: b, balance: 2, noise: 0.01, random: rand.New(rand.NewPCG(1, 2))}
		change(i)
		return i
	}
	for _, tc := range []struct {
		why               string
		instance          *instance
		most              int
		baseline, balance float64 // -1: not known
		settled           bool
	}{
		{"runs out at once", of(func(*instance) {}), 300, 0.4, 2, true},
		{"runs out gradually", of(func(i *instance) { i.ramp = 1 }), 900, 0.4, 2, true},
		{"starts without credits", of(func(i *instance) { i.balance = 0 }), 300, 0.4, 0, true},
		{"has more than is spent", of(func(i *instance) { i.balance = 1000 }), 300, -1, -1, false},
		{"is not burstable", of(func(i *instance) { i.bucket.Baseline = 2 }), 300, -1, -1, false},
		{"too few windows", of(func(*instance) {}), 9, -1, -1, false},
		{"noise, and no credits run out", of(func(i *instance) { i.balance, i.noise = 1000, 0.3 }), 300, -1, -1, false},
	} {
		m, _ := tc.instance.measure(1, tc.most)
		if m.Settled != tc.settled || !agrees(m.Baseline, tc.baseline, 0.04) || !agrees(m.Balance, tc.balance, 0.15) {
			t.Errorf("%s: %+v, baseline %v, balance %v", tc.why, m, m.Baseline, m.Balance)
		}
		if _, ok := m.Bucket(); ok != (tc.baseline >= 0) {
			t.Errorf("%s: a bucket: %v", tc.why, ok)
		}
	}
}

// agrees returns whether a range has about this middle; it must be nil if that is -1.
func agrees(e *Estimate, want, within float64) bool {
	if e == nil || want < 0 {
		return e == nil && want < 0
	}
	return math.Abs(e.Middle()-want) <= within
}

func TestMeasuringNothing(t *testing.T) {
	for why, windows := range map[string][]Busy{
		"no windows":          nil,
		"no work at all":      slices.Repeat([]Busy{{Seconds: 1}}, 30),
		"no processor time":   slices.Repeat([]Busy{{Seconds: 1, Rounds: 5}}, 30),
		"work without rounds": slices.Repeat([]Busy{{Seconds: 1, RunS: 1}}, 30),
	} {
		if m := Measure(2, windows); m.Baseline != nil || m.Balance != nil || m.Settled {
			t.Errorf("%s: %+v", why, m)
		}
	}
}
