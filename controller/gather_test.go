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
	"github.com/quellhq/quell/life"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// gathering is a gather of one service sampled every second, whose members are i1 and i2.
func gathering() (*gather, view) {
	v := view{View: life.View{Backends: map[string]quell.BackendState{}}}
	for _, id := range []string{"i1", "i2"} {
		v.Members = append(v.Members, quell.Member{ID: id, State: quell.Ready})
		v.Backends[id] = quell.BackendState{Backend: quell.Backend{ID: id, Weight: .5}, Healthy: true}
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

// balancerReading is a reading of requests with the given times in milliseconds.
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
		want  int // seconds ago; -1 if unknown
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
	v.Members = v.Members[:1]
	g.snapshot(epoch, v)
	if len(g.readings) != 1 || len(g.lives) != 1 {
		t.Errorf("%d instances' readings and %d lives are kept", len(g.readings), len(g.lives))
	}
	v.Members = append(v.Members, quell.Member{ID: "i2", State: quell.Ready})
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

// Whatever valid readings are merged, the snapshot is valid and can be encoded.
func TestSnapshotsAreValid(t *testing.T) {
	whole := encoded(t, 5, 8)
	histograms := [][]byte{nil, whole, whole[:len(whole)-4]} // the last histogram is cut off after its header
	rapid.Check(t, func(t *rapid.T) {
		g, v := gathering()
		for i := range v.Members {
			b := v.Backends[v.Members[i].ID]
			b.Weight = rapid.Float64Range(0, 1e6).Draw(t, "weight")
			b.Healthy = rapid.Bool().Draw(t, "healthy")
			b.Draining = rapid.Bool().Draw(t, "draining")
			v.Backends[b.ID] = b
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
				v.Backends["i1"] = quell.BackendState{Backend: quell.Backend{ID: "i1", Weight: s.weight}, Healthy: s.healthy}
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
		{"the balancer does not have it", func(v *view) { delete(v.Backends, "i1") }, quell.Starting},
		{"the scaler starts it", func(v *view) { v.Members[0].State = quell.Starting }, quell.Starting},
		{"it exited", func(v *view) { v.Members[0].State = quell.Failed }, quell.Failed},
		{"the scaler ends it", func(v *view) { v.Members[0].State = quell.Draining }, quell.Draining},
		{"it is to drain", func(v *view) { v.Leaving = map[string]time.Time{"i1": epoch} }, quell.Draining},
		{"it was to drain and exited", func(v *view) {
			v.Leaving, v.Members[0].State = map[string]time.Time{"i1": epoch}, quell.Failed
		}, quell.Failed},
		{"the balancer drains it", func(v *view) {
			v.Backends["i1"] = quell.BackendState{Backend: quell.Backend{ID: "i1", Draining: true}, Healthy: true}
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
		v.Backends[id] = quell.BackendState{Backend: quell.Backend{ID: id, Weight: w}, Healthy: true}
	}
	s := g.snapshot(epoch, v)
	if *s.Instances[0].Weight != .25 || *s.Instances[1].Weight != .75 {
		t.Errorf("%v and %v of percents", *s.Instances[0].Weight, *s.Instances[1].Weight)
	}
	for id := range v.Backends {
		v.Backends[id] = quell.BackendState{Backend: quell.Backend{ID: id}, Healthy: true}
	}
	if s := g.snapshot(epoch, v); s.Instances[0].Weight != nil {
		t.Errorf("weight %v where there is none", *s.Instances[0].Weight)
	}
}
