package model

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// grouped are the snapshots of a group of n whose response times follow a law, at uses that go up and down.
func (w *lawWorld) grouped(law *GroupLaw, n, period int) *quell.Snapshot {
	use := 0.3 + 0.05*float64(period%11)
	list := make([]machine, n)
	for i := range list {
		list[i] = machine{id: fmt.Sprintf("i%d", i+1), use: use, requests: 300}
	}
	s := w.snapshot(list...)
	for i := range s.Instances {
		l := s.Instances[i].Observation.LatencyMS
		noise := math.Exp(0.05 * w.rng.NormFloat64())
		mean, p90 := law.R0MS*law.Slowness(Even(float64(n), use))*noise, law.ResponseMS(Even(float64(n), use), 0)*noise
		l.Mean, l.P90 = &mean, &p90
	}
	return s
}

// The pooling of a group is learned, whatever the balancer's rule lets one expect, and with it what the group can carry.
func TestPoolingIsLearned(t *testing.T) {
	for _, tc := range []struct {
		rule              quell.Scheduling
		pooling, exponent float64
	}{
		{quell.LeastConn, 0.9, 1}, {quell.LeastConn, 0.1, 0.8}, {quell.RoundRobin, 0.2, 0.95}, {quell.Random2, 0.35, 0.75},
		{"", 0.9, 1}, {"", 0, 1},
	} {
		truth := &GroupLaw{R0MS: 10, Pooling: tc.pooling, Exponent: tc.exponent, Ratio: RatioOf(quell.P90, 1)}
		slo, w := quell.SLO{Metric: quell.P90, Threshold: 45 * time.Millisecond}, newLawWorld(3)
		var l *Learner
		for p := range 60 {
			s := w.grouped(truth, 4+2*(p/30), p)
			s.Scheduling = tc.rule
			l = l.Learn(s, slo)
		}
		law := lawOf(t, l).Together
		for _, use := range []float64{0.4, 0.6, 0.75} {
			s := law.station(quell.P90)
			got, want := s.ResponseMS(NewQueue(s.Servers(6)), Even(6, use), 0), truth.ResponseMS(Even(6, use), 0)
			if !near(got, want, 0.15) {
				t.Errorf("%+v: at a use of %.2f %.1f ms, want %.1f (pooling %.2f, exponent %.2f)", tc, use, got, want, law.Pooling, law.Exponent)
			}
		}
		if want := truth.LargestUse(6, 0, 45); math.Abs(law.Capacity-want) > 0.06 {
			t.Errorf("%+v: capacity %.2f, want %.2f", tc, law.Capacity, want)
		}
	}
}

// A pooling that a person told is not learned.
func TestPoolingThatWasTold(t *testing.T) {
	truth := &GroupLaw{R0MS: 10, Pooling: 0.9, Exponent: 1, Ratio: RatioOf(quell.Mean, 1)}
	w := newLawWorld(4)
	for _, told := range []float64{0, 0.5} {
		l := (&Learner{Metric: learnedSLO.Metric}).Told(&told)
		for p := range 40 {
			l = l.Learn(w.grouped(truth, 4, p), learnedSLO)
		}
		switch law := lawOf(t, l); {
		case told == 0 && law.Together != nil:
			t.Errorf("told that each instance is for itself, a law of the group is fitted: %+v", law.Together)
		case told > 0 && law.Together.Pooling != told:
			t.Errorf("pooling %.2f, told was %.2f", law.Together.Pooling, told)
		}
	}
}

// Where there is data the prediction is the data: within 15% after 25 windows of the like, faster or slower than any law, for every metric.
func TestPredictionsFollowTheData(t *testing.T) {
	for _, metric := range []quell.Metric{quell.Mean, quell.P90, quell.P95, quell.P99} {
		for _, factor := range []float64{0.6, 1, 1.6} {
			law := &Law{P0MS: 5, ProbeExponent: 1, SpreadIdle: 0.01}
			w := &Together{Metric: metric, R0MS: 10, Exponent: 1, Neighbour: 1, Ratio: 1.2}
			if metric == quell.Mean {
				w.Ratio = 1
			}
			plain := w.station(metric).ResponseMS(NewQueue(w.station(metric).Servers(3)), Even(3, 0.5), 0)
			var windows []Window
			for range 25 {
				windows = append(windows, Window{Use: 0.5, Size: 3, Crowd: 0.5, ProbeMS: law.probe(0.5), ProbeN: 100, N: 100,
					MeanMS: factor * 20, MetricMS: factor * plain})
			}
			w.refine(law.answers(windows))
			if got := w.station(metric).ResponseMS(NewQueue(w.station(metric).Servers(3)), Even(3, 0.5), 0); !near(got, factor*plain, 0.15) {
				t.Errorf("%s: 25 windows took %.1f ms, predicted are %.1f", metric, factor*plain, got)
			}
			if w.station(metric).ResponseMS(NewQueue(w.station(metric).Servers(3)), Even(3, 0.9), 0) < plain {
				t.Errorf("%s: with more use it gets faster", metric)
			}
		}
	}
}
