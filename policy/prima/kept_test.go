package prima

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// seenLong is what prima remembers of a group that was seen for long.
func seenLong() policy.State {
	return policy.State{Policy: all.Default(), Memory: &memory{Seen: keptFor}}
}

// later is a snapshot of a period.
func later(s *quell.Snapshot, period int) *quell.Snapshot {
	s.At = s.At.Add(time.Duration(period) * 10 * time.Second)
	for i := range s.Instances {
		s.Instances[i].Observation.At = s.At
	}
	return s
}

// TestKeptAtFirst: a group that is larger than needed keeps its size until it was seen for some time, and says so.
func TestKeptAtFirst(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.8))
	var st policy.State
	var plan quell.Plan
	for period := 1; period <= keptFor; period++ {
		plan, st = e.Decide(later(together(10, 0.4), period), st)
		if last := period == keptFor; hasReason(plan, "stabilizing", "") == last || last != (plan.Group != nil) {
			t.Fatalf("period %d of %d: %+v: %+v", period, keptFor, plan.Group, plan.Reasons)
		}
	}
	_, st = e.Decide(&quell.Snapshot{At: time.Unix(4000, 0), Service: "s"}, st)
	if plan, _ = e.Decide(later(together(10, 0.4), 500), st); hasReason(plan, "stabilizing", "") {
		t.Error("after a period without any instance the group is kept anew")
	}
	service := learningService(all.Default())
	service.Group = quell.Group{Min: 10, Max: 10, Fixed: true}
	tell(&service, "Pooling", policy.Pooling{Learned: true})
	if plan, _ = engine(t, service, pooledModels(0.9, 0.8)).Decide(together(10, 0.4), policy.State{}); hasReason(plan, "stabilizing", "") {
		t.Errorf("a fixed group is said to be kept: %+v", plan.Reasons)
	}
}

// TestPeriodsThatNobodyMeasured: they are no peace, and no time in which the group was seen.
func TestPeriodsThatNobodyMeasured(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	_, st := e.Decide(later(together(4, 0.3), 1), policy.State{})
	before := st.Memory.(*memory)
	for period := range 40 {
		s := together(4, 0.3)
		s.At = s.At.Add(time.Duration(60+period) * 10 * time.Second)
		_, st = e.Decide(s, st)
	}
	if now := st.Memory.(*memory); now.Visits[quell.Network] != before.Visits[quell.Network] || now.Seen != before.Seen {
		t.Errorf("without readings %+v, %d periods became %+v, %d", before.Visits, before.Seen, now.Visits, now.Seen)
	}
}

// TestReserveStartsNothing: in the first periods a neighbour that nobody saw yet starts no instance.
func TestReserveStartsNothing(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	if plan, _ := e.Decide(together(3, 0.7), policy.State{}); plan.Group != nil {
		t.Errorf("before anything was seen: %+v: %+v", plan.Group, plan.Reasons)
	}
	if plan, _ := e.Decide(together(3, 0.7), seenLong()); plan.Group == nil || plan.Group.Add != 1 {
		t.Errorf("after that one that may come asks for one instance: %+v: %+v", plan.Group, plan.Reasons)
	}
}

// TestBudgetOfALargeGroup: of 200 instances one always misses the objective. That is less than the budget allows, so nothing stays free for
// it, and it does not hide a miss of many.
func TestBudgetOfALargeGroup(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	st := seenLong()
	st.Memory.(*memory).Budget = budget.Slack{Held: 0.01, Episode: budget.LongestMiss}
	decide := func(period, slow int) float64 {
		s := later(together(200, 0.3), period)
		for i := range s.Instances {
			ms := 20.0
			if i < slow {
				ms = 60
			}
			s.Instances[i].Observation.LatencyMS.Mean = &ms
		}
		_, st = e.Decide(s, st)
		return st.Memory.(*memory).Budget.Held
	}
	held := 1.0
	for period := range 20 {
		held = decide(period, 1)
	}
	if held != 0 {
		t.Errorf("one of 200 misses: %.4f stays free", held)
	}
	if held = decide(20, 60); held < 0.05 {
		t.Errorf("then 60 of 200 miss: %.4f stays free", held)
	}
}

// TestMissesBesideNeighbours: what misses the objective beside a neighbour counts twice, and only at its instance.
func TestMissesBesideNeighbours(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	held := func(neighbour float64) float64 {
		s := together(4, 0.3, neighbour)
		for i := range s.Instances {
			ms := 20.0
			if i == 0 {
				ms = 60
			}
			s.Instances[i].Observation.LatencyMS.Mean = &ms
		}
		_, st := e.Decide(s, policy.State{})
		return st.Memory.(*memory).Budget.Held
	}
	if alone, beside := held(0), held(0.5); alone == 0 || math.Abs(beside/alone-besideNeighbours) > 0.01 {
		t.Errorf("one of four that misses: %.4f is left free, beside a neighbour %.4f", alone, beside)
	}
}

// TestOutOfTheRotationIsNotTheGroup: an instance that neighbours leave no capacity and that gets nothing is no part of the group's use, and
// what its probes use asks for no other shares.
func TestOutOfTheRotationIsNotTheGroup(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	s, none := together(4, 0.6, 0.9), 0.0
	s.Instances[0].Weight, s.Instances[0].Observation.Utilization[quell.Network] = &none, 0.002
	for i := 1; i < 4; i++ {
		third := 1.0 / 3
		s.Instances[i].Weight = &third
	}
	plan, _ := e.Decide(s, seenLong())
	three, _ := e.Decide(together(3, 0.6), seenLong())
	if got, want := plan.PredictedMS["i02"], three.PredictedMS["i02"]; math.Abs(got-want) > 0.02*want {
		t.Errorf("beside one that gets nothing three are predicted to take %.1f ms, without it %.1f", got, want)
	}
	if hasReason(plan, "shift", "i01") {
		t.Errorf("%+v", plan.Reasons)
	}
}

// TestATypeWithoutALawOfTheGroup: as long as one type's models do not describe the group as a station, nobody's do.
func TestATypeWithoutALawOfTheGroup(t *testing.T) {
	models := pooledModels(0.9, 0.9)
	laws := models.Live()[quell.Network]
	single := *laws[model.AnyType]
	single.Together = nil
	laws["small"] = &single
	s := together(4, 0.5)
	s.Instances[0].Type = "small"
	plan, _ := pooledEngine(t, models).Decide(s, seenLong())
	if got := plan.Capacity["i02"]; math.Abs(got-0.75) > 0.01 {
		t.Errorf("an instance of the other type carries %.3f, want that of a single one, 0.75", got)
	}
}

// TestLackingIsSearched: a group that lacks thousands asks for them in one decision.
func TestLackingIsSearched(t *testing.T) {
	service := learningService(all.Default())
	service.Group = quell.Group{Min: 1, Max: 5000}
	tell(&service, "Pooling", policy.Pooling{Learned: true})
	tell(&service, "Confirm", 0)
	s := together(500, 0.99)
	for i := range s.Instances {
		s.Instances[i].Observation.Utilization[quell.Network] = 1
	}
	plan, _ := engine(t, service, pooledModels(0.9, 0.9)).Decide(s, policy.State{})
	if plan.Group == nil || plan.Group.Add < 20 || plan.Group.Add > 120 {
		t.Errorf("500 full instances, headroom 90%%: %+v: %+v", plan.Group, plan.Reasons)
	}
}

// TestAGroupGrowsByItsOwnLaw: in a fleet that is one station, what the law of a single instance says of one without load keeps nobody from
// adding instances.
func TestAGroupGrowsByItsOwnLaw(t *testing.T) {
	models := pooledModels(0.9, 0.9)
	models.Live()[quell.Network][model.AnyType].R0MS = 80
	plan, _ := pooledEngine(t, models).Decide(together(3, 0.95), seenLong())
	if plan.Group == nil || plan.Group.Add == 0 {
		t.Errorf("load 2.85 on three that carry 2.3: %+v: %+v", plan.Group, plan.Reasons)
	}
}
