package policy_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/guard"
	"github.com/quellhq/quell/policy/policytest"
)

// This sequence once caused an outage: under lr and lsf, shares that were assigned in reverse order sent one of two instances 49%, 96% and
// 2% of the traffic in consecutive shifts. With the default guard no share changes by more than half of an equal share.
func TestTheBaselinesSwingByStepsOnly(t *testing.T) {
	values := [][2]float64{{51, 49}, {4, 96}, {98, 2}} // of a and b, whose shares are assigned in reverse order
	for _, tc := range []struct{ policy, key string }{{"lr", "lat"}, {"lsf", "sf"}} {
		s := guarding(tc.policy, func(s *quell.Service) { s.Guard, s.SLO.Threshold = quell.DefaultService().Guard, 50*time.Millisecond })
		e := engine(t, s, goldenModels(t))
		free := s
		free.Guard = quell.Guard{}
		unbound := engine(t, free, goldenModels(t))
		var st, loose policy.State
		last, wild := quell.Plan{Weights: map[string]float64{"a": .5, "b": .5}}, quell.Plan{Weights: map[string]float64{"a": .5, "b": .5}}
		var swung []float64
		for k, v := range append(values, values...) {
			in := snap(t, k, fmt.Sprintf("a weight=0.5 use=0.1 sf=0 lat=60 %s=%v", tc.key, v[0]),
				fmt.Sprintf("b weight=0.5 use=0.1 sf=0 lat=2 %s=%v", tc.key, v[1]))
			follow(in, wild)
			wild, loose = unbound.Decide(in, loose)
			swung = append(swung, math.Round(wild.Weights["a"]*100)/100)
			follow(in, last)
			before := last.Weights["a"]
			if last, st = e.Decide(in, st); math.Abs(last.Weights["a"]-before) > 0.25+1e-9 {
				t.Errorf("%s, shift %d: the share of a goes from %.2f to %.2f at once", tc.policy, k, before, last.Weights["a"])
			}
		}
		if want := []float64{.49, .96, .02}; !slices.Equal(swung[:3], want) {
			t.Errorf("%s: without the guard the shares of a are %v, want %v: the test plays no outage", tc.policy, swung, want)
		}
	}
}

// After a change of policy the shares move to the new one's by steps, with and without traffic, even if the new
// policy alone would keep them.
func TestAChangeOfPolicyHandsSharesOverBySteps(t *testing.T) {
	idle := []string{"a weight=0.96 use=0 cap=0.5", "b weight=0.04 use=0 cap=0.5"}
	for _, name := range all.Names() {
		s := guarding(name, func(s *quell.Service) { maxStep(.4)(s); s.Group.Min = 2 })
		e := engine(t, s, goldenModels(t))
		st := policy.State{Policy: "lr", Instances: map[string]*policy.InstanceState{"a": {Guarded: policy.Guarded{Joined: true}},
			"b": {Guarded: policy.Guarded{Joined: true, Clamped: &policy.Clamped{Wanted: .01, Planned: .04}}}}}
		if name == "lr" {
			st.Policy = "lsf"
		}
		var last quell.Plan
		for k, want := range []float64{.76, .56, .5, .5, .5} {
			in := snap(t, k, idle...)
			follow(in, last)
			last, st = e.Decide(in, st)
			if got := last.Weights["a"]; math.Abs(got-want) > 1e-9 {
				t.Errorf("%s, period %d: a has %.3f, want %.3f; %v", name, k, got, want, last.Reasons)
			}
		}
		if st.HandingOver {
			t.Errorf("%s: the handover does not end", name)
		}
	}
}

// In advise mode every plan asks for the change to the new policy again; the change begins when plans are applied.
func TestAnAdvisedHandoverIsNotForgotten(t *testing.T) {
	for _, name := range []string{"prima", "lr"} {
		e := engine(t, guarding(name, maxStep(.4)), goldenModels(t))
		st := policy.State{Policy: "knapsack", Instances: map[string]*policy.InstanceState{"a": {Guarded: policy.Guarded{Joined: true}},
			"b": {Guarded: policy.Guarded{Joined: true}}}}
		for k := range 4 {
			var plan quell.Plan
			plan, st = e.Decide(snap(t, k, "a weight=0.7 use=0.3 cap=0.4", "b weight=0.3 use=0.4 cap=0.4"), st)
			if got := plan.Weights["a"]; math.Abs(got-.5) > 1e-9 {
				t.Errorf("%s, period %d: a has %.3f, want 0.5", name, k, got)
			}
		}
	}
}

// The shares move to those that the new policy wants at that time.
func TestAHandoverGoesWhereTheNewPolicyWants(t *testing.T) {
	e := engine(t, guarding("prima", maxStep(.2)), goldenModels(t))
	st := policy.State{Policy: "lr", Instances: map[string]*policy.InstanceState{"a": {Guarded: policy.Guarded{Joined: true}},
		"b": {Guarded: policy.Guarded{Joined: true}}}}
	var last quell.Plan
	for k, want := range []float64{.8, .7, .6, .5, .4, .3, .25, .25} {
		in := snap(t, k, "a weight=0.9 use=0.15 cap=0.15", "b weight=0.1 use=0.35 cap=0.45")
		follow(in, last)
		if last, st = e.Decide(in, st); math.Abs(last.Weights["a"]-want) > 1e-9 {
			t.Errorf("period %d: a has %.3f, want %.3f; %v", k, last.Weights["a"], want, last.Reasons)
		}
	}
}

// The first decision of a controller is not a change of policy: existing weights stay.
func TestAFirstPolicyTakesWeightsOver(t *testing.T) {
	plan, st := engine(t, guarding("prima", maxStep(.2)),
		goldenModels(t)).Decide(snap(t, 0, "a weight=0.9 use=0.3 cap=0.5", "b weight=0.1 use=0.3 cap=0.4"), policy.State{})
	if got := plan.Weights["a"]; math.Abs(got-.9) > 1e-9 || st.HandingOver {
		t.Errorf("a has %v", got)
	}
}

// crowdOf draws n instances with everything that the guard considers.
func crowdOf(rng *rand.Rand, k, n int) *quell.Snapshot {
	s := &quell.Snapshot{At: start.Add(time.Duration(k+1) * period * time.Second), Service: "video"}
	chance := func(of int) bool { return rng.IntN(of) == 0 }
	for i := range n {
		in := quell.Instance{ID: fmt.Sprintf("i%02d", i), State: quell.Ready, AgeS: new(rng.Float64() * 300),
			Weight: new(math.Pow(rng.Float64(), 4))}
		if chance(12) {
			in.State = quell.States[rng.IntN(len(quell.States))]
		}
		if chance(8) {
			*in.Weight = 0
		}
		if chance(30) {
			in.Override = new(rng.Float64() / float64(n))
		}
		latency, use := 100*rng.Float64(), rng.Float64()
		in.Observation = &quell.Observation{
			At: s.At, Utilization: map[quell.Resource]float64{quell.Network: use},
			Severity:    map[quell.Resource]float64{quell.Network: 2 * math.Pow(rng.Float64(), 3)},
			RequestRate: new(100 * use), LatencyMS: &quell.Latency{Mean: &latency, N: 50},
		}
		if chance(10) {
			in.Observation.ErrorRate = new(rng.Float64())
		}
		if chance(12) {
			in.Observation.At = s.At.Add(-time.Hour)
		}
		s.Instances = append(s.Instances, in)
	}
	wholeWeights(s)
	return s
}

func drawGuard(rng *rand.Rand) quell.Guard {
	pick := func(values ...float64) float64 { return values[rng.IntN(len(values))] }
	return quell.Guard{
		Floor: pick(0, .05, .05, .3, 1), Step: pick(.05, .1, .25, .5, .5, 1), SlowStart: time.Duration(pick(0, 0, 100)) * time.Second,
		StaleAfter: 3, Fade: int(pick(0, 10)), ErrorRate: pick(0, .05, .5),
	}
}

// For every name, whatever the guard's rules and the readings are: the shares sum to 1, and a share that a person set is in force. If
// shares within all limits exist, the plan has the ones that are nearest to the policy's shares.
func TestTheGuardKeepsAllItsLimits(t *testing.T) {
	models := goldenModels(t)
	checked, eased := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.IntRange(2, 50).Draw(t, "instances")
		s := quell.DefaultService()
		s.Name, s.SLO, s.Sampling = "video", quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond}, period*time.Second
		s.Policy.Name = rapid.SampledFrom(all.Names()).Draw(t, "policy")
		tell(&s, "Confirm", rng.IntN(2))
		s.Group.Min, s.Group.Max, s.Guard = 1+rng.IntN(n), n+5, drawGuard(rng)
		e, err := all.NewEngine(s, models)
		if err != nil {
			t.Fatal(err)
		}
		st := policy.State{Policy: rapid.SampledFrom(all.Names()).Draw(t, "policy before"), Instances: map[string]*policy.InstanceState{}}
		for i := range n {
			st.Instances[fmt.Sprintf("i%02d", i)] = &policy.InstanceState{Guarded: policy.Guarded{Joined: rng.IntN(2) == 0}}
		}
		var last quell.Plan
		for k := range 4 {
			in := crowdOf(rng, k, n)
			if rng.IntN(3) > 0 {
				carryOut(in, last)
			}
			plan, next := e.Decide(in, st)
			checkWeights(t, in, plan)
			limits := limitsOf(&s, in, st, next, plan)
			if limits.check(t, plan) {
				checked++
			} else {
				eased++
			}
			last, st = plan, next
		}
	})
	t.Logf("%d plans within all limits, %d where none could be", checked, eased)
	if checked < 2*eased {
		t.Errorf("only %d plans within all limits, %d beyond", checked, eased)
	}
}

// limits are the documented limits, computed from input and output.
type limits struct {
	ids       []string
	fractions []guard.Fraction // the policy's share and its bounds
	// the remaining shares cannot compensate for the instances that are new, leave or have a share set by a person
	impossible bool
}

func limitsOf(s *quell.Service, in *quell.Snapshot, before, after policy.State, plan quell.Plan) limits {
	l := limits{ids: slices.Sorted(maps.Keys(plan.Weights))}
	equal, known := 1/float64(len(l.ids)), false
	staying := map[string]*quell.Instance{}
	for i := range in.Instances {
		staying[in.Instances[i].ID] = &in.Instances[i]
	}
	wanted, free, fixed, others := make([]float64, len(l.ids)), 0.0, 0.0, 0
	for i, id := range l.ids {
		wanted[i] = plan.Weights[id]
		if c := after.Instances[id].Clamped; c != nil {
			wanted[i] = c.Wanted
		}
		if f := staying[id].Override; f != nil {
			fixed += *f
		} else {
			free += wanted[i]
			others++
		}
	}
	if l.impossible = others == 0; l.impossible {
		return l // all set by people: scaled to 1
	}
	bases := make([]guard.Fraction, len(l.ids))
	for i, id := range l.ids {
		in, mem := staying[id], after.Instances[id]
		weight := 0.0
		if in.Weight != nil {
			weight = *in.Weight
		}
		known = known || weight > 0
		want := equal * (1 - fixed)
		if free > 0 {
			want = wanted[i] / free * (1 - fixed)
		}
		f, base := guard.Fraction{Want: want, Low: s.Guard.Floor * equal, High: 1}, guard.Fraction{Want: weight, Low: 0, High: 1}
		ramp := 1.0
		if age := time.Duration(*in.AgeS * float64(time.Second)); age < s.Guard.SlowStart && mem.StaleFor == 0 {
			ramp = want * max(.1, float64(age)/float64(s.Guard.SlowStart))
			f.High = max(ramp, f.Low)
		}
		fails := in.Observation != nil && in.Observation.ErrorRate != nil && mem.StaleFor == 0 && in.Weight != nil &&
			s.Guard.ErrorRate > 0 && *in.Observation.ErrorRate > s.Guard.ErrorRate
		if fails {
			f.Low, f.High, base.High = min(f.Low, weight), min(f.High, weight), weight
		}
		if mem.StaleFor > 0 && in.Override == nil {
			moved := 1.0
			if s.Guard.Fade > 0 {
				moved = min(1, float64(mem.StaleFor)/float64(s.Guard.Fade))
			}
			kept := (1-moved)**mem.StaleWeight + moved*equal
			f, base = guard.Fraction{Want: kept, Low: kept, High: kept}, guard.Fraction{Want: weight, Low: weight, High: weight}
		}
		if weight == 0 && !before.Instances[id].Joined {
			w := min(f.Want, equal, ramp)
			if fails {
				w = 0
			}
			base = guard.Fraction{Want: w, Low: w, High: w}
		}
		if in.Override != nil {
			f = guard.Fraction{Want: *in.Override, Low: *in.Override, High: *in.Override}
			base = f
		}
		l.fractions, bases[i] = append(l.fractions, f), base
	}
	if !known {
		return l
	}
	if base, ok := inProportion(bases); ok {
		l.step(base, s.Guard.Step*equal, staying, after)
	} else {
		l.impossible = true
	}
	return l
}

// inProportion multiplies the shares wanted for the variable instances by one factor, within their upper bounds.
func inProportion(fractions []guard.Fraction) ([]float64, bool) {
	x := make([]float64, len(fractions))
	full := make([]bool, len(fractions))
	for i, f := range fractions {
		x[i], full[i] = f.Low, f.Low == f.High
	}
	for range fractions {
		rest, wanted := 1.0, 0.0
		for i, f := range fractions {
			if full[i] {
				rest -= x[i]
			} else {
				wanted += f.Want
			}
		}
		again := false
		for i, f := range fractions {
			if !full[i] {
				if x[i] = f.Want / wanted * rest; x[i] > f.High {
					x[i], full[i], again = f.High, true, true
				}
			}
		}
		if !again {
			return x, wanted > 1e-3 && rest >= 0 // below that, the small values that nearest ignores matter
		}
	}
	return nil, false
}

// step narrows the limits to shares within one step of the present ones. It also bounds a stale instance's share, and the upper limit of a
// new instance (ramp) is at least the lower end of its step.
func (l *limits) step(base []float64, step float64, staying map[string]*quell.Instance, after policy.State) {
	for i, id := range l.ids {
		f := &l.fractions[i]
		low, high := max(0, base[i]-step), min(1, base[i]+step)
		switch {
		case staying[id].Override != nil:
		case after.Instances[id].StaleFor > 0:
			f.Low = min(max(f.Want, low), high)
			f.Want, f.High = f.Low, f.Low
		default:
			f.Low, f.High = max(f.Low, low), min(max(f.High, low), high)
		}
	}
}

// sums returns the sums of the lower and of the upper bounds.
func sums(fractions []guard.Fraction) (low, high float64) {
	for _, f := range fractions {
		low, high = low+f.Low, high+f.High
	}
	return low, high
}

func possible(fractions []guard.Fraction) bool {
	low, high := sums(fractions)
	crossed := slices.ContainsFunc(fractions, func(f guard.Fraction) bool { return f.Low > f.High+1e-9 })
	return !crossed && low <= 1+1e-9 && high >= 1-1e-9
}

// barely returns whether rounding decides if shares within the limits exist.
func barely(fractions []guard.Fraction) bool {
	low, high := sums(fractions)
	return math.Abs(low-1) <= 1e-9 || math.Abs(high-1) <= 1e-9
}

// check compares a plan with its limits, and returns whether shares within all of them exist.
func (l *limits) check(t *rapid.T, plan quell.Plan) bool {
	yields := slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "guard_yields" })
	if l.impossible || len(l.ids) == 0 {
		return false
	}
	if !possible(l.fractions) {
		if !yields {
			t.Fatalf("no shares are within all limits, and the plan does not say so: %v\n%+v", plan.Reasons, l.fractions)
		}
		return false
	}
	if yields && barely(l.fractions) {
		return false
	}
	if yields {
		t.Fatalf("there are shares within all limits, and the plan says there are none: %v\n%+v", plan.Reasons, l.fractions)
	}
	nearest := policytest.ByExchange(l.fractions)
	var distance, least float64
	for i, f := range l.fractions {
		x := plan.Weights[l.ids[i]]
		if x < f.Low-1e-6 || x > f.High+1e-6 {
			t.Fatalf("%s has %v, beyond %+v", l.ids[i], x, f)
		}
		scale := math.Max(f.Want, guard.MinScale/float64(len(l.ids)))
		distance += (x - f.Want) * (x - f.Want) / scale
		least += (nearest[i] - f.Want) * (nearest[i] - f.Want) / scale
	}
	if distance > least*(1+1e-3)+1e-6 {
		t.Fatalf("the plan is %v away from what was wanted, and %v is possible:\n%v\n%v\n%+v", distance, least, plan.Weights, nearest,
			l.fractions)
	}
	return true
}
