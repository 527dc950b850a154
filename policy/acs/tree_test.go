package acs

import (
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// Wherever groups lie, the kernel gives each one its part if all want to run, and mean weights are the kernel's usual one.
func TestACSWeightsGiveParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, all := &hostCaps{mem: &memory{}}, 0.0
		for i := range rapid.IntRange(1, 8).Draw(t, "groups") {
			one := tenant{id: fmt.Sprint(i), slowdown: 2, next: group{Part: rapid.Float64Range(0.2, 1).Draw(t, "part")}}
			one.within = rapid.SampledFrom([]string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/d"}).Draw(t, "within")
			d.tenants, all = append(d.tenants, one), all+one.next.Part
		}
		d.setWeights()
		sums, numbers := map[string]float64{}, map[string]float64{}
		for _, one := range d.tenants {
			sums[one.within] += one.next.Weight
			numbers[one.within]++
		}
		for group, weight := range d.mem.Around {
			sums[path.Dir(group)] += weight
			numbers[path.Dir(group)]++
		}
		for group, sum := range sums {
			if math.Abs(sum/numbers[group]-1) > 1e-9 {
				t.Fatalf("in %s the mean weight is %v", group, sum/numbers[group])
			}
		}
		for _, one := range d.tenants {
			got := one.next.Weight / sums[one.within]
			for at := one.within; d.mem.Around[at] > 0; at = path.Dir(at) {
				got *= d.mem.Around[at] / sums[path.Dir(at)]
			}
			if want := one.next.Part / all; math.Abs(got-want) > 1e-9 {
				t.Fatalf("group %s in %s gets %v, want %v; weights of groups around: %v", one.id, one.within, got, want, d.mem.Around)
			}
		}
	})
}

// An idle group leaves its part to all others, not only to those that lie in the same group.
func TestACSWeightsBesideAnIdleGroup(t *testing.T) {
	d := &hostCaps{mem: &memory{}, tenants: []tenant{
		{id: "idle", within: "/a", slowdown: 1, idle: true, next: group{Part: 0.5}},
		{id: "busy", within: "/a", slowdown: 2, next: group{Part: 0.25}},
		{id: "other", within: "/b", slowdown: 2, next: group{Part: 0.25}},
	}}
	d.setWeights()
	if want := map[string]float64{"/a": 1, "/b": 1}; !reflect.DeepEqual(d.mem.Around, want) {
		t.Errorf("weights of groups around %v, want %v", d.mem.Around, want)
	}
	d.tenants[0].idle = false
	d.setWeights()
	if want := map[string]float64{"/a": 1.5, "/b": 0.5}; !reflect.DeepEqual(d.mem.Around, want) {
		t.Errorf("weights of groups around %v, want %v", d.mem.Around, want)
	}
}

// capsOf returns the caps of a plan as the kernel's limits of each group.
func capsOf(p quell.Plan) map[string]map[quell.Resource]float64 {
	caps := map[string]map[quell.Resource]float64{}
	for _, l := range p.Limits {
		if l.Unit != quell.WeightUnit {
			caps[l.Instance] = map[quell.Resource]float64{l.Resource: l.Value}
		}
	}
	return caps
}

// A plan has the weights of groups around as long as groups lie in different groups, and processors are wanted.
func TestACSPlansWeightsAround(t *testing.T) {
	e, st := acsEngine(t, byWeights), policy.State{}
	var caps map[string]map[quell.Resource]float64
	for _, c := range []struct {
		name        string
		wait        float64
		left, right string
		want        []string
	}{
		{"different groups", 0.9, "/system.slice", "/quell", []string{"/quell", "/system.slice"}},
		{"one inside the other", 0.9, "/system.slice", "/", []string{"/system.slice"}},
		{"the same group", 0.9, "/quell", "/quell", nil},
		{"not known", 0.9, "/quell", "", nil},
		{"different groups again", 0.9, "/system.slice", "/quell", []string{"/quell", "/system.slice"}},
		{"calm", 0, "/system.slice", "/quell", nil},
	} {
		var plan quell.Plan
		for range acsCalm + 1 {
			s := during(waiter("a", 0.1, c.wait, 0.1, 0), waiter("b", 0.6, c.wait/3, 0.6, 0))
			s.Instances[0].Within, s.Instances[1].Within = c.left, c.right
			for i := range s.Instances {
				s.Instances[i].Limits = caps[s.Instances[i].ID]
			}
			plan, st = e.Decide(s, reread(t, st))
			caps = capsOf(plan)
		}
		around := slices.Sorted(maps.Keys(st.Memory.(*memory).Around))
		if !slices.Equal(around, c.want) {
			t.Errorf("%s: weights for %v, want %v", c.name, around, c.want)
		}
		for _, group := range around {
			if !slices.ContainsFunc(plan.Limits, func(l quell.Limit) bool { return l.Instance == group && l.Unit == quell.WeightUnit }) {
				t.Errorf("%s: no weight for %s in %+v", c.name, group, plan.Limits)
			}
		}
	}
}
