package prima

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/yaml"
	"github.com/quellhq/quell/credit"
	"github.com/quellhq/quell/policy"
)

// ownTypes has one type: a link of 1 Gbit/s, of which 100 Mbit/s are always there. A full link spends 1,000 credits in a second and earns
// 100.
const ownTypes = "types: [{type: mine, network: {baseline: 100Mbps, burst: 1Gbps, cap: 1.8e6}}]"

// crediting is a service whose instances have the type of ownTypes, and whose credits must last an hour.
func crediting(t *testing.T, instanceType string) quell.Service {
	t.Helper()
	own, err := credit.Parse(yaml.NewDecoder("types"), []byte(ownTypes))
	if err != nil {
		t.Fatal(err)
	}
	s := golden("prima", 75, 0)
	tell(&s, "Credits", policy.CreditSettings{Last: time.Hour, Type: instanceType, Own: own})
	groupMax(2)(&s)
	s.Group.Replace.Below = 0.1
	return s
}

func TestCreditsLimitCapacity(t *testing.T) {
	for _, tc := range []struct {
		why       string
		rows      []string
		want      string
		limiters  string
		capacity1 float64
	}{
		// 360,000 credits, of which 60,000 may be spent already, last an hour at 0.1 + 330,000 / 3.6e6. At a load of 0.6 all last equally long.
		{"who has fewer, carries less", []string{"i1 weight=0.5 use=0.3 cap=0.5 credits=360000", "i2 weight=0.5 use=0.3 cap=0.5 credits=1800000"},
			"i1=0.271 i2=0.729 credits", "credits", 0.1 + 0.33/3.6},
		{"neighbours limit one, and the other carries the rest",
			[]string{"i1 weight=0.5 use=0.16 cap=0.15 credits=360000", "i2 weight=0.5 use=0.16 cap=0.5 credits=360000"},
			"i1=0.469 i2=0.531 shift", "", 0.15},
		{"a balance that nobody shows may be anything", []string{"i1 weight=0.5 use=0.3 cap=0.5", "i2 weight=0.5 use=0.3 cap=0.5"},
			"i1=0.5 i2=0.5", "credits", 0.1 + 0.9/3.6},
		{"a person's share stays",
			[]string{"i1 weight=0.5 use=0.3 cap=0.5 credits=360000 hand=0.5", "i2 weight=0.5 use=0.3 cap=0.5 credits=1800000"},
			"i1=0.5 i2=0.5 override", "override", 0.1 + 0.33/3.6},
	} {
		t.Run(tc.why, func(t *testing.T) {
			e := engine(t, crediting(t, "mine"), goldenModels(t))
			plan, _ := e.Decide(snap(t, 0, tc.rows...), policy.State{})
			if got := brief(plan); got != tc.want {
				t.Errorf("got %s, want %s\n%v", got, tc.want, plan.Reasons)
			}
			if got := plan.Limiter["i1"]; got != tc.limiters || math.Abs(plan.Capacity["i1"]-tc.capacity1) > 1e-9 {
				t.Errorf("capacity %v, limited by %q; want %v by %q", plan.Capacity["i1"], got, tc.capacity1, tc.limiters)
			}
		})
	}
}

// Of a balance that was true ten minutes ago, what was used since then is taken off.
func TestALateBalanceInPRIMA(t *testing.T) {
	e := engine(t, crediting(t, "mine"), goldenModels(t))
	s := snap(t, 0, "i1 weight=1 use=0.3 cap=0.5 credits=360000")
	s.Instances[0].Observation.CreditsPast = map[quell.Resource]quell.CreditPast{quell.Network: {AgeS: 600, SeenS: 600, Used: 180}}
	plan, _ := e.Decide(s, policy.State{})
	// 0.3 of 1 Gbit/s takes 200 credits in a second from the balance, measured within 2%, for 5 to 10 minutes.
	b := plan.Credits["i1"][quell.Network]
	if low, high := 360000-206*600.0, 360000-194*300.0; math.Abs(b.Low-low) > 1 || math.Abs(b.High-high) > 1 {
		t.Errorf("got %+v, want %v to %v", b, low, high)
	}
}

// An instance that is slow although it uses no more than its baseline has no credits left; when it rests, it earns.
func TestASlowInstanceHasNoCredits(t *testing.T) {
	e := engine(t, crediting(t, "mine"), goldenModels(t))
	var st policy.State
	var plan quell.Plan
	for k := range 3 {
		plan, st = e.Decide(snap(t, k, "i1 weight=0.5 use=0.1 sf=1.5", "i2 weight=0.5 use=0.2 cap=0.5"), st)
	}
	if b := plan.Credits["i1"][quell.Network]; b.High != 0 || plan.Credits["i2"][quell.Network].High < 1e6 {
		t.Errorf("got %+v", plan.Credits)
	}
	for k := range 6 {
		plan, st = e.Decide(snap(t, 3+k, "i1 weight=0.5 use=0 cap=0.5", "i2 weight=0.5 use=0.2 cap=0.5"), st)
	}
	if b := plan.Credits["i1"][quell.Network]; math.Abs(b.Left-6000) > 10 || b.DepletedS != nil {
		t.Errorf("after a minute of rest: %+v, want 6,000 credits", b)
	}
}

// Without a type, and with balances of a type without published credits, nothing limits; `last: 0s` ends it all.
func TestCreditsAreIgnored(t *testing.T) {
	rows := []string{"i1 weight=0.5 use=0.3 cap=0.5 credits=10", "i2 weight=0.5 use=0.3 cap=0.5 credits=1800000"}
	s := crediting(t, "")
	play(t, engine(t, s, goldenModels(t)), at("i1=0.5 i2=0.5", rows...))
	s = crediting(t, "mine")
	tell(&s, "Credits", policy.CreditSettings{Type: "t3.nano"})
	e := engine(t, s, goldenModels(t))
	play(t, e, at("i1=0.5 i2=0.5", rows...))
	plan, _ := e.Decide(snap(t, 0, rows...), policy.State{})
	if len(plan.Credits) > 0 {
		t.Errorf("credits are told: %v", plan.Credits)
	}
}

// What is earned and spent is learned from balances that change with use, and the memory survives a restart.
func TestCreditsAreLearned(t *testing.T) {
	s := crediting(t, "")
	e := engine(t, s, goldenModels(t))
	truth := credit.Bucket{Baseline: 0.2, Burst: 1, PerUse: 0.05}
	balances, shown := []float64{900, 300}, []float64{900, 300}
	var st policy.State
	var plan quell.Plan
	for k := range 120 {
		uses := []float64{0.25 + 0.01*float64(k%7), 0.3 + 0.015*float64(k%5)}
		for i := range balances {
			if balances[i] = truth.After(balances[i], uses[i], period); k%12 == 11 {
				shown[i] = balances[i]
			}
		}
		snapshot := snap(t, k, "i1 weight=0.5 cap=0.5", "i2 weight=0.5 cap=0.5")
		for i := range snapshot.Instances {
			o := snapshot.Instances[i].Observation
			o.WindowS, o.Utilization[quell.Network] = period, uses[i]
			o.Credits = map[quell.Resource]float64{quell.Network: shown[i]}
		}
		plan, st = e.Decide(snapshot, st)
		if k == 60 {
			data, err := json.Marshal(st)
			if err != nil {
				t.Fatal(err)
			}
			if st = (policy.State{}); restore(data, &st) != nil {
				t.Fatal("the memory cannot be read")
			}
		}
	}
	for i, id := range []string{"i1", "i2"} {
		b, ok := plan.Credits[id][quell.Network]
		if !ok || math.Abs(b.Baseline-0.2) > 0.01 || balances[i] < b.Low-1 || balances[i] > b.High+1 || b.DepletedS == nil {
			t.Errorf("%s has %v: %+v", id, balances[i], plan.Credits)
		}
	}
	if plan.Weights["i1"] < 0.6 {
		t.Errorf("who has three times as much gets %v of the traffic: %v", plan.Weights["i1"], plan.Reasons)
	}
}

// An instance with few credits is replaced if a fresh one has more; the first to run out comes first, and there is one at a time.
func TestInstancesWithFewCreditsAreReplaced(t *testing.T) {
	const launch = "types: [{type: mine, vcpus: 2, network: {baseline: 100Mbps, burst: 1Gbps, cap: 1.8e6}, cpu: {baseline: 10%, earned: 12, " +
		"cap: 288, launch: 60}}]"
	for _, tc := range []struct {
		why    string
		types  string
		change func(*quell.Service)
		rows   []string
		want   string
	}{
		{"fewer than 10%, and a fresh one has all", ownTypes, nil, []string{"i1 weight=0.5 use=0.2 cap=0.5 credits=150000",
			"i2 weight=0.5 use=0.35 cap=0.5 credits=1800000"}, "i1"},
		{"too many instances: it is removed, not replaced", ownTypes, nil, []string{"i1 weight=0.5 use=0.2 cap=0.5 credits=150000",
			"i2 weight=0.5 use=0.2 cap=0.5 credits=1800000"}, ""},
		{"the first to run out", ownTypes, nil, []string{"i1 weight=0.5 use=0.2 cap=0.5 credits=150000",
			"i2 weight=0.5 use=0.2 cap=0.5 credits=120000"}, "i2"},
		{"more than 10%", ownTypes, nil, []string{"i1 weight=1 use=0.2 cap=0.5 credits=300000"}, ""},
		{"it earns", ownTypes, nil, []string{"i1 weight=1 use=0.05 cap=0.5 credits=150000"}, ""},
		{"one is being replaced", ownTypes, nil, []string{"i1 weight=0.5 use=0.2 cap=0.5 credits=150000",
			"i2 weight=0.5 use=0.2 cap=0.5 credits=120000", "i3 starting for=i2"}, ""},
		{"a person set its share", ownTypes, nil, []string{"i1 weight=0.5 use=0.2 cap=0.5 credits=150000 hand=0.5",
			"i2 weight=0.5 use=0.2 cap=0.5 credits=1800000"}, ""},
		{"protected", ownTypes, protect("i1"), []string{"i1 weight=1 use=0.2 cap=0.5 credits=150000"}, ""},
		{"turned off", ownTypes, func(s *quell.Service) { s.Group.Replace.Below = 0 },
			[]string{"i1 weight=1 use=0.2 cap=0.5 credits=150000"}, ""},
		{"a fixed fleet", ownTypes, func(s *quell.Service) { s.Group.Fixed = true }, []string{"i1 weight=1 use=0.2 cap=0.5 credits=150000"}, ""},
		{"a fresh one has no more", ownTypes, func(s *quell.Service) { s.Group.Replace.Below = 1 },
			[]string{"i1 weight=1 use=0.2 cap=0.5 credits=150000"}, ""},
		{"of two kinds of credits the network's are few", launch, nil, []string{"i1 weight=1 use=0.2 cap=0.5 credits=150000"}, "i1"},
	} {
		s := crediting(t, "mine")
		own, err := credit.Parse(yaml.NewDecoder("types"), []byte(tc.types))
		if err != nil {
			t.Fatal(err)
		}
		tell(&s, "Credits", policy.CreditSettings{Last: time.Hour, Type: "mine", Own: own})
		orNothing(tc.change)(&s)
		plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, tc.rows...), policy.State{})
		if got := strings.Join(plan.Replace, " "); got != tc.want {
			t.Errorf("%s: replaces %q, want %q: %v", tc.why, got, tc.want, plan.Reasons)
		}
	}
}

// With last: 0s what was remembered of balances replaces and shares nothing either.
func TestCreditsAreForgotten(t *testing.T) {
	s := crediting(t, "mine")
	own, err := credit.Parse(yaml.NewDecoder("types"), []byte(ownTypes))
	if err != nil {
		t.Fatal(err)
	}
	row := "i1 weight=1 use=0.2 cap=0.5 credits=150000"
	tell(&s, "Credits", policy.CreditSettings{Last: time.Hour, Type: "mine", Own: own})
	plan, st := engine(t, s, goldenModels(t)).Decide(snap(t, 0, row), policy.State{})
	if len(plan.Replace) != 1 {
		t.Fatalf("replaces %v", plan.Replace)
	}
	tell(&s, "Credits", policy.CreditSettings{Type: "mine", Own: own})
	if plan, _ = engine(t, s, goldenModels(t)).Decide(snap(t, 1, row), st); len(plan.Replace)+len(plan.Credits) > 0 {
		t.Errorf("replaces %v, %v", plan.Replace, plan.Credits)
	}
}

// Of three instances of which two suffice, the one with the fewest credits goes, and the load is divided over those that stay. The
// capacities differ by chance only.
func TestScaleInKeepsTheCredits(t *testing.T) {
	for _, unlimited := range []bool{false, true} {
		s := crediting(t, "mine")
		own, err := credit.Parse(yaml.NewDecoder("types"), []byte(ownTypes))
		if err != nil {
			t.Fatal(err)
		}
		tell(&s, "Credits", policy.CreditSettings{Last: time.Minute, Type: "mine", Own: own, Unlimited: &unlimited})
		s.Group.Max = 3
		plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, "i1 weight=0.34 use=0.2 cap=0.5 credits=60000",
			"i2 weight=0.33 use=0.2 cap=0.495 credits=1800000", "i3 weight=0.33 use=0.2 cap=0.495 credits=1800000"), policy.State{})
		if plan.Group == nil || strings.Join(plan.Group.Remove, " ") != "i1" || len(plan.Replace) > 0 {
			t.Fatalf("unlimited %v: %+v, replaces %v: %v", unlimited, plan.Group, plan.Replace, plan.Reasons)
		}
		if math.Abs(plan.Weights["i2"]-0.5) > 0.01 || math.Abs(plan.Weights["i3"]-0.5) > 0.01 {
			t.Errorf("unlimited %v: shares %v", unlimited, plan.Weights)
		}
	}
}

// No plan that removes instances predicts a miss: keeping the group would not have one.
func TestScaleInWithCreditsPredictsNoMiss(t *testing.T) {
	models := goldenModels(t)
	own, err := credit.Parse(yaml.NewDecoder("types"), []byte(ownTypes))
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	rapid.Check(t, func(rt *rapid.T) {
		s := crediting(t, "mine")
		s.Group.Max = 8
		tell(&s, "Credits", policy.CreditSettings{Type: "mine", Own: own, Unlimited: new(rapid.Bool().Draw(rt, "unlimited")),
			Last: rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 10 * time.Hour}).Draw(rt, "last")})
		n := rapid.IntRange(2, 6).Draw(rt, "instances")
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf("i%d weight=%v use=%.3f cap=%.3f credits=%d", i, 1/float64(n), rapid.Float64Range(0, 0.4).Draw(rt, "use"),
				rapid.Float64Range(0.2, 0.5).Draw(rt, "capacity"), rapid.IntRange(0, 1_800_000).Draw(rt, "credits"))
		}
		plan, _ := engine(t, s, models).Decide(snap(t, 0, rows...), policy.State{})
		if plan.Group == nil || len(plan.Group.Remove) == 0 {
			return
		}
		removed++
		if len(plan.Replace) > 0 {
			rt.Fatalf("removes %v and replaces %v", plan.Group.Remove, plan.Replace)
		}
		for id, ms := range plan.PredictedMS {
			if ms > 75*1.001 {
				rt.Fatalf("%v: %s is predicted at %v ms: %v", rows, id, ms, plan.Reasons)
			}
		}
	})
	if removed == 0 {
		t.Error("no plan removed anything")
	}
}
