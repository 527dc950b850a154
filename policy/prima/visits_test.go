package prima

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// TestComing: how many neighbours may come within 14 s.
func TestComing(t *testing.T) {
	for _, tc := range []struct {
		why  string
		seen visitors
		calm int
		want float64
	}{
		{"nobody has come in a day: hardly one", visitors{CalmS: 86_400}, 10, 0.12},
		{"nothing was seen yet: one in 600 s beside each of three", visitors{}, 3, 0.85},
		{"one in 25 s beside each of 60: 25, and three deviations more", visitors{CalmS: 25_000, Came: 1000, Taken: 500}, 60, 36.5},
		{"no more than there are", visitors{CalmS: 10, Came: 1000}, 2, 2},
		{"no instance without neighbours", visitors{CalmS: 10, Came: 10}, 0, 0},
	} {
		if got := tc.seen.Coming(tc.calm, 14*time.Second); math.Abs(got-tc.want) > 0.1*tc.want+0.05 {
			t.Errorf("%s: %.2f, want %.2f", tc.why, got, tc.want)
		}
	}
	if got := (visitors{Came: 3, Taken: 1.2}).Taking(); math.Abs(got-1.7/4) > 1e-9 {
		t.Errorf("a neighbour takes %v, want 0.425", got)
	}
}

// TestVisitsAreCounted: a neighbour counts once when it comes, and again after it was gone.
func TestVisitsAreCounted(t *testing.T) {
	e := pooledEngine(t, pooledModels(0.9, 0.9))
	var st policy.State
	for period, taken := range []float64{0, 0.5, 0.5, 0, 0, 0.4, 0.4} {
		s := together(4, 0.3, taken)
		s.At = s.At.Add(time.Duration(period) * 10 * time.Second)
		for i := range s.Instances {
			s.Instances[i].Observation.At = s.At
		}
		_, st = e.Decide(s, st)
	}
	seen := st.Memory.(*memory).Visits[quell.Network]
	if seen.Came != 2 || math.Abs(seen.Taken-0.9) > 0.02 || seen.CalmS < 200 {
		t.Errorf("%+v, want 2 that took 0.9 in sum", seen)
	}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var again policy.State
	if err := restore(text, &again); err != nil || !reflect.DeepEqual(again.Memory, st.Memory) {
		t.Errorf("stored and read back: %+v, %v", again.Memory, err)
	}
}

// TestReserve: where neighbours often come, more instances stay.
func TestReserve(t *testing.T) {
	size := func(seen visitors) int {
		mem := &memory{Seen: keptFor, Visits: visits{quell.Network: seen}}
		plan, _ := pooledEngine(t, pooledModels(0.9, 0.9)).Decide(together(20, 0.3), policy.State{Policy: all.Default(), Memory: mem})
		if plan.Group == nil {
			return 20
		}
		return 20 - len(plan.Group.Remove)
	}
	peace, storm := size(visitors{CalmS: 100_000}), size(visitors{CalmS: 100_000, Came: 4000, Taken: 2000})
	if peace > 9 || storm < peace+2 {
		t.Errorf("load 6: %d instances are kept without neighbours, and %d where they often come", peace, storm)
	}
}

// TestReserveInEitherUnit: of two types of instances, one carries twice as many requests. As much stays in reserve in units of either one.
func TestReserveInEitherUnit(t *testing.T) {
	kept := func(base string) int {
		types := map[string]*model.Law{}
		for kind, perRequest := range map[string]float64{"small": 0.01, "big": 0.005} {
			law := *pooledModels(0.9, 0.9).Live()[quell.Network][model.AnyType]
			law.PerRequest, law.Base = perRequest, kind == base
			types[kind] = &law
		}
		s := together(20, 0.3)
		for i := range s.Instances {
			s.Instances[i].Type = []string{"small", "big"}[i%2]
		}
		mem := &memory{Seen: keptFor, Visits: visits{quell.Network: {CalmS: 100_000, Came: 4000, Taken: 2000}}}
		models := &model.Models{Sections: []model.Section{model.Live{quell.Network: types}}}
		plan, _ := pooledEngine(t, models).Decide(s, policy.State{Policy: all.Default(), Memory: mem})
		if plan.Group == nil {
			t.Fatalf("loads in units of %s: no instance goes: %v", base, plan.Reasons)
		}
		return len(s.Instances) - len(plan.Group.Remove)
	}
	if small, big := kept("small"), kept("big"); small != big {
		t.Errorf("with loads in units of small ones %d instances are kept, in units of big ones %d", small, big)
	}
}

// TestStorm: a group beside whose instances neighbours come all the time stays one station, so that its predictions are those of its data.
func TestStorm(t *testing.T) {
	mem := &memory{Visits: visits{quell.Network: {CalmS: 25_000, Came: 1000, Taken: 500}}}
	plan, _ := pooledEngine(t, pooledModels(0.9, 0.9)).Decide(together(4, 0.5), policy.State{Policy: all.Default(), Memory: mem})
	if got := plan.Capacity["i01"]; got < 0.8 {
		t.Errorf("in a storm an instance carries %.3f, alone it carries 0.75", got)
	}
}

// TestReserveOfALargestGroup: a group that cannot grow, and carries the load without any reserve, shares it by what each instance carries
// now.
func TestReserveOfALargestGroup(t *testing.T) {
	mem := &memory{Budget: budget.Slack{Held: 0.4}}
	s := together(30, 0.5, 0.3, 0.3, 0.3)
	plan, _ := pooledEngine(t, pooledModels(0.9, 0.9)).Decide(s, policy.State{Policy: all.Default(), Memory: mem})
	shares, capacities := plan.Weights["i01"]/plan.Weights["i10"], plan.Capacity["i01"]/plan.Capacity["i10"]
	if math.Abs(shares-capacities) > 0.02 || capacities > 0.75 {
		t.Errorf("the share beside a neighbour is %.2f of another one's, and its capacity %.2f: %+v", shares, capacities, plan.Reasons)
	}
}

// TestShortGroupsAreShared: if a group cannot keep the objective together, nobody gets more than at the lowest threshold that it can keep.
func TestShortGroupsAreShared(t *testing.T) {
	s := together(3, 0.2, 0.78, 0.78)
	s.Instances[2].Observation.Utilization[quell.Network] = 0.7
	plan := pooledPlan(t, pooledModels(0.9, 0.9), s)
	if got := plan.Weights["i03"]; got > 0.75 || got < 0.5 {
		t.Errorf("beside two of three neighbours take 0.78, load 1.1: the third gets %.2f of it: %v", got, plan.Weights)
	}
}
