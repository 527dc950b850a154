package rivals

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy"
)

func rival(name string, target float64) quell.Service {
	s := quell.DefaultService()
	s.Name, s.SLO, s.Sampling = "video", quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond}, period*time.Second
	s.Policy.Name = name
	tell(&s, "Utilization", target)
	tell(&s, "Tolerance", 0)
	s.Guard = quell.Guard{}
	return s
}

func TestHPASizes(t *testing.T) {
	for name, tc := range map[string]struct {
		target float64
		rows   []string
		want   string
	}{
		"ceil(2 * 0.8 / 0.5) is 4":           {0.5, []string{"a use=0.8", "b use=0.8"}, "a=0.5 b=0.5 +2 utilization"},
		"within the tolerance":               {0.5, []string{"a use=0.55", "b use=0.55"}, "a=0.5 b=0.5"},
		"just beyond it":                     {0.5, []string{"a use=0.56", "b use=0.56"}, "a=0.5 b=0.5 +1 utilization"},
		"less at once":                       {0.5, []string{"a use=0.1 age=9", "b use=0.1 age=99"}, "b=1 -a scale_in"},
		"the last of equally old ones":       {0.5, []string{"a use=0.1", "b use=0.1"}, "a=1 -b scale_in"},
		"what starts does not count as full": {0.5, []string{"a use=0.2", "b use=0.2", "c starting"}, "a=1 -c -b scale_in"},
		"what starts counts as idle":         {0.5, []string{"a use=0.9", "b use=0.9", "c starting"}, "a=0.5 b=0.5 +1 utilization"},
		"which may turn the decision":        {0.5, []string{"a use=0.7", "c starting"}, "a=1"},
		"what is silent counts as full":      {0.5, []string{"a use=0.2", "b use=0.2", "c silent"}, "a=0.333 b=0.333 c=0.333"},
		"nothing is known":                   {0.5, []string{"a silent"}, "a=1"},
		"no more than group.max": {0.1, []string{"a use=1", "b use=1", "c use=1", "d use=1", "e use=1", "f use=1"},
			"a=0.167 b=0.167 c=0.167 d=0.167 e=0.167 f=0.167 +4 overload utilization"},
		"doubled at once at most, or four more": {0.1, []string{"a use=1"}, "a=1 +4 utilization"},
		"80% where none is set":                 {0, []string{"a use=0.85"}, "a=1"},
	} {
		t.Run(name, func(t *testing.T) { play(t, engine(t, rival("hpa", tc.target), nil), at(tc.want, tc.rows...)) })
	}
}

// The autoscaler doubles a group that is far too small, or adds four instances if that is more.
func TestHPAGrowsByAsManyOrFour(t *testing.T) {
	for size, want := range map[int]int{1: 5, 2: 6, 3: 7, 4: 8, 5: 10, 6: 12, 9: 18} {
		s := rival("hpa", 0.1)
		s.Group.Max = 100
		rows := make([]string, size)
		for i := range rows {
			rows[i] = fmt.Sprintf("i%d use=1", i)
		}
		plan, _ := engine(t, s, nil).Decide(snap(t, 0, rows...), policy.State{})
		if plan.Group == nil || size+plan.Group.Add != want {
			t.Errorf("%d instances that want %d grow to %+v, want %d", size, 10*size, plan.Group, want)
		}
	}
}

// The group shrinks to the largest size recommended within 20 periods: it does not follow a dip.
func TestHPAStabilises(t *testing.T) {
	e := engine(t, rival("hpa", 0.5), nil)
	busy := []string{"a use=0.5 age=3", "b use=0.5 age=2", "c use=0.5 age=1"}
	idle := []string{"a use=0.1 age=3", "b use=0.1 age=2", "c use=0.1 age=1"}
	steps := []step{at("a=0.333 b=0.333 c=0.333", busy...)}
	for range stabilisedPeriods {
		steps = append(steps, at("a=0.333 b=0.333 c=0.333 stabilizing", idle...))
	}
	st := play(t, e, append(steps, at("a=1 -c -b scale_in", idle...))...)
	if len(st.Memory.(*hpaMemory).Recommended) != stabilisedPeriods+1 {
		t.Errorf("%d recommendations are remembered", len(st.Memory.(*hpaMemory).Recommended))
	}
}

// Under a steady load the group settles within the tolerance of the target from any initial size, and stays there.
func TestHPASettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rival("hpa", rapid.Float64Range(0.3, 0.8).Draw(t, "target"))
		s.Group.Max = 40
		load := rapid.Float64Range(0.5, 10).Draw(t, "load")
		size := rapid.IntRange(1, 20).Draw(t, "size")
		e, err := all.NewEngine(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		var st policy.State
		for k := range 70 {
			in := &quell.Snapshot{At: start.Add(time.Duration(k+1) * period * time.Second), Service: "video"}
			for i := range size {
				use := min(1, load/float64(size))
				in.Instances = append(in.Instances, quell.Instance{ID: fmt.Sprint(i), State: quell.Ready, Observation: &quell.Observation{
					At: in.At, Utilization: map[quell.Resource]float64{quell.Network: use},
				}})
			}
			var plan quell.Plan
			plan, st = e.Decide(in, st)
			if plan.Group == nil {
				continue
			}
			if k >= 60 {
				t.Fatalf("snapshot %d still changes %d instances: %+v", k, size, plan.Group)
			}
			size += plan.Group.Add - len(plan.Group.Remove)
		}
		if use := load / float64(size); use > s.Policy.Settings.(HPASettings).Utilization*(1+hpaTolerance)+1e-9 {
			t.Fatalf("it settles at a utilisation of %v, the target is %v", use, s.Policy.Settings.(HPASettings).Utilization)
		}
		if size > 1 && load/float64(size-1) < s.Policy.Settings.(HPASettings).Utilization*(1-hpaTolerance) {
			t.Fatalf("it settles at %d instances for a load of %v", size, load)
		}
	})
}

// A fit to points of a curve gives that curve.
func TestFitCurveFindsTheCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alpha, beta := rapid.Float64Range(50, 500).Draw(t, "alpha"), rapid.Float64Range(0.5, 2).Draw(t, "beta")
		var points []CurvePoint
		for i := range rapid.IntRange(4, pointsKept).Draw(t, "points") {
			rate := alpha / beta * (0.1 + 0.8*float64(i%4)/3)
			points = append(points, CurvePoint{Rate: rate, MS: 1000 / (alpha - beta*rate)})
		}
		got := fitCurve(points)
		if math.Abs(got.alpha-alpha) > 0.1*alpha || math.Abs(got.beta-beta) > 0.1*beta {
			t.Fatalf("%+v, want alpha %v, beta %v", got, alpha, beta)
		}
		one := fitCurve(points[:1])
		if want := 1000/points[0].MS + points[0].Rate; one.beta != 1 || math.Abs(one.alpha-want) > 1e-6*want {
			t.Fatalf("of one point %+v, want that of a single server", one)
		}
	})
}

// By hand: with rates of 90 and 110 the spread is a tenth of the mean of 100, at which data and the prior, beta = 1, have equal weight. The
// weight of a point is its number of requests, times 0.8 for each newer point.
func TestFitCurveWeighsByHand(t *testing.T) {
	point := func(rate, speed float64, n int) CurvePoint { return CurvePoint{Rate: rate, MS: 1000 / speed, N: n} }
	for _, tc := range []struct {
		why         string
		points      []CurvePoint // oldest first
		alpha, beta float64
	}{
		{"a slope of 3 and the prior of 1 make 2", []CurvePoint{point(90, 430, 100), point(110, 370, 80)}, 400 + 2*100, 2},
		{"at twice the spread the points weigh four times as much", []CurvePoint{point(80, 460, 100), point(120, 340, 80)}, 400 + 2.6*100, 2.6},
		{"at half the spread a quarter", []CurvePoint{point(95, 415, 100), point(105, 385, 80)}, 400 + 1.4*100, 1.4},
		{"alike in rate: the mean, the older one at 0.8", []CurvePoint{point(100, 490, 10), point(100, 400, 10)}, 440 + 100, 1},
		{"and at 0.64", []CurvePoint{point(100, 400+244, 10), point(100, 400, 10), point(100, 400, 10)}, 464 + 100, 1},
		{"requests that are not known count as one", []CurvePoint{point(100, 490, 0), point(100, 400, 1)}, 440 + 100, 1},
		{"no slope below a twentieth", []CurvePoint{point(10, 400, 8), point(100, 700, 8)}, 0, flattest},
		{"none above 5", []CurvePoint{point(10, 2000, 8), point(100, 100, 8)}, 0, steepest},
	} {
		got := fitCurve(tc.points)
		if math.Abs(got.beta-tc.beta) > 1e-9 || tc.alpha > 0 && math.Abs(got.alpha-tc.alpha) > 1e-6 {
			t.Errorf("%s: alpha %v, beta %v; want %v, %v", tc.why, got.alpha, got.beta, tc.alpha, tc.beta)
		}
	}
}

// No shift of load between two instances lowers the predicted mean latency.
func TestLeastLatencyIsLeast(t *testing.T) {
	cost := func(curves []latencyCurve, rates []float64) (sum float64) {
		for i, c := range curves {
			sum += rates[i] / (c.alpha - c.beta*rates[i])
		}
		return sum
	}
	rapid.Check(t, func(t *rapid.T) {
		var curves []latencyCurve
		var capacity float64
		for range rapid.IntRange(1, 6).Draw(t, "instances") {
			c := latencyCurve{rapid.Float64Range(10, 500).Draw(t, "alpha"), rapid.Float64Range(0.2, 3).Draw(t, "beta")}
			curves, capacity = append(curves, c), capacity+c.alpha/c.beta
		}
		load := rapid.Float64Range(0.01, 1.5).Draw(t, "load")
		rates := leastLatency(curves, load*capacity)
		var sum float64
		for i := range rates {
			sum += rates[i]
			if rates[i] < 0 {
				t.Fatalf("rates %v", rates)
			}
		}
		if math.Abs(sum-load*capacity) > 1e-6*sum {
			t.Fatalf("the rates sum to %v, want %v", sum, load*capacity)
		}
		if load >= fullCapacity {
			return
		}
		best := cost(curves, rates)
		for i := range rates {
			for j := range rates {
				step := math.Min(0.01*capacity, rates[i])
				other := append([]float64{}, rates...)
				other[i], other[j] = other[i]-step, other[j]+step
				if i == j || other[j] >= curves[j].alpha/curves[j].beta {
					continue
				}
				if c := cost(curves, other); c < best*(1-1e-9) {
					t.Fatalf("%v costs %v, %v only %v", rates, best, other, c)
				}
			}
		}
	})
}

// knapsackSnapshot has instances that answer as single servers, each with a speed in requests per second.
func knapsackSnapshot(k int, rate float64, weights, speeds []float64) *quell.Snapshot {
	in := &quell.Snapshot{At: start.Add(time.Duration(k+1) * period * time.Second), Service: "video", ArrivalRate: &rate}
	for i, speed := range speeds {
		own := rate * weights[i]
		ms := 1000 / math.Max(1, speed-own)
		in.Instances = append(in.Instances, quell.Instance{ID: fmt.Sprint(i), State: quell.Ready, Weight: &weights[i],
			Observation: &quell.Observation{
				At: in.At, RequestRate: &own, LatencyMS: &quell.Latency{Mean: &ms, N: 100},
			}})
	}
	return in
}

func TestKnapsackFindsTheBestWeightsAndFollowsChanges(t *testing.T) {
	e := engine(t, rival("knapsack", 0), nil)
	weights, speeds := []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}, []float64{100, 100, 50}
	var st policy.State
	round := func(from int) {
		for k := range 25 {
			var plan quell.Plan
			plan, st = e.Decide(knapsackSnapshot(from+k, 150, weights, speeds), st)
			weights = []float64{plan.Weights["0"], plan.Weights["1"], plan.Weights["2"]}
		}
	}
	expect := func(when string) {
		best := leastLatency([]latencyCurve{{speeds[0], 1}, {speeds[1], 1}, {speeds[2], 1}}, 150)
		for i := range weights {
			if math.Abs(weights[i]-best[i]/150) > 0.03 {
				t.Errorf("%s: weights %v, best are %v of 150", when, weights, best)
				return
			}
		}
	}
	round(0)
	expect("at first")
	speeds = []float64{50, 100, 100}
	round(25)
	expect("after a change")
	if n := len(st.Instances["0"].Memory.(*knapsackInstance).Curve); n != pointsKept {
		t.Errorf("%d points are remembered", n)
	}
}

func TestKnapsackStartsEqualAndLearnsEachReadingOnce(t *testing.T) {
	e := engine(t, rival("knapsack", 0), nil)
	rate := 10.0
	in := snap(t, 0, "a weight=0.5", "b weight=0.5 lat=30")
	in.Instances[1].Observation.RequestRate = &rate
	plan, st := e.Decide(in, policy.State{})
	if math.Abs(plan.Weights["a"]-0.5) > 1e-9 || math.Abs(plan.Weights["b"]-0.5) > 1e-9 {
		t.Errorf("weights %v while nothing is known of one", plan.Weights)
	}
	_, st = e.Decide(in, st)
	if n := len(st.Instances["b"].Memory.(*knapsackInstance).Curve); n != 1 || len(st.Instances["a"].Memory.(*knapsackInstance).Curve) != 0 {
		t.Errorf("one reading, and %d points", n)
	}
}

// The example on knapsack's page.
func TestKnapsackAsOnItsPage(t *testing.T) {
	rates := leastLatency([]latencyCurve{{100, 1}, {50, 1}}, 90)
	golden.Says(t, "policies/knapsack.md", fmt.Sprintf("The instances get %.1f and %.1f requests per second, weights of %.2f and %.2f.",
		rates[0], rates[1], rates[0]/90, rates[1]/90))
}
