package policy_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// A weight that a person sets is in force at once, whatever guard.step is. The other instances share the rest in the proportions of the
// policy's plan.
func TestOverride(t *testing.T) {
	for _, tc := range []struct {
		why  string
		rows []string
		want string
	}{
		{"the others share the rest in proportion", []string{"a weight=0.2 hand=0.6", "b weight=0.2", "c weight=0.6"},
			"a=0.6 b=0.1 c=0.3 override"},
		{"taken out", []string{"a weight=0.5 hand=0", "b weight=0.5"}, "a=0 b=1 override"},
		{"more than all: scaled down, nothing left", []string{"a weight=0.2 hand=0.5", "b weight=0.2 hand=1", "c weight=0.6"},
			"a=0.333 b=0.667 c=0 override"},
		{"all by hand: scaled up", []string{"a weight=0.5 hand=0.1", "b weight=0.5 hand=0.3"}, "a=0.25 b=0.75 override"},
		{"the only one with weight is taken out: the others share equally", []string{"a weight=1 hand=0", "b weight=0", "c weight=0"},
			"a=0 b=0.5 c=0.5 override"},
		{"half of the only one with weight", []string{"a weight=1 hand=0.5", "b weight=0"}, "a=0.5 b=0.5 override"},
		{"none may be left: not in force", []string{"a weight=0.5 hand=0", "b weight=0.5 hand=0"}, "a=0.5 b=0.5 override"},
		{"errors do not stop a person", []string{"a weight=0.1 hand=0.5 err=1", "b weight=0.9"}, "a=0.5 b=0.5 override"},
		{"nor do readings that stopped", []string{"a weight=0.1 hand=0.5 seen=90", "b weight=0.9"}, "a=0.5 b=0.5 override"},
		{"nor does a ramp", []string{"a weight=0 hand=0.5 age=1", "b weight=1 age=900"}, "a=0.5 b=0.5 override"},
		{"others with errors gain nothing by it", []string{"a weight=0.4 hand=0", "b weight=0.3 err=1", "c weight=0.3"},
			"a=0 b=0.3 c=0.7 override errors"},
		{"what a draining instance had by hand is nobody's", []string{"a draining hand=0.9", "b weight=0.5", "c weight=0.5"}, "b=0.5 c=0.5"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			s := guarding("static", func(s *quell.Service) {
				s.Guard = quell.Guard{Step: .01, ErrorRate: .05, SlowStart: 100e9, StaleAfter: 3, Fade: 10}
			})
			keep := engine(t, s, nil)
			keep.DecideBy(func(*policy.Input, *policy.Group, *policy.State) quell.Plan { return quell.Plan{} }) // the shares stay as they are
			play(t, keep, at(tc.want, tc.rows...))
		})
	}
}

func TestOverrideSaysWhatIsInForce(t *testing.T) {
	e := engine(t, guarding("static", func(*quell.Service) {}), nil)
	for want, rows := range map[string][]string{
		"a=0.250, b=0.750": {"a hand=0.1", "b hand=0.3"},
		"not in force: a, b at 0 would leave no instance": {"a hand=0", "b hand=0"},
		"b=0.000":          {"a", "b hand=0"},
		"a=0.333, b=0.667": {"a hand=0.5", "b hand=1", "c"},
	} {
		plan, _ := e.Decide(snap(t, 0, rows...), policy.State{})
		if !slices.Contains(plan.Reasons, quell.Reason{Code: "override", Text: want}) {
			t.Errorf("reasons %v, want %q", plan.Reasons, want)
		}
	}
}

// If a person clears a weight that was set, the instance returns to the policy's weight by steps. Meanwhile the policy continues to confirm
// what it observes.
func TestAClearedOverrideReturnsBySteps(t *testing.T) {
	for _, name := range []string{"prima", "static", "lr", "hpa"} {
		s := guarding(name, func(s *quell.Service) { maxStep(.3)(s); s.Group.Min = 3 })
		e := engine(t, s, goldenModels(t))
		var st policy.State
		var last quell.Plan
		want := []string{
			"a=0.333 b=0.333 c=0.333", "a=0 b=0.5 c=0.5 override", "a=0 b=0.5 c=0.5 override", "a=0 b=0.5 c=0.5 override",
			"a=0.1 b=0.45 c=0.45 step", "a=0.2 b=0.4 c=0.4 step", "a=0.3 b=0.35 c=0.35 step", "a=0.333 b=0.333 c=0.333",
		}
		for k := range want {
			hand := ""
			if strings.Contains(want[k], "override") {
				hand = " hand=0"
			}
			in := snap(t, k, "a weight=0.4 use=0.2 cap=0.5 lat=20"+hand, "b weight=0.3 use=0.2 cap=0.5 lat=20",
				"c weight=0.3 use=0.2 cap=0.5 lat=20")
			if k == 0 {
				wantEqual(in)
			}
			follow(in, last)
			last, st = e.Decide(in, st)
			last.Reasons = slices.DeleteFunc(last.Reasons, func(r quell.Reason) bool { return r.Code == "join" || r.Code == "stabilizing" })
			if got := brief(last); got != want[k] {
				t.Errorf("%s, snapshot %d:\n got %s\nwant %s", name, k, got, want[k])
			}
		}
	}
}

func wantEqual(in *quell.Snapshot) {
	for i := range in.Instances {
		in.Instances[i].Weight = new(1 / float64(len(in.Instances)))
	}
}

// If a weight that a person set leaves an instance's capacity unused, this capacity does not count: the group grows as if the instance were
// not there, with the usual confirmation. The policy never removes the instance and never shifts load because of it.
func TestCapacityThatMayNotBeUsedDoesNotCount(t *testing.T) {
	held := []string{"a weight=0 use=0 cap=0.5 hand=0", "b weight=1 use=0.8 cap=0.5"}
	for _, tc := range []struct {
		why    string
		policy string
		change func(*quell.Service)
		steps  []step
	}{
		{"by hand at 0", "prima", confirm(1), []step{
			at("a=0 b=1 confirming override", held...), at("a=0 b=1 +1 capacity_short override", held...),
			at("a=0 b=1 capacity_short override", append(held, "c starting")...),
		}},
		{"by hand at 0, and the others suffice: nothing joins", "prima", confirm(1), []step{
			at("a=0 b=1 override", "a weight=0 use=0 cap=0.5 hand=0", "b weight=1 use=0.4 cap=0.5"),
		}},
		{"by hand at a little", "prima", confirm(0), []step{
			at("a=0.1 b=0.9 +1 capacity_short override", "a weight=0.1 use=0.06 cap=0.5 hand=0.1", "b weight=0.9 use=0.54 cap=0.5"),
		}},
		{"by hand at too much: no other instance can help, and no shift", "prima", confirm(0), []step{
			at("a=0.9 b=0.1 override", "a weight=0.9 use=0.9 cap=0.5 hand=0.9", "b weight=0.1 use=0.1 cap=0.5"),
		}},
		{"what a person set stays in the group", "prima", confirm(0), []step{
			at("a=0 b=1 -c scale_in override", "a weight=0 use=0 cap=0.5 hand=0", "b weight=0.5 use=0.1 cap=0.5", "c weight=0.5 use=0.1 cap=0.4"),
			at("a=0 b=1 override", "a weight=0 use=0 cap=0.5 hand=0", "b weight=1 use=0.2 cap=0.5"),
		}},
		{"by hand at 0.5: the others need 0.5 * 0.9 / 0.9 for their half, and have it", "prima", headroom(.9), []step{
			at("a=0.5 b=0.5 override", "a weight=0.5 use=0.45 cap=0.5 hand=0.5", "b weight=0.5 use=0.45 cap=0.5"),
		}},
		{"by hand: several stay, though one would do", "prima", confirm(0), []step{
			at("a=0.5 b=0.5 override", "a weight=0.5 use=0 cap=0.5 hand=0.5", "b weight=0.5 use=0 cap=0.5 hand=0.5"),
		}},
		{"errors: what it carries is stated as capacities are, before headroom", "prima",
			func(s *quell.Service) { headroom(.9)(s); errorRate(.05)(s) }, []step{
				at("a=0.5 b=0.5", "a weight=0.5 use=0.45 cap=0.5 err=1", "b weight=0.5 use=0.45 cap=0.5"),
			}},
		{"errors: it carries what it has", "prima", func(s *quell.Service) { confirm(1)(s); errorRate(.05)(s) }, []step{
			at("a=0.02 b=0.98 confirming", "a weight=0.02 use=0.02 cap=0.5 err=1", "b weight=0.98 use=0.8 cap=0.5"),
			at("a=0.02 b=0.98 +1 capacity_short errors", "a weight=0.02 use=0.02 cap=0.5 err=1", "b weight=0.98 use=0.8 cap=0.5"),
		}},
		{"errors: with another one that can, load goes there", "prima",
			func(s *quell.Service) { confirm(0)(s); errorRate(.05)(s); s.Group.Min = 3 }, []step{
				at("a=0.02 b=0.49 c=0.49 shift errors", "a weight=0.02 use=0.02 cap=0.5 err=1", "b weight=0.9 use=0.8 cap=0.5",
					"c weight=0.08 use=0.1 cap=0.5"),
			}},
		{"lr: those that may carry more all violate", "lr", confirm(0), []step{
			at("a=0 b=1 +1 violation all_violate override", "a weight=0 hand=0", "b weight=1 lat=90"),
		}},
		{"lsf: errors are fast", "lsf", func(s *quell.Service) { confirm(0)(s); errorRate(.05)(s) }, []step{
			at("a=0.02 b=0.98 +1 violation all_violate", "a weight=0.02 sf=0 err=1 lat=1", "b weight=0.98 sf=0.4 lat=90"),
		}},
		{"static: the mean is of those that share", "static", usage(.6), []step{
			at("a=0 b=1 +1 utilization override", "a weight=0 use=0 hand=0", "b weight=1 use=0.7"),
		}},
		{"hpa: it wants ceil(1 * 0.9 / 0.8) beside the one that is out", "hpa", nil, []step{
			at("a=0 b=1 +1 utilization override", "a weight=0 use=0 hand=0", "b weight=1 use=0.9"),
		}},
		{"hpa: what is out takes up room", "hpa", groupMax(2), []step{
			at("a=0 b=1 overload override", "a weight=0 use=0 hand=0", "b weight=1 use=0.9"),
		}},
		{"hpa: and removes others", "hpa", nil, []step{
			at("a=0 b=1 -c scale_in override", "a weight=0 use=0 hand=0 age=1", "b weight=0.5 use=0.2 age=3", "c weight=0.5 use=0.2 age=2"),
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			play(t, engine(t, guarding(tc.policy, orNothing(tc.change)), goldenModels(t)), tc.steps...)
		})
	}
}

// With overrides the weights still sum to 1. If the overrides would leave no instance any traffic, none is applied.
func TestOverrideHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t)
		e, err := all.NewEngine(s, drawModels(t))
		if err != nil {
			t.Fatal(err)
		}
		in := drawSnapshot(t, 0)
		fixed := rapid.MapOf(rapid.SampledFrom(ids), rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 5e-324}))).Draw(t,
			"fixed")
		in.Set(fixed)
		plan, _ := e.Decide(in, policy.State{})
		checkWeights(t, in, plan)
		var sum float64
		others := 0
		for id := range plan.Weights {
			if f, ok := fixed[id]; ok {
				sum += f
			} else {
				others++
			}
		}
		if others == 0 && sum == 0 {
			return
		}
		for _, id := range slices.Sorted(maps.Keys(plan.Weights)) {
			want := fixed[id]
			if sum > 1 || others == 0 {
				want /= sum
			}
			if _, ok := fixed[id]; ok && math.Abs(plan.Weights[id]-want) > 1e-9 {
				t.Fatalf("%s has %v, want %v by hand", id, plan.Weights[id], want)
			}
		}
	})
}
