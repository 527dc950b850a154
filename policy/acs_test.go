package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	expected "github.com/quellhq/quell/internal/golden"
)

// shared is a small model of a machine whose kernel divides its processors among groups by their weights, within their caps and what they
// want (the water level of weighted fair sharing).
type shared struct {
	cores  float64
	groups []sharer
	noise  float64 // standard deviation of measured waiting, as a fraction
	delay  int     // periods until a cap, which the kernel shows at once, has an effect
	rng    *rand.Rand
	at     time.Time
	coming []map[string]float64 // caps, the next first
	caps   map[string]float64
	asked  map[string]float64 // the last caps
	within string             // the group that the groups lie in
}

// sharer is a group of the model.
type sharer struct {
	id     string
	want   float64 // processors that it would use alone
	weight float64 // of the kernel
	share  float64 // given to acs; 0: none
	lies   float64 // slowdown that it reports; 0: none
}

// run returns what each group gets.
func (m *shared) run() []float64 {
	got := make([]float64, len(m.groups))
	left, open := m.cores, map[int]bool{}
	for i, g := range m.groups {
		open[i] = g.want > 0
	}
	for {
		weights := 0.0
		for i, is := range open {
			if is {
				weights += m.groups[i].weight
			}
		}
		full := false
		for i, g := range m.groups {
			limit := g.want
			if processors, ok := m.caps[g.id]; ok {
				limit = min(limit, processors)
			}
			if open[i] && limit <= left*g.weight/weights {
				got[i], open[i], full = limit, false, true
				left -= limit
				break
			}
		}
		if !full {
			for i, g := range m.groups {
				if open[i] {
					got[i] = left * g.weight / weights
				}
			}
			return got
		}
	}
}

// step runs one second and returns what is measured of it, and the true slowdowns.
func (m *shared) step() (*quell.Snapshot, []float64) {
	if len(m.coming) > m.delay {
		m.caps, m.coming = m.coming[0], m.coming[1:]
	}
	got, slowdowns := m.run(), make([]float64, len(m.groups))
	m.at = m.at.Add(time.Second)
	s := &quell.Snapshot{At: m.at, Host: "h"}
	all := 0.0
	for i, g := range m.groups {
		all += got[i]
		wait := 0.0 // of a task that works and sleeps in turns, or of several that never sleep
		if g.want > 0 {
			wait = max(1, g.want) * (1 - got[i]/g.want)
		}
		if m.noise > 0 {
			wait *= math.Exp(m.noise * m.rng.NormFloat64())
		}
		in := quell.Instance{ID: g.id, State: quell.Ready, Within: m.within, Observation: &quell.Observation{At: m.at, WindowS: 1,
			Sched: &quell.Sched{RunS: got[i], WaitS: &wait}}}
		if g.share > 0 {
			in.Share = &g.share
		}
		if g.lies > 0 {
			in.Observation.Slowdown = &g.lies
		}
		if quota, ok := m.asked[g.id]; ok {
			in.Limits = map[quell.Resource]float64{quell.CPU: quota}
		}
		s.Instances = append(s.Instances, in)
		slowdowns[i] = 1
		if g.want > 0 {
			slowdowns[i] = min(g.want, m.cores) / max(got[i], 1e-9)
		}
	}
	s.Machine = &quell.Observation{At: m.at, WindowS: 1, CPU: &quell.CPUTime{User: all / m.cores},
		Sched: &quell.Sched{Cores: m.cores, RunS: all}}
	return s, slowdowns
}

func (m *shared) apply(p quell.Plan) {
	caps := map[string]float64{}
	for _, l := range p.Limits {
		if l.Unit != quell.WeightUnit {
			caps[l.Instance] = l.Value
			continue
		}
		for i := range m.groups {
			if m.groups[i].id == l.Instance {
				m.groups[i].weight = l.Value
			}
		}
	}
	m.coming, m.asked = append(m.coming, caps), caps
}

func machineOf(cores float64, groups ...sharer) *shared {
	for i := range groups {
		groups[i].id = fmt.Sprintf("g%d", i)
		if groups[i].weight == 0 {
			groups[i].weight = 1
		}
	}
	return &shared{cores: cores, groups: groups, rng: rand.New(rand.NewPCG(1, 1)), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func acsEngine(t interface{ Fatal(...any) }, change func(*ACSSettings)) *HostEngine {
	set := acsSpec.defaults
	if change != nil {
		change(&set)
	}
	e, err := NewHostEngine(quell.Policy{Name: acsSpec.name, Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// play runs a machine under acs, and calls see after each period with the true slowdowns of the period.
func (m *shared) play(e *HostEngine, st State, periods int, see func(period int, slowdowns []float64, p quell.Plan)) State {
	for i := range periods {
		s, slowdowns := m.step()
		var p quell.Plan
		p, st = e.Decide(s, st)
		m.apply(p)
		if see != nil {
			see(i+1, slowdowns, p)
		}
	}
	return st
}

func unfairness(levels []float64) float64 {
	least, most := math.Inf(1), 0.0
	for _, l := range levels {
		least, most = min(least, l), max(most, l)
	}
	return most / least
}

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
			st := c.machine.play(acsEngine(t, nil), State{}, 40, func(period int, slowdowns []float64, p quell.Plan) {
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
					if was := before[l.Instance]; period > 7 && math.Abs(l.Value-was) > acsSpec.defaults.Tolerance*was {
						t.Errorf("period %d: the cap of %s moves from %.3f to %.3f", period, l.Instance, was, l.Value)
					}
					before[l.Instance] = l.Value
				}
			})
			if !st.Memory.(*acsMemory).Even {
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
		m.play(acsEngine(t, nil), State{}, periods, func(period int, slowdowns []float64, _ quell.Plan) {
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
	m.play(acsEngine(t, func(s *ACSSettings) { s.Rule = ACSLiteral }), State{}, 100, func(period int, slowdowns []float64, _ quell.Plan) {
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
		rule   ACSRule
		within string
		want   string
	}{
		// 0.8 * 0.75 = 0.6 and 0.2 * 1.25 = 0.25 are scaled by 1 / 0.85.
		{ACSDamped, "", "g0 0.7059 g1 0.2941"},
		// The weights 1 * max(0.5, 0.4^0.8) and 1 * 1.6^0.8 are scaled so that their mean is 1.
		{ACSDamped, "/", "g0 0.5111 g1 1.4889"},
		// 0.8 - 0.6 * 1.875 is below the floor; 0.2 + 0.6 * 1.875 is above 1, which is no cap.
		{ACSLiteral, "/", "g0 0.0200"},
	} {
		m := machineOf(1, sharer{want: 1, weight: 4}, sharer{want: 1})
		m.within = c.within
		var got []string
		m.play(acsEngine(t, func(s *ACSSettings) { s.Rule = c.rule }), State{}, 1, func(_ int, _ []float64, p quell.Plan) {
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
	st := m.play(e, State{}, 20, nil)
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
	st := m.play(e, State{}, 20, nil)
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
	m.play(acsEngine(t, nil), State{}, 20, func(_ int, slowdowns []float64, _ quell.Plan) { last = slowdowns })
	if u := unfairness([]float64{2 * last[0], last[1], last[2]}); u > 1.1 {
		t.Errorf("slowdowns %.2f", last)
	}
	// What a group cannot use goes to the others, however large its share is.
	m = machineOf(2, sharer{want: 0.5, share: 10}, sharer{want: 3, share: 1})
	m.play(acsEngine(t, nil), State{}, 20, nil)
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
	st := m.play(e, State{}, 5, count)
	m.groups[1].want = 8
	st = m.play(e, st, 10, nil)
	if len(m.coming[len(m.coming)-1]) == 0 {
		t.Error("no caps under contention")
	}
	m.groups[1].want = .8
	st = m.play(e, st, acsCalm+1, nil)
	m.play(e, st, 5, count)
}

// A group that reports an absurd slowdown gets no more than plausible.
func TestACSDoubtsLies(t *testing.T) {
	m := machineOf(1, sharer{want: 1, lies: 1e5}, sharer{want: 1})
	m.play(acsEngine(t, nil), State{}, 60, nil)
	if got := m.run(); got[1] < 0.2 {
		t.Errorf("the honest group gets %.3f processors", got[1])
	}
}

// A quota that somebody else set is respected: it bounds the group, or leaves the group out.
func TestACSBesideForeignQuotas(t *testing.T) {
	for _, quota := range []float64{0.1, 5} {
		m := machineOf(2, sharer{want: 2}, sharer{want: 2, weight: 3}, sharer{want: 1})
		e, st := acsEngine(t, nil), State{}
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
	st := m.play(e, State{}, 3, nil)
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
	plan, _ = e.Decide(s, State{})
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

// working is a group of one second that reports units of work.
func working(id string, run, wait float64, units *float64) quell.Instance {
	in := waiter(id, run, wait, run, 0)
	if units != nil {
		in.Observation.Counters = map[string]float64{quell.CounterProgress: *units}
	}
	return in
}

// during returns a second of a machine of one processor.
func during(groups ...quell.Instance) *quell.Snapshot {
	s := onHost(1, 1, 0, groups...)
	s.Machine.WindowS = 1
	for i := range groups {
		groups[i].Observation.WindowS = 1
	}
	return s
}

// Slowdown by progress is the best rate of work that was seen over the present one.
func TestACSGoesByProgress(t *testing.T) {
	e, st := acsEngine(t, nil), State{}
	for i, c := range []struct {
		run, wait, units float64 // units: 0, not reported
		slowdown         float64
		from             quell.SlowdownFrom
	}{
		{1, 0, 100, 1, quell.FromProgress},
		{0.5, 0.5, 50, 2, quell.FromProgress},
		{0.5, 0.5, 40, 2.5, quell.FromProgress}, // the neighbours take caches, too
		{0.1, 0, 10, 3, quell.FromProgress},     // without waiting, no more than three times is believed
		{0.5, 0.5, 0, 2, quell.FromScheduling},
		{0.5, 0.5, 1, 6, quell.FromProgress}, // more than three times what its waiting explains is not believed
		{0.5, 0.5, 200, 1, quell.FromProgress},
	} {
		units := &c.units
		if c.units == 0 {
			units = nil
		}
		var plan quell.Plan
		plan, st = e.Decide(during(working("a", c.run, c.wait, units)), st)
		got := plan.Tenants["a"]
		if got.Slowdown == nil || math.Abs(*got.Slowdown-c.slowdown) > 0.02*c.slowdown || got.From != c.from {
			t.Errorf("second %d: %s", i, text(t, got))
		}
	}
}

// A group that stops reporting is slowed down as far as its waiting foretells by what it reported before (Eq. 5).
func TestACSForetells(t *testing.T) {
	e, st := acsEngine(t, nil), State{}
	rng := rand.New(rand.NewPCG(1, 1))
	slowdown := func(wait float64) float64 { return 1.2 + 1.5*(1/(1-wait)-1) } // wait is the part of time that it waits
	for range 60 {
		wait := rng.Float64() / 2
		s := during(working("a", 0.5, wait, nil))
		told := slowdown(wait)
		s.Instances[0].Observation.Slowdown = &told
		_, st = e.Decide(s, st)
	}
	plan, _ := e.Decide(during(working("a", 0.5, 0.25, nil)), reread(t, st))
	if got := plan.Tenants["a"]; got.From != quell.FromModel || math.Abs(*got.Slowdown-slowdown(0.25)) > 0.05 {
		t.Errorf("%s, want %.2f", text(t, got), slowdown(0.25))
	}
	if c, ok := st.Memory.(*acsMemory).Groups["a"].Model.Correlation(); !ok || c < 0.99 {
		t.Errorf("correlation %v (Eq. 9)", c)
	}
}

func TestACSHoldsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom([]ACSRule{ACSDamped, ACSLiteral}).Draw(t, "rule")
		e, st := acsEngine(t, func(s *ACSSettings) {
			s.Rule, s.Cores = rule, rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "cores")
		}), State{}
		for range rapid.IntRange(1, 8).Draw(t, "snapshots") {
			s := drawHost(t)
			for i := range s.Instances {
				in := &s.Instances[i]
				if rapid.Bool().Draw(t, "limited") {
					in.Limits = map[quell.Resource]float64{quell.CPU: rapid.Float64Range(0.001, 4).Draw(t, "quota")}
				}
				if in.Observation != nil && rapid.Bool().Draw(t, "reports") {
					slowdown := rapid.Float64Range(0, 1e6).Draw(t, "slowdown")
					in.Observation.Slowdown = &slowdown
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

// By weights, groups that lie in the same group become even, too, and nothing is left unused.
func TestACSWeights(t *testing.T) {
	for _, groups := range [][]sharer{
		{{want: 1}, {want: 8}},
		{{want: 1}, {want: 2}, {want: 3}, {want: 4}},
		{{want: .4}, {want: 4}, {want: 4}},
	} {
		m := machineOf(2, groups...)
		m.within = "/quell"
		before := map[string]float64{}
		m.play(acsEngine(t, nil), State{}, 40, func(period int, slowdowns []float64, p quell.Plan) {
			if u := unfairness(slowdowns); period > 10 && u > 1.1 {
				t.Errorf("period %d: unfairness %.3f of %.2f", period, u, slowdowns)
			}
			for _, l := range p.Limits {
				if l.Unit != quell.WeightUnit {
					t.Fatalf("a cap: %+v", l)
				}
				if was := before[l.Instance]; period > 10 && math.Abs(l.Value-was) > acsSpec.defaults.Tolerance*was {
					t.Errorf("period %d: the weight of %s moves from %.3f to %.3f", period, l.Instance, was, l.Value)
				}
				before[l.Instance] = l.Value
			}
		})
	}
	// Groups in different groups get caps, and weights that were set go.
	m := machineOf(2, sharer{want: 4}, sharer{want: 1})
	m.within = "/quell"
	e := acsEngine(t, nil)
	st := m.play(e, State{}, 5, nil)
	m.within = ""
	m.play(e, st, 5, func(_ int, _ []float64, p quell.Plan) {
		for _, l := range p.Limits {
			if l.Unit == quell.WeightUnit {
				t.Errorf("a weight: %+v", l)
			}
		}
	})
}

// A quota that somebody else set stops a group. Its weight cannot help it, so it is left out.
func TestACSWeightBesideAQuota(t *testing.T) {
	m := machineOf(2, sharer{want: 2}, sharer{want: 2}, sharer{want: 1})
	m.within, m.caps = "/", map[string]float64{"g0": 0.1}
	e, st := acsEngine(t, nil), State{}
	var plan quell.Plan
	for range 20 {
		s, _ := m.step()
		s.Instances[0].Limits = map[quell.Resource]float64{quell.CPU: 0.1}
		plan, st = e.Decide(s, st)
		m.apply(plan)
		m.coming = nil
	}
	if !slices.ContainsFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "acs_bounded" && r.Instance == "g0" }) {
		t.Errorf("reasons %v", plan.Reasons)
	}
	if got := m.run(); math.Abs(2/got[1]-1/got[2]) > 0.25 {
		t.Errorf("the others get %.2f", got[1:])
	}
}

// In a solo run the others have a small cap. The rate of the second period counts from then on.
func TestACSSoloRun(t *testing.T) {
	e, st := acsEngine(t, func(s *ACSSettings) { s.Solo = time.Hour }), State{}
	var solo []string
	for period := range 12 {
		rate := 40.
		if period == 3 {
			rate = 100 // in the second period of the solo run
		}
		s := during(working("a", 0.5, 0.5, &rate), working("b", 0.25, 0.75, nil))
		s.At = s.At.Add(time.Duration(period) * time.Second)
		for i := range s.Instances {
			s.Instances[i].Within = "/"
		}
		var plan quell.Plan
		plan, st = e.Decide(s, reread(t, st))
		if plan.Reasons[0].Code == "acs_solo" {
			solo = append(solo, fmt.Sprint(period))
			capped := slices.IndexFunc(plan.Limits, func(l quell.Limit) bool { return l.Unit != quell.WeightUnit })
			if capped < 0 || plan.Limits[capped].Instance != "b" || plan.Limits[capped].Value != acsIdle {
				t.Errorf("period %d: %+v", period, plan.Limits)
			}
		} else if got := *plan.Tenants["a"].Slowdown; len(solo) > 0 && period > 4 && math.Abs(got-2.5) > 1e-9 {
			t.Errorf("period %d: slowdown %v, want 2.5", period, got)
		}
	}
	if len(solo) != 2 {
		t.Errorf("solo runs in periods %v, want two", solo)
	}
}

// TestACSGolden compares a run's caps and reasons with a recorded one.
func TestACSGolden(t *testing.T) {
	m := machineOf(2, sharer{want: 1}, sharer{want: 2, weight: 4}, sharer{want: 4})
	var b strings.Builder
	m.play(acsEngine(t, nil), State{}, 24, func(period int, slowdowns []float64, p quell.Plan) {
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
