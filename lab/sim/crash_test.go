package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
)

// crashing is a scenario with four machines and a load of 2.9 machines: 290 evenly spaced requests a second. One machine crashes after 20
// s.
func crashing(t *testing.T, policy string, models *model.Models) *simulation {
	t.Helper()
	sc := plainScenario(8, 2.9/8, 40e6, 40*time.Second)
	sc.Workload.Arrivals, sc.Service.Sampling = scenario.Deterministic, time.Second
	sc.Service.SLO.Threshold = 40 * time.Millisecond
	sc.Instances = scenario.Instances{Start: 5, Fixed: 5, Startup: time.Second}
	s, err := newSimulation(Options{
		Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: policy}, Scheduling: quell.LeastConn}, Models: models,
		Failures: []Failure{{Host: "h1", At: 20*time.Second + 700*time.Millisecond}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The offered load counts each request once. It is not counted again if its instance crashes, or if a new instance was there for only a
// part of the window.
func TestArrivalsAreCountedOnce(t *testing.T) {
	s := crashing(t, "static", nil)
	offered := s.Scenario.RatePerSecond(2.9)
	var looks int
	var look func()
	look = func() {
		s.w.agenda.add(s.w.now+0.1, look)
		rate := s.snapshot().ArrivalRate
		if rate == nil {
			t.Fatalf("%.1f s after the beginning nobody counts arrivals", s.w.now-s.zero)
		}
		if math.Abs(*rate-offered) > 0.02*offered {
			t.Errorf("%.1f s after the beginning %.0f requests a second come, want %.0f", s.w.now-s.zero, *rate, offered)
		}
		looks++
	}
	s.w.agenda.add(s.zero, look)
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if started := len(s.instances); started != 6 || looks < 400 {
		t.Errorf("%d instances were started, %d looks", started, looks)
	}
}

// One machine crashes, one is replaced.
func TestOneCrashOneReplacement(t *testing.T) {
	models := prepared(t, crashing(t, "static", nil).Scenario)
	s := crashing(t, "prima", models)
	before := 0
	s.w.agenda.add(s.zero+20, func() { before = len(s.instances) })
	after := 0
	s.w.agenda.add(s.zero+26, func() { after = len(s.instances) })
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after-before != 1 {
		t.Errorf("%d instances were started within 5 s of the crash of one", after-before)
	}
}
