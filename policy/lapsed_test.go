package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// probedOn is a snapshot of two instances whose listed resources are probed.
func probedOn(period int, probed ...quell.Resource) *quell.Snapshot {
	use := 0.2 + 0.05*float64(period%9)
	rate := 200 * use
	s := &quell.Snapshot{At: time.Unix(int64(10*period), 0).UTC(), Service: "s", ArrivalRate: &rate}
	for i := range 2 {
		half, each, mean, p95 := 0.5, rate/2, 10/(1-use), 30/(1-use)
		o := &quell.Observation{At: s.At, WindowS: 10, RequestRate: &each, LatencyMS: &quell.Latency{Mean: &mean, P95: &p95, N: int(10 * each)},
			Utilization: map[quell.Resource]float64{quell.Network: use, quell.Disk: use / 2}, Probe: map[quell.Resource]quell.ProbeStats{}}
		for _, r := range probed {
			o.Probe[r] = quell.ProbeStats{MeanMS: 5 / (1 - o.Utilization[r]), StddevMS: 0.5, N: 10}
		}
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Weight: &half, Observation: o})
	}
	return s
}

// With resource: auto, a resource that is not probed any more is left out, and comes back with its probes. One that a person named stays.
func TestAResourceThatIsNotProbedAnyMore(t *testing.T) {
	learning := func(of policy.Resources) *policy.Engine {
		service := learningService("prima")
		tell(&service, "Resources", of)
		e, err := all.NewLearningEngine(service, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	list := func(e *policy.Engine, st policy.State) (list []quell.Resource) {
		for _, c := range e.ContendedAfter(st) {
			list = append(list, c.Resource)
		}
		slices.Sort(list)
		return list
	}
	both, network := []quell.Resource{quell.Disk, quell.Network}, []quell.Resource{quell.Network}
	auto, named := learning(policy.AllKnown()), learning(policy.ResourcesOf(both...))
	var st policy.State
	period := 0
	for _, step := range []struct {
		periods      int
		probed, want []quell.Resource
	}{
		{30, both, both}, {95, network, both}, {10, network, network}, {110, nil, network}, {1, both, both},
	} {
		for range step.periods {
			_, st = auto.Decide(probedOn(period, step.probed...), st)
			period++
		}
		if got := list(auto, st); !slices.Equal(got, step.want) {
			t.Errorf("after %d periods, the last %d with probes of %v: %v, want %v", period, step.periods, step.probed, got, step.want)
		}
		if got := list(named, st); !slices.Equal(got, both) {
			t.Errorf("after %d periods, %v are named: %v", period, both, got)
		}
	}
}
