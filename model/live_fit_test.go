package model

import (
	"math"
	"testing"

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
		if law.SeverityExponent < leastStated {
			t.Errorf("seed %d: an exponent of severity of %.2f is stated", seed, law.SeverityExponent)
		}
		record := l.Seen[quell.Network][AnyType]
		if record.fit(learnedSLO, l.Periods, false).SeverityExponent < leastStated {
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
