package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
)

// A balancer that makes arrivals regular hides how response times grow. Below the use that was seen, the law follows the data; above, it
// grows as with random arrivals.
func TestCarefulWhereNothingWasSeen(t *testing.T) {
	w := newLawWorld(20)
	w.exponent = 0.4
	l := learnFor(w, nil, 60, func(p int) []machine {
		list := three(p)
		for i := range list {
			list[i].use = min(list[i].use, 0.45)
		}
		return list
	})
	p, err := Compile(l.Models(nil), Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	if got, truth := p.ResponseTime(0.4, 0), 10*math.Pow(0.6, -0.4); !near(got, truth, 0.25) {
		t.Errorf("at 0.4 the tables say %.1f ms, measured were %.1f", got, truth)
	}
	if got := p.FreshCapacity(40); got > 0.8 {
		t.Errorf("a capacity of %.2f is stated from data up to 0.45; with random arrivals it is 0.75", got)
	}
}

// What few probes say of neighbours is uncertain, which makes response times seem to depend less on them. If no other resource is probed,
// the law does not promise that.
func TestCarefulBesideNeighbours(t *testing.T) {
	smaller := 0
	for seed := range uint64(20) {
		w := newLawWorld(seed)
		w.exponent = 0.8
		l := learnFor(w, nil, 40, func(p int) []machine { return three(p, 0.3*float64(p/20)) })
		law := lawOf(t, l)
		if law.SeverityExponent < minStated {
			t.Errorf("seed %d: an exponent of severity of %.2f is stated", seed, law.SeverityExponent)
		}
		record := l.Seen[quell.Network][AnyType]
		if record.fit(learnedSLO, l.Periods, false).SeverityExponent < minStated {
			smaller++
		}
	}
	if smaller < 10 {
		t.Errorf("if other resources are probed, too, smaller exponents are fitted in %d of 20 cases, want at least 10", smaller)
	}
}

// Neighbours on one resource make response times longer, but they do not make another resource seem slower.
func TestNeighboursOnAnotherResource(t *testing.T) {
	w := newLawWorld(40)
	var l *Learner
	for p := range 80 {
		list := three(p)
		s := w.snapshot(list...)
		for i := range s.Instances {
			o := s.Instances[i].Observation
			severity := 0.0
			if p > 10 && i > 0 { // beside two of three machines
				severity = 1
			}
			slower := *o.LatencyMS.Mean * (1 + severity/2) // half of the time is spent at the disk
			o.LatencyMS.Mean = &slower
			o.Utilization[quell.Disk] = list[i].use
			alone := 4 / (1 - list[i].use)
			o.Probe[quell.Disk] = quell.ProbeStats{MeanMS: alone * (1 + severity) * math.Exp(0.05*w.rng.NormFloat64()), StddevMS: 0.3 * alone, N: 20}
		}
		l = l.Learn(s, learnedSLO)
	}
	network, disk := l.Live().Best(quell.Network), l.Live().Best(quell.Disk)
	if !near(network.R0MS, 10, 0.15) || network.PeriodsSinceDrift > 0 {
		t.Errorf("by the network a request alone takes %.2f ms, the truth is 10; %d periods since a drift", network.R0MS,
			network.PeriodsSinceDrift)
	}
	if !near(disk.R0MS, 10, 0.15) || !near(math.Pow(2, disk.SeverityExponent), 1.5, 0.2) || network.OtherExponent == 0 {
		t.Errorf("disk: R0 %.2f, exponent of severity %.2f; network: exponent of other severities %.2f", disk.R0MS, disk.SeverityExponent,
			network.OtherExponent)
	}
}

// A queue that grows for many periods is no release, and what was learned before is kept.
func TestOverloadIsNoRelease(t *testing.T) {
	w := newLawWorld(50)
	l := learnFor(w, nil, 40, func(p int) []machine { return three(p) })
	l = learnFor(w, l, 20, func(p int) []machine {
		list := three(p)
		for i := range list {
			list[i].use, list[i].slower = 0.93, 1+float64(p)/4
		}
		return list
	})
	if law := lawOf(t, l); law.PeriodsSinceDrift > 0 || !near(law.R0MS, 10, 0.2) || law.Capacity < 0.6 {
		t.Errorf("R0 %.2f, %d periods since a drift, %s", law.R0MS, law.PeriodsSinceDrift, law.Text())
	}
}

// burstyProbe is the mean, the standard deviation and the number of probes of one window behind a real link: a probe that finds the link
// idle takes 0.08 ms, one that comes while an answer is sent waits for the rest of it.
func burstyProbe(rng *rand.Rand, busy float64) quell.ProbeStats {
	const n = 10
	times := make([]float64, n)
	for i := range times {
		if times[i] = 0.08 * math.Exp(0.1*rng.NormFloat64()); rng.Float64() < busy {
			times[i] += 3 * rng.ExpFloat64() / (1 - busy)
		}
	}
	mean, sd := stat.MeanStdDev(times, nil)
	return quell.ProbeStats{MeanMS: mean, StddevMS: sd, N: n}
}

// Behind a real link all ten probes of a window may find the link idle: they take a tenth of the usual time. However often that happens,
// the usual time is that of an instance without neighbours, and not the lucky one.
func TestLuckyProbesAreNotTheUsualOnes(t *testing.T) {
	for seed := range uint64(10) {
		w, rng := newLawWorld(seed), rand.New(rand.NewPCG(seed, 9))
		var l *Learner
		alarms, calm := 0, 0
		for p := range 150 {
			var hidden [3]float64
			if p%40 > 30 {
				hidden[p/40%3] = 0.5
			}
			list := three(p, hidden[:]...)
			for i := range list {
				list[i].use = 0.2 + 0.02*float64((p+3*i)%11)
				list[i].requests = 40
			}
			s := w.snapshot(list...)
			law := l.Live().Best(quell.Network)
			for i := range s.Instances {
				o := s.Instances[i].Observation
				o.Probe[quell.Network] = burstyProbe(rng, list[i].use+list[i].neighbours)
				x, _ := windowOf(o, quell.Network, quell.Mean, p)
				if law != nil && p > 30 && list[i].neighbours == 0 {
					if calm++; law.felt(&x) > 0 {
						alarms++
					}
				}
			}
			l = l.Learn(s, learnedSLO)
		}
		law := lawOf(t, l)
		for _, u := range []float64{0.25, 0.35} {
			if got, want := law.probe(u), 0.08+3*u/(1-u); got < want/2 || got > 2*want {
				t.Errorf("seed %d: at a use of %.2f a probe takes %.2f ms, the truth is %.2f", seed, u, got, want)
			}
		}
		if share := float64(alarms) / float64(calm); share > 0.1 {
			t.Errorf("seed %d: in %.0f%% of the calm windows neighbours are felt", seed, 100*share)
		}
	}
}

// A law knows how the service's own traffic lengthens probes. What people are told of neighbours is within a tenth for paced traffic
// and for random arrivals.
func TestSupposedNeighbours(t *testing.T) {
	const own = 0.3
	law := &Law{P0MS: 1, ProbeExponent: 1.2, R0MS: 10, Exponent: 1, SeverityExponent: 1, SpreadIdle: 1, Probes: 100, N: 100, Capacity: 0.7}
	p, err := Compile(&Models{Sections: []Section{Live{quell.Network: {AnyType: law}}}}, Spec{Resource: quell.Network, Metric: quell.Mean,
		InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	for _, exponent := range []float64{0.7, 1} {
		for _, use := range []float64{0.3, 0.5, 0.6} {
			sf := math.Pow((1-own)/(1-own-use), exponent) - 1
			if got := p.Supposed(own, sf); math.Abs(got-use) > 0.1 {
				t.Errorf("exponent %v: neighbours use %v, and %.2f is supposed", exponent, use, got)
			}
		}
	}
	if p.Supposed(own, 0) != 0 || p.Supposed(1, 5) != 0 || p.Supposed(own, math.Inf(1)) > 1-own {
		t.Error("absurd neighbours")
	}
}
