package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// learnedFor decides for some calm periods with a policy that learns.
func learnedFor(t *testing.T, e *policy.Engine, periods int) (st policy.State) {
	t.Helper()
	for p := range periods {
		_, st = e.Decide(reading(p, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), st)
	}
	return st
}

func learningEngine(t *testing.T, service quell.Service) *policy.Engine {
	t.Helper()
	e, err := all.NewLearningEngine(service, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func says(plan quell.Plan, code, text string) bool {
	for _, r := range plan.Reasons {
		if r.Code == code && strings.Contains(r.Text, text) {
			return true
		}
	}
	return false
}

// In an emergency people change to a simple policy. It may act at once, whatever the former one did; only what a person set stays.
func TestAnotherPolicyBeginsAnew(t *testing.T) {
	harmful := policy.Trust{Level: quell.AuthorityAdvise, Barred: 160, Harms: 5}
	for _, name := range []string{"static", "hpa"} {
		e, err := all.NewEngine(learningService(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		st, w := policy.State{Policy: "prima", Trust: harmful}, [2]float64{0.9, 0.1}
		for p := range 30 {
			var plan quell.Plan
			plan, st = e.Decide(reading(p, w, [2]float64{90, 12}), st)
			w = [2]float64{plan.Weights["i1"], plan.Weights["i2"]}
		}
		if w[0] > 0.6 || st.Trust.Barred > 0 {
			t.Errorf("%s: after 30 periods the weights are %.2f, trust %+v", name, w, st.Trust)
		}
		byHand := policy.Trust{Level: quell.AuthorityAdvise, ByHand: "ann", Harms: 5}
		plan, _ := e.Decide(reading(0, [2]float64{0.9, 0.1}, [2]float64{90, 12}), policy.State{Policy: "prima", Trust: byHand})
		if plan.Weights["i1"] != 0.9 || !says(plan, "authority", "as ann set it") {
			t.Errorf("%s: set by hand: %v, %+v", name, plan.Weights, plan.Reasons)
		}
	}
}

// Who trains while models are learned in place, and then names the file, begins with its rows.
func TestNewTrainedModelsAreUsed(t *testing.T) {
	st := learnedFor(t, learningEngine(t, learningService("prima")), 30)
	e, err := all.NewLearningEngine(learningService("prima"), goldenModels(t))
	if err != nil {
		t.Fatal(err)
	}
	plan, st := e.Decide(reading(30, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), st)
	if !says(plan, "learning_anew", "the trained models have changed") || plan.Authority != quell.Full {
		t.Errorf("authority %q, %+v", plan.Authority, plan.Reasons)
	}
	if fresh, _ := e.Decide(reading(30, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}),
		policy.State{}); fresh.Capacity["i1"] != plan.Capacity["i1"] {
		t.Errorf("capacities %v, without a memory %v", plan.Capacity, fresh.Capacity)
	}
	known := st.Learned.Periods
	if plan, st = e.Decide(reading(31, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), st); says(plan, "learning_anew", "") ||
		st.Learned.Periods != known+1 {
		t.Errorf("once more: %d periods after %d, %+v", st.Learned.Periods, known, plan.Reasons)
	}
	// Without the file, what is known stays.
	_, st = learningEngine(t, learningService("prima")).Decide(reading(32, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), st)
	if st.Learned.Periods != known+2 {
		t.Errorf("without the file: %d periods", st.Learned.Periods)
	}
}

// When what was learned is lost, so is the authority that was earned with it.
func TestAuthorityEndsWithWhatWasLearned(t *testing.T) {
	service := learningService("prima")
	st := learnedFor(t, learningEngine(t, service), 40)
	if st.Trust.Level != quell.Full {
		t.Fatalf("trust %+v", st.Trust)
	}
	service.SLO = quell.SLO{Metric: quell.P90, Threshold: 80 * time.Millisecond} // nothing is known of this one
	e := learningEngine(t, service)
	var order []quell.Authority
	for p := 40; p < 70; p++ {
		s := reading(p, [2]float64{0.5, 0.5}, [2]float64{14, 14.5})
		for i := range s.Instances {
			p90 := 30.0
			s.Instances[i].Observation.LatencyMS.P90 = &p90
		}
		var plan quell.Plan
		if plan, st = e.Decide(s, st); len(order) == 0 || order[len(order)-1] != plan.Authority {
			order = append(order, plan.Authority)
		}
	}
	if got := fmt.Sprint(order); got != "[advise step full]" {
		t.Errorf("authority went through %s", got)
	}
}

// A weight that a person set, and an instance that is lost, move shares. The policy did not do that.
func TestThePolicyIsNotBlamedForOthers(t *testing.T) {
	share := 0.8
	for name, happens := range map[string]func(s *quell.Snapshot){
		"an override": func(s *quell.Snapshot) { s.Instances[0].Override = &share },
		"a failure":   func(s *quell.Snapshot) { s.Instances[1].State = quell.Failed },
	} {
		e := learningEngine(t, learningService("prima"))
		st := learnedFor(t, e, 40)
		s := reading(40, [2]float64{0.5, 0.5}, [2]float64{14, 14.5})
		happens(s)
		_, st = e.Decide(s, st)
		for p := 41; p < 46; p++ {
			s := reading(p, [2]float64{0.8, 0.2}, [2]float64{80, 12})
			happens(s)
			s.Instances[0].Observation.Utilization[quell.Network] = 0.48
			s.Instances[1].Observation.Utilization[quell.Network] = 0.12
			_, st = e.Decide(s, st)
		}
		if st.Trust.Harms > 0 || st.Trust.Change != nil {
			t.Errorf("%s: %+v", name, st.Trust)
		}
	}
	// The same in the middle of a change that is being watched.
	service := learningService("prima")
	in, g := watching(&service, []string{"i1", "i2"}, 200, 80)
	in.Snapshot.Instances[0].Override = &share
	c := &policy.Change{Shares: map[string]float64{"i1": 0.3, "i2": 0.7}, Before: 1, Rate: 100, SLO: policy.Objective(in)}
	if w := policy.Watch(in, g, policy.Trust{Level: quell.Full, Change: c}); w.TakeBack != nil || w.Trust.Change != nil {
		t.Errorf("an override of a watched instance: %+v", w.Trust)
	}
}

// watching is a group of these instances with equal shares, all with n response times of that length.
func watching(service *quell.Service, ids []string, n int, ms float64) (*policy.Input, *policy.Group) {
	rate := 100.0
	s, g := &quell.Snapshot{At: time.Unix(100, 0), ArrivalRate: &rate}, &policy.Group{}
	for _, id := range ids {
		share := 1 / float64(len(ids))
		s.Instances = append(s.Instances, quell.Instance{ID: id, State: quell.Ready, Weight: &share,
			Observation: &quell.Observation{At: s.At, LatencyMS: &quell.Latency{Mean: &ms, N: n}}})
	}
	for i := range s.Instances {
		g.Ready = append(g.Ready, &policy.Member{Instance: &s.Instances[i], Fresh: true, Settled: 1 / float64(len(ids))})
	}
	return &policy.Input{Service: service, Snapshot: s}, g
}

// A tighter objective is no harm that the last change did.
func TestAnotherObjectiveEndsTheWatch(t *testing.T) {
	service := learningService("hpa")
	in, g := watching(&service, []string{"i1", "i2"}, 200, 60)
	c := &policy.Change{Shares: map[string]float64{"i1": 0.4, "i2": 0.6}, Before: 1, Rate: 100, SLO: policy.Objective(in)}
	if w := policy.Watch(in, g, policy.Trust{Level: quell.Full, Change: c}); w.Trust.Change == nil || w.Trust.Change.Bad == 0 {
		t.Errorf("the same objective: %+v", w.Trust)
	}
	service.SLO.Threshold = 30 * time.Millisecond
	if w := policy.Watch(in, g, policy.Trust{Level: quell.Full, Change: c}); w.TakeBack != nil || w.Trust.Change != nil {
		t.Errorf("a tighter one: %+v", w.Trust)
	}
}

// At night too few requests come to judge removals. In the morning they must not all be taken back at once.
func TestUnjudgedRemovalsDoNotPileUp(t *testing.T) {
	service := learningService("prima")
	ids, trust, next := []string{"a", "b", "c"}, policy.Trust{Level: quell.Full}, 0
	for p := range 100 {
		n := 5
		if p == 0 {
			n = 50
		}
		in, g := watching(&service, ids, n, 20)
		w := policy.Watch(in, g, trust)
		plan := quell.Plan{Weights: map[string]float64{}}
		switch {
		case len(ids) == 3:
			plan.Group = &quell.GroupChange{Remove: []string{ids[2]}}
			ids = ids[:2]
		case p%5 == 4:
			next++
			ids = append(ids[:2:2], fmt.Sprint("n", next))
		}
		trust = w.Follow(&plan)
	}
	if c := trust.Change; c != nil && len(c.Removed) > policy.MutedFor/5+1 {
		t.Errorf("%d removals are watched", len(c.Removed))
	}
	in, g := watching(&service, []string{"a", "b"}, 200, 80)
	change := &policy.Change{Removed: []string{"c", "d", "e", "f"}, Size: 3, Before: 1, Rate: 100, SLO: policy.Objective(in), Bad: 1}
	w := policy.Watch(in, g, policy.Trust{Level: quell.Full, Change: change})
	var plan quell.Plan
	if w.Restrict(&plan); w.TakeBack == nil || plan.Group == nil || plan.Group.Add != 1 {
		t.Errorf("of 3 instances 2 are left: %+v", plan.Group)
	}
}

// A change that was taken back is forgotten in time, so that a few a year do not make each bar longer.
func TestHarmsAreForgotten(t *testing.T) {
	service := learningService("prima")
	in, g := watching(&service, []string{"a", "b"}, 200, 20)
	trust := policy.Trust{Level: quell.Full, Harms: 2}
	for range policy.ForgivenAfter + 1 {
		trust = policy.Watch(in, g, trust).Trust
	}
	if trust.Harms != 1 {
		t.Errorf("%+v", trust)
	}
}

// What an unknown version learned cannot be read. Everything else of the memory stays.
func TestUnreadableLearningLosesNothingElse(t *testing.T) {
	e := learningEngine(t, learningService("prima"))
	st := learnedFor(t, e, 40)
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var back policy.State
	if err := restore([]byte(strings.Replace(string(text), `"seen":{`, `"seen":{"gpu":{},`, 1)), &back); err != nil {
		t.Fatal(err)
	}
	if back.Unread == nil || back.Learned != nil || back.Trust.Level != quell.AuthorityAdvise || back.Policy != "prima" ||
		len(back.Instances) != 2 {
		t.Errorf("%v, %+v", back.Unread, back)
	}
	if err := restore(text, &back); err != nil || back.Unread != nil || back.Learned == nil {
		t.Error(errors.Join(err, back.Unread))
	}
}
