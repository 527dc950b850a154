package policy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// reading is a snapshot of two instances that share the load, with response times in milliseconds.
func reading(period int, weights [2]float64, ms [2]float64) *quell.Snapshot {
	rate := 100.0
	s := &quell.Snapshot{At: time.Unix(int64(10*period), 0).UTC(), Service: "s", ArrivalRate: &rate}
	for i := range ms {
		mean, weight := ms[i], weights[i]
		s.Instances = append(s.Instances, quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Weight: &weight,
			Observation: &quell.Observation{At: s.At, WindowS: 10, Utilization: map[quell.Resource]float64{quell.Network: 0.3},
				LatencyMS: &quell.Latency{Mean: &mean, N: 200},
				Probe:     map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: 5 / 0.7, StddevMS: 2, N: 20}}}})
	}
	return s
}

// A policy whose models are learned in place begins with equal weights, then advises, makes steps and at last acts fully. What it knows
// survives being stored.
func TestAuthorityGrows(t *testing.T) {
	e, err := all.NewLearningEngine(learningService(all.Default()), nil)
	if err != nil {
		t.Fatal(err)
	}
	var st policy.State
	seen := map[quell.Authority]int{}
	var order []quell.Authority
	for period := range 30 {
		plan, next := e.Decide(reading(period, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), st)
		if seen[plan.Authority]++; seen[plan.Authority] == 1 {
			order = append(order, plan.Authority)
		}
		text, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		st = policy.State{}
		if err := restore(text, &st); err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(st); string(again) != string(text) {
			t.Fatalf("period %d: stored and read back it is\n%s\nnot\n%s", period, again, text)
		}
	}
	if want := []quell.Authority{quell.AuthorityAdvise, quell.AuthorityStep, quell.Full}; !reflect.DeepEqual(order, want) {
		t.Errorf("authority went through %v, want %v", order, want)
	}
	if len(st.Learned.Live()) == 0 {
		t.Error("nothing was learned")
	}
	again, _ := e.Decide(reading(30, [2]float64{0.5, 0.5}, [2]float64{14, 14}), policy.State{Policy: st.Policy})
	if again.Authority != quell.AuthorityAdvise {
		t.Errorf("without its memory it has authority %q", again.Authority)
	}
}

// With trained models to begin with, a policy acts from the first snapshot on, and goes on learning.
func TestLearningGoesOnFromTrainedModels(t *testing.T) {
	e, err := all.NewLearningEngine(learningService(all.Default()), goldenModels(t))
	if err != nil {
		t.Fatal(err)
	}
	plan, st := e.Decide(reading(0, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), policy.State{})
	if plan.Authority != quell.Full || len(plan.Capacity) != 2 {
		t.Errorf("authority %q and capacities %v", plan.Authority, plan.Capacity)
	}
	if _, st = e.Decide(reading(1, [2]float64{0.5, 0.5}, [2]float64{14, 14.5}), st); st.Learned.Periods != 2 {
		t.Errorf("it learned from %d of 2 snapshots", st.Learned.Periods)
	}
}

// While the objective is missed, a policy may go one level further than it has earned, unless a person set the level or a change was just
// taken back.
func TestMoreAuthorityInNeed(t *testing.T) {
	missed, met := policy.Standing{Measured: 1.5, Predicted: 1}, policy.Standing{Measured: 1, Predicted: 1}
	for name, c := range map[string]struct {
		now   policy.Standing
		trust policy.Trust
		want  quell.Authority
	}{
		"advise, met":          {met, policy.Trust{Level: quell.AuthorityAdvise}, quell.AuthorityAdvise},
		"advise, missed":       {missed, policy.Trust{Level: quell.AuthorityAdvise}, quell.AuthorityStep},
		"step, missed":         {missed, policy.Trust{Level: quell.AuthorityStep}, quell.Full},
		"full, missed":         {missed, policy.Trust{Level: quell.Full}, quell.Full},
		"trained, missed":      {missed, policy.Trust{}, quell.Full},
		"set by a person":      {missed, policy.Trust{Level: quell.AuthorityAdvise, ByHand: "anna"}, quell.AuthorityAdvise},
		"after a harmful plan": {missed, policy.Trust{Level: quell.AuthorityAdvise, Barred: 3}, quell.AuthorityAdvise},
	} {
		w := &policy.Watched{Trust: c.trust, Now: c.now, Known: true}
		if got := w.Level(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The reason names who set the authority. Otherwise it says how many periods are left, and why one does not count.
func TestReasonOfTheAuthority(t *testing.T) {
	for name, c := range map[string]struct {
		trust     policy.Trust
		responses int
		want      string
	}{
		"advises": {policy.Trust{Level: quell.AuthorityAdvise}, 200,
			"policy prima: it has not shown yet that its predictions hold: it only advises."},
		"too few requests": {policy.Trust{Level: quell.AuthorityAdvise}, 9,
			"at least 10 response times at one instance). `quell authority full`"},
		"advises by hand": {policy.Trust{Level: quell.AuthorityAdvise, ByHand: "ann"}, 200,
			"it only advises, as ann set it: `quell authority auto` ends that"},
		"steps": {policy.Trust{Level: quell.AuthorityStep}, 200, "until its predictions have held for 3 more period(s)"},
		"steps by hand": {policy.Trust{Level: quell.AuthorityStep, ByHand: "ann", Good: 20}, 200,
			"small steps, as ann set it: `quell authority auto` ends that"},
		"steps, and is too few": {policy.Trust{Level: quell.AuthorityStep}, 9, "for 4 more period(s) (this period is not judged"},
	} {
		service := learningService(all.Default())
		in, g := &policy.Input{Service: &service, Snapshot: reading(2, [2]float64{0.5, 0.5}, [2]float64{14, 14})}, &policy.Group{}
		for i := range in.Snapshot.Instances {
			in.Snapshot.Instances[i].Observation.LatencyMS.N = c.responses
			g.Ready = append(g.Ready, &policy.Member{Instance: &in.Snapshot.Instances[i], Fresh: true})
		}
		var plan quell.Plan
		w := policy.Watch(in, g, c.trust)
		w.Trust.Level = c.trust.Level
		w.Restrict(&plan)
		if len(plan.Reasons) != 1 || !strings.Contains(plan.Reasons[0].Text, c.want) {
			t.Errorf("%s: %+v, want %q", name, plan.Reasons, c.want)
		}
	}
}

func TestTooLittleIsKnown(t *testing.T) {
	e, err := all.NewLearningEngine(learningService(all.Default()), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := reading(1, [2]float64{0.5, 0.5}, [2]float64{14, 14})
	s.Instances[0].Observation.Probe, s.Instances[1].Observation.Probe = nil, nil
	plan, _ := e.Decide(s, policy.State{})
	if len(plan.Reasons) == 0 || plan.Reasons[len(plan.Reasons)-1].Code != "learning" || plan.Authority != quell.AuthorityAdvise {
		t.Errorf("without probes: %+v", plan)
	}
}

// A change of shares after which the service is plainly worse than before in two periods is taken back, for a policy without models too.
func TestHarmIsTakenBack(t *testing.T) {
	service := learningService("knapsack")
	g := &policy.Group{}
	in := &policy.Input{Service: &service, Snapshot: reading(2, [2]float64{0.9, 0.1}, [2]float64{90, 12})}
	for i := range in.Snapshot.Instances {
		g.Ready = append(g.Ready, &policy.Member{Instance: &in.Snapshot.Instances[i], Fresh: true})
	}
	change := &policy.Change{At: in.Snapshot.At, Shares: map[string]float64{"i1": 0.5, "i2": 0.5}, Before: 1, Rate: 100, Bad: 1}
	w := policy.Watch(in, g, policy.Trust{Change: change})
	plan := quell.Plan{Group: &quell.GroupChange{Remove: []string{"i2"}}}
	w.Restrict(&plan)
	if w.TakeBack == nil || g.Ready[0].Planned != 0.5 || g.Ready[1].Planned != 0.5 || plan.Group != nil {
		t.Fatalf("shares %v and %v, group %+v", g.Ready[0].Planned, g.Ready[1].Planned, plan.Group)
	}
	if trust := w.Follow(&plan); trust.Level != quell.AuthorityAdvise || trust.Barred != policy.BarredFor || trust.Harms != 1 {
		t.Errorf("after the harm: %+v", trust)
	}
	if change.Bad != 1 {
		t.Error("the old memory was changed")
	}
	for name, still := range map[string]func(s *quell.Snapshot, c *policy.Change){
		"it was as bad before":         func(_ *quell.Snapshot, c *policy.Change) { c.Before = 2 },
		"many more requests":           func(s *quell.Snapshot, _ *policy.Change) { more := 200.0; s.ArrivalRate = &more },
		"the change is not in force":   func(_ *quell.Snapshot, c *policy.Change) { c.Shares = map[string]float64{"i1": 0.9, "i2": 0.1} },
		"too few requests to judge it": func(s *quell.Snapshot, _ *policy.Change) { s.Instances[0].Observation.LatencyMS.N = 3 },
		"the slow one was relieved": func(s *quell.Snapshot, _ *policy.Change) {
			s.Instances[0].Observation.LatencyMS, s.Instances[1].Observation.LatencyMS =
				s.Instances[1].Observation.LatencyMS, s.Instances[0].Observation.LatencyMS
		},
		"a neighbour came beside the slow one": func(s *quell.Snapshot, c *policy.Change) {
			c.FeltBy = map[string]float64{"i1": 0.1}
			s.Instances[0].Observation.Severity = map[quell.Resource]float64{quell.Network: 0.9}
		},
		"undo is off": func(*quell.Snapshot, *policy.Change) { service.Guard.Undo = false },
	} {
		c := *change
		s := reading(2, [2]float64{0.9, 0.1}, [2]float64{70, 12})
		still(s, &c)
		in, g := &policy.Input{Service: &service, Snapshot: s}, &policy.Group{}
		for i := range s.Instances {
			m := &policy.Member{Instance: &s.Instances[i], Fresh: true}
			m.Senses = []policy.Sense{{Measured: m.Observation.Severity[quell.Network]}}
			g.Ready = append(g.Ready, m)
		}
		if w := policy.Watch(in, g, policy.Trust{Change: &c}); w.TakeBack != nil {
			t.Errorf("%s, and the change is taken back", name)
		}
		service.Guard.Undo = true
	}
}

// One slow period after a good one may have another cause than the change: two are needed then.
func TestOneSlowPeriodAfterAGoodOne(t *testing.T) {
	e := learningEngine(t, learningService("prima"))
	before := learnedFor(t, e, 40)
	for name, c := range map[string]struct {
		ms    []float64
		taken int // the period in which the change is taken back
	}{
		"slow at once":            {[]float64{90, 90, 90}, 0},
		"slow after a good":       {[]float64{14, 90, 90}, 2},
		"slow for one, then good": {[]float64{14, 90, 14, 14}, -1},
	} {
		st := before
		st.Trust.Change = &policy.Change{Shares: map[string]float64{"i1": 0.3, "i2": 0.7}, Before: 1, Rate: 100}
		taken := -1
		for i, ms := range c.ms {
			_, st = e.Decide(reading(40+i, [2]float64{0.5, 0.5}, [2]float64{ms, ms}), st)
			if st.Trust.Harms > 0 && taken < 0 {
				taken = i
			}
		}
		if taken != c.taken {
			t.Errorf("%s: taken back in period %d, want %d", name, taken, c.taken)
		}
	}
}

// What was taken back without making anything better was not the cause, and the policy need not wait for the end of its bar.
func TestTakingBackIsJudged(t *testing.T) {
	service := learningService("hpa")
	even := map[string]float64{"i1": 0.5, "i2": 0.5}
	for name, c := range map[string]struct {
		ms        float64 // of 40 allowed
		n         int
		rate      float64
		undone    policy.Undone
		harms     int
		acquitted bool // after four such periods
	}{
		"as slow without the change": {60, 200, 100, policy.Undone{Size: 2}, 1, true},
		"for the second time":        {60, 200, 100, policy.Undone{Size: 2}, 2, false},
		"better":                     {50, 200, 100, policy.Undone{Size: 2}, 1, false},
		"good":                       {20, 200, 100, policy.Undone{Size: 2}, 1, false},
		"too few response times":     {60, 3, 100, policy.Undone{Size: 2}, 1, false},
		"far more requests":          {60, 200, 140, policy.Undone{Size: 2}, 1, false},
		"an instance is to come":     {60, 200, 100, policy.Undone{Size: 3}, 1, false},
		"the shares are not back": {60, 200, 100, policy.Undone{Size: 2,
			Change: &policy.Change{Shares: map[string]float64{"i1": 0.3, "i2": 0.7}}}, 1, false},
		"another objective": {60, 200, 100, policy.Undone{Size: 2, Change: &policy.Change{Shares: even, SLO: "p99 1s"}}, 1, false},
		"memory without it": {60, 200, 100, policy.Undone{Size: 2, Same: -1}, 1, false},
	} {
		undone := c.undone
		if undone.Measured, undone.Rate = 1.5, 100; undone.Change == nil && undone.Same == 0 {
			undone.Change = &policy.Change{Shares: even}
		}
		trust := policy.Trust{Level: quell.AuthorityAdvise, Barred: 9, Harms: c.harms, Harm: "the change was taken back", Undone: &undone}
		for range 4 {
			in, g := watching(&service, []string{"i1", "i2"}, c.n, c.ms)
			in.Snapshot.ArrivalRate = &c.rate
			trust = policy.Watch(in, g, trust).Trust
		}
		said := strings.HasSuffix(trust.Harm, "so it was not the cause")
		acquitted := trust.Level == quell.AuthorityStep && trust.Barred == 0
		if acquitted != c.acquitted || said != c.acquitted || trust.Harms != c.harms {
			t.Errorf("%s: %+v", name, trust)
		}
		if undone.Same > 0 {
			t.Errorf("%s: the old memory was changed", name)
		}
	}
}
