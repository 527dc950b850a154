package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// Two types of instances have about as many windows, and in turn a few more than the other. Loads and capacities stay in units of the same
// type all the same: they do not jump from one plan to the next.
func TestUnitsOfLoadsDoNotFlip(t *testing.T) {
	service := learningService(all.Default())
	service.Group = quell.Group{Min: 4, Max: 4}
	tell(&service, "Resources", policy.ResourcesOf(quell.Network, quell.CPU))
	e, err := all.NewLearningEngine(service, nil)
	if err != nil {
		t.Fatal(err)
	}
	reading := func(at time.Time, use, perNetwork, perCPU float64) *quell.Observation {
		rate, cpu := use/perNetwork, use/perNetwork*perCPU
		mean := 10 / (1 - use)
		probe := func(use float64) quell.ProbeStats { return quell.ProbeStats{MeanMS: 5 / (1 - use), StddevMS: 1, N: 20} }
		return &quell.Observation{At: at, WindowS: 10, RequestRate: &rate, LatencyMS: &quell.Latency{Mean: &mean, N: int(10 * rate)},
			Utilization: map[quell.Resource]float64{quell.Network: use, quell.CPU: cpu},
			Probe:       map[quell.Resource]quell.ProbeStats{quell.Network: probe(use), quell.CPU: probe(cpu)}}
	}
	var st policy.State
	var plan quell.Plan
	newest := map[string]*quell.Observation{}
	used := 0.0
	for p := range 45 {
		at := time.Unix(int64(10*p), 0).UTC()
		use := 0.3 + 0.03*float64(p%10)
		s := &quell.Snapshot{At: at, Service: "s"}
		for i := range 4 {
			id, kind, per := fmt.Sprintf("i%d", i+1), "big", 0.005
			if i%2 == 0 {
				kind, per = "small", 0.01
			}
			if (p%2 == 0) == (kind == "small") { // the other type reports in the next period
				newest[id] = reading(at, use, per, per/2*float64(1+i%2))
			}
			weight := 0.25
			s.Instances = append(s.Instances, quell.Instance{ID: id, Type: kind, State: quell.Ready, Weight: &weight, AgeS: new(600.0),
				Observation: newest[id]})
		}
		before := plan
		plan, st = e.Decide(s, st)
		ratio := st.Used[quell.CPU] / st.Used[quell.Network]
		if p > 30 {
			if math.Abs(ratio/used-1) > 0.1 {
				t.Errorf("period %d: a unit of the network is %.3f of the processor, before %.3f", p, ratio, used)
			}
			for id, capacity := range plan.Capacity {
				if was := before.Capacity[id]; math.Abs(capacity/was-1) > 0.15 {
					t.Errorf("period %d: %s can carry %.3f, before %.3f", p, id, capacity, was)
				}
			}
		}
		used = ratio
	}
	small, big := st.Learned.Seen[quell.Network]["small"].Law.N, st.Learned.Seen[quell.Network]["big"].Law.N
	if max(small, big)-min(small, big) > 2 || small < 30 || len(plan.Capacity) == 0 {
		t.Errorf("%d windows of small, %d of big, capacities %v", small, big, plan.Capacity)
	}
}
