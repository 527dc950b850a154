package model

import (
	"maps"
	"slices"
	"testing"

	"github.com/quellhq/quell"
)

// working are the snapshots of a group of four whose first instance uses a part of its network for work of its own, beside requests.
// Probes and response times are as much longer as a neighbour of that use makes them.
func (w *lawWorld) working(law *GroupLaw, work float64, period int) *quell.Snapshot {
	const n = 4
	s := w.grouped(law, n, period%7) // uses up to 0.6 leave room for the work
	for i := range s.Instances {
		o := s.Instances[i].Observation
		use, part := o.Utilization[quell.Network], 0.0
		if i == 0 {
			part = work
			o.Utilization[quell.Network], o.OwnWork = use+work, map[quell.Resource]float64{quell.Network: work}
		}
		longer := (1 - use) / (1 - use - part)
		p := o.Probe[quell.Network]
		p.MeanMS, p.StddevMS = longer*p.MeanMS, longer*p.StddevMS
		o.Probe[quell.Network] = p
		crowd := Crowd{Size: n, Use: n * use / (n - work), Own: use / (1 - part)}
		mean := *o.LatencyMS.Mean * law.Slowness(crowd) / law.Slowness(Even(n, use)) / (1 - part)
		o.LatencyMS.Mean = &mean
	}
	return s
}

// Work of an instance's own takes a part of it, as a neighbour does. It is no load of the group as well: what the group can carry is
// learned as without it.
func TestOwnWorkIsNoLoadOfTheGroup(t *testing.T) {
	truth := &GroupLaw{R0MS: 10, Pooling: 0.9, Exponent: 1, Ratio: RatioOf(quell.Mean, 1)}
	learn := func(work float64) (*Learner, map[int]float64) {
		w, crowds := newLawWorld(61), map[int]float64{}
		var l *Learner
		for p := range 60 {
			s := w.working(truth, work, p)
			s.Scheduling = quell.LeastConn
			l = l.Learn(s, learnedSLO)
		}
		for _, x := range l.Seen[quell.Network][AnyType].Windows {
			crowds[x.At] = x.Crowd
		}
		return l, crowds
	}
	calm, crowds := learn(0)
	busy, seen := learn(0.3)
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		// The work leaves 3.7 of four instances.
		if plain, ok := crowds[at]; ok && at > 20 && !near(seen[at], plain*4/3.7, 0.07) {
			t.Errorf("period %d: the group's use is %.3f, without the work %.3f", at, seen[at], plain)
		}
	}
	crowd := Even(12, 0.8)
	ms := func(l *Learner) float64 {
		s := lawOf(t, l).Together.station(quell.Mean)
		return s.ResponseMS(NewQueue(s.Servers(crowd.Size)), crowd, 0)
	}
	if got, want := ms(busy), ms(calm); !near(got, want, 0.1) {
		t.Errorf("12 instances at a use of 0.8 take %.2f ms, without the work %.2f", got, want)
	}
}
