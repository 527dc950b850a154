package sim

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

func asked(level, interference float64, seed uint64) train.RunRequest {
	return train.RunRequest{Resource: quell.Network, Cell: train.Cell{Level: level, Interference: interference}, WarmUp: 5 * time.Second,
		Run: time.Minute, Seed: seed}
}

// noisyNeighbour is examples/scenarios/noisy-neighbour.yaml.
func noisyNeighbour() *scenario.Scenario {
	sc := plainScenario(6, 0, 40e6, 70*time.Second)
	sc.Name, sc.Instances, sc.Workload.Load = "noisy-neighbour", scenario.Instances{Start: 2, Fixed: 3, Startup: time.Second}, 0.8
	sc.Service.SLO.Threshold, sc.Service.Sampling = 40*time.Millisecond, time.Second
	settings := table.All.Whole(sc.Service.Policy).Settings.(prima.Settings)
	settings.ScaleInMargin = 0.1
	sc.Service.Policy.Settings, sc.Service.Guard.StaleAfter = settings, 5
	load := func(x float64) *float64 { return &x }
	use := func(host string, x float64) *scenario.Interference {
		return &scenario.Interference{Host: host, Resource: quell.Network, Use: x}
	}
	sc.Timeline = []scenario.Event{
		{At: 7 * time.Second, Load: load(1.7), Mark: "load-up"},
		{At: 20 * time.Second, Interfere: use("h1", 0.55), Mark: "noise"},
		{At: 30 * time.Second, Interfere: use("h2", 0.55), Mark: "more-noise"},
		{At: 46 * time.Second, Interfere: use("h1", 0)},
		{At: 46 * time.Second, Interfere: use("h2", 0)},
		{At: 46 * time.Second, Load: load(0.5), Mark: "calm"},
	}
	return sc
}

func prepared(t *testing.T, sc *scenario.Scenario) *model.Models {
	t.Helper()
	rows, err := Train(t.Context(), sc, Plan(), 1)
	if err != nil {
		t.Fatal(err)
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: sc.Service.Name, Metric: sc.Service.SLO.Metric})
	if err != nil {
		t.Fatal(err)
	}
	return models
}

// If a scenario fixes weights until measuring starts, they stay in force until then, and no longer.
func TestHeldWeights(t *testing.T) {
	sc := plainScenario(2, 0.3, 40e6, time.Minute)
	sc.Service.Sampling = time.Second
	sc.Instances.Weights, sc.WarmUp = []float64{0.8, 0.2}, 2*time.Second
	shares := func(warmUp, duration time.Duration) (share float64) {
		sc := *sc
		sc.Duration = duration
		_, err := Run(t.Context(), Options{Scenario: &sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin},
			WarmUp: warmUp,
			check:  func(s *simulation) error { share = s.members[0].candidate.Weight; return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return share
	}
	if got := shares(30*time.Second, time.Millisecond); got != 0.8 {
		t.Errorf("as the account begins the first has %v of the traffic, want 0.8", got)
	}
	if got := shares(30*time.Second, 3*time.Second); got != 0.5 {
		t.Errorf("soon after it has %v, want 0.5", got)
	}
}

// played runs a scenario and checks the laws that every run obeys.
func played(t *testing.T, o Options) scenario.Result {
	t.Helper()
	o.check = func(s *simulation) error {
		tr := s.traffic
		if tr.open != 0 || tr.arrived != tr.finished+tr.failed {
			t.Errorf("%d requests arrived, %d were answered, %d failed, %d are open", tr.arrived, tr.finished, tr.failed, tr.open)
		}
		// Little's law: mean number = rate * mean time, both times the length of the run.
		if math.Abs(tr.area-tr.sojourns) > 1e-9*math.Max(1, tr.sojourns) {
			t.Errorf("requests were open for %v s in sum, and the sum of their times is %v s", tr.area, tr.sojourns)
		}
		var inFlight int64
		for _, in := range s.instances {
			inFlight += in.candidate.InFlight
		}
		if inFlight != 0 {
			t.Errorf("instances believe in %d open requests", inFlight)
		}
		snapshot := s.snapshot()
		return snapshot.Validate()
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// PRIMA, Tables III and IV: under interference round robin and least connections miss the objective and cost at least as much as PRIMA.
func TestPrimaHoldsWhereRoundRobinAndLeastConnectionsViolate(t *testing.T) {
	sc := noisyNeighbour()
	models := prepared(t, sc)
	for seed := range uint64(5) {
		run := func(policy string, s quell.Scheduling) scenario.Result {
			return played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: policy}, Scheduling: s}, Models: models,
				Seed: seed + 1})
		}
		prima := run("prima", quell.LeastConn)
		if prima.Errors > 0 || prima.SLO.ViolationS > 10 || prima.Decisions == 0 || prima.ReactionS == nil {
			t.Errorf("seed %d: PRIMA violates for %v s with %d errors and %d decisions", seed, prima.SLO.ViolationS, prima.Errors, prima.Decisions)
		}
		for _, s := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
			rival := run("static", s)
			if rival.SLO.ViolationS < prima.SLO.ViolationS+10 || rival.InstanceSeconds < prima.InstanceSeconds {
				t.Errorf("seed %d: %s violates for %v s at %v instance-seconds, PRIMA for %v s at %v", seed, s,
					rival.SLO.ViolationS, rival.InstanceSeconds, prima.SLO.ViolationS, prima.InstanceSeconds)
			}
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	sc := noisyNeighbour()
	o := Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}, Seed: 3,
		Faults: Faults{Noise: 0.05, Lost: 0.1, Late: 300 * time.Millisecond}}
	bytes := func(seed uint64) string {
		o.Models, o.Seed = prepared(t, sc), seed
		data, err := json.Marshal(played(t, o))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	first, second, other := bytes(3), bytes(3), bytes(4)
	if first != second {
		t.Errorf("one seed gave two results:\n%s\n%s", first, second)
	}
	if first == other {
		t.Error("two seeds gave one result")
	}
}

func TestTrainingMeasuresWhatTheorySays(t *testing.T) {
	sc := noisyNeighbour()
	plan := Plan()
	rows, err := Train(t.Context(), sc, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Train(t.Context(), sc, plan, 1)
	if err != nil || !reflect.DeepEqual(rows, again) {
		t.Errorf("the same training gave other rows, %v", err)
	}
	for _, r := range rows {
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.Utilization-r.Level) > 0.1 || math.Abs(r.Interfering-*r.InterferingLevel) > 0.1 {
			t.Errorf("level %v beside %v carried %v beside %v", r.Level, *r.InterferingLevel, r.Utilization, r.Interfering)
		}
		want := 10_000 * 8 / 40e3 / (1 - r.Utilization - r.Interfering) // a probe of 10 kB under processor sharing, ms
		if busy := r.Utilization + r.Interfering; busy < 0.6 && math.Abs(r.ProbeMS.Mean-want) > 0.25*want {
			t.Errorf("at %.2f a probe takes %.2f ms, theory says %.2f", busy, r.ProbeMS.Mean, want)
		}
	}
}

func TestAccountAgreesWithTheJudge(t *testing.T) {
	for metric, threshold := range map[quell.Metric]time.Duration{
		quell.Mean: 35, quell.P50: 25, quell.P90: 80, quell.P95: 110, quell.P99: 170,
	} {
		opts := scenario.JudgeOptions{
			SLO: quell.SLO{Metric: metric, Threshold: threshold * time.Millisecond}, Duration: 97 * time.Second,
			Judging: scenario.Judging{Window: 5 * time.Second, Requests: 20},
		}
		judge, acct := scenario.NewJudge(opts), newAccount(opts)
		rng := rand.New(rand.NewPCG(7, 7))
		type open struct {
			window, instance int
			latency          time.Duration
			failed           bool
		}
		var late []open
		end := func(o open) { acct.end(o.window, o.instance, o.latency, o.failed) }
		for at := -3 * time.Second; at < 100*time.Second; at += time.Duration(rng.IntN(40)) * time.Millisecond {
			slow := 1 + float64(at/(10*time.Second)%3)
			o := open{acct.arrive(at), rng.IntN(5), time.Duration(rng.ExpFloat64() * slow * float64(15*time.Millisecond)), rng.IntN(3000) == 0}
			judge.Add(scenario.Sample{Intended: at, Instance: string(rune('a' + o.instance)), Latency: o.latency, Failed: o.failed})
			if rng.IntN(10) == 0 {
				late = append(late, o)
			} else {
				end(o)
			}
			if len(late) > 300 {
				end(late[0])
				late = late[1:]
			}
		}
		for _, o := range late {
			end(o)
		}
		want, got := judge.Verdict(), acct.verdict()
		if got.Requests != want.Requests || got.Errors != want.Errors || got.SLO != want.SLO || got.LatencyMS.N != want.LatencyMS.N {
			t.Errorf("%s: account %+v, judge %+v", metric, got.SLO, want.SLO)
		}
		if want.SLO.ViolationS == 0 || want.SLO.ViolationS > 90 {
			t.Errorf("%s: violations of %v s test nothing", metric, want.SLO.ViolationS)
		}
		for _, m := range quell.Metrics {
			g, _ := got.LatencyMS.Of(m)
			if w, _ := want.LatencyMS.Of(m); math.Abs(g-w) > 0.0015*w {
				t.Errorf("%s of all: account %v, judge %v", m, g, w)
			}
		}
	}
}

func TestOverloadIsAResult(t *testing.T) {
	sc := plainScenario(2, 1.6, 40e6, 40*time.Second)
	for _, d := range []Discipline{Sharing, FirstCome} {
		r := played(t, Options{Scenario: sc, Run: sc.Runs[0], Discipline: d})
		if r.Errors == 0 || r.SLO.ViolationShare < 0.9 || *r.LatencyMS.P99 > 1001*clientTimeout {
			t.Errorf("%s: %d of %d failed, violated %v, 99th percentile %v ms", d, r.Errors, r.Requests, r.SLO.ViolationShare, *r.LatencyMS.P99)
		}
	}
}

func TestAFailedInstanceFailsItsRequestsAndIsReplaced(t *testing.T) {
	sc := plainScenario(4, 0.4, 40e6, 60*time.Second)
	sc.Instances, sc.Service.Sampling, sc.Service.Group.Min = scenario.Instances{Start: 3, Fixed: 3, Startup: 2 * time.Second}, time.Second, 3
	o := Options{Scenario: sc, Run: sc.Runs[0], Failures: []Failure{{Host: "h2", At: 20 * time.Second}}}
	without := played(t, Options{Scenario: sc, Run: sc.Runs[0]})
	r := played(t, o)
	if r.Errors == 0 || r.Errors > 20 || without.Errors != 0 {
		t.Errorf("%d requests failed, and %d without a failure", r.Errors, without.Errors)
	}
	if gap := without.InstanceSeconds - r.InstanceSeconds; gap <= 0 || gap > 6 || r.Decisions == 0 {
		t.Errorf("the group was short of %v instance-seconds, %d decisions", gap, r.Decisions)
	}
	o.Failures = []Failure{{Host: "nowhere"}}
	var user *quell.UserError
	if _, err := Run(t.Context(), o); !errors.As(err, &user) {
		t.Errorf("a failure of an unknown host gives %v", err)
	}
}

func TestAllInstancesDownIsAResult(t *testing.T) {
	sc := plainScenario(1, 0.4, 40e6, 30*time.Second)
	sc.Service.Sampling = time.Second
	r := played(t, Options{Scenario: sc, Run: sc.Runs[0], Failures: []Failure{{Host: "h1", At: 5 * time.Second}}})
	if r.Errors == 0 || r.Errors > r.Requests/4 {
		t.Errorf("%d of %d failed, and the one instance is replaced", r.Errors, r.Requests)
	}
}

// Least connections notices slow instances in large groups, too. Round robin does not: every other machine is overloaded.
func TestLargeGroups(t *testing.T) {
	sc := plainScenario(largeGroup+10, 0.6, 40e6, 15*time.Second)
	for i := 0; i < len(sc.Hosts); i += 2 {
		use := &scenario.Interference{Host: sc.Hosts[i].ID, Resource: quell.Network, Use: 0.5}
		sc.Timeline = append(sc.Timeline, scenario.Event{Interfere: use})
	}
	mean := func(s quell.Scheduling) float64 {
		return *played(t, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: s}}).LatencyMS.Mean
	}
	turns, two, least := mean(quell.RoundRobin), mean(quell.Random2), mean(quell.LeastConn)
	if least > 0.8*two || two > 0.5*turns {
		t.Errorf("round robin takes %.1f ms, random of two %.1f ms, least connections %.1f ms", turns, two, least)
	}
}

func TestWhatCountsAsAChange(t *testing.T) {
	s, err := newSimulation(Options{Scenario: noisyNeighbour(),
		Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn}})
	if err != nil {
		t.Fatal(err)
	}
	s.start(2)
	for s.w.nextEvent() <= 2 {
		s.w.step()
	}
	for _, tc := range []struct {
		weights map[string]float64
		moved   bool
	}{
		{map[string]float64{"i1": 0.5, "i2": 0.5}, false}, // equal from the start
		{map[string]float64{"i1": 0.6, "i2": 0.5}, true},
		{map[string]float64{"i1": 0.6, "i2": 0.5 + 1e-9}, false},
		{map[string]float64{"i1": 0.6, "i2": 0.4}, true},
	} {
		if moved := s.setWeights(tc.weights); moved != tc.moved {
			t.Errorf("setting %v moved weights: %v", tc.weights, moved)
		}
	}
	if s.changeGroup(nil) || s.changeGroup(&quell.GroupChange{Remove: []string{"i9"}}) {
		t.Error("nothing to do counts as a change")
	}
	if !s.changeGroup(&quell.GroupChange{Remove: []string{"i1"}}) || s.changeGroup(&quell.GroupChange{Remove: []string{"i1"}}) {
		t.Error("a removal counts once")
	}
	if !s.changeGroup(&quell.GroupChange{Add: 9}) || len(s.members) != 6 || s.changeGroup(&quell.GroupChange{Add: 1}) {
		t.Errorf("%d members on 6 hosts", len(s.members))
	}
}

// If readings never arrive, PRIMA keeps the initial weights and group, and the run continues.
func TestLostReadings(t *testing.T) {
	sc := noisyNeighbour()
	models := prepared(t, sc)
	run := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}
	blind := played(t, Options{Scenario: sc, Run: run, Models: models, Faults: Faults{Lost: 1}})
	seeing := played(t, Options{Scenario: sc, Run: run, Models: models})
	if blind.SLO.ViolationS <= seeing.SLO.ViolationS {
		t.Errorf("without any reading PRIMA violates for %v s, with all for %v s", blind.SLO.ViolationS, seeing.SLO.ViolationS)
	}
}

func TestMistakesAreToldAndContextsHeard(t *testing.T) {
	sc := noisyNeighbour()
	prima := scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn}
	if _, err := Run(t.Context(), Options{Scenario: sc, Run: prima}); !errors.Is(err, quell.ErrNoData) {
		t.Errorf("PRIMA without models gives %v", err)
	}
	broken := *sc
	broken.Hosts = nil
	var user *quell.UserError
	if _, err := Run(t.Context(), Options{Scenario: &broken, Run: prima}); !errors.As(err, &user) {
		t.Errorf("a scenario without hosts gives %v", err)
	}
	slow := *sc
	slow.Hosts = slices.Clone(sc.Hosts)
	slow.Hosts[0].Network = 1e5
	if _, err := Run(t.Context(), Options{Scenario: &slow,
		Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn}}); !errors.As(err, &user) {
		t.Errorf("a link too slow to probe gives %v", err)
	}
	nan := math.NaN()
	for name, o := range map[string]Options{
		"discipline": {Discipline: "last"}, "few probes": {Probing: Probing{Count: 2}}, "budget": {Probing: Probing{Budget: nan}},
		"noise": {Faults: Faults{Noise: nan}}, "lost": {Faults: Faults{Lost: 1.5}}, "late": {Faults: Faults{Late: -1}},
		"warm-up": {WarmUp: -1}, "failure": {Failures: []Failure{{Host: "h1", At: -1}}},
	} {
		o.Scenario, o.Run = sc, scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn}
		if _, err := Run(t.Context(), o); !errors.As(err, &user) {
			t.Errorf("bad %s gives %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"},
		Scheduling: quell.LeastConn}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run gives %v", err)
	}
}

// A scenario's settings for stations, probing and readings have the same effect as the simulator's options.
func TestAScenarioSpeaksAsOptionsDo(t *testing.T) {
	sc := plainScenario(3, 0.5, 40e6, 20*time.Second)
	sc.Timeline = []scenario.Event{{Interfere: &scenario.Interference{Host: "h1", Resource: quell.Network, Use: 0.4}}}
	options := played(t, Options{
		Scenario: sc, Run: sc.Runs[0], Discipline: FirstCome, Fluid: true, Probing: Probing{Count: 20, Budget: 0.05}, Faults: Faults{Lost: 0.5},
	})
	plain := played(t, Options{Scenario: sc, Run: sc.Runs[0]})
	said := *sc
	said.Stations = scenario.Stations{Discipline: scenario.FirstCome, Neighbours: scenario.Fluid}
	said.Probing, said.Readings.Lost = scenario.Probing{Count: 20, Budget: 0.05}, 0.5
	if got := played(t, Options{Scenario: &said, Run: sc.Runs[0]}); !reflect.DeepEqual(got, options) || reflect.DeepEqual(got, plain) {
		t.Errorf("the scenario's keys gave\n%+v, options\n%+v, neither\n%+v", got, options, plain)
	}
}
