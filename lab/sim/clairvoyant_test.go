package sim

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// pipe is a machine with a response time of 1 ms / (1 - rate/most). It answers from a given period on.
type pipe struct {
	most float64
	from int
}

func (p pipe) Within(period int, ms float64) float64 {
	if period < p.from {
		return 0
	}
	return p.most * math.Max(0, 1-1/ms)
}

func TestClairvoyant(t *testing.T) {
	s := quell.DefaultService()
	s.Name, s.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 2 * time.Millisecond} // half of what saturates a machine
	s.Group.Min, s.Group.Max = 1, 4
	machines := func(most ...float64) map[string]Machine {
		m := map[string]Machine{}
		for i, id := range []string{"a", "b", "c"}[:len(most)] {
			m[id] = pipe{most: most[i]}
		}
		return m
	}
	fresh := []Machine{pipe{20, 2}, pipe{100, 2}, pipe{100, 2}}
	for name, tc := range map[string]struct {
		load   []float64
		most   []float64
		want   quell.GroupChange
		shares map[string]float64
	}{
		"equal machines": {[]float64{80, 80, 80}, []float64{100, 100}, quell.GroupChange{},
			map[string]float64{"a": 0.5, "b": 0.5}},
		"equally fast": {[]float64{60, 60, 60}, []float64{100, 50}, quell.GroupChange{},
			map[string]float64{"a": 2. / 3, "b": 1. / 3}},
		"one does": {[]float64{40, 40, 40}, []float64{100, 50}, quell.GroupChange{Remove: []string{"b"}},
			map[string]float64{"a": 1}},
		"one will not do":               {[]float64{40, 40, 60}, []float64{100, 50}, quell.GroupChange{}, nil},
		"the load will rise":            {[]float64{40, 40, 110}, []float64{100, 100}, quell.GroupChange{Add: 1}, nil},
		"the next machine is too small": {[]float64{40, 40, 120}, []float64{100, 100}, quell.GroupChange{Add: 2}, nil},
		"too late to help": {[]float64{120, 120, 90}, []float64{100, 100}, quell.GroupChange{},
			map[string]float64{"a": 0.5, "b": 0.5}},
		"overload": {[]float64{400, 400, 400}, []float64{100, 50, 0}, quell.GroupChange{Add: 2, Remove: []string{"c"}},
			map[string]float64{"a": 2. / 3, "b": 1. / 3}},
		"nothing works": {[]float64{10, 10, 10}, []float64{0, 0}, quell.GroupChange{Add: 1, Remove: []string{"a"}},
			map[string]float64{"b": 1}},
	} {
		snapshot := &quell.Snapshot{At: time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC), Service: "video"}
		for i, weight := range []float64{0.5, 0.5, 0}[:len(tc.most)] {
			id := []string{"a", "b", "c"}[i]
			snapshot.Instances = append(snapshot.Instances,
				quell.Instance{ID: id, State: quell.Ready, Weight: &weight, Observation: &quell.Observation{At: snapshot.At}})
		}
		truth := &Truth{Load: tc.load, Startup: 2, Machines: machines(tc.most...), Free: fresh, Strain: 1}
		plan, state := newClairvoyant(s, func() *Truth { return truth }).Decide(snapshot, policy.State{})
		got := quell.GroupChange{}
		if plan.Group != nil {
			got = *plan.Group
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: change %+v, want %+v", name, got, tc.want)
		}
		for id, share := range tc.shares {
			if math.Abs(plan.Weights[id]-share) > 1e-6 {
				t.Errorf("%s: weights %v, want %v", name, plan.Weights, tc.shares)
			}
		}
		if plan.Policy != Clairvoyant || state.Policy != Clairvoyant {
			t.Errorf("%s: policy %q", name, plan.Policy)
		}
	}
}
