package model

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// caseSLO is the objective of the cases: without load a request takes 10 ms, so a machine may make it 2.5 times as slow.
var caseSLO = quell.SLO{Metric: quell.Mean, Threshold: 25 * time.Millisecond}

// stated is the capacity that a policy reads from the tables of what was learned.
func stated(t *testing.T, l *Learner) float64 {
	t.Helper()
	p, err := Compile(l.Models(nil), Spec{Resource: quell.Network, Metric: caseSLO.Metric, InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	return p.FreshCapacity(caseSLO.ThresholdMS())
}

// between are three machines whose load moves between two uses.
func between(low, high float64) func(int) []machine {
	return func(p int) []machine {
		list := three(p)
		for i := range list {
			list[i].use = low + (high-low)/10*float64((p+3*i)%11)
		}
		return list
	}
}

func learnCase(w *lawWorld, l *Learner, periods int, of func(int) []machine) *Learner {
	for p := range periods {
		l = l.Learn(w.snapshot(of(p)...), caseSLO)
	}
	return l
}

// Response times that grow faster than expected, seen at low use only: what is stated is near what holds, and not 0.53 of the machine.
// Where they grow as under random arrivals, nothing is lost.
func TestSteepAtLowUse(t *testing.T) {
	for _, c := range []struct{ exponent, least, most float64 }{{2, 0.32, 0.46}, {1, 0.53, 0.62}} {
		sum, seeds := 0.0, 4
		for seed := range uint64(seeds) {
			w := newLawWorld(seed)
			w.exponent = c.exponent
			sum += stated(t, learnCase(w, nil, 50, between(0.05, 0.15)))
		}
		if got := sum / float64(seeds); got < c.least || got > c.most {
			t.Errorf("exponent %v: a capacity of %.3f is stated on average, want %v to %v; the truth is %.3f", c.exponent, got, c.least, c.most,
				1-math.Pow(0.4, 1/c.exponent))
		}
	}
}

// The mix of requests shifts during 50 minutes, and requests take twice as long at last. Each period is within the band. What the past
// taught goes all the same, also of kinds of windows that are rare, and if only the periods 5, 9, 13 and so on have windows.
func TestAMixThatShiftsSlowly(t *testing.T) {
	for _, without := range []int{0, 3} { // periods between two with windows
		w := newLawWorld(0)
		var l *Learner
		l = l.Learn(w.snapshot(), caseSLO)
		for p := range 400 {
			if p >= 60 {
				w.r0 = min(20, w.r0+10./300)
			}
			for range without {
				l = l.Learn(w.snapshot(), caseSLO)
			}
			l = l.Learn(w.snapshot(between(0.2, 0.7)(p)...), caseSLO)
		}
		if got := stated(t, l); math.Abs(got-0.2) > 0.03 {
			t.Errorf("windows every %d periods: a capacity of %.3f is stated, the truth is 0.2", without+1, got)
		}
	}
}

// A service that stays as it is loses no response times, beside neighbours that come and go.
func TestNothingShifts(t *testing.T) {
	w := newLawWorld(1)
	var l *Learner
	before := 0
	for p := range 100 {
		l = l.Learn(w.snapshot(three(p, 0.3*float64(p/20%2), 0.15*float64(p/30%3))...), caseSLO)
		if _, answered := l.Count(quell.Network); answered < before {
			t.Fatalf("period %d: %d of %d response times are left", p, answered, before)
		} else {
			before = answered
		}
	}
}

// A service that runs at a use of 0.72 for long, with response times that grow slowly: its group is known to carry that. The law of single
// instances is careful, and states less.
func TestSlowGrowthAtOneUse(t *testing.T) {
	w := newLawWorld(2)
	w.exponent = 0.6 // 0.78 of a machine is within the objective
	var l *Learner
	for p := range 60 {
		s := w.snapshot(between(0.7, 0.74)(p)...)
		s.Scheduling = quell.LeastConn
		l = l.Learn(s, caseSLO)
	}
	law := lawOf(t, l)
	if law.Together == nil || law.Together.Capacity < 0.72 || law.Together.Capacity > 0.8 {
		t.Errorf("the group: %+v, the truth is 0.78", law.Together)
	}
	if got := stated(t, l); got < 0.55 || got > 0.78 {
		t.Errorf("a machine: %.3f, the truth is 0.78", got)
	}
}

// Probes that take the same time at any load are told as such, and what they do not show is not taken for a law.
func TestProbesThatDoNotRespond(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		w := newLawWorld(3)
		var l *Learner
		for p := range 15 {
			s := w.snapshot(between(0.2, 0.7)(p)...)
			for i := range s.Instances {
				if o := s.Instances[i].Observation; deaf {
					o.Probe[quell.Network] = quell.ProbeStats{MeanMS: 5 * math.Exp(0.01*w.rng.NormFloat64()), StddevMS: 0.1, N: 20}
				}
			}
			l = l.Learn(s, caseSLO)
		}
		if law := lawOf(t, l); law.Deaf != deaf || !near(law.P0MS, 5, 0.1) || law.ProbeExponent < 0.5 {
			t.Errorf("deaf %v: told %v, P0 %.2f (5), exponent %.2f", deaf, law.Deaf, law.P0MS, law.ProbeExponent)
		}
	}
}

// A load that hardly varies teaches what it can: at the use that was seen the prediction is what was measured, and it is said what was not
// seen. Once the load varies, nothing more is said.
func TestALoadThatHardlyVaries(t *testing.T) {
	for seed := range uint64(5) {
		w := newLawWorld(seed)
		l := learnCase(w, nil, 32, between(0.23, 0.25))
		p, err := Compile(l.Models(nil), Spec{Resource: quell.Network, Metric: caseSLO.Metric, InterferenceModel: quell.Joint, Confidence: 0.95})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got, want := p.ResponseTime(0.24, 0), w.r0/(1-0.24); !near(got, want, 0.1) {
			t.Errorf("seed %d: %.2f ms are predicted at the load that was seen, where %.2f were measured", seed, got, want)
		}
		const says = "its use has been 0.23 to 0.25 so far: above that the response time is not measured yet"
		if text := l.Text(quell.Network, AnyType); !strings.Contains(text, says) {
			t.Errorf("seed %d: %s", seed, text)
		}
		if text := learnCase(w, l, 20, between(0.1, 0.7)).Text(quell.Network, AnyType); strings.Contains(text, "so far") {
			t.Errorf("seed %d: %s", seed, text)
		}
	}
}
