package acs

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	expected "github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/policy"
)

// From uneven starts the slowdowns are within 1.1 after five periods, and the caps then move by no more than the tolerance.
func TestACSMakesSlowdownsEqual(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine *shared
	}{
		{"two, one of which has ten times the weight", machineOf(1, sharer{want: 1, weight: 10}, sharer{want: 1})},
		{"one task beside eight", machineOf(2, sharer{want: 1}, sharer{want: 8})},
		{"four, of one to four tasks", machineOf(2, sharer{want: 1}, sharer{want: 2}, sharer{want: 3}, sharer{want: 4})},
		{"eight on two processors", machineOf(2, sharer{want: 1, weight: 4}, sharer{want: 1}, sharer{want: 1}, sharer{want: 1},
			sharer{want: .5}, sharer{want: 2}, sharer{want: 2, weight: 3}, sharer{want: 1})},
		{"a half-idle one beside greedy ones", machineOf(4, sharer{want: .4}, sharer{want: 4, weight: 8}, sharer{want: 4})},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := map[string]float64{}
			st := c.machine.play(acsEngine(t, nil), policy.State{}, 40, func(period int, slowdowns []float64, p quell.Plan) {
				used := 0.0
				for _, g := range c.machine.run() {
					used += g
				}
				if u := unfairness(slowdowns); period > 6 && u > 1.1 {
					t.Errorf("period %d: unfairness %.3f of %.2f", period, u, slowdowns)
				}
				if period > 6 && used < 0.95*c.machine.cores {
					t.Errorf("period %d: only %.2f of %g processors are used", period, used, c.machine.cores)
				}
				for _, l := range p.Limits {
					if was := before[l.Instance]; period > 7 && math.Abs(l.Value-was) > Spec.Defaults.Tolerance*was {
						t.Errorf("period %d: the cap of %s moves from %.3f to %.3f", period, l.Instance, was, l.Value)
					}
					before[l.Instance] = l.Value
				}
			})
			if !st.Memory.(*memory).Even {
				t.Error("it has not settled")
			}
		})
	}
}

// With noise and delay unfairness stays near 1 on average.
func TestACSBearsNoiseAndDelay(t *testing.T) {
	for _, c := range []struct {
		noise float64
		delay int
		most  float64
	}{{0.03, 0, 1.1}, {0.1, 0, 1.25}, {0, 1, 1.1}, {0.03, 1, 1.15}} {
		m := machineOf(2, sharer{want: 1}, sharer{want: 2}, sharer{want: 4, weight: 4}, sharer{want: 1})
		m.noise, m.delay = c.noise, c.delay
		sum := 0.0
		const periods, settle = 200, 15
		m.play(acsEngine(t, nil), policy.State{}, periods, func(period int, slowdowns []float64, _ quell.Plan) {
			if period > settle {
				sum += unfairness(slowdowns)
			}
		})
		if mean := sum / (periods - settle); mean > c.most {
			t.Errorf("noise %v, delay %d: mean unfairness %.3f, want at most %v", c.noise, c.delay, mean, c.most)
		}
	}
}

// The literal rule of Eq. 7 and 8 does not settle from an uneven start.
func TestACSLiteralCycles(t *testing.T) {
	m, worst := machineOf(1, sharer{want: 1, weight: 10}, sharer{want: 1}), 0.0
	m.play(acsEngine(t, func(s *Settings) { s.Rule = Literal }), policy.State{}, 100, func(period int, slowdowns []float64, _ quell.Plan) {
		if period > 50 {
			worst = max(worst, unfairness(slowdowns))
		}
	})
	if worst < 3 {
		t.Errorf("unfairness stays below %.2f: the page says that this rule cycles", worst)
	}
}

// One step of each rule, computed by hand. Slowdowns 1.25 and 5 have the mean 3.125.
func TestACSOneStep(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		by   Means
		want string
	}{
		// 0.8 * 0.75 = 0.6 and 0.2 * 1.25 = 0.25 are scaled by 1 / 0.85.
		{Damped, Caps, "g0 0.7059 g1 0.2941"},
		// The weights 1 * max(0.5, 0.4^0.8) and 1 * 1.6^0.8 are scaled so that their mean is 1.
		{Damped, Weights, "g0 0.5111 g1 1.4889"},
		// 0.8 - 0.6 * 1.875 is below the floor; 0.2 + 0.6 * 1.875 is above 1, which is no cap.
		{Literal, Weights, "g0 0.0200"},
	} {
		m := machineOf(1, sharer{want: 1, weight: 4}, sharer{want: 1})
		var got []string
		m.play(acsEngine(t, func(s *Settings) { s.Rule, s.By = c.rule, c.by }), policy.State{}, 1, func(_ int, _ []float64, p quell.Plan) {
			for _, l := range p.Limits {
				got = append(got, fmt.Sprintf("%s %.4f", l.Instance, l.Value))
			}
		})
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: caps %s, want %s", c.rule, text, c.want)
		}
	}
}

// An idle group's share goes to the others within two periods, and comes back within two.
func TestACSIdleShares(t *testing.T) {
	m := machineOf(2, sharer{want: 2, weight: 4}, sharer{want: 2}, sharer{want: 2})
	e := acsEngine(t, nil)
	st := m.play(e, policy.State{}, 20, nil)
	even := m.run()
	m.groups[0].want = 0
	st = m.play(e, st, 2, nil)
	m.step()
	if got := m.run(); got[1]+got[2] < 1.99 {
		t.Errorf("two periods after one became idle the others get %.2f", got)
	}
	m.groups[0].want = 2
	m.play(e, st, 2, nil)
	m.step()
	if got := m.run(); math.Abs(got[0]-even[0]) > 0.1*even[0] || math.Abs(got[1]-even[1]) > 0.1*even[1] {
		t.Errorf("two periods after it came back they get %.2f, before %.2f", got, even)
	}
}

// A group that vanishes leaves its share at once; a new one gets one within five periods.
func TestACSGroupsComeAndGo(t *testing.T) {
	m := machineOf(2, sharer{want: 2, weight: 4}, sharer{want: 2}, sharer{want: 2})
	e := acsEngine(t, nil)
	st := m.play(e, policy.State{}, 20, nil)
	m.groups = m.groups[1:]
	st = m.play(e, st, 1, nil)
	m.step()
	if got := m.run(); got[0]+got[1] < 1.99 {
		t.Errorf("the others get %.2f", got)
	}
	m.groups = append(m.groups, sharer{id: "new", want: 2, weight: 1})
	var slowdowns []float64
	m.play(e, st, 6, func(_ int, s []float64, _ quell.Plan) { slowdowns = s })
	if u := unfairness(slowdowns); u > 1.1 {
		t.Errorf("unfairness %.2f: %.2f", u, slowdowns)
	}
}

// A group with share 2 is slowed down half as much as one with share 1.
func TestACSGivenShares(t *testing.T) {
	m := machineOf(2, sharer{want: 3, share: 2}, sharer{want: 3, share: 1}, sharer{want: 3, share: 1})
	var last []float64
	m.play(acsEngine(t, nil), policy.State{}, 20, func(_ int, slowdowns []float64, _ quell.Plan) { last = slowdowns })
	if u := unfairness([]float64{2 * last[0], last[1], last[2]}); u > 1.1 {
		t.Errorf("slowdowns %.2f", last)
	}
	// What a group cannot use goes to the others, however large its share is.
	m = machineOf(2, sharer{want: 0.5, share: 10}, sharer{want: 3, share: 1})
	m.play(acsEngine(t, nil), policy.State{}, 20, nil)
	if got := m.run(); got[0] < 0.49 || got[0]+got[1] < 1.94 {
		t.Errorf("they get %.2f", got)
	}
}

// Without contention there are no caps, and those that were needed go when it ends.
func TestACSCapsOnlyUnderContention(t *testing.T) {
	m := machineOf(2, sharer{want: 1}, sharer{want: .8})
	e := acsEngine(t, nil)
	count := func(_ int, _ []float64, p quell.Plan) {
		if len(p.Limits) > 0 {
			t.Errorf("caps %v on a machine that has room", p.Limits)
		}
	}
	st := m.play(e, policy.State{}, 5, count)
	m.groups[1].want = 8
	st = m.play(e, st, 10, nil)
	if len(m.coming[len(m.coming)-1]) == 0 {
		t.Error("no caps under contention")
	}
	m.groups[1].want = .8
	st = m.play(e, st, acsCalm+1, nil)
	m.play(e, st, 5, count)
}

// A quota that somebody else set is respected: it bounds the group, or leaves the group out.
func TestACSBesideForeignQuotas(t *testing.T) {
	for _, quota := range []float64{0.1, 5} {
		m := machineOf(2, sharer{want: 2}, sharer{want: 2, weight: 3}, sharer{want: 1})
		e, st := acsEngine(t, nil), policy.State{}
		var plan quell.Plan
		for range 30 {
			s, _ := m.step()
			s.Instances[0].Limits = map[quell.Resource]float64{quell.CPU: quota}
			plan, st = e.Decide(s, st)
			m.apply(plan)
			m.asked["g0"] = quota
		}
		got := m.run()
		if rest := m.groups[1:]; math.Abs(rest[0].want/got[1]-rest[1].want/got[2]) > 0.25 {
			t.Errorf("quota %v: the others get %.2f", quota, got[1:])
		}
		if quota < 1 && got[0]+got[1]+got[2] < 1.9 {
			t.Errorf("quota %v: they get %.2f", quota, got)
		}
		want := map[bool]string{true: "acs_not_capped", false: "acs_bounded"}[quota > 2]
		if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == want && r.Instance == "g0" }) {
			t.Errorf("quota %v: reasons %v, want %s", quota, plan.Reasons, want)
		}
	}
}

func TestACSWithoutReadings(t *testing.T) {
	m := machineOf(1, sharer{want: 1, weight: 4}, sharer{want: 1})
	e := acsEngine(t, nil)
	st := m.play(e, policy.State{}, 3, nil)
	s, _ := m.step()
	s.Machine = nil
	plan, next := e.Decide(s, st)
	if len(plan.Limits) != 2 || plan.Reasons[0].Code != "machine_unread" || !reflect.DeepEqual(next.Memory, st.Memory) {
		t.Errorf("without the machine: %+v", plan)
	}
	s, _ = m.step()
	s.Instances[0].Observation = nil
	if plan, _ = e.Decide(s, st); plan.Tenants["g0"].Slowdown != nil || len(plan.Limits) == 0 {
		t.Errorf("a group that was not read: %+v", plan)
	}
	for _, in := range s.Instances {
		if in.Observation != nil {
			in.Observation.Sched.WaitS = nil
		}
	}
	blind := false
	plan, _ = e.Decide(s, policy.State{})
	for _, r := range plan.Reasons {
		blind = blind || r.Code == "acs_blind"
	}
	if !blind {
		t.Errorf("a kernel that tells nothing of waiting: %v", plan.Reasons)
	}
	s.Instances = nil
	if plan, _ = e.Decide(s, st); len(plan.Limits) != 0 {
		t.Errorf("no groups, but %v", plan.Limits)
	}
}

func TestACSHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom([]Rule{Damped, Literal}).Draw(t, "rule")
		by := rapid.SampledFrom([]Means{Weights, Caps}).Draw(t, "by")
		e, st := acsEngine(t, func(s *Settings) {
			s.Rule, s.By, s.Cores = rule, by, rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "cores")
		}), policy.State{}
		for range rapid.IntRange(1, 8).Draw(t, "snapshots") {
			s := drawHost(t)
			for i := range s.Instances {
				in := &s.Instances[i]
				in.Within = rapid.SampledFrom([]string{"", "/", "/a", "/a/b", "/c"}).Draw(t, "within")
				if rapid.Bool().Draw(t, "limited") {
					in.Limits = map[quell.Resource]float64{quell.CPU: rapid.Float64Range(0.001, 4).Draw(t, "quota")}
				}
				if in.Observation != nil && in.Observation.Sched != nil && rapid.Bool().Draw(t, "tasks") {
					free, chains := rapid.Float64Range(0, 100).Draw(t, "free"), rapid.Float64Range(0, 20).Draw(t, "chains")
					lost := rapid.Float64Range(0, 1).Draw(t, "lost")
					sched := *in.Observation.Sched
					sched.FreeS, sched.Chains, sched.Lost = &free, &chains, &lost
					in.Observation.Sched = &sched
				}
				if in.Observation != nil && rapid.Bool().Draw(t, "reports") {
					slowdown := rapid.Float64Range(0, 1e6).Draw(t, "slowdown")
					in.Observation.Slowdown = &slowdown
				}
				if in.Observation != nil && rapid.Bool().Draw(t, "works") {
					in.Observation.Counters = map[string]float64{
						quell.CounterProgress: rapid.SampledFrom([]float64{1e-300, 1, 1e15}).Draw(t, "rate")}
				}
				share := rapid.Float64Range(0, 100).Draw(t, "share")
				in.Share = &share
			}
			before, asked := text(t, st), text(t, s)
			plan, next := e.Decide(s, st)
			if text(t, st) != before || text(t, s) != asked {
				t.Fatal("what was handed in has changed")
			}
			again, nextAgain := e.Decide(s, reread(t, st))
			if !reflect.DeepEqual(plan, again) || text(t, next) != text(t, nextAgain) {
				t.Fatalf("the same input gave another plan or memory:\n%v\n%v", plan, again)
			}
			if _, err := json.Marshal(plan); err != nil {
				t.Fatal(err)
			}
			for _, l := range plan.Limits {
				if err := l.Validate(); err != nil || l.Value <= 0 {
					t.Fatalf("%+v: %v", l, err)
				}
			}
			st = next
		}
	})
}

// TestACSGolden compares a run's caps and reasons with a recorded one.
func TestACSGolden(t *testing.T) {
	m := machineOf(2, sharer{want: 1}, sharer{want: 2, weight: 4}, sharer{want: 4})
	var b strings.Builder
	m.play(acsEngine(t, nil), policy.State{}, 24, func(period int, slowdowns []float64, p quell.Plan) {
		switch period {
		case 12:
			m.groups[0].want = 0
		case 16:
			m.groups[0].want = 1
		}
		fmt.Fprintf(&b, "%d  slowdowns %.3f\n", period, slowdowns)
		for _, r := range p.Reasons {
			fmt.Fprintf(&b, "    %s %s: %s\n", r.Code, r.Instance, r.Text)
		}
	})
	expected.Compare(t, filepath.Join("testdata", "acs.golden"), []byte(b.String()))
}
