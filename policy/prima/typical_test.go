package prima

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// crowded plays n periods of a group of three that cannot grow, with the given capacities in each period, and returns the plans.
func crowded(t *testing.T, n int, confirm int, capacities func(k int) [3]float64) []quell.Plan {
	t.Helper()
	s := golden("prima", 75, confirm)
	s.Guard.Floor = 0.05
	tell(&s, "Tolerance", 0.05)
	s.Group.Min, s.Group.Max = 3, 3
	e := engine(t, s, goldenModels(t))
	var st policy.State
	plans := make([]quell.Plan, n)
	for k := range n {
		c := capacities(k)
		rows := make([]string, 3)
		for i := range rows {
			rows[i] = fmt.Sprintf("i%d weight=0.3333333333333333 use=0.4 cap=%.4f", i+1, min(c[i], .5))
		}
		in := snap(t, k, rows...)
		if k > 0 {
			follow(in, plans[k-1])
		}
		plans[k], st = e.Decide(in, st)
	}
	return plans
}

func changes(plans []quell.Plan) (n int) {
	for k := 1; k < len(plans); k++ {
		if !reflect.DeepEqual(plans[k-1].Weights, plans[k].Weights) {
			n++
		}
	}
	return n
}

// In an overload without further instances, capacities that vary only by chance do not move the weights for ever.
func TestWeightsSettleInAnOverload(t *testing.T) {
	for _, tc := range []struct {
		why     string
		reading func(r *rand.Rand) [3]float64
	}{
		{"one capacity is within the noise of 0", func(r *rand.Rand) [3]float64 {
			return [3]float64{max(0, .05*r.NormFloat64()), .45 + .02*r.NormFloat64(), .4 + .02*r.NormFloat64()}
		}},
		{"all are", func(r *rand.Rand) [3]float64 {
			return [3]float64{max(0, .05*r.NormFloat64()), max(0, .05*r.NormFloat64()), max(0, .05*r.NormFloat64())}
		}},
		{"one is 0 and stays so", func(*rand.Rand) [3]float64 { return [3]float64{0, .45, .4} }},
		{"all are 0 at times", func(r *rand.Rand) [3]float64 {
			return [3]float64{.1 * float64(r.IntN(2)), .1 * float64(r.IntN(2)), .02 * float64(r.IntN(2))}
		}},
		{"one is rarely above 0", func(r *rand.Rand) [3]float64 { return [3]float64{.2 * float64(r.IntN(10)/9), .45, .4} }},
	} {
		t.Run(tc.why, func(t *testing.T) {
			for seed := range uint64(5) {
				r := rand.New(rand.NewPCG(seed, 1))
				plans := crowded(t, 360, 1, func(int) [3]float64 { return tc.reading(r) })
				if n := changes(plans); n > 36 {
					t.Errorf("seed %d: the weights change in %d of 360 periods", seed, n)
				}
			}
		})
	}
}

// If all instances had a capacity of 0 so far, the capacities that they get next count at once.
func TestUsuallyNoCapacity(t *testing.T) {
	s := golden("prima", 75, 1)
	s.Group.Max = 2
	st := policy.State{Policy: "prima", Memory: &memory{ScaleOut: 5}, Instances: map[string]*policy.InstanceState{
		"i1": {Memory: &instance{Typical: Typical{N: 9}}}, "i2": {Memory: &instance{Typical: Typical{N: 9}}},
	}}
	plan, _ := engine(t, s, goldenModels(t)).Decide(snap(t, 0, "i1 weight=0.5 use=0.6 cap=0.5", "i2 weight=0.5 use=0.6 cap=0.25"), st)
	wantWeights(t, plan, map[string]float64{"i1": 0.604, "i2": 0.396})
}

// The weights end near those at which all have as much room: of a load of 1.2 their neighbours leave 0.6, 0.9 and 0.8.
func TestWeightsSettleByUsualCapacity(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	plans := crowded(t, 100, 1, func(int) [3]float64 {
		return [3]float64{.1 + .03*r.NormFloat64(), .4 + .03*r.NormFloat64(), .3 + .03*r.NormFloat64()}
	})
	for id, want := range map[string]float64{"i1": .194, "i2": .444, "i3": .361} {
		if got := plans[99].Weights[id]; math.Abs(got-want) > 0.02 {
			t.Errorf("weight of %s is %.3f, want about %.3f", id, got, want)
		}
	}
}

// However long there was no neighbour, the shares react to a new one in the period in which it is confirmed. A single outlier is ignored.
func TestSettledWeightsStillReact(t *testing.T) {
	for _, tc := range []struct {
		why     string
		periods int // for which the first one has hardly any capacity
		moves   bool
	}{
		{"an outlier", 1, false},
		{"a neighbour", 2, true},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		plans := crowded(t, 102, 1, func(k int) [3]float64 {
			c := [3]float64{.35 + .01*r.NormFloat64(), .4 + .01*r.NormFloat64(), .3 + .01*r.NormFloat64()}
			if k >= 102-tc.periods {
				c[0] = .05
			}
			return c
		})
		before, after := plans[99].Weights["i1"], plans[101].Weights["i1"]
		if moved := after < before*0.8; moved != tc.moves {
			t.Errorf("%s: its weight goes from %.3f to %.3f", tc.why, before, after)
		}
	}
}

// An instance that can carry nothing any more gains no load from one that lost its capacity a period earlier, although its usual capacity
// is still the old one: the third one has room.
func TestUsualCapacityRaisesNobodyWhoCannotCarryMore(t *testing.T) {
	for _, gone := range []float64{0, .02, .1} {
		plans := crowded(t, 104, 1, func(k int) [3]float64 {
			c := [3]float64{.35, .4, .3}
			if k >= 100 {
				c[1] = .05
			}
			if k >= 101 {
				c[0] = gone
			}
			return c
		})
		gained := false
		for k := 101; k < len(plans); k++ {
			if before, after := plans[k-1].Weights["i1"], plans[k].Weights["i1"]; after > before+quell.SumTolerance {
				t.Errorf("period %d: with a capacity of %g its share goes from %.3f to %.3f: %v", k, gone, before, after, plans[k].Reasons)
			}
			gained = gained || plans[k].Weights["i3"] > plans[k-1].Weights["i3"]
		}
		if !gained {
			t.Errorf("capacity %g: the instance with room gets no more", gone)
		}
	}
}

func TestUsual(t *testing.T) {
	var u Typical
	take := func(capacities ...float64) {
		for _, c := range capacities {
			u = u.With(c, 0.05, 1)
		}
	}
	want := func(why string, n int, mean float64, off int) {
		t.Helper()
		if u.N != n || math.Abs(u.Mean-mean) > 1e-9 || u.Off != off {
			t.Errorf("%s: %+v, want %d readings of mean %v, %d off", why, u, n, mean, off)
		}
	}
	take(.4, .4, .4)
	want("the mean", 3, .4, 0)
	take(.1)
	want("an outlier waits", 3, .4, -1)
	take(.6)
	want("and one to the other side is no second one", 3, .4, 1)
	take(.41)
	want("both are passed over", 4, .4025, 0)
	take(.1, .1)
	want("two in a row begin anew", 1, .1, 0)
	if u.Variance == 0 {
		t.Error("how far readings stray is forgotten")
	}
	for range 1000 {
		take(.1)
	}
	want("no more than the last 60 count", 60, .1, 0)
}
