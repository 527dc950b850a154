package policy_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// fleet is a group in a closed loop with a policy that learns in place: its plans set the weights and the size of the next period.
type fleet struct {
	rng    *rand.Rand
	engine *policy.Engine
	st     policy.State
	load   float64 // requests per second; each uses 0.01 of a small machine
	sizes  []float64
	hidden []float64 // use by neighbours, by machine
	frozen bool      // probes take the same time whatever the load is
	answer func(rng *rand.Rand, use, size float64, n int) quell.Latency

	weights map[string]float64
	period  int
	ids     []string
	machine map[string]int // the number of machines that were there from the beginning
}

func newFleet(t *testing.T, seed uint64, metric quell.Metric, threshold time.Duration, least, most int, sizes ...float64) *fleet {
	t.Helper()
	service := learningService(all.Default())
	service.SLO = quell.SLO{Metric: metric, Threshold: threshold}
	service.Group = quell.Group{Min: least, Max: most}
	e, err := all.NewLearningEngine(service, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{rng: rand.New(rand.NewPCG(seed, 5)), engine: e, sizes: sizes, hidden: make([]float64, len(sizes)),
		weights: map[string]float64{}, machine: map[string]int{}}
	f.answer = func(rng *rand.Rand, use, size float64, n int) quell.Latency {
		mean := 10 / size / (1 - use) * math.Exp(rng.NormFloat64()/math.Sqrt(float64(n)))
		p95 := 3 * mean
		return quell.Latency{Mean: &mean, P95: &p95, N: n}
	}
	for i := range sizes {
		id := fmt.Sprintf("i%d", i+1)
		f.ids, f.weights[id], f.machine[id] = append(f.ids, id), 1/float64(len(sizes)), i
	}
	return f
}

// step plays one period and returns its plan, which the next one follows.
func (f *fleet) step() quell.Plan {
	f.period++
	rate := f.load
	s := &quell.Snapshot{At: time.Unix(int64(10*f.period), 0).UTC(), Service: "s", ArrivalRate: &rate}
	for _, id := range f.ids {
		size, hidden := 1.0, 0.0
		if i, first := f.machine[id]; first {
			size, hidden = f.sizes[i], f.hidden[i]
		}
		own := f.load * f.weights[id] // 0: it has just come
		use := min(own*0.01/size, 0.97-hidden)
		n := max(int(own*10), 1)
		free := max(1-use-hidden, 0.03)
		latency, weight := f.answer(f.rng, 1-free, size, n), f.weights[id]
		probe := 5 / size / free
		cv := math.Sqrt(1 - free)
		if f.frozen {
			probe, cv = 5, 0.02
		}
		probe *= math.Exp(f.rng.NormFloat64() * cv / math.Sqrt(20))
		s.Instances = append(s.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: &weight, AgeS: new(float64(600)),
			Observation: &quell.Observation{At: s.At, WindowS: 10, RequestRate: &own, Utilization: map[quell.Resource]float64{quell.Network: use},
				LatencyMS: &latency, Probe: map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: probe, StddevMS: cv * probe, N: 20}}}})
	}
	plan, st := f.engine.Decide(s, f.st)
	f.st = st
	if len(plan.Weights) > 0 {
		f.weights = maps.Clone(plan.Weights)
	}
	if plan.Group != nil {
		f.ids = slices.DeleteFunc(f.ids, func(id string) bool { return slices.Contains(plan.Group.Remove, id) })
		for i := range plan.Group.Add {
			id := fmt.Sprintf("new%d-%d", f.period, i+1)
			f.ids, f.weights[id] = append(f.ids, id), 0
		}
	}
	return plan
}

// The probes never change, and a neighbour comes beside one of three instances. Each plan says that probes show nothing, and after a few
// periods the instance has at most half of its share.
func TestProbesThatNeverChange(t *testing.T) {
	f := newFleet(t, 1, quell.Mean, 40*time.Millisecond, 3, 3, 1, 1, 1)
	f.frozen = true
	for p := range 30 {
		f.load = 150 + 30*math.Sin(float64(p)/5)
		if p == 22 {
			f.hidden[0] = 0.5
		}
		plan := f.step()
		if p >= 22 && reasonOf(plan, "deaf_probes", "") == "" {
			t.Fatalf("period %d: %v", p, plan.Reasons)
		}
	}
	if f.weights["i1"] > 1./6 {
		t.Errorf("beside a neighbour that probes do not show, it has a share of %.2f after 8 periods: %v", f.weights["i1"], f.weights)
	}
}

// Machines of which one is twice as large, without types: the load is shared without hurry, and no machine comes or goes again and again.
func TestUntypedSizesDoNotFlap(t *testing.T) {
	for _, load := range []float64{120, 150} {
		f := newFleet(t, 1, quell.Mean, 40*time.Millisecond, 3, 6, 1, 1, 2)
		changes := 0
		for p := range 50 {
			f.load = load
			plan := f.step()
			if p >= 10 && plan.Group != nil {
				changes++
			}
			if n := len(f.ids); n > 4 {
				t.Fatalf("load %v, period %d: %d machines; three carry the load: %v", load, p, n, plan.Reasons)
			}
		}
		if changes > 2 {
			t.Errorf("load %v: %d changes of the group in 40 periods of the same load", load, changes)
		}
	}
}

// About one request in twenty takes 55 ms, the others 5 ms, so the p95 is sometimes the one and sometimes the other. The objective is just
// above. A few more machines are wanted, and not seventeen.
func TestBimodalPercentile(t *testing.T) {
	f := newFleet(t, 1, quell.P95, 60*time.Millisecond, 1, 20, 1, 1, 1)
	f.answer = func(rng *rand.Rand, use, _ float64, n int) quell.Latency {
		slow := 0
		for range n {
			if rng.Float64() < 0.055 {
				slow++
			}
		}
		stretch := 1 / (1 - use)
		p95, mean := 5*stretch, (5+50*float64(slow)/float64(n))*stretch
		if float64(slow) > 0.05*float64(n) {
			p95 = 55 * math.Pow(stretch, 0.3)
		}
		return quell.Latency{Mean: &mean, P95: &p95, N: n}
	}
	for p := range 40 {
		f.load = 100 + 20*math.Sin(float64(p)/5)
		if f.step(); len(f.ids) > 8 {
			t.Fatalf("period %d: %d machines for a load of about one", p, len(f.ids))
		}
	}
}

// A decision begins with the models that the last one ended with, and new readings make new ones.
func TestModelsAreCompiledOncePerDecision(t *testing.T) {
	f := newFleet(t, 1, quell.Mean, 40*time.Millisecond, 4, 4, 1, 1, 1, 1)
	f.load = 150
	for range 20 {
		f.step()
	}
	first, again := f.engine.ContendedAfter(f.st), f.engine.ContendedAfter(f.st)
	f.step()
	later := f.engine.ContendedAfter(f.st)
	if &first[0] != &again[0] {
		t.Error("the same models were compiled twice")
	}
	if &first[0] == &later[0] {
		t.Error("after one more period the models are those of before")
	}
}
