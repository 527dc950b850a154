package policy_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// TestDecideHoldsItsPromises plays random services, models and snapshots, including absurd but valid ones.
func TestDecideHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t)
		e, err := all.NewEngine(s, drawModels(t))
		if err != nil {
			t.Fatal(err)
		}
		var st policy.State
		var last quell.Plan
		for k := range rapid.IntRange(1, 8).Draw(t, "snapshots") {
			in := drawSnapshot(t, k)
			if rapid.Bool().Draw(t, "carried out") {
				carryOut(in, last)
			}
			if err := in.Validate(); err != nil {
				t.Fatalf("the test made a snapshot that breaks a rule: %v", err)
			}
			before, asked := text(t, st), text(t, in)
			plan, next := e.Decide(in, st)
			if text(t, st) != before || text(t, in) != asked {
				t.Fatalf("what was handed in has changed: %s, %s", before, asked)
			}
			again, nextAgain := e.Decide(in, reread(t, st))
			if !reflect.DeepEqual(plan, again) || text(t, next) != text(t, nextAgain) {
				t.Fatalf("the same input gave another plan or memory:\n%v\n%v", plan, again)
			}
			checkWeights(t, in, plan)
			checkGroup(t, s, in, plan, next)
			checkNumbers(t, plan)
			checkErrors(t, s, in, plan, next)
			last, st = plan, next
		}
	})
}

// leaving returns the instances that the plan removes.
func leaving(t *rapid.T, plan quell.Plan) map[string]bool {
	gone := map[string]bool{}
	if plan.Group == nil {
		return gone
	}
	for _, id := range plan.Group.Remove {
		if gone[id] {
			t.Fatalf("%s is removed twice", id)
		}
		gone[id] = true
	}
	return gone
}

func checkWeights(t *rapid.T, in *quell.Snapshot, plan quell.Plan) {
	gone := leaving(t, plan)
	var want []string
	for _, i := range in.Instances {
		if i.State == quell.Ready && !gone[i.ID] {
			want = append(want, i.ID)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(plan.Weights)); !slices.Equal(got, want) {
		t.Fatalf("weights of %v, want exactly those that are ready and stay: %v", got, want)
	}
	var sum float64
	for id, w := range plan.Weights {
		if !(w >= 0) || math.IsInf(w, 0) {
			t.Fatalf("weight of %s is %v", id, w)
		}
		sum += w
	}
	if len(want) > 0 && math.Abs(sum-1) > 1e-9 {
		t.Fatalf("the weights sum to %v", sum)
	}
}

func checkGroup(t *rapid.T, s quell.Service, in *quell.Snapshot, plan quell.Plan, st policy.State) {
	gone := leaving(t, plan)
	alive, recovering, removable := 0, 0, 0
	for _, i := range in.Instances {
		protected := slices.Contains(s.Group.Protected, i.ID)
		if gone[i.ID] && (protected || i.State == quell.Draining) {
			t.Fatalf("%s is removed, which is %s, protected: %v", i.ID, i.State, protected)
		}
		switch {
		case gone[i.ID]:
		case i.State == quell.Failed:
			if st.Of(i.ID).FailedFor >= 2 && !protected {
				t.Fatalf("%s is kept although it failed twice", i.ID)
			}
			recovering++
		case i.State == quell.Starting && late(s, in, st.Of(i.ID)):
			recovering++ // given up in the end
		case i.State != quell.Draining:
			alive++
			if !protected {
				removable++
			}
		}
		delete(gone, i.ID)
	}
	if len(gone) > 0 {
		t.Fatalf("%v are removed, which the snapshot does not know", gone)
	}
	add := 0
	if plan.Group != nil {
		add = plan.Group.Add
	}
	bounds := s.Group
	switch {
	case add < 0 || add > 0 && alive+recovering+add > bounds.Max:
		t.Fatalf("adding %d to %d and %d that may recover: group.max is %d", add, alive, recovering, bounds.Max)
	case alive+add > bounds.Max && removable > 0:
		t.Fatalf("%d instances stay: group.max is %d", alive, bounds.Max)
	case alive+add < min(bounds.Min, bounds.Max-recovering):
		t.Fatalf("%d instances stay and %d come: group.min is %d", alive, add, bounds.Min)
	}
}

// late returns whether an instance has been starting for too long.
func late(s quell.Service, in *quell.Snapshot, mem policy.InstanceState) bool {
	return mem.StartingSince != nil && s.Group.Startup > 0 && in.At.Sub(*mem.StartingSince) > s.Group.Startup
}

func checkNumbers(t *rapid.T, plan quell.Plan) {
	text(t, plan) // JSON has no NaN and no infinity
	for id, c := range plan.Capacity {
		if c < 0 || c > 1 {
			t.Fatalf("capacity of %s is %v", id, c)
		}
		if plan.Severity[id] < 0 {
			t.Fatalf("severity of %s is %v", id, plan.Severity[id])
		}
	}
	for _, r := range plan.Reasons {
		if r.Code == "" || r.Text == "" {
			t.Fatalf("an empty reason: %+v", r)
		}
	}
}

// checkErrors checks that an instance with errors never gains weight while a healthy one could take it.
func checkErrors(t *rapid.T, s quell.Service, in *quell.Snapshot, plan quell.Plan, st policy.State) {
	var failing []quell.Instance
	healthy := false
	for _, i := range in.Instances {
		if _, stays := plan.Weights[i.ID]; !stays {
			continue
		}
		switch o := i.Observation; {
		case st.Of(i.ID).StaleFor > 0:
			return // its weight is kept in any case
		case s.Guard.ErrorRate > 0 && policy.IsFresh(&policy.Input{Service: &s, Snapshot: in}, o) && o.ErrorRate != nil &&
			*o.ErrorRate > s.Guard.ErrorRate:
			failing = append(failing, i)
		default:
			healthy = true
		}
	}
	for _, i := range failing {
		if w := plan.Weights[i.ID]; healthy && i.Weight != nil && w > *i.Weight+1e-9 {
			t.Fatalf("%s answers with errors and gains weight: %v to %v", i.ID, *i.Weight, w)
		}
	}
}

var ids = []string{"a", "b", "c", "d", "e", "f", "g"}

func drawService(t *rapid.T) quell.Service {
	share := func(name string, values ...float64) float64 {
		return rapid.OneOf(rapid.SampledFrom(values), rapid.Float64Range(0, .99)).Draw(t, name)
	}
	s := quell.DefaultService()
	s.Name = "video"
	s.Sampling = period * time.Second
	s.SLO = quell.SLO{Metric: quell.Mean, Threshold: time.Duration(rapid.IntRange(1, 200).Draw(t, "threshold")) * time.Millisecond}
	s.Policy.Name = rapid.SampledFrom(append(all.Names(), "prima", "prima", "prima")).Draw(t, "policy")
	tell(&s, "InterferenceModel", rapid.SampledFrom(quell.InterferenceModels).Draw(t, "model"))
	tell(&s, "Confirm", rapid.IntRange(0, 2).Draw(t, "confirm"))
	tell(&s, "Headroom", rapid.Float64Range(.1, 1).Draw(t, "headroom"))
	tell(&s, "ScaleInMargin", share("margin", 0))
	tell(&s, "ScaleOut", rapid.SampledFrom(quell.ScaleOuts).Draw(t, "scale out"))
	tell(&s, "Tolerance", share("tolerance", 0, .05))
	tell(&s, "Spare", rapid.IntRange(0, 2).Draw(t, "spare"))
	tell(&s, "Calibrate", share("calibrate", 0, .1))
	tell(&s, "CalibrationDecay", share("decay", 0, .05, 1))
	tell(&s, "Utilization", math.Max(.01, share("utilization", .3)))
	s.Group.Min = rapid.IntRange(1, 4).Draw(t, "min")
	s.Group.Max = rapid.IntRange(s.Group.Min, 9).Draw(t, "max")
	s.Group.Protected = rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, 3, rapid.ID).Draw(t, "protected")
	s.Guard = quell.Guard{
		Floor: share("floor", 0, 1), Step: share("step", 0, .2, 3),
		SlowStart:  time.Duration(rapid.SampledFrom([]int{0, 50}).Draw(t, "slow start")) * time.Second,
		StaleAfter: rapid.IntRange(0, 2).Draw(t, "stale after"), Fade: rapid.IntRange(0, 3).Draw(t, "fade"),
		ErrorRate: share("error rate", 0, .05),
	}
	return s
}

func drawModels(t *rapid.T) *model.Models {
	prima := &model.Prima{
		Isolation:    map[quell.Resource][]model.Isolation{},
		ResponseTime: map[quell.Resource][]model.ResponseTime{},
		Interference: map[quell.Resource][]model.Interference{},
	}
	m := &model.Models{
		Trained: &model.Trained{PerRequest: map[quell.Resource]float64{quell.Network: rapid.SampledFrom([]float64{.01, 1e9}).Draw(t,
			"per request")}},
		Sections: []model.Section{prima, lawfulDial()},
	}
	ms := rapid.OneOf(rapid.Float64Range(.1, 300), rapid.SampledFrom([]float64{1e-6, 1e9}))
	severity := rapid.OneOf(rapid.Float64Range(.001, 5), rapid.SampledFrom([]float64{1e-9, 1e9}))
	for level := range rapid.IntRange(1, 4).Draw(t, "levels") {
		u := float64(level+1) / 5
		prima.Isolation[quell.Network] = append(prima.Isolation[quell.Network],
			model.Isolation{Utilization: u, ProbeMS: ms.Draw(t, "alone"), StddevMS: 1, N: 20})
		for i, sf := range rapid.SliceOfNDistinct(severity, 1, 3, rapid.ID).Draw(t, "severities") {
			response := ms.Draw(t, "response")
			prima.ResponseTime[quell.Network] = append(prima.ResponseTime[quell.Network],
				model.ResponseTime{Utilization: u, Severity: sf, LatencyMS: quell.Latency{Mean: &response}})
			prima.Interference[quell.Network] = append(prima.Interference[quell.Network],
				model.Interference{Utilization: u, Interfering: float64(i+1) / 4, Severity: sf})
		}
	}
	return m
}

// optional draws a value or, one time in five, none.
func optional(t *rapid.T, name string, values *rapid.Generator[float64]) *float64 {
	if rapid.IntRange(0, 4).Draw(t, name+"?") == 0 {
		return nil
	}
	return new(values.Draw(t, name))
}

func drawSnapshot(t *rapid.T, k int) *quell.Snapshot {
	s := &quell.Snapshot{At: start.Add(time.Duration(k+1) * period * time.Second), Service: "video"}
	s.ArrivalRate = optional(t, "arrivals", rapid.OneOf(rapid.Float64Range(0, 300), rapid.Just(1e12)))
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, len(ids), rapid.ID).Draw(t, "ids") {
		state := rapid.SampledFrom(append([]quell.State{quell.Ready, quell.Ready, quell.Ready}, quell.States...)).Draw(t, "state")
		s.Instances = append(s.Instances, quell.Instance{
			ID: id, State: state,
			AgeS:        optional(t, "age", rapid.OneOf(rapid.Float64Range(0, 100), rapid.Just(1e9))),
			Weight:      optional(t, "weight", rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 5e-324}))),
			Observation: drawObservation(t, s.At),
		})
	}
	wholeWeights(s)
	return s
}

// wholeWeights makes the weights sum to 1, or leaves them all out.
func wholeWeights(s *quell.Snapshot) {
	var sum float64
	for _, i := range s.Instances {
		if i.Weight != nil {
			sum += *i.Weight
		}
	}
	for i := range s.Instances {
		switch in := &s.Instances[i]; {
		case sum == 0:
			in.Weight = nil
		case in.Weight != nil:
			*in.Weight /= sum
		}
	}
}

// carryOut sets the snapshot's weights to those of the last plan.
func carryOut(s *quell.Snapshot, last quell.Plan) {
	for i := range s.Instances {
		s.Instances[i].Weight = nil
	}
	follow(s, last)
	wholeWeights(s)
}

func drawObservation(t *rapid.T, at time.Time) *quell.Observation {
	if rapid.IntRange(0, 6).Draw(t, "silent") == 0 {
		return nil
	}
	o := &quell.Observation{
		At:          at.Add(-time.Duration(rapid.SampledFrom([]int{0, 0, 0, 9, 15, 40, -100}).Draw(t, "old")) * time.Second),
		Utilization: map[quell.Resource]float64{}, Severity: map[quell.Resource]float64{}, Probe: map[quell.Resource]quell.ProbeStats{},
		ErrorRate: optional(t, "errors", rapid.SampledFrom([]float64{0, 0, 1})),
	}
	if u := optional(t, "use", rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 2}))); u != nil {
		o.Utilization[quell.Network] = *u
	}
	if sf := optional(t, "severity", rapid.OneOf(rapid.Float64Range(0, 3), rapid.SampledFrom([]float64{0, 1e6, 1e-300}))); sf != nil {
		o.Severity[quell.Network] = *sf
	}
	if ms := optional(t, "probe", rapid.OneOf(rapid.Float64Range(0, 300), rapid.Just(1e9))); ms != nil {
		o.Probe[quell.Network] = quell.ProbeStats{MeanMS: *ms, StddevMS: 1, N: rapid.IntRange(1, 20).Draw(t, "probes")}
	}
	if ms := optional(t, "latency", rapid.OneOf(rapid.Float64Range(0, 300), rapid.Just(1e9))); ms != nil {
		o.LatencyMS = &quell.Latency{Mean: ms, N: rapid.SampledFrom([]int{0, 1, 100, math.MaxInt}).Draw(t, "requests")}
	}
	if ms := optional(t, "p90", rapid.OneOf(rapid.Float64Range(0, 300), rapid.Just(1e9))); ms != nil && o.LatencyMS != nil {
		o.LatencyMS.P90 = ms
	}
	o.RequestRate = optional(t, "rate", rapid.OneOf(rapid.Float64Range(0, 2000), rapid.SampledFrom([]float64{0, 1e-300, 1e9})))
	if ms := optional(t, "connect", rapid.Float64Range(0, 10)); ms != nil {
		o.TCP = map[string]float64{"connect_ms_p90": *ms}
	}
	return o
}

// After PRIMA has arranged a group, nothing changes any more: the next plan equals the plan in force.
func TestPRIMASettles(t *testing.T) {
	models := sharingModels(t)
	rapid.Check(t, func(t *rapid.T) {
		s := quell.DefaultService()
		s.Name, s.SLO = "video", quell.SLO{Metric: quell.Mean, Threshold: 75 * time.Millisecond}
		s.Group.Max = 50
		e, err := all.NewEngine(s, models)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 8).Draw(t, "instances")
		load := rapid.Float64Range(.05, .5).Draw(t, "load") * float64(n)
		neighbours := make([]float64, n)
		in := &quell.Snapshot{Service: "video"}
		for i := range n {
			neighbours[i] = rapid.SampledFrom([]float64{0, 0, .2, .4}).Draw(t, "neighbours")
			in.Instances = append(in.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i), State: quell.Ready, Weight: new(1 / float64(n))})
		}
		var st policy.State
		var plan quell.Plan
		for k := range 12 {
			in.At = start.Add(time.Duration(k+1) * period * time.Second)
			feel(in, neighbours, load)
			before := plan
			if plan, st = e.Decide(in, st); k > 8 && plan.Group != nil {
				t.Fatalf("still changing the group: %+v", plan.Group)
			}
			if k > 8 && !reflect.DeepEqual(before.Weights, plan.Weights) {
				t.Fatalf("still moving weights: %v, %v", before.Weights, plan.Weights)
			}
			neighbours = settle(in, neighbours, plan)
		}
		for id, ms := range plan.PredictedMS {
			if ms > 75*1.001 {
				t.Fatalf("%s ends at %v ms, above the threshold", id, ms)
			}
		}
	})
}

// settle applies a plan at once; new instances have no neighbours.
func settle(in *quell.Snapshot, neighbours []float64, plan quell.Plan) []float64 {
	var kept []quell.Instance
	var left []float64
	for i, instance := range in.Instances {
		if w, stays := plan.Weights[instance.ID]; stays {
			instance.Weight = &w
			kept, left = append(kept, instance), append(left, neighbours[i])
		}
	}
	if plan.Group != nil {
		for i := range plan.Group.Add {
			kept = append(kept, quell.Instance{ID: fmt.Sprintf("new%d-%d", in.At.Unix(), i), State: quell.Ready, Weight: new(0.0)})
			left = append(left, 0)
		}
	}
	in.Instances = kept
	return left
}
