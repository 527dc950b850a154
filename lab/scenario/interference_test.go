package scenario

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// disturbed is a scenario of 100 s with these events on hosts h1 and h2, the group h.
func disturbed(events ...Event) *Scenario {
	s := noisy()
	s.Duration, s.Timeline = 100*time.Second, events
	for i := range s.Hosts {
		s.Hosts[i].Group = "h"
	}
	return s
}

func network(host string, change func(*Interference)) *Interference {
	n := &Interference{Host: host, Resource: quell.Network}
	change(n)
	return n
}

func use(s *Scenario, host string, at time.Duration) float64 {
	return s.InterferenceAt(host, at)[quell.Network]
}

func TestRamp(t *testing.T) {
	s := disturbed(
		Event{Interfere: network("h1", func(n *Interference) { n.Use = 0.2 })},
		Event{At: 20 * time.Second, Interfere: network("h1", func(n *Interference) { n.Use, n.Ramp = 0.6, 20*time.Second })},
		Event{At: 50 * time.Second, Interfere: network("h1", func(n *Interference) { n.Use, n.Ramp = 0, 100*time.Second })})
	for at, want := range map[time.Duration]float64{
		0: 0.2, 20 * time.Second: 0.21, 30 * time.Second: 0.41, 40 * time.Second: 0.6, 49 * time.Second: 0.6,
		99 * time.Second: 0.6 * (1 - 0.475), // cut by the end of the run
	} {
		if got := use(s, "h1", at); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v the use is %v, want %v", at, got, want)
		}
	}
}

func TestTraceEndsWhereTheNextInterferenceBegins(t *testing.T) {
	s := disturbed(
		Event{At: 10 * time.Second, Interfere: network("h1", func(n *Interference) {
			n.Trace = []TracePoint{{time.Second, 0.3}, {5 * time.Second, 0.7}, {30 * time.Second, 0.9}}
		})},
		Event{At: 20 * time.Second, Interfere: network("h1", func(n *Interference) { n.Use = 0.1 })})
	for at, want := range map[time.Duration]float64{
		10 * time.Second: 0, 11 * time.Second: 0.3, 15 * time.Second: 0.7, 20 * time.Second: 0.1, 60 * time.Second: 0.1,
	} {
		if got := use(s, "h1", at); got != want {
			t.Errorf("at %v the use is %v, want %v", at, got, want)
		}
	}
}

func TestFixedTurns(t *testing.T) {
	s := disturbed(Event{At: 10 * time.Second, Interfere: network("h1", func(n *Interference) {
		n.Use, n.On, n.Off, n.Lengths = 0.5, 4*time.Second, 6*time.Second, Fixed
	})})
	for at, want := range map[time.Duration]float64{9: 0, 10: 0.5, 13: 0.5, 14: 0, 19: 0, 20: 0.5, 94: 0, 90: 0.5} {
		if got := use(s, "h1", at*time.Second); got != want {
			t.Errorf("at %d s the use is %v, want %v", at, got, want)
		}
	}
}

// share returns the part of a long run in which interference has the given use.
func share(s *Scenario, host string, want func(float64) bool) float64 {
	var held time.Duration
	last := Change{}
	for _, c := range append(s.changesOf(s.Hosts[slices.IndexFunc(s.Hosts, func(h Host) bool { return h.ID == host })], s.Seed),
		Change{At: s.Duration}) {
		if want(last.Use) {
			held += c.At - last.At
		}
		last = c
	}
	return held.Seconds() / s.Duration.Seconds()
}

func TestRandomFormsKeepTheirMeans(t *testing.T) {
	s := disturbed(
		Event{Interfere: network("h1", func(n *Interference) { n.Use, n.On, n.Off = 0.5, 2*time.Second, 6*time.Second })},
		Event{Interfere: network("h2", func(n *Interference) {
			n.Markov = []Stay{{0, 3 * time.Second}, {0.3, 2 * time.Second}, {0.8, time.Second}} // each of these is equally likely to follow
		})})
	s.Duration = 10 * time.Hour
	if got := share(s, "h1", func(u float64) bool { return u == 0.5 }); math.Abs(got-0.25) > 0.02 {
		t.Errorf("on for %.3f of the time, want a quarter", got)
	}
	for level, want := range map[float64]float64{0: 1.0 / 2, 0.3: 1.0 / 3, 0.8: 1.0 / 6} {
		if got := share(s, "h2", func(u float64) bool { return u == level }); math.Abs(got-want) > 0.02 {
			t.Errorf("at %v for %.3f of the time, want %.3f", level, got, want)
		}
	}
}

// Lengths of random times and states are exponential: their standard deviation is their mean, and half of them are shorter than ln 2
// times the mean.
func TestRandomLengthsAreExponential(t *testing.T) {
	for name, n := range map[string]Interference{
		"turns":  {Use: 0.3, On: 2 * time.Second, Off: 2 * time.Second},
		"states": {Markov: []Stay{{0, 2 * time.Second}, {0.3, 2 * time.Second}, {0.8, 2 * time.Second}}},
	} {
		points := n.course(0, 20_000*time.Second, rand.New(rand.NewPCG(1, 1)))
		var sum, squares, below float64
		count := float64(len(points) - 1)
		for i := range points[1:] {
			length := (points[i+1].After - points[i].After).Seconds()
			sum, squares = sum+length, squares+length*length
			if length < 2*math.Ln2 {
				below++
			}
		}
		mean := sum / count
		spread := math.Sqrt(squares/count - mean*mean)
		if math.Abs(mean-2) > 0.1 || math.Abs(spread-mean) > 0.1 || math.Abs(below/count-0.5) > 0.02 {
			t.Errorf("%s: %v lengths of %.2f s, spread %.2f s, %.2f of them below the median of 1.39 s", name, count, mean, spread, below/count)
		}
	}
}

func TestHostsOfAGroupHaveNeighboursOfTheirOwn(t *testing.T) {
	s := disturbed(Event{Interfere: network("h", func(n *Interference) { n.Use, n.On, n.Off = 0.5, time.Second, time.Second })})
	times := func(host string, seed uint64) (at []time.Duration) {
		for _, c := range s.Disturbances(seed) {
			if c.Host == host {
				at = append(at, c.At)
			}
		}
		return at
	}
	if slices.Equal(times("h1", 1), times("h2", 1)) || slices.Equal(times("h1", 1), times("h1", 2)) {
		t.Error("two hosts, or two seeds, have the same neighbour")
	}
	if len(times("h2", 1)) < 20 || !slices.Equal(times("h1", 1), times("h1", 1)) {
		t.Error("one host and one seed have two different neighbours")
	}
}

// Whatever the timeline contains, the list of its changes is ordered by time, lies within the run, has valid uses, and agrees with
// InterferenceAt.
func TestDisturbancesAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events []Event
		at := time.Duration(0)
		for range rapid.IntRange(1, 5).Draw(t, "events") {
			level := rapid.Float64Range(0, 1)
			length := time.Duration(rapid.IntRange(10, 30_000).Draw(t, "length")) * time.Millisecond
			n := network(rapid.SampledFrom([]string{"h", "h1", "h2"}).Draw(t, "host"), func(n *Interference) { n.Use = level.Draw(t, "use") })
			switch rapid.IntRange(0, 4).Draw(t, "form") {
			case 1:
				n.Ramp = length
			case 2:
				n.On, n.Off = length, 2*length
			case 3:
				n.Use, n.Markov = 0, []Stay{{level.Draw(t, "a"), length}, {level.Draw(t, "b"), length}}
			case 4:
				n.Use, n.Trace = 0, []TracePoint{{0, level.Draw(t, "a")}, {length, level.Draw(t, "b")}}
			}
			events = append(events, Event{At: at, Interfere: n})
			at += time.Duration(rapid.IntRange(1, 20).Draw(t, "gap")) * time.Second
		}
		s := disturbed(events...)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		now := time.Duration(rapid.IntRange(0, 100_000).Draw(t, "now")) * time.Millisecond
		last, held := time.Duration(0), map[string]float64{}
		for _, c := range s.Disturbances(s.Seed) {
			if c.At < last || c.At > s.Duration || !(c.Use >= 0 && c.Use <= 1) {
				t.Fatalf("%+v after %v", c, last)
			}
			if last = c.At; c.At <= now {
				held[c.Host] = c.Use
			}
		}
		for _, h := range s.Hosts {
			if got := use(s, h.ID, now); got != held[h.ID] {
				t.Fatalf("%s at %v: %v, by the changes %v", h.ID, now, got, held[h.ID])
			}
		}
	})
}

func TestStretchKeepsTheShape(t *testing.T) {
	s := disturbed(
		Event{At: 10 * time.Second, Interfere: network("h1", func(n *Interference) { n.Use, n.Ramp = 0.4, 20*time.Second })},
		Event{At: 50 * time.Second, Interfere: network("h2", func(n *Interference) { n.Trace = []TracePoint{{5 * time.Second, 0.3}} })})
	s.Workload.Arrivals, s.Workload.Step = Ramp, &Step{40 * time.Second, 2}
	before := s.Disturbances(1)
	s.Stretch(50 * time.Second)
	for i, c := range s.Disturbances(1) {
		before[i].At /= 2
		if !reflect.DeepEqual(c, before[i]) {
			t.Errorf("change %d is %+v, want %+v", i, c, before[i])
		}
	}
	if s.LoadAt(20*time.Second) != 2 || s.LoadAt(19*time.Second) == 2 {
		t.Error("the step in the load is elsewhere")
	}
}

func TestDemandsAndRates(t *testing.T) {
	s := noisy()
	s.Timeline = nil
	s.Workload = Workload{Kind: Classes, Arrivals: Ramp, Load: 0.1, Step: &Step{30 * time.Second, 0.6}, Spread: Fixed, Classes: []Class{
		{Name: "a", Share: 3, CPU: 4 * time.Millisecond, Network: 1000},
		{Name: "b", Share: 1, CPU: 8 * time.Millisecond, Disk: 2, Memory: time.Millisecond},
	}}
	s.Hosts[0].Cores = 2
	want := map[quell.Resource]float64{quell.CPU: 0.0025, quell.Network: 750 * 8 / 40e6, quell.Disk: 0.0005, quell.Memory: 0.00025}
	for r, got := range s.Workload.Demands(s.Hosts[0]) {
		if math.Abs(got-want[r]) > 1e-12 {
			t.Errorf("%s: %v s, want %v", r, got, want[r])
		}
	}
	rates := s.Rates()
	if len(rates) != 2 || math.Abs(rates[0].PerSecond-40) > 1e-9 || rates[1].At != 30*time.Second || math.Abs(rates[1].PerSecond-240) > 1e-9 {
		t.Errorf("rates %v, want 40 and from 30 s on 240: the processors fill at 400", rates)
	}
	s.Workload.Kind, s.Workload.Users, s.Workload.Think = Users, 200, 5*time.Second
	s.Timeline = []Event{{At: 10 * time.Second, Users: ptr(400)}}
	if a, b := s.LoadAt(0), s.LoadAt(10*time.Second); math.Abs(a-0.1) > 1e-9 || math.Abs(b-0.2) > 1e-9 {
		t.Errorf("200 and 400 users offer loads of %v and %v, want 0.1 and 0.2", a, b)
	}
	s.Workload = Workload{Kind: Video, Arrivals: Poisson, Video: DefaultVideo(), Load: 1}
	if got := s.RatePerSecond(1); math.Abs(got-40e6/88e6) > 1e-9 {
		t.Errorf("%v sessions a second fill a link of 40 Mbit/s, want %v", got, 40e6/88e6)
	}
}

func TestValidateNamesEachBreachOfWhatVaries(t *testing.T) {
	classes := func(s *Scenario) *Workload {
		s.Timeline = nil
		s.Workload = Workload{Kind: Classes, Arrivals: Poisson, Load: 1, Spread: Exponential,
			Classes: []Class{{Name: "a", Share: 1, CPU: time.Millisecond}}}
		return &s.Workload
	}
	users := func(s *Scenario) *Workload {
		w := classes(s)
		w.Kind, w.Users, w.Think = Users, 10, time.Second
		return w
	}
	video := func(s *Scenario) *VideoSessions {
		s.Workload = Workload{Kind: Video, Arrivals: Poisson, Load: 1, Video: DefaultVideo()}
		return &s.Workload.Video
	}
	first := func(s *Scenario) *Interference { return s.Timeline[1].Interfere }
	for want, breach := range map[string]func(*Scenario){
		"workload.load: 1e+09 is more than 10 times": func(s *Scenario) { s.Workload.Load = 1e9 },
		"timeline[0].load: 21 is more than 10 times": func(s *Scenario) { s.Timeline[0].Load = ptr(21.0) },
		"interfere: varies in several ways": func(s *Scenario) {
			first(s).Ramp, first(s).On, first(s).Off = time.Second, time.Second,
				time.Second
		},
		"interfere.ramp: must be at least 10ms, is -1s": func(s *Scenario) { first(s).Ramp = -time.Second },
		"interfere.off: must be at least 10ms, is 0s":   func(s *Scenario) { first(s).On = time.Second },
		"interfere.on: must be at least 10ms, is 1ns":   func(s *Scenario) { first(s).On, first(s).Off = 1, time.Second },
		"interfere.markov[0].stay: must be at least":    func(s *Scenario) { first(s).Markov = []Stay{{0.1, 0}} },
		"interfere.markov[1].use: must be between": func(s *Scenario) {
			first(s).Markov = []Stay{{0.1, time.Second},
				{math.NaN(), time.Second}}
		},
		"interfere.trace[0]: time must not be negative": func(s *Scenario) { first(s).Trace = []TracePoint{{-1, 0.1}} },
		"interfere.trace[1]: time must go on":           func(s *Scenario) { first(s).Trace = []TracePoint{{1, 0.1}, {1, 0.1}} },
		`timeline[0].fail.host: unknown host "h9"`:      func(s *Scenario) { s.Timeline[0].Fail = &Failure{"h9"} },
		"timeline[0].users: only a workload of kind":    func(s *Scenario) { s.Timeline[0].Users = ptr(3) },
		"timeline[2].interfere: is set twice at 35s": func(s *Scenario) {
			s.Hosts[0].Group, first(s).Host, s.Timeline[2].Interfere.Resource = "g", "g", quell.Network
		},
		`hosts[1].id: "g" already names a group`:  func(s *Scenario) { s.Hosts[0].Group, s.Hosts[1].ID = "g", "g" },
		`hosts[1].id: "h1" already names a host`:  func(s *Scenario) { s.Hosts[1].Group = "h1" },
		"workload.ramp: goes with arrivals: ramp": func(s *Scenario) { s.Workload.Arrivals = Ramp },
		"workload.ramp.at: 2m0s is after the end": func(s *Scenario) {
			s.Workload.Arrivals, s.Workload.Step = Ramp,
				&Step{2 * time.Minute, 1}
		},
		"workload.ramp.load: must be finite": func(s *Scenario) {
			s.Workload.Arrivals, s.Workload.Step = Ramp,
				&Step{0, math.Inf(1)}
		},
		"timeline[0].load: arrivals: ramp has its own":    func(s *Scenario) { s.Workload.Arrivals, s.Workload.Step = Ramp, &Step{0, 1} },
		"workload.classes: must define at least one":      func(s *Scenario) { classes(s).Classes = nil },
		"workload.classes[0]: wants nothing":              func(s *Scenario) { classes(s).Classes[0].CPU = 0 },
		"workload.classes[0].cpu: must not be negative":   func(s *Scenario) { classes(s).Classes[0].CPU = -1 },
		"workload.classes[0].share: must be above zero":   func(s *Scenario) { classes(s).Classes[0].Share = 0 },
		"workload.classes[0].disk: must be finite":        func(s *Scenario) { classes(s).Classes[0].Disk = math.NaN() },
		`workload.classes[1].name: class "a" is defined`:  func(s *Scenario) { w := classes(s); w.Classes = append(w.Classes, w.Classes[0]) },
		"workload.cache_stretch: must be finite":          func(s *Scenario) { classes(s).CacheStretch = math.Inf(1) },
		"workload.system: must be between 0 and 1":        func(s *Scenario) { classes(s).System = 1.5 },
		"workload.spread: unknown spread":                 func(s *Scenario) { classes(s).Spread = "wide" },
		"workload.users: must be between 0 and":           func(s *Scenario) { users(s).Users = -1 },
		"workload.think: must be at least 1ms":            func(s *Scenario) { users(s).Think = 0 },
		"timeline[0].load: users bring the load":          func(s *Scenario) { users(s); s.Timeline = []Event{{Load: ptr(1.0)}} },
		"timeline[0].users: must be between 0 and":        func(s *Scenario) { users(s); s.Timeline = []Event{{Users: ptr(-1)}} },
		"workload.video.videos: must be between 1":        func(s *Scenario) { video(s).Videos = 0 },
		"workload.video.chunk: must be above zero":        func(s *Scenario) { video(s).Chunk = 0 },
		"workload.video.chunk: 1ns cuts a video into":     func(s *Scenario) { video(s).Chunk = 1 },
		"workload.video.zipf: must be finite":             func(s *Scenario) { video(s).Zipf = math.NaN() },
		"workload.video.prefetch: must be at least 1":     func(s *Scenario) { video(s).Prefetch = 0 },
		"readings.noise: must be between 0 and 1":         func(s *Scenario) { s.Readings.Noise = math.NaN() },
		"readings.lost: must be between 0 and 1, is 1.01": func(s *Scenario) { s.Readings.Lost = 1.01 },
		"readings.late: must not be negative":             func(s *Scenario) { s.Readings.Late = -1 },
		"warm_up: must not be negative":                   func(s *Scenario) { s.WarmUp = -1 },
	} {
		s := noisy()
		breach(s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The number of changes is limited for all events together.
func TestValidateBoundsAllChangesTogether(t *testing.T) {
	s := noisy()
	s.Duration, s.Judge.Window, s.Timeline = 10*time.Hour, time.Minute, nil
	for i := range 5 { // 240,000 changes each
		s.Timeline = append(s.Timeline, Event{At: time.Duration(i), Interfere: &Interference{
			Host: "h1", Resource: quell.Network, Use: 0.1, On: 150 * time.Millisecond, Off: 150 * time.Millisecond,
		}})
	}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "timeline[4].interfere: changes about 2.4e+05 times") {
		t.Errorf("got %v", err)
	}
	s.Timeline = s.Timeline[:4]
	if err := s.Validate(); err != nil {
		t.Errorf("four such events: %v", err)
	}
}

// SetUse changes the use of one kind of neighbour, where there is one, and nothing else.
func TestSetUse(t *testing.T) {
	program := func(use float64) *Interference { return &Interference{Host: "h1", Program: "sort", Use: use} }
	s := disturbed(Event{At: time.Second, Interfere: program(0.2)}, Event{At: 2 * time.Second, Interfere: program(0)},
		Event{At: 3 * time.Second, Interfere: network("h2", func(n *Interference) { n.Use = 0.4 })}, Event{At: 4 * time.Second, Load: new(1.0)})
	before := s.Timeline[0].Interfere
	if !s.SetUse("sort", 0.7) || s.SetUse("compile", 0.5) || s.SetUse("cpu", 0.5) {
		t.Error("found wrongly")
	}
	if before.Use != 0.2 {
		t.Error("the event of another scenario is changed, too")
	}
	var uses []float64
	for _, e := range s.Timeline[:3] {
		uses = append(uses, e.Interfere.Use)
	}
	if !slices.Equal(uses, []float64{0.7, 0, 0.4}) {
		t.Errorf("uses %v", uses)
	}
}
