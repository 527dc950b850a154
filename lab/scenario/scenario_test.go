package scenario

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

func ptr[T any](v T) *T { return &v }

// noisy is a valid scenario in which load and interference change.
func noisy() *Scenario {
	service := quell.DefaultService()
	service.Name = "noisy"
	service.SLO = quell.SLO{Metric: quell.Mean, Threshold: 30 * time.Millisecond}
	return &Scenario{
		Name: "noisy", Seed: 1, Duration: 90 * time.Second, Service: service,
		Hosts: []Host{
			{ID: "h1", Network: 40e6, Cores: 1, DiskIOPS: 1000, Memory: 1},
			{ID: "h2", Network: 40e6, Cores: 1, DiskIOPS: 1000, Memory: 1},
		},
		Instances: Instances{Start: 1, Fixed: 2},
		Workload:  Workload{Kind: File, Arrivals: Poisson, Size: 50000, Load: 0.8},
		Timeline: []Event{
			{At: 20 * time.Second, Load: ptr(1.4), Mark: "load-up"},
			{At: 35 * time.Second, Interfere: &Interference{Host: "h1", Resource: quell.Network, Use: 0.4}, Mark: "noise"},
			{At: 35 * time.Second, Interfere: &Interference{Host: "h1", Resource: quell.CPU, Use: 0.2}},
			{At: 70 * time.Second, Interfere: &Interference{Host: "h1", Resource: quell.Network}},
		},
		Runs: []Run{{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn},
			{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}},
		Judge: DefaultJudging(),
	}
}

func TestTimeline(t *testing.T) {
	s := noisy()
	for _, c := range []struct {
		at   time.Duration
		load float64
		h1   map[quell.Resource]float64
	}{
		{0, 0.8, nil},
		{20*time.Second - 1, 0.8, nil},
		{20 * time.Second, 1.4, nil}, // an event applies from its own time on
		{35 * time.Second, 1.4, map[quell.Resource]float64{quell.Network: 0.4, quell.CPU: 0.2}},
		{70 * time.Second, 1.4, map[quell.Resource]float64{quell.CPU: 0.2}}, // the interference that has ended is absent; the other one continues
		{time.Hour, 1.4, map[quell.Resource]float64{quell.CPU: 0.2}},
	} {
		if got := s.LoadAt(c.at); got != c.load {
			t.Errorf("load at %v: %v, want %v", c.at, got, c.load)
		}
		if got := s.InterferenceAt("h1", c.at); !maps.Equal(got, c.h1) {
			t.Errorf("interference at %v: %v, want %v", c.at, got, c.h1)
		}
		if got := s.InterferenceAt("h2", c.at); len(got) > 0 {
			t.Errorf("interference of the other host at %v: %v, want none", c.at, got)
		}
	}
}

func TestRates(t *testing.T) {
	s := noisy()
	if got := s.RatePerSecond(0.8); got != 80 { // 0.8 * 40 Mbit/s / 400 kbit
		t.Errorf("rate at load 0.8: %v, want 80", got)
	}
	s.Timeline = append(s.Timeline,
		Event{At: 75 * time.Second, Load: ptr(1.4)}, // no change, no step
		Event{At: 80 * time.Second, Load: ptr(0.5)},
		Event{At: 80 * time.Second, Load: ptr(0.6)})
	want := []RateStep{{0, 80}, {20 * time.Second, 140}, {80 * time.Second, 60}}
	for i, step := range s.Rates() {
		if i >= len(want) || step.At != want[i].At || math.Abs(step.PerSecond-want[i].PerSecond) > 1e-9 {
			t.Fatalf("rates %v, want %v", s.Rates(), want)
		}
	}
	if len(s.Rates()) != len(want) {
		t.Errorf("rates %v, want %v", s.Rates(), want)
	}
}

func TestRatesFollowLoadAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := noisy()
		s.Timeline = nil
		at := time.Duration(0)
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			at += time.Duration(rapid.IntRange(0, 3).Draw(t, "gap")) * time.Second
			s.Timeline = append(s.Timeline, Event{At: at, Load: ptr(float64(rapid.IntRange(0, 3).Draw(t, "load")))})
		}
		now := time.Duration(rapid.IntRange(0, 30).Draw(t, "now")) * time.Second
		steps := s.Rates()
		i := 0
		for i+1 < len(steps) && steps[i+1].At <= now {
			i++
		}
		if want := s.RatePerSecond(s.LoadAt(now)); steps[i].PerSecond != want {
			t.Fatalf("rate at %v is %v by steps %v, want %v", now, steps[i].PerSecond, steps, want)
		}
	})
}

func TestMarks(t *testing.T) {
	s := noisy()
	s.Timeline[2].Mark = "cpu-noise" // at the same moment as another mark
	if got, want := s.Marks(), []time.Duration{20 * time.Second, 35 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("marks %v, want %v", got, want)
	}
}

func TestValidateAcceptsSoundScenario(t *testing.T) {
	if err := noisy().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesEachBreach(t *testing.T) {
	for want, breach := range map[string]func(*Scenario){
		"scenario: must name":                             func(s *Scenario) { s.Name = "" },
		"duration: must be above zero":                    func(s *Scenario) { s.Duration = 0 },
		"service.slo.threshold: must be above":            func(s *Scenario) { s.Service.SLO.Threshold = 0 },
		"service.slo.metric: unknown metric":              func(s *Scenario) { s.Service.SLO.Metric = "p42" },
		"service.group.min: 3 instances need":             func(s *Scenario) { s.Service.Group.Min = 3 },
		"hosts: must define":                              func(s *Scenario) { s.Hosts = nil },
		`hosts[1].id: host "h1" is defined twice`:         func(s *Scenario) { s.Hosts[1].ID = "h1" },
		"hosts[0].id: must name":                          func(s *Scenario) { s.Hosts[0].ID = "" },
		"hosts[0].network: must be between":               func(s *Scenario) { s.Hosts[0].Network = math.NaN() },
		"hosts[0].cores: must be between":                 func(s *Scenario) { s.Hosts[0].Cores = math.Inf(1) },
		"hosts[1].disk_iops: must be between":             func(s *Scenario) { s.Hosts[1].DiskIOPS = 0 },
		"hosts[1].memory: must be between":                func(s *Scenario) { s.Hosts[1].Memory = -1 },
		"instances.start: must be at least 1, is 0":       func(s *Scenario) { s.Instances.Start = 0 },
		"instances.start: 3 instances need a host":        func(s *Scenario) { s.Instances.Start = 3 },
		"instances.fixed: must be at least 1, is 0":       func(s *Scenario) { s.Instances.Fixed = 0 },
		"instances.startup: must not be negative":         func(s *Scenario) { s.Instances.Startup = -1 },
		"instances.weights: must sum to 100%, sum to 80%": func(s *Scenario) { s.Instances.Weights = []float64{.5, .3} },
		"instances.weights[1]: must be a fraction":        func(s *Scenario) { s.Instances.Weights = []float64{1.5, -.5} },
		"instances.weights: are held in groups of fixed": func(s *Scenario) {
			s.Instances.Weights, s.Runs = []float64{1}, []Run{{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}}
		},
		"warm_up: must be at least 20s with instances": func(s *Scenario) { s.Instances.Weights = []float64{1} },
		"instances.weights: has 1 weights, and runs[0]": func(s *Scenario) {
			s.Instances.Weights, s.Runs = []float64{1}, []Run{{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn, Fixed: 2}}
		},
		"instances.weights: cannot be held by the balancer": func(s *Scenario) {
			s.Instances.Weights = []float64{1}
			s.Runs = []Run{{Policy: quell.Policy{Name: "static"}, Scheduling: quell.Random2, Fixed: 1, Balancer: Envoy}}
		},
		"workload.kind: unknown kind":                      func(s *Scenario) { s.Workload.Kind = "movie" },
		"workload.arrivals: unknown arrival":               func(s *Scenario) { s.Workload.Arrivals = "surging" },
		"workload.size: must be at least":                  func(s *Scenario) { s.Workload.Size = 0 },
		"workload.load: must be finite":                    func(s *Scenario) { s.Workload.Load = math.NaN() },
		"timeline[0].load: must be finite":                 func(s *Scenario) { s.Timeline[0].Load = ptr(math.Inf(1)) },
		"timeline[0].at: must not be negative":             func(s *Scenario) { s.Timeline[0].At = -1 },
		"timeline[0]: does nothing":                        func(s *Scenario) { s.Timeline[0] = Event{} },
		"timeline[3].at: 10s comes after 35s":              func(s *Scenario) { s.Timeline[3].At = 10 * time.Second },
		"timeline[3].at: 1m31s is after the end":           func(s *Scenario) { s.Timeline[3].At = 91 * time.Second },
		`timeline[1].interfere.host: unknown host "h9"`:    func(s *Scenario) { s.Timeline[1].Interfere.Host = "h9" },
		"timeline[1].interfere.resource: unknown":          func(s *Scenario) { s.Timeline[1].Interfere.Resource = "gpu" },
		"timeline[1].interfere.use: must be between":       func(s *Scenario) { s.Timeline[1].Interfere.Use = 1.1 },
		"timeline[2].interfere: is set twice at 35s":       func(s *Scenario) { s.Timeline[2].Interfere.Resource = quell.Network },
		"runs: must hold at least one run":                 func(s *Scenario) { s.Runs = nil },
		"runs[1]: is the same as runs[0]":                  func(s *Scenario) { s.Runs[1] = s.Runs[0] },
		"runs[0].balancer: envoy plays only policy static": func(s *Scenario) { s.Runs[0].Balancer, s.Runs[0].Policy.Name = Envoy, "prima" },
		"runs[0].policy: must name a policy":               func(s *Scenario) { s.Runs[0].Policy.Name = "" },
		"runs[0].scheduling: unknown scheduling":           func(s *Scenario) { s.Runs[0].Scheduling = "fastest" },
		"runs[0].fixed: must not be negative":              func(s *Scenario) { s.Runs[0].Fixed = -1 },
		"runs[0].fixed: 3 instances need a host each":      func(s *Scenario) { s.Runs[0].Fixed = 3 },
		"judge.window: must be above zero":                 func(s *Scenario) { s.Judge.Window = 0 },
		"judge.requests: must be at least 1":               func(s *Scenario) { s.Judge.Requests = 0 },
		"timeline[1].load: is set twice at 35s": func(s *Scenario) {
			s.Timeline[1].Load, s.Timeline[0] = ptr(1.0), Event{At: 35 * time.Second, Load: ptr(2.0)}
		},
	} {
		s := noisy()
		breach(s)
		err := s.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
			continue
		}
		var invalid *quell.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%q is no InvalidError", want)
		}
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	s := noisy()
	s.Duration, s.Instances.Start, s.Runs = 0, 0, nil
	err := s.Validate()
	for _, want := range []string{"duration:", "instances.start:", "runs:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func TestUserStepsFollowTheTimeline(t *testing.T) {
	at := func(seconds int, users int) Event {
		return Event{At: time.Duration(seconds) * time.Second, Users: &users}
	}
	s := &Scenario{Workload: Workload{Kind: Users, Users: 5}, Timeline: []Event{at(0, 7), {At: time.Second}, at(2, 7), at(3, 0), at(9, 2)}}
	want := []UserStep{{0, 7}, {3 * time.Second, 0}, {9 * time.Second, 2}}
	if got := s.UserSteps(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
