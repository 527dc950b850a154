package controller

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// gathering is a gather of one service sampled every second, whose members are i1 and i2.
func gathering() (*gather, view) {
	v := view{backends: map[string]quell.BackendState{}}
	for _, id := range []string{"i1", "i2"} {
		v.members = append(v.members, quell.Member{ID: id, State: quell.Ready})
		v.backends[id] = quell.BackendState{Backend: quell.Backend{ID: id, Weight: .5}, Healthy: true}
	}
	return newGather(testService(), slog.New(slog.DiscardHandler)), v
}

func agentReading(id string, use float64) quell.Reading {
	return quell.Reading{Service: "shop", Instance: id, Source: quell.FromAgent, Sender: id, Observation: quell.Observation{
		Utilization: map[quell.Resource]float64{quell.Network: use}}}
}

func proberReading(id, from string, p quell.ProbeStats) quell.Reading {
	return quell.Reading{Service: "shop", Instance: id, Source: quell.FromProber, Sender: from, Observation: quell.Observation{
		Probe: map[quell.Resource]quell.ProbeStats{quell.Network: p}}}
}

// balancerReading is of requests that took the given times in milliseconds.
func balancerReading(t interface{ Fatal(...any) }, id, from string, ms ...float64) quell.Reading {
	r := quell.Reading{Service: "shop", Instance: id, Source: quell.FromBalancer, Sender: from, Requests: int64(len(ms))}
	rate, open, failed := float64(len(ms)), 1., 0.
	r.Observation = quell.Observation{WindowS: 1, RequestRate: &rate, InFlight: &open, ErrorRate: &failed}
	r.LatencyHDR = encoded(t, ms...)
	return r
}

func encoded(t interface{ Fatal(...any) }, ms ...float64) []byte {
	return encodedWithin(t, 100*time.Hour, ms...)
}

func encodedWithin(t interface{ Fatal(...any) }, most time.Duration, ms ...float64) []byte {
	h := hdrhistogram.New(1, most.Microseconds(), 2)
	for _, v := range ms {
		if err := h.RecordValue(int64(v * 1000)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*math.Abs(want) }

// Two balancers see very different response times. The 90th percentile of all is neither of theirs, nor their mean.
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

// Balancers that count no single requests know means only: those merge by requests, and nothing else is made of them.
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
			rank := max(1, int(share*float64(len(all))+.5)) // as HdrHistogram has it
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
	refused := balancerReading(t, "i2", "east") // every connection refused: no request got there
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

// A balancer that reports without an instance has given its requests to the others: the last reading of the dead one is of a window
// that is over. One that left within the window has its part in it, once.
func TestArrivalsAreThoseOfTheLastWindow(t *testing.T) {
	second := func(n float64) time.Time { return epoch.Add(time.Duration(n * float64(time.Second))) }
	rated := func(id, from string, rate float64) quell.Reading {
		r := balancerReading(t, id, from)
		r.Observation.RequestRate = &rate
		return r
	}
	expect := func(g *gather, v view, at, want float64) {
		t.Helper()
		if got := g.snapshot(second(at), v).ArrivalRate; got == nil || !near(*got, want, 1e-9) {
			t.Errorf("after %v s: %v arrivals a second, want %v", at, value(got), want)
		}
	}
	all := func(g *gather, at float64) {
		g.add(rated("i1", "east", 60), second(at))
		g.add(rated("i2", "east", 40), second(at+0.01)) // readings come one after the other
		g.add(rated("i1", "west", 10), second(at+0.05))
	}

	g, v := gathering() // i2 dies and is still listed as failed
	all(g, 0)
	expect(g, v, 0.2, 110)
	v.members[1].State = quell.Failed
	g.add(rated("i1", "east", 100), second(1))
	g.add(rated("i1", "west", 10), second(1))
	expect(g, v, 1.2, 110)

	g, v = gathering() // i2 is gone within the window, in which it got a quarter of its requests
	all(g, 0)
	expect(g, v, 0.2, 110)
	v.members = v.members[:1]
	g.add(rated("i1", "east", 90), second(1))
	g.add(rated("i2", "east", 10), second(1))
	g.add(rated("i1", "west", 10), second(1))
	expect(g, v, 1.2, 110)
	g.add(rated("i1", "east", 100), second(2))
	expect(g, v, 2.2, 110)

	g, v = gathering() // nobody knows i9
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
	g.shown = time.Time{} // or its probes would not be told again
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

func TestAgeIsJudgedByTheOwnClock(t *testing.T) {
	g, v := gathering()
	for id, wrong := range map[string]time.Duration{"i1": time.Hour, "i2": -time.Hour} {
		r := agentReading(id, .4)
		r.Observation.At = epoch.Add(wrong)
		g.add(r, epoch)
	}
	for _, in := range g.snapshot(epoch.Add(time.Second), v).Instances {
		if !in.Observation.At.Equal(epoch) {
			t.Errorf("%s: read at %v", in.ID, in.Observation.At)
		}
	}
}

func TestHowOldAnObservationIs(t *testing.T) {
	probe := quell.ProbeStats{MeanMS: 10, StddevMS: 1, N: 8}
	agent, prober, balancer := agentReading("i1", .4), proberReading("i1", "east", probe), balancerReading(t, "i1", "east", 5)
	second, gone := proberReading("i1", "west", probe), proberReading("i1", "gone", probe)
	type heard struct {
		r   quell.Reading
		ago int // seconds
	}
	for _, c := range []struct {
		name  string
		heard []heard
		want  int // seconds ago; -1 where nothing is known
	}{
		{"nothing", nil, -1},
		{"all of them now", []heard{{agent, 0}, {prober, 0}, {balancer, 0}}, 0},
		{"the agent silent, the balancer talking", []heard{{agent, 30}, {balancer, 0}}, 30},
		{"the agent silent, balancer and prober talking", []heard{{agent, 30}, {prober, 0}, {balancer, 0}}, 30},
		{"the only prober silent", []heard{{agent, 0}, {prober, 30}}, 30},
		{"one of two probers a little late", []heard{{agent, 0}, {prober, 1}, {second, 0}}, 0},
		{"a prober that was taken away", []heard{{agent, 0}, {gone, 500}, {second, 0}}, 0},
		{"a balancer alone", []heard{{balancer, 1}}, 1},
		{"a balancer alone, silent", []heard{{balancer, 30}}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, v := gathering()
			for _, h := range c.heard {
				g.add(h.r, epoch.Add(-time.Duration(h.ago)*time.Second))
			}
			o := g.snapshot(epoch, v).Instances[0].Observation
			switch {
			case c.want < 0 && o != nil:
				t.Errorf("%+v, want nothing", o)
			case c.want >= 0 && o == nil:
				t.Error("nothing is known")
			case c.want >= 0 && !o.At.Equal(epoch.Add(-time.Duration(c.want)*time.Second)):
				t.Errorf("read %v ago, want %d s", epoch.Sub(o.At), c.want)
			}
		})
	}
}

func TestProbesAreToldOnce(t *testing.T) {
	g, v := gathering()
	probes := func(now time.Time) int {
		g.add(agentReading("i1", .4), now)
		return g.snapshot(now, v).Instances[0].Observation.Probe[quell.Network].N
	}
	g.add(proberReading("i1", "east", quell.ProbeStats{MeanMS: 10, StddevMS: 1, N: 8}), epoch.Add(-time.Millisecond))
	if n := probes(epoch); n != 8 {
		t.Errorf("%d probes", n)
	}
	if n := probes(epoch.Add(time.Second)); n != 0 {
		t.Errorf("%d probes of the period before were told again", n)
	}
	g.add(proberReading("i1", "east", quell.ProbeStats{MeanMS: 12, StddevMS: 1, N: 7}), epoch.Add(1100*time.Millisecond))
	if n := probes(epoch.Add(2 * time.Second)); n != 7 {
		t.Errorf("%d probes, want the new ones", n)
	}
}

func TestAProberThatWasTakenAwayCountsNoMore(t *testing.T) {
	g, v := gathering()
	g.add(proberReading("i1", "gone", quell.ProbeStats{MeanMS: 100, StddevMS: 1, N: 8}), epoch.Add(-time.Minute))
	g.add(proberReading("i1", "east", quell.ProbeStats{MeanMS: 10, StddevMS: 1, N: 8}), epoch)
	if p := g.snapshot(epoch, v).Instances[0].Observation.Probe[quell.Network]; p.MeanMS != 10 || p.N != 8 {
		t.Errorf("%+v", p)
	}
	if n := len(g.readings["i1"]); n != 1 {
		t.Errorf("%d senders are kept", n)
	}
}

func TestASilentAgentMakesItsInstanceStale(t *testing.T) {
	play(t, func(r *rig) { r.opts.Service.Guard.StaleAfter = 3 }, func(r *rig) {
		talk := func(seconds int, agents ...string) {
			for range seconds {
				for _, id := range agents {
					reading := agentReading(id, .3)
					reading.Observation.At = time.Now().Add(-time.Hour)
					r.c.Observe(reading, time.Now())
				}
				for _, id := range []string{"i1", "i2"} {
					r.c.Observe(balancerReading(t, id, "east", 5, 6), time.Now())
				}
				r.pass(time.Second)
			}
		}
		stale := func() (ids []string) {
			for _, in := range r.c.Status().Instances {
				if in.Stale {
					ids = append(ids, in.ID)
				}
			}
			return ids
		}
		r.run(0)
		talk(5, "i1", "i2")
		if s := stale(); len(s) > 0 {
			t.Fatalf("%v stale: a remote clock an hour behind was believed", s)
		}
		talk(6, "i1")
		if s := stale(); !slices.Equal(s, []string{"i2"}) {
			t.Fatalf("stale: %v, want i2, whose agent is silent", s)
		}
		talk(2, "i1", "i2")
		if s := stale(); len(s) > 0 {
			t.Errorf("%v still stale", s)
		}
	})
}

func TestReadingsOfInstancesThatAreGoneAreForgotten(t *testing.T) {
	g, v := gathering()
	for _, id := range []string{"i1", "i2", "i3", "never-there"} {
		g.add(agentReading(id, .4), epoch)
	}
	g.snapshot(epoch, v)
	v.members = v.members[:1]
	g.snapshot(epoch, v)
	if len(g.readings) != 1 || len(g.lives) != 1 {
		t.Errorf("%d instances' readings and %d lives are kept", len(g.readings), len(g.lives))
	}
	v.members = append(v.members, quell.Member{ID: "i2", State: quell.Ready})
	if o := g.snapshot(epoch, v).Instances[1].Observation; o != nil {
		t.Errorf("an instance of the same name begins with %+v", o)
	}
}

func TestBadHistogramsAreDroppedAndCounted(t *testing.T) {
	bomb := encoded(t, 5)
	for i := 20; i < len(bomb); i += 7 {
		bomb[i] ^= 1
	}
	for name, data := range map[string][]byte{
		"noise": noise(200), "text": []byte("hello"), "damaged": bomb, "a year": encoded(t, 99*3600*1000),
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			g, v := gathering()
			g.bad.Logger = slog.New(slog.NewTextHandler(&said, nil))
			bad := balancerReading(t, "i1", "east", 5)
			bad.LatencyHDR = data
			g.add(bad, epoch)
			g.add(balancerReading(t, "i1", "west", 7), epoch)
			for range 2 {
				if l := g.snapshot(epoch, v).Instances[0].Observation.LatencyMS; l.N != 1 || !near(*l.Mean, 7, .01) {
					t.Errorf("%+v, want what the good one says", l)
				}
			}
			if _, rejected := g.totals(); rejected != 1 {
				t.Errorf("%d rejected, want 1", rejected)
			}
			if !strings.Contains(said.String(), "east") || strings.Count(said.String(), "dropped a reading") != 1 {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Whatever valid readings say together, the snapshot can be written, and keeps its own rules.
func TestSnapshotsAreValid(t *testing.T) {
	whole := encoded(t, 5, 8)
	histograms := [][]byte{nil, whole, whole[:len(whole)-4]} // the last is cut off behind its header
	rapid.Check(t, func(t *rapid.T) {
		g, v := gathering()
		for i := range v.members {
			b := v.backends[v.members[i].ID]
			b.Weight = rapid.Float64Range(0, 1e6).Draw(t, "weight")
			b.Healthy = rapid.Bool().Draw(t, "healthy")
			b.Draining = rapid.Bool().Draw(t, "draining")
			v.backends[b.ID] = b
		}
		for range rapid.IntRange(0, 12).Draw(t, "readings") {
			r := quell.Reading{
				Service: "shop", Instance: rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "instance"),
				Source: rapid.SampledFrom(quell.Sources).Draw(t, "source"), Sender: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "sender"),
				Requests: rapid.Int64Range(0, math.MaxInt64).Draw(t, "requests"), LatencyHDR: rapid.SampledFrom(histograms).Draw(t, "latency"),
			}
			r.Observation.Utilization = map[quell.Resource]float64{quell.Network: rapid.Float64Range(0, 2).Draw(t, "use")}
			r.Observation.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {
				MeanMS: rapid.Float64Range(0, 1e9).Draw(t, "probe"), StddevMS: rapid.Float64Range(0, 1e9).Draw(t, "spread"),
				N: rapid.IntRange(1, math.MaxInt).Draw(t, "n"),
			}}
			if rapid.Bool().Draw(t, "rated") {
				r.Observation.RequestRate = at(rapid.Float64Range(0, 1e11).Draw(t, "rate"))
				r.Observation.ErrorRate = at(rapid.Float64Range(0, 1).Draw(t, "errors"))
			}
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			g.add(r, epoch.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, "ago"))*time.Second))
		}
		s := g.snapshot(epoch, v)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStates(t *testing.T) {
	startup := testService().Group.Startup
	type seen struct {
		after   time.Duration
		healthy bool
		weight  float64
	}
	for _, c := range []struct {
		name string
		seen []seen
		want quell.State
	}{
		{"well", []seen{{0, true, .5}}, quell.Ready},
		{"well, without weight", []seen{{0, true, 0}}, quell.Ready},
		{"new", []seen{{0, false, 0}, {startup, false, 0}}, quell.Starting},
		{"not well in time", []seen{{0, false, 0}, {startup + 1, false, 0}}, quell.Failed},
		{"well late", []seen{{0, false, 0}, {startup + 1, true, 0}}, quell.Ready},
		{"not well although it gets traffic", []seen{{0, false, .5}}, quell.Failed},
		{"no longer well", []seen{{0, true, .5}, {time.Second, false, .5}}, quell.Failed},
		{"no longer well, and its weight taken", []seen{{0, true, .5}, {time.Second, false, 0}}, quell.Failed},
		{"well again", []seen{{0, true, .5}, {time.Second, false, 0}, {2 * time.Second, true, 0}}, quell.Ready},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, v := gathering()
			var got quell.State
			for _, s := range c.seen {
				v.backends["i1"] = quell.BackendState{Backend: quell.Backend{ID: "i1", Weight: s.weight}, Healthy: s.healthy}
				got = g.snapshot(epoch.Add(s.after), v).Instances[0].State
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		name   string
		change func(*view)
		want   quell.State
	}{
		{"the balancer does not have it", func(v *view) { delete(v.backends, "i1") }, quell.Starting},
		{"the scaler starts it", func(v *view) { v.members[0].State = quell.Starting }, quell.Starting},
		{"it exited", func(v *view) { v.members[0].State = quell.Failed }, quell.Failed},
		{"the scaler ends it", func(v *view) { v.members[0].State = quell.Draining }, quell.Draining},
		{"it is to drain", func(v *view) { v.leaving = map[string]time.Time{"i1": epoch} }, quell.Draining},
		{"it was to drain and exited", func(v *view) {
			v.leaving, v.members[0].State = map[string]time.Time{"i1": epoch}, quell.Failed
		}, quell.Failed},
		{"the balancer drains it", func(v *view) {
			v.backends["i1"] = quell.BackendState{Backend: quell.Backend{ID: "i1", Draining: true}, Healthy: true}
		}, quell.Draining},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, v := gathering()
			c.change(&v)
			if got := g.snapshot(epoch, v).Instances[0].State; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestWeightsReadBackAreAWhole(t *testing.T) {
	g, v := gathering()
	for id, w := range map[string]float64{"i1": 30, "i2": 90} {
		v.backends[id] = quell.BackendState{Backend: quell.Backend{ID: id, Weight: w}, Healthy: true}
	}
	s := g.snapshot(epoch, v)
	if *s.Instances[0].Weight != .25 || *s.Instances[1].Weight != .75 {
		t.Errorf("%v and %v of percents", *s.Instances[0].Weight, *s.Instances[1].Weight)
	}
	for id := range v.backends {
		v.backends[id] = quell.BackendState{Backend: quell.Backend{ID: id}, Healthy: true}
	}
	if s := g.snapshot(epoch, v); s.Instances[0].Weight != nil {
		t.Errorf("weight %v where there is none", *s.Instances[0].Weight)
	}
}
