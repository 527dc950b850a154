package prima

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// budgetedService is a service that PRIMA runs under a target of 99%.
func budgetedService() quell.Service {
	s := learningService("prima")
	s.SLO.Target, s.SLO.Of, s.SLO.Over = 0.99, quell.OfTime, 7*24*time.Hour
	s.Group.Min, s.Group.Max, s.Group.Fixed = 1, 3, false
	tell(&s, "Resources", policy.ResourcesOf(quell.CPU))
	return s
}

// budgeted plays periods of three instances with a use each, and returns the last plan, what was said, and the memory.
func budgeted(t *testing.T, s quell.Service, st policy.State, from, periods int, change func(*quell.Snapshot)) (plan quell.Plan,
	said map[string]int, next policy.State) {
	t.Helper()
	e, err := all.NewLearningEngine(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	said = map[string]int{}
	for k := range periods {
		snapshot := micros(from+k, 0.3+0.02*float64(k%11), [3]float64{100, 100, 100})
		if change != nil {
			change(snapshot)
		}
		plan, st = e.Decide(snapshot, st)
		for _, r := range plan.Reasons {
			said[r.Code]++
		}
	}
	return plan, said, st
}

// With a target the reserve is found and shown. With a headroom that a person set, or without a target, nothing of it is there.
func TestTheReserveIsFoundOnlyWithATarget(t *testing.T) {
	plan, said, _ := budgeted(t, budgetedService(), policy.State{}, 0, 60, nil)
	if plan.Reserve == nil || plan.Reserve.Share <= 0 || plan.Reserve.Share > 0.5 || plan.Reserve.Why == "" || said["reserve"] == 0 {
		t.Errorf("%+v, said %v", plan.Reserve, said)
	}
	fixed := budgetedService()
	tell(&fixed, "Headroom", 0.8)
	without := budgetedService()
	without.SLO.Target = 0
	for name, s := range map[string]quell.Service{"fixed": fixed, "without a target": without} {
		if plan, said, _ := budgeted(t, s, policy.State{}, 0, 60, nil); plan.Reserve != nil || said["reserve"] != 0 {
			t.Errorf("%s: %+v, %v", name, plan.Reserve, said)
		}
	}
}

// What a person, a replacement, a failure or silence distorts teaches nothing.
func TestDistortedPeriodsTeachNothing(t *testing.T) {
	s := budgetedService()
	_, _, st := budgeted(t, s, policy.State{}, 0, 60, nil)
	taught := st.Memory.(*memory).Reserve.Found.Judged
	if taught == 0 {
		t.Fatal("sixty periods taught nothing")
	}
	slow := func(x *quell.Snapshot) {
		for i := range x.Instances {
			ms := 10 * s.SLO.ThresholdMS()
			x.Instances[i].Observation.LatencyMS.Set(s.SLO.Metric, ms)
		}
	}
	half, failed := 0.5, 0.5
	for name, change := range map[string]func(*quell.Snapshot){
		"paused":      func(x *quell.Snapshot) { x.Excluded = "paused by ann" },
		"set by hand": func(x *quell.Snapshot) { x.Instances[0].Override = &half },
		"held":        func(x *quell.Snapshot) { x.Instances[0].Held = &quell.Held{By: "ann"} },
		"failing":     func(x *quell.Snapshot) { x.Instances[0].Observation.ErrorRate = &failed },
		"replaced":    func(x *quell.Snapshot) { x.Instances[0].Replaces = "i2" },
		"silent":      func(x *quell.Snapshot) { x.Instances[0].Observation = nil },
		"unmeasured": func(x *quell.Snapshot) {
			for i := range x.Instances {
				x.Instances[i].Observation.LatencyMS = nil
			}
		},
	} {
		_, _, after := budgeted(t, s, st, 60, 10, func(x *quell.Snapshot) {
			slow(x)
			change(x)
		})
		// readings that have just stopped are still the newest for a few periods
		if got := after.Memory.(*memory).Reserve.Found.Judged; got > taught+30 && name == "silent" || got != taught &&
			name != "silent" {
			t.Errorf("%s: %v s taught, before %v", name, got, taught)
		}
	}
	_, _, after := budgeted(t, s, st, 60, 1, slow)
	if got := after.Memory.(*memory).Reserve.Found.Judged; got <= taught {
		t.Errorf("a slow period teaches nothing")
	}
}

// A group that is as large as it may be and misses for long says once what would be needed, and once when it no longer does.
func TestOutOfReachIsSaidOnce(t *testing.T) {
	s := budgetedService()
	_, _, st := budgeted(t, s, policy.State{}, 0, 60, nil)
	over := func(x *quell.Snapshot) {
		for i := range x.Instances {
			o := x.Instances[i].Observation
			o.Utilization[quell.CPU] = 0.97
			o.LatencyMS.Set(s.SLO.Metric, 10*s.SLO.ThresholdMS())
		}
	}
	plan, said, st := budgeted(t, s, st, 60, 30, over)
	if said["out_of_reach"] != 1 || plan.Reserve.OutOfReach == "" {
		t.Fatalf("said %v, %+v: %v", said, plan.Reserve, plan.Reasons)
	}
	larger, sooner := s, s
	larger.Group.Max, sooner.SLO.Threshold = 6, 2*s.SLO.Threshold
	for name, changed := range map[string]quell.Service{"twice group.max": larger, "another threshold": sooner} {
		for _, sampling := range []time.Duration{10 * time.Second, time.Minute} {
			changed.Sampling = sampling
			plan, said, after := budgeted(t, changed, reread(t, st), 90, 1, over)
			if r := after.Memory.(*memory).Reserve; plan.Reserve.OutOfReach != "" || said["out_of_reach"] != 0 || r.OverS > 0 {
				t.Errorf("%s: %+v, said %v, %+v", name, plan.Reserve, said, r.Reach)
			}
		}
	}
	if plan, said, _ := budgeted(t, s, reread(t, st), 90, 1, over); plan.Reserve.OutOfReach == "" || said["out_of_reach"] != 0 {
		t.Errorf("after a restart: %+v, said %v", plan.Reserve, said)
	}
	hours := *st.Memory.(*memory) // as some hours later
	hours.Reserve.OverS = 0.001
	st.Memory = &hours
	plan, said, _ = budgeted(t, s, st, 90, 3, nil)
	if said["out_of_reach"] != 0 || said["reserve"] != 1 || plan.Reserve.OutOfReach != "" {
		t.Errorf("afterwards: said %v, %+v", said, plan.Reserve)
	}
}

// A night in which group.min keeps instances that the load does not need says nothing of how far the load rises by day.
func TestANightDoesNotUnlearnTheReserve(t *testing.T) {
	for name, change := range map[string]func(*quell.Service){
		"group.min": func(s *quell.Service) { s.Group.Min = 3 },
		"protected": func(s *quell.Service) { s.Group.Protected = []string{"i1", "i2", "i3"} },
	} {
		s := golden("prima", 75, 1)
		s.Sampling = time.Minute
		s.SLO.Target, s.SLO.Of, s.SLO.Over = 0.99, quell.OfTime, 7*24*time.Hour
		s.Group.Min, s.Group.Max = 1, 3
		tell(&s, "Headroom", 0.0)
		change(&s)
		e, k := engine(t, s, goldenModels(t)), 0
		var st policy.State
		periods := func(n int, use float64) (share float64) {
			for range n {
				var rows []string
				for i := range 3 {
					rows = append(rows, fmt.Sprintf("i%d weight=0.333333333333 use=%.3f sf=0 lat=30", i+1, use*(1+0.01*float64(k%3))))
				}
				var plan quell.Plan
				in := snap(t, k, rows...)
				in.At = start.Add(time.Duration(k+1) * s.Sampling)
				for i := range in.Instances {
					in.Instances[i].Observation.At = in.At
				}
				if plan, st = e.Decide(in, st); plan.Group != nil {
					t.Fatalf("%s: %+v: %v", name, plan.Group, plan.Reasons)
				}
				share, k = plan.Reserve.Share, k+1
			}
			return share
		}
		prior := periods(1, 0.38)
		day := periods(59, 0.38)
		night := periods(8*60, 0.0076)
		if after := periods(1, 0.38); after < day-0.01 || night < day-0.01 || math.Abs(day-prior) > 0.1 {
			t.Errorf("%s: %.3f at first, %.3f by day, %.3f at night, %.3f afterwards", name, prior, day, night, after)
		}
	}
}
