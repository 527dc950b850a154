package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// calmSite serves 100 requests per second, 10 ms each, of which neighbours take a part.
func calmSite(taken float64) site {
	s := site{ready: true}
	for k := range s.most {
		s.most[k], s.servers[k] = math.Inf(1), 1
	}
	k := kindOf(quell.Network)
	s.seconds[k], s.most[k] = 0.01/(1-taken), 100*(1-taken)
	return s
}

func sites(taken ...float64) (list []*site) {
	for _, x := range taken {
		s := calmSite(x)
		list = append(list, &s)
	}
	return list
}

var ownQueues = pool{ratio: model.RatioOf(quell.Mean, 1), threshold: 0.02}

// By hand, with a queue for each instance: 20 ms are twice 10 ms, which takes a use of a half. An instance that has 12.5 ms alone may be
// used to 3/8; one that has 20 ms may not be used at all.
func TestWhatAGroupCarriesByHand(t *testing.T) {
	for name, tc := range map[string]struct {
		sites []*site
		want  float64
		kept  int
	}{
		"one":                        {sites(0), 50, 1},
		"two":                        {sites(0, 0), 100, 2},
		"the slowest decides":        {sites(0, 0.2), 0.375 * 180, 2},
		"a slow one is not worth it": {sites(0, 0.45), 50, 1},
		"one that misses it anyway":  {sites(0, 0, 0.5), 100, 2},
		"nothing":                    {nil, 0, 0},
		"only one that is too slow":  {sites(0.6), 0, 1},
	} {
		kept, got := ownQueues.best(tc.sites)
		if math.Abs(got-tc.want) > 1e-6 || len(kept) != tc.kept {
			t.Errorf("%s: %v requests/s with %d instances, want %v with %d", name, got, len(kept), tc.want, tc.kept)
		}
	}
	pooled := ownQueues
	pooled.pooling = 1
	if one, ten := pooled.carries(sites(0)), pooled.carries(sites(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)); ten < 17*one {
		t.Errorf("ten instances that share a queue carry %v, one %v", ten, one)
	}
}

func TestBoundsDecide(t *testing.T) {
	s := quell.DefaultService()
	s.Name, s.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 20 * time.Millisecond}
	s.Group.Min, s.Group.Max = 1, 6
	later := func(from int, list ...site) []site {
		for i := range from {
			list[i].ready = false
		}
		return list
	}
	calm, slow := calmSite(0), calmSite(0.6)
	for name, tc := range map[string]struct {
		load   []float64
		a, b   []site
		free   [][]site
		margin float64
		want   quell.GroupChange
		shares map[string]float64
	}{
		"both are needed": {[]float64{80}, []site{calm}, []site{calm}, nil, 1, quell.GroupChange{}, map[string]float64{"a": .5, "b": .5}},
		"one does": {[]float64{45}, []site{calm}, []site{calm}, nil, 1, quell.GroupChange{Remove: []string{"a"}},
			map[string]float64{"b": 1}},
		"but for the margin": {[]float64{49}, []site{calm}, []site{calm}, nil, 1.05, quell.GroupChange{}, nil},
		"in proportion": {[]float64{60}, []site{calm}, []site{calmSite(.2)}, nil, 1, quell.GroupChange{},
			map[string]float64{"a": .5556, "b": .4444}},
		"a slow one leaves": {[]float64{40}, []site{slow}, []site{calm}, nil, 1, quell.GroupChange{Remove: []string{"a"}},
			map[string]float64{"b": 1}},
		"one is added for it": {[]float64{80}, []site{slow}, []site{calm}, [][]site{{calm}}, 1,
			quell.GroupChange{Add: 1, Remove: []string{"a"}}, nil},
		"the load will rise": {[]float64{40, 40, 120}, []site{calm, calm, calm}, []site{calm, calm, calm},
			[][]site{later(2, calm, calm, calm)}, 1, quell.GroupChange{Add: 1}, nil},
		"a slow one comes back": {[]float64{40, 40, 90}, []site{slow, calm, calm}, []site{calm, calm, calm}, nil, 1, quell.GroupChange{},
			map[string]float64{"a": 0, "b": 1}},
	} {
		know := &outlooks{load: tc.load, startup: len(tc.load) - 1, margin: tc.margin, strain: 1, law: ownQueues, free: tc.free,
			group: map[string][]site{"a": tc.a, "b": tc.b}}
		snapshot := &quell.Snapshot{At: time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC), Service: "video"}
		for _, id := range []string{"a", "b"} {
			snapshot.Instances = append(snapshot.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: new(.5)})
		}
		plan, _ := newBound(s, Present, func() *outlooks { return know }).Decide(snapshot, policy.State{})
		got := quell.GroupChange{}
		if plan.Group != nil {
			got = *plan.Group
		}
		if got.Add != tc.want.Add || len(got.Remove) != len(tc.want.Remove) || len(got.Remove) > 0 && got.Remove[0] != tc.want.Remove[0] {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		for id, share := range tc.shares {
			if math.Abs(plan.Weights[id]-share) > 1e-3 {
				t.Errorf("%s: weights %v, want %v", name, plan.Weights, tc.shares)
			}
		}
	}
}

// In a storm of neighbours the bounds meet the objective with fewer instances than an autoscaler; what comes next is worth something.
func TestBoundsAreBounds(t *testing.T) {
	sc := plainScenario(12, 0.25, 100e6, time.Minute)
	sc.Service.SLO, sc.Service.Sampling = quell.SLO{Metric: quell.P90, Threshold: 18 * time.Millisecond}, 2*time.Second
	sc.Instances = scenario.Instances{Start: 6, Fixed: 6, Startup: 4 * time.Second}
	for i := range 9 {
		n := &scenario.Interference{Host: sc.Hosts[i].ID, Resource: quell.Network, Use: 0.5, On: 10 * time.Second, Off: 15 * time.Second}
		sc.Timeline = append(sc.Timeline, scenario.Event{Interfere: n})
	}
	run := func(name string) scenario.Result {
		return played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: name}, Scheduling: quell.LeastConn}})
	}
	scaled, present, foresight := run("hpa"), run(Present), run(Foresight)
	if present.SLO.ViolationS > scaled.SLO.ViolationS || foresight.SLO.ViolationS > present.SLO.ViolationS {
		t.Errorf("violation: autoscaler %v s, present %v s, foresight %v s", scaled.SLO.ViolationS, present.SLO.ViolationS,
			foresight.SLO.ViolationS)
	}
	if foresight.SLO.ViolationS == present.SLO.ViolationS && foresight.InstanceSeconds > present.InstanceSeconds {
		t.Errorf("cost: present %v, foresight %v", present.InstanceSeconds, foresight.InstanceSeconds)
	}
}

// With equal shares a machine of half the speed has twice the load of the others: the largest over the mean of 2, 1 and 1.
func TestEvenness(t *testing.T) {
	sc := plainScenario(3, 0.2, 40e6, time.Minute)
	even := func(s quell.Scheduling) float64 {
		r := played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: s}})
		return *r.LargestOverMean
	}
	if got := even(quell.RoundRobin); got < 1 || got > 1.02 {
		t.Errorf("equal machines: %v", got)
	}
	sc.Hosts[0].Network = 20e6
	sc.Workload.Load = 1.2
	if got := even(quell.RoundRobin); math.Abs(got-1.5) > 0.02 {
		t.Errorf("one machine of half the speed: %v, want 1.5", got)
	}
	sc.Hosts[0].Network = 40e6
	sc.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network, Use: 0.5}}}
	if got := even(quell.RoundRobin); math.Abs(got-1.5) > 0.05 {
		t.Errorf("a neighbour on half of one machine: %v, want 1.5", got)
	}
}
