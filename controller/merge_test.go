package controller

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// Two balancers measure very different response times. The 90th percentile of all requests is neither balancer's own percentile, nor the
// mean of both.
func TestResponseTimesMergeAsHistograms(t *testing.T) {
	g, v := gathering()
	fast := slices.Repeat([]float64{10}, 95)
	slow := slices.Concat(slices.Repeat([]float64{20}, 95), slices.Repeat([]float64{1000}, 10))
	g.add(balancerReading(t, "i1", "east", fast...), epoch)
	g.add(balancerReading(t, "i1", "west", slow...), epoch)
	l := g.snapshot(epoch, v).Instances[0].Observation.LatencyMS
	for name, c := range map[string][2]float64{
		"mean": {*l.Mean, (95*10 + 95*20 + 10*1000) / 200.}, "p50": {*l.P50, 20}, "p90": {*l.P90, 20}, "p99": {*l.P99, 1000},
	} {
		if !near(c[0], c[1], .01) {
			t.Errorf("%s: %v ms, want %v", name, c[0], c[1])
		}
	}
	if l.N != 200 {
		t.Errorf("%d response times", l.N)
	}
}

// A balancer that does not know single response times reports only means. Means are merged with the numbers of requests as weights, and
// give no percentiles.
func TestMeansWithoutHistogramsMergeAsMeans(t *testing.T) {
	g, v := gathering()
	for from, mean := range map[string]float64{"east": 10, "west": 40} {
		r := balancerReading(t, "i1", from)
		r.LatencyHDR, r.Observation.LatencyMS = nil, &quell.Latency{Mean: &mean, N: int(mean) * 10}
		g.add(r, epoch)
	}
	l := g.snapshot(epoch, v).Instances[0].Observation.LatencyMS
	if l == nil || !near(*l.Mean, 34, 1e-9) || l.N != 500 || l.P95 != nil || l.P50 != nil {
		t.Errorf("got %+v", l)
	}
}

func TestHistogramsOfDifferentRangesMerge(t *testing.T) {
	g, v := gathering()
	for from, ms := range map[string]float64{"east": 10, "west": 5000, "south": 30} {
		r := balancerReading(t, "i1", from)
		r.LatencyHDR = encodedWithin(t, time.Duration(ms)*2*time.Millisecond, ms)
		g.add(r, epoch)
	}
	if l := g.snapshot(epoch, v).Instances[0].Observation.LatencyMS; l.N != 3 || !near(*l.Mean, 1680, .01) || !near(*l.P50, 30, .01) {
		t.Errorf("%d values, mean %v", l.N, *l.Mean)
	}
}

func TestMergedPercentilesAreThoseOfAllRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, v := gathering()
		var all []float64
		for _, from := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "balancers")] {
			ms := rapid.SliceOfN(rapid.Float64Range(.1, 1e5), 1, 60).Draw(t, from)
			all = append(all, ms...)
			g.add(balancerReading(t, "i1", from, ms...), epoch)
		}
		slices.Sort(all)
		l := g.snapshot(epoch, v).Instances[0].Observation.LatencyMS
		for metric, share := range map[quell.Metric]float64{quell.P50: .5, quell.P90: .9, quell.P99: .99} {
			got, _ := l.Of(metric)
			rank := max(1, int(share*float64(len(all))+.5)) // as HdrHistogram rounds it
			if want := all[rank-1]; !near(got, want, .012) {
				t.Fatalf("%s of %d: %v, want %v", metric, len(all), got, want)
			}
		}
	})
}

func TestWhatBalancersCountAddsUp(t *testing.T) {
	g, v := gathering()
	a, b := balancerReading(t, "i1", "east", 1, 1, 1, 1), balancerReading(t, "i1", "west", 1)
	half, all := .5, 1.
	b.Observation.ErrorRate = &half
	a.ConnectHDR, b.ConnectHDR = encoded(t, 2), encoded(t, 8)
	refused := balancerReading(t, "i2", "east") // every connection was refused: no request got there
	refused.Observation.ErrorRate, refused.LatencyHDR = &all, nil
	for _, r := range []quell.Reading{a, b, refused} {
		g.add(r, epoch)
	}
	s := g.snapshot(epoch, v)
	o := s.Instances[0].Observation
	if *o.RequestRate != 5 || *o.InFlight != 2 || *o.ErrorRate != .1 || !near(o.TCP["connect_ms_p90"], 8, .01) || o.WindowS != 1 {
		t.Errorf("%+v", o)
	}
	if o := s.Instances[1].Observation; *o.ErrorRate != 1 || o.LatencyMS != nil {
		t.Errorf("an instance that refuses connections: %+v", o)
	}
	if *s.ArrivalRate != 5 {
		t.Errorf("%v arrivals a second, want those at both balancers and instances", *s.ArrivalRate)
	}
	if got := g.snapshot(epoch.Add(3*time.Second), v); got.ArrivalRate != nil || got.Instances[0].Observation != nil {
		t.Errorf("counted again when it was over: %+v", got)
	}
}

// If a balancer reports but no longer names an instance, it has given that instance's requests to others. So the last reading of a removed
// instance, which is from an earlier window, is not counted. If an instance is removed during the window, its requests in this window are
// counted once.
func TestArrivalsAreThoseOfTheLastWindow(t *testing.T) {
	second := func(n float64) time.Time { return epoch.Add(time.Duration(n * float64(time.Second))) }
	rated := func(id, from string, rate float64) quell.Reading {
		r := balancerReading(t, id, from)
		r.Observation.RequestRate = &rate
		return r
	}
	expect := func(g *gather, v view, at, want float64) {
		t.Helper()
		if got := g.snapshot(second(at), v).ArrivalRate; got == nil {
			t.Errorf("after %v s: no arrivals, want %v a second", at, want)
		} else if !near(*got, want, 1e-9) {
			t.Errorf("after %v s: %v arrivals a second, want %v", at, *got, want)
		}
	}
	all := func(g *gather, at float64) {
		g.add(rated("i1", "east", 60), second(at))
		g.add(rated("i2", "east", 40), second(at+0.01)) // readings arrive one after the other
		g.add(rated("i1", "west", 10), second(at+0.05))
	}

	g, v := gathering() // i2 dies and is still listed as failed
	all(g, 0)
	expect(g, v, 0.2, 110)
	v.Members[1].State = quell.Failed
	g.add(rated("i1", "east", 100), second(1))
	g.add(rated("i1", "west", 10), second(1))
	expect(g, v, 1.2, 110)

	g, v = gathering() // i2 is removed within the window, after it got a quarter of its requests
	all(g, 0)
	expect(g, v, 0.2, 110)
	v.Members = v.Members[:1]
	g.add(rated("i1", "east", 90), second(1))
	g.add(rated("i2", "east", 10), second(1))
	g.add(rated("i1", "west", 10), second(1))
	expect(g, v, 1.2, 110)
	g.add(rated("i1", "east", 100), second(2))
	expect(g, v, 2.2, 110)

	g, v = gathering() // i9 is unknown
	all(g, 0)
	g.add(rated("i9", "east", 500), second(0))
	expect(g, v, 0.2, 110)
	all(g, 1)
	g.add(rated("i9", "east", 500), second(1))
	expect(g, v, 1.2, 110)

	expect(g, v, 2.2, 110) // readings of this period are late
}

func TestProbesArePooled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, v := gathering()
		var all []float64
		for _, from := range []string{"a", "b", "c"} {
			ms := rapid.SliceOfN(rapid.Float64Range(.1, 1000), 2, 20).Draw(t, from)
			all = append(all, ms...)
			g.add(proberReading("i1", from, moments(ms)), epoch)
		}
		got, want := g.snapshot(epoch, v).Instances[0].Observation.Probe[quell.Network], moments(all)
		if got.N != want.N || !near(got.MeanMS, want.MeanMS, 1e-9) || math.Abs(got.StddevMS-want.StddevMS) > 1e-6 {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func moments(ms []float64) quell.ProbeStats {
	var sum, squares float64
	for _, v := range ms {
		sum += v
	}
	mean := sum / float64(len(ms))
	for _, v := range ms {
		squares += (v - mean) * (v - mean)
	}
	return quell.ProbeStats{MeanMS: mean, StddevMS: math.Sqrt(squares / float64(len(ms)-1)), N: len(ms)}
}

func TestWhatWasReceivedIsNotChanged(t *testing.T) {
	g, v := gathering()
	r := agentReading("i1", .4)
	r.Observation.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 10, StddevMS: 1, N: 8}}
	r.Observation.TCP = map[string]float64{"retransmit_rate": .01}
	g.add(r, epoch)
	g.add(proberReading("i1", "east", quell.ProbeStats{MeanMS: 20, StddevMS: 1, N: 8}), epoch)
	b := balancerReading(t, "i1", "east", 5)
	b.ConnectHDR = encoded(t, 3)
	g.add(b, epoch)
	first := asJSON(t, g.snapshot(epoch, v))
	g.shown = time.Time{} // otherwise the probes count as reported already
	if again := asJSON(t, g.snapshot(epoch, v)); again != first {
		t.Errorf("the same readings say at first\n%s\nand then\n%s", first, again)
	}
	if len(r.Observation.TCP) != 1 || r.Observation.Probe[quell.Network].N != 8 {
		t.Errorf("the sender's own: %+v", r.Observation)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
