package ice

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
	"github.com/quellhq/quell/stats"
)

// shop is a group of servers with one processor each, whose agents and balancer report once a second, for tests of ice.
type shop struct {
	t        testing.TB
	decide   func(*quell.Snapshot, policy.State) (quell.Plan, policy.State)
	st       policy.State
	now      time.Time
	rate     float64 // requests per second of all servers
	weights  map[string]float64
	servers  []served
	settings map[string]map[string]float64 // parameters in force, by server
	byHand   map[string]float64            // weights that a person set
	paused   bool                          // plans are not carried out
	refused  map[string]bool               // parameters that agents do not set
}

// served is what a server shows.
type served struct {
	share  float64 // of the processor, for one hundredth of all requests
	hidden float64 // others' use of its processor
	ms     float64 // median response time; 0: nobody reports it
	steal  float64
	errors float64 // failed requests, as a part of all
	blind  bool    // it has no agent
	probe  float64
}

func iceSettings(change func(*Settings)) Settings {
	set := Spec.Defaults
	change(&set)
	return set
}

// newShop returns n servers that are 30% busy without neighbours, with ice beside static.
func newShop(t testing.TB, n int, models *model.Models, change func(*Settings)) *shop {
	t.Helper()
	service := guarding(all.Plain(), func(s *quell.Service) {
		s.Policy.Fast = quell.Fast{Name: Spec.Name, Settings: iceSettings(change), Sampling: time.Second}
		s.SLO.Threshold = 50 * time.Millisecond
	})
	fast, err := all.NewFast(service, models)
	if err != nil {
		t.Fatal(err)
	}
	return newShopOf(t, n, fast.Decide)
}

func newShopOf(t testing.TB, n int, decide func(*quell.Snapshot, policy.State) (quell.Plan, policy.State)) *shop {
	s := &shop{t: t, decide: decide, now: start, rate: 100 * float64(n), servers: make([]served, n), weights: map[string]float64{},
		settings: map[string]map[string]float64{}}
	for i := range s.servers {
		s.servers[i] = served{share: 0.3 / 100, ms: 20}
		s.weights[serverID(i)] = 1 / float64(n)
		s.settings[serverID(i)] = map[string]float64{"apache.MaxRequestWorkers": 200, "apache.KeepAliveTimeout": 5}
	}
	return s
}

func serverID(i int) string { return fmt.Sprintf("i%d", i+1) }

// observation is what agent and balancer report of a server that gets this many requests per second. Its tasks wait as on one processor
// that is shared equally.
func (v served) observation(at time.Time, rate float64) *quell.Observation {
	own := min(0.98, v.share*rate)
	busy := min(0.99, own+v.hidden)
	wait := own * busy / (1 - busy)
	ms := v.ms
	o := &quell.Observation{At: at, WindowS: 1, RequestRate: &rate, ErrorRate: &v.errors,
		LatencyMS: &quell.Latency{Mean: &ms, P50: &ms, N: int(rate)}}
	if rate < 1 || v.ms == 0 {
		o.LatencyMS = nil
	}
	if v.blind {
		return o
	}
	o.Utilization = map[quell.Resource]float64{quell.CPU: own, quell.Network: 0.1}
	o.CPU = &quell.CPUTime{User: own, Steal: v.steal}
	o.Sched = &quell.Sched{Cores: 1, RunS: own, WaitS: &wait}
	if v.probe > 0 {
		o.Probe = map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: v.probe, StddevMS: v.probe / 10, N: 10}}
	}
	return o
}

// next returns what is reported at the end of the next second.
func (s *shop) next() *quell.Snapshot {
	s.t.Helper()
	s.now = s.now.Add(time.Second)
	snapshot := &quell.Snapshot{At: s.now, Service: "video"}
	for i, v := range s.servers {
		weight := s.weights[serverID(i)]
		in := quell.Instance{ID: serverID(i), State: quell.Ready, Weight: &weight,
			Observation: v.observation(s.now, weight*s.rate), Settings: s.settings[serverID(i)]}
		if share, set := s.byHand[in.ID]; set {
			in.Override = &share
		}
		snapshot.Instances = append(snapshot.Instances, in)
	}
	if err := snapshot.Validate(); err != nil {
		s.t.Fatal(err)
	}
	return snapshot
}

// second plays one second, and returns the policy's plan. Factors and settings of the plan come into force.
func (s *shop) second() quell.Plan {
	s.t.Helper()
	plan, st := s.decide(s.next(), s.st)
	s.st = st
	if s.paused {
		return plan
	}
	if plan.Weights != nil {
		s.weights = plan.Weights
	} else {
		s.share(plan.Factor)
	}
	for _, o := range plan.Settings {
		if !s.refused[o.Key()] {
			s.settings[o.Instance][o.Key()] = o.Value
		}
	}
	return plan
}

// share divides the requests equally, apart from factors.
func (s *shop) share(factors map[string]quell.Factor) {
	sum := 0.0
	for i := range s.servers {
		s.weights[serverID(i)] = 1
		if f, cut := factors[serverID(i)]; cut {
			s.weights[serverID(i)] = f.Value
		}
		sum += s.weights[serverID(i)]
	}
	for id := range s.weights {
		s.weights[id] /= sum
	}
}

func (s *shop) seconds(n int) (plan quell.Plan) {
	s.t.Helper()
	for range n {
		plan = s.second()
	}
	return plan
}

// until plays seconds until an instance is cut, at most the given number; 0: none was cut.
func (s *shop) until(most int) (seconds int, plan quell.Plan) {
	for seconds = 1; seconds <= most; seconds++ {
		if plan = s.second(); len(plan.Factor) > 0 {
			return seconds, plan
		}
	}
	return 0, plan
}

// Without training, ice notices neighbours by what its agents and balancers report, and cuts down to the floor.
func TestICECuts(t *testing.T) {
	for name, c := range map[string]struct {
		n       int
		change  func(s []served)
		settle  func(*Settings)
		seconds int // until the cut; 0: none
		left    float64
		cause   quell.Resource
	}{
		"strong neighbours": {3, func(s []served) { s[1].hidden = 0.6 }, nil, 1, 0.6, quell.CPU},
		"deeper, with a lower floor": {3, func(s []served) { s[1].hidden = 0.6 },
			func(s *Settings) { s.Floor = 0.1 }, 1, oddsOf(1. / 3 * (0.7 - 0.6) / 0.3), quell.CPU},
		"weak ones, twice in a row": {3, func(s []served) { s[1].hidden = 0.3 },
			func(s *Settings) { s.SetPoint, s.Floor = 0.5, 0.1 }, 2, oddsOf(1. / 3 * (0.5 - 0.3) / 0.3), quell.CPU},
		"below the set point":        {3, func(s []served) { s[1].hidden = 0.3 }, nil, 0, 0, ""},
		"too weak to notice":         {3, func(s []served) { s[1].hidden = 0.05 }, func(s *Settings) { s.SetPoint = 0.2 }, 0, 0, ""},
		"steal":                      {3, func(s []served) { s[1].steal = 0.6 }, nil, 1, 0.6, quell.CPU},
		"all of them":                {3, func(s []served) { eachOf(s, func(v *served) { v.hidden = 0.6 }) }, nil, 0, 0, ""},
		"one instance":               {1, func(s []served) { s[0].hidden = 0.6 }, nil, 0, 0, ""},
		"no agents, only slowness":   {3, func(s []served) { eachOf(s, func(v *served) { v.blind = true }); s[1].ms = 400 }, nil, 1, 0.6, ""},
		"no agents and no slowness":  {3, func(s []served) { eachOf(s, func(v *served) { v.blind = true }) }, nil, 0, 0, ""},
		"dearer requests everywhere": {3, func(s []served) { eachOf(s, func(v *served) { v.share *= 2.5 }) }, nil, 0, 0, ""},
		"dearer requests at one":     {3, func(s []served) { s[1].share *= 2.8 }, nil, 1, oddsOf(1. / 3 * 0.7 / 0.84), quell.CPU},
		"probes of the network":      {3, func(s []served) { s[1].probe = 60 }, nil, 1, 0.6, quell.Network},
	} {
		t.Run(name, func(t *testing.T) {
			if c.settle == nil {
				c.settle = func(*Settings) {}
			}
			s := newShop(t, c.n, nil, c.settle)
			eachOf(s.servers, func(v *served) { v.probe = 10 })
			for range 2 * bands.Known {
				if plan := s.second(); len(plan.Factor) > 0 {
					t.Fatalf("calm, and %v", plan.Reasons)
				}
			}
			c.change(s.servers)
			seconds, plan := s.until(20)
			if seconds != c.seconds {
				t.Fatalf("cut after %d s, want %d; %v", seconds, c.seconds, plan.Reasons)
			}
			if c.seconds == 0 {
				return
			}
			if len(plan.Factor) != 1 || math.Abs(plan.Factor["i2"].Value-c.left) > 1e-6 || plan.Cause["i2"] != c.cause {
				t.Errorf("%v because of %v, want %v of i2 because of %q; %v", plan.Factor, plan.Cause, c.left, c.cause, plan.Reasons)
			}
			if !hasReason(plan, "interference", "i2") || !hasReason(plan, "untrained", "") {
				t.Errorf("the reasons are %v", plan.Reasons)
			}
		})
	}
}

// oddsOf is the factor that brings one of three servers from a third of the requests to this part of them.
func oddsOf(part float64) float64 { return part / (1 - part) / (1. / 2) }

func eachOf(servers []served, change func(*served)) {
	for i := range servers {
		change(&servers[i])
	}
}

// If the others lack room, an instance keeps so much that all are equally busy.
func TestICELeavesTheOthersRoom(t *testing.T) {
	s := newShop(t, 2, nil, func(s *Settings) { s.Floor = 0 })
	s.rate = 400 // each is 60% busy
	s.seconds(2 * bands.Known)
	s.servers[0].hidden = 0.3
	s.seconds(30)
	busy := func(i int) float64 { return s.servers[i].share*s.weights[serverID(i)]*s.rate + s.servers[i].hidden }
	if math.Abs(busy(0)-busy(1)) > 0.1 || math.Abs(busy(1)-0.75) > 0.05 {
		t.Errorf("the instances are %.2f and %.2f busy, want 0.75 both", busy(0), busy(1))
	}
}

// A share grows again after a time of calm, by doubling. If the signs come back, it is cut again, and the next time of calm is longer.
func TestICELetsSharesGrowAgain(t *testing.T) {
	s := newShop(t, 3, nil, func(s *Settings) { s.Floor = 0.1 })
	s.seconds(2 * bands.Known)
	trace := func(n int) (list []float64, at []int) {
		for i := range n {
			left := 1.0
			if f, cut := s.second().Factor["i2"]; cut {
				left = f.Value
			}
			if left = math.Round(100*left) / 100; len(list) == 0 || list[len(list)-1] != left {
				list, at = append(list, left), append(at, i+1)
			}
		}
		return list, at
	}
	s.servers[1].hidden = 0.6
	cut, _ := trace(10)
	s.servers[1].hidden = 0
	grown, at := trace(40)
	if len(cut) != 1 || len(grown) < 3 || grown[len(grown)-1] != 1 || at[1] != 10 || at[2]-at[1] != 5 {
		t.Fatalf("cut to %v, then %v after %v s", cut, grown, at)
	}
	s.servers[1].hidden = 0.6
	s.seconds(5)
	s.servers[1].hidden = 0
	s.seconds(11) // it has begun to grow
	s.servers[1].hidden = 0.6
	if plan := s.second(); math.Abs(plan.Factor["i2"].Value-cut[0]) > 0.05 {
		t.Errorf("noticed again while it grows: %v, want %v", plan.Factor, cut)
	}
	s.servers[1].hidden = 0
	if again, at := trace(60); len(at) < 2 || at[1] != 20 || again[len(again)-1] != 1 {
		t.Errorf("the second return: %v after %v s, want the first step after 20", again, at)
	}
}

// When the main policy takes load away from an instance, the cut shrinks, so that the load is not taken away twice.
func TestICEHandsOverToTheMainPolicy(t *testing.T) {
	s := newShop(t, 3, nil, func(s *Settings) { s.Floor = 0.1 })
	s.seconds(2 * bands.Known)
	s.servers[1].hidden = 0.5
	before := s.seconds(8).Factor["i2"].Value
	rate := s.weights["i2"] * s.rate
	decide := s.decide
	s.decide = func(snapshot *quell.Snapshot, st policy.State) (quell.Plan, policy.State) {
		plan, st := decide(snapshot, st)
		f := quell.Factor{Value: 1}
		if cut, ok := plan.Factor["i2"]; ok {
			f = cut
		}
		plan.Weights = map[string]float64{"i1": 0.4, "i2": 0.2 * f.Value, "i3": 0.4} // PRIMA's shares, with the cut
		sum := 0.8 + 0.2*f.Value
		for id := range plan.Weights {
			plan.Weights[id] /= sum
		}
		return plan, st
	}
	after := 1.0
	if f, cut := s.seconds(20).Factor["i2"]; cut {
		after = f.Value
	}
	if now := s.weights["i2"] * s.rate; after < before*1.3 || math.Abs(now-rate) > 0.3*rate {
		t.Errorf("the factor goes from %.2f to %.2f, and the requests from %.0f to %.0f per second", before, after, rate, now)
	}
}

// detector is a section of models whose detector goes by the processors' hidden use, with the estimator of the paper.
func detector(t *testing.T) *model.Models {
	t.Helper()
	alone, disturbed := &stats.Tree{Class: model.Alone, Count: 100}, &stats.Tree{Class: model.Disturbed, Count: 100}
	ice := &model.ICE{
		Classifier: &stats.Tree{Feature: "cpu_hidden", Threshold: 0.2, Above: disturbed, Below: alone},
		Usual:      map[string]float64{"cpu_hidden": 0},
		Signal:     "cpu_per_request",
		Estimator: &model.Estimator{Intercept: 0.06, Previous: 0.64, Requests: 0.21, CPI: 0.24, Range: model.EstimatorRange{
			CPU: model.Range{0, 1}, Requests: model.Range{0, 200}, CPI: model.Range{0, 6}}},
	}
	m := &model.Models{Sections: []model.Section{ice}}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	return m
}

// Trained, the detector decides: two windows in a row, or one in which half of the deviation would be enough. The estimator's cut is nearly
// always deeper than the floor.
func TestICETrained(t *testing.T) {
	for name, c := range map[string]struct {
		hidden  float64
		seconds int
	}{"clear": {0.6, 1}, "just": {0.35, 2}, "below the detector's threshold": {0.15, 0}} {
		s := newShop(t, 3, detector(t), func(s *Settings) { s.SetPoint = 0.4 })
		s.servers[0].share, s.servers[2].share = 0.001, 0.001 // they have room
		s.seconds(10)
		s.servers[1].hidden = c.hidden
		seconds, plan := s.until(10)
		if seconds != c.seconds || seconds > 0 && math.Abs(plan.Factor["i2"].Value-0.6) > 1e-9 {
			t.Errorf("%s: after %d s %v, want 0.6 after %d; %v", name, seconds, plan.Factor, c.seconds, plan.Reasons)
		}
		if hasReason(plan, "untrained", "") {
			t.Errorf("%s: %v", name, plan.Reasons)
		}
	}
}

// Alone, ice sets the shares itself.
func TestICEAlone(t *testing.T) {
	service := guarding(Spec.Name, func(s *quell.Service) { s.Sampling = time.Second })
	e := engine(t, service, nil)
	s := newShopOf(t, 3, e.Decide)
	s.seconds(2 * bands.Known)
	for id, w := range s.weights {
		if math.Abs(w-1./3) > 1e-9 {
			t.Errorf("in calm %s has %v", id, w)
		}
	}
	s.servers[1].hidden = 0.6
	s.second()
	weighs(t, "cut", s.weights, map[string]float64{"i1": 1 / 2.6, "i2": 0.6 / 2.6, "i3": 1 / 2.6})
}

// A few windows in which others use the processors, for example while everything starts, do not hide a later neighbour.
func TestICELearnsLittleFromFewWindows(t *testing.T) {
	s := newShop(t, 3, nil, func(*Settings) {})
	s.servers[1].hidden = 0.4
	s.seconds(3)
	s.servers[1].hidden = 0
	s.seconds(bands.Known)
	s.servers[1].hidden = 0.5
	if seconds, plan := s.until(5); seconds == 0 || seconds > 2 || len(plan.Factor) != 1 {
		t.Errorf("after %d s: %v, %v", seconds, plan.Factor, plan.Reasons)
	}
}

// The busier an instance is, the more of its tasks' waiting may be chance: what would be a sign at low use is none at high use.
func TestICEBusyInstancesWaitByChance(t *testing.T) {
	for _, c := range []struct {
		share, hidden float64
		found         bool
	}{{0.3, 0.4, true}, {0.75, 0.14, false}, {0.75, 0.24, true}} {
		s := newShop(t, 3, nil, func(*Settings) {})
		eachOf(s.servers, func(v *served) { v.share = c.share / 100 })
		s.seconds(bands.Known)
		s.servers[1].hidden = c.hidden
		found := false
		for range 3 {
			found = hasReason(s.second(), "interference", "i2") || found
		}
		if found != c.found {
			t.Errorf("%+v: %t", c, found)
		}
	}
}

// tuned are settings with two parameters of a server.
func tuned(s *Settings) {
	s.Parameters = ParametersOf([]Parameter{{"apache.MaxRequestWorkers", Lower, 50, 400}, {"apache.KeepAliveTimeout", Raise, 1, 15}})
}

// Parameters change only after the interference has lasted, in proportion, and go back when it is over.
func TestICETunesServers(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	for i := range 20 {
		if plan := s.second(); len(plan.Settings) > 0 {
			t.Fatalf("after %d s: %v", i+1, plan.Settings)
		}
	}
	plan := s.seconds(2)
	workers, timeout := s.settings["i2"]["apache.MaxRequestWorkers"], s.settings["i2"]["apache.KeepAliveTimeout"]
	if len(plan.Settings) != 2 || workers >= 120 || workers < 50 || timeout != 11 {
		t.Fatalf("%v: %v workers, timeout %v", plan.Settings, workers, timeout)
	}
	if !hasReason(s.second(), "interference", "i2") || s.settings["i1"]["apache.MaxRequestWorkers"] != 200 {
		t.Errorf("others were changed: %v", s.settings)
	}
	s.servers[1].hidden, s.servers[1].ms = 0, 20
	s.seconds(60)
	if s.settings["i2"]["apache.MaxRequestWorkers"] != 200 || s.settings["i2"]["apache.KeepAliveTimeout"] != 5 {
		t.Errorf("after the interference: %v", s.settings["i2"])
	}
	if plan := s.second(); len(plan.Settings) > 0 {
		t.Errorf("in calm the plan asks for %v", plan.Settings)
	}
}

// With floor 100% parameters change as they do after a cut, and no share is cut.
func TestICEChangesParametersAlone(t *testing.T) {
	s := newShop(t, 3, nil, func(set *Settings) { tuned(set); set.Floor = 1 })
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	for i := range 25 {
		if plan := s.second(); len(plan.Factor) > 0 || i < 20 && len(plan.Settings) > 0 {
			t.Fatalf("after %d s: %v, %v", i+1, plan.Factor, plan.Settings)
		}
	}
	workers, timeout := s.settings["i2"]["apache.MaxRequestWorkers"], s.settings["i2"]["apache.KeepAliveTimeout"]
	if workers >= 120 || workers < 50 || timeout != 11 {
		t.Errorf("%v workers, timeout %v", workers, timeout)
	}
	s.servers[1].hidden, s.servers[1].ms = 0, 20
	s.seconds(60)
	if s.settings["i2"]["apache.MaxRequestWorkers"] != 200 {
		t.Errorf("after the interference: %v", s.settings["i2"])
	}
}

// changeParameters lets a neighbour come to i2, until its server's parameters are changed.
func (s *shop) changeParameters() {
	s.t.Helper()
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	s.seconds(22)
	if s.settings["i2"]["apache.MaxRequestWorkers"] == 200 {
		s.t.Fatal("nothing was changed")
	}
}

// If the median gets worse by it, the change is undone, and not repeated during this interference.
func TestICEUndoesWhatMakesTheMedianWorse(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	s.changeParameters()
	s.servers[1].ms = 60
	s.seconds(8)
	if s.settings["i2"]["apache.MaxRequestWorkers"] == 200 {
		t.Fatal("undone before it settled")
	}
	s.seconds(5)
	for i := range 120 {
		s.second()
		if got := s.settings["i2"]["apache.MaxRequestWorkers"]; got != 200 {
			t.Fatalf("%d s later: %v", i, got)
		}
	}
}

// Changes that do not help come later and later, those that help come as soon as before. The moment of the reload does not count.
func TestICEChangesLessWhatDoesNotHelp(t *testing.T) {
	for name, c := range map[string]struct {
		ms    float64 // with changed parameters
		after []int   // seconds from the first sign to the change, in successive interferences
	}{"helps": {35, []int{20, 20, 20}}, "vain": {45, []int{20, 40, 80}}} {
		s := newShop(t, 3, nil, tuned)
		s.seconds(2 * bands.Known)
		for round, after := range c.after {
			s.servers[1].hidden, s.servers[1].ms = 0.6, 45
			changed := 0
			for second := range after + 20 {
				s.second()
				if s.settings["i2"]["apache.MaxRequestWorkers"] == 200 {
					continue
				}
				if changed == 0 {
					changed = second
				}
				if s.servers[1].ms = c.ms; second < changed+4 {
					s.servers[1].ms = 2000
				}
			}
			if math.Abs(float64(changed-after)) > 3 {
				t.Errorf("%s, interference %d: changed after %d s, want %d", name, round, changed, after)
			}
			s.servers[1].hidden, s.servers[1].ms = 0, 20
			s.seconds(400)
		}
	}
}

// Whether a change helps is not judged while it is not in force, as in advise mode: later changes come as soon as the first would have.
func TestICEDoesNotJudgeWhatIsNotInForce(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	s.paused = true
	for range 3 {
		s.servers[1].hidden, s.servers[1].ms = 0.6, 45
		s.seconds(60)
		s.servers[1].ms = 60
		s.seconds(60)
		s.servers[1].hidden, s.servers[1].ms = 0, 20
		s.seconds(400)
	}
	s.paused = false
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	s.seconds(25)
	if s.settings["i2"]["apache.MaxRequestWorkers"] == 200 {
		t.Error("after a pause nothing is changed within 25 s")
	}
}

// Interferences that end before a change has settled count as ones in which it did not help.
func TestICEShortInterferencesAreInVain(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	changes := 0
	for range 6 {
		s.servers[1].hidden, s.servers[1].ms = 0.6, 45
		s.seconds(28)
		if s.settings["i2"]["apache.MaxRequestWorkers"] != 200 {
			changes++
		}
		s.servers[1].hidden, s.servers[1].ms = 0, 20
		s.seconds(400)
	}
	if changes != 1 {
		t.Errorf("%d of 6 short interferences changed parameters, want 1", changes)
	}
}

// Parameters stay if no cut is in force: there is one instance, all are cut alike, or a person set the share.
func TestICEChangesNoParametersWithoutACut(t *testing.T) {
	for name, c := range map[string]struct {
		n   int
		set map[string]float64
	}{"one instance": {1, nil}, "all are cut": {3, nil}, "a share that a person set": {3, map[string]float64{"i2": 0.4}}} {
		s := newShop(t, c.n, nil, tuned)
		decide := s.decide
		s.decide = func(snapshot *quell.Snapshot, st policy.State) (quell.Plan, policy.State) {
			snapshot.Set(c.set)
			return decide(snapshot, st)
		}
		s.seconds(2 * bands.Known)
		for i := range s.servers {
			if i == 1 || c.set == nil {
				s.servers[i].hidden, s.servers[i].ms = 0.6, 45
			}
		}
		for range 60 {
			if plan := s.second(); len(plan.Settings) > 0 {
				t.Errorf("%s: %v", name, plan.Settings)
				break
			}
		}
	}
}

// A change that makes the median worse is undone, also if an agent refused a part of it.
func TestICEUndoesWhatIsInForceInPart(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.refused = map[string]bool{"apache.KeepAliveTimeout": true}
	s.seconds(2 * bands.Known)
	s.changeParameters()
	s.servers[1].ms = 60
	s.seconds(20)
	if got := s.settings["i2"]["apache.MaxRequestWorkers"]; got != 200 {
		t.Errorf("%v workers", got)
	}
}

// A value that was shown for one window only is no value of before.
func TestICEWaitsForASteadyValue(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.seconds(2 * bands.Known)
	s.servers[1].hidden, s.servers[1].ms = 0.6, 45
	for i := range 40 {
		s.settings["i2"]["apache.MaxRequestWorkers"] = float64(200 + 8*(i%2))
		for _, o := range s.second().Settings {
			if o.Name == "MaxRequestWorkers" {
				t.Fatalf("second %d: %+v", i, o)
			}
		}
	}
}

// A plan names the instances from which no agent's reading arrived.
func TestICETellsWhoIsNotFelt(t *testing.T) {
	s := newShop(t, 12, nil, func(*Settings) {})
	if plan := s.second(); hasReason(plan, "unfelt", "") {
		t.Errorf("%v", plan.Reasons)
	}
	eachOf(s.servers[1:], func(v *served) { v.blind = true })
	for _, r := range s.second().Reasons {
		if r.Code == "unfelt" && strings.Contains(r.Text, "neighbours of i2, i3") && strings.HasSuffix(r.Text, "more") {
			return
		}
	}
	t.Error("the plan names nobody")
}

// A trained detector also cuts if nobody counts requests.
func TestICETrainedWithoutRates(t *testing.T) {
	s := newShop(t, 3, detector(t), func(s *Settings) { s.SetPoint = 0.4 })
	decide := s.decide
	s.decide = func(snapshot *quell.Snapshot, st policy.State) (quell.Plan, policy.State) {
		for i := range snapshot.Instances {
			snapshot.Instances[i].Observation.RequestRate, snapshot.Instances[i].Observation.LatencyMS = nil, nil
		}
		return decide(snapshot, st)
	}
	s.seconds(10)
	s.servers[1].hidden = 0.6
	if seconds, plan := s.until(10); seconds == 0 || seconds > 2 {
		t.Errorf("after %d s: %v, %v", seconds, plan.Factor, plan.Reasons)
	}
}

// A parameter that no agent reports is not ordered, and the plan says so.
func TestICELeavesUnknownParameters(t *testing.T) {
	s := newShop(t, 3, nil, tuned)
	s.settings = map[string]map[string]float64{}
	s.seconds(2 * bands.Known)
	s.servers[1].hidden = 0.6
	if plan := s.seconds(25); len(plan.Settings) > 0 || !hasReason(plan, "setting_unknown", "i2") {
		t.Errorf("%v, %v", plan.Settings, plan.Reasons)
	}
}

// Whatever servers show, factors stay within the floor and 1 and end, parameters stay within their bounds or at their original values, and
// no parameter changes twice within the time of settling.
func TestICEKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newShop(t, rapid.IntRange(1, 5).Draw(rt, "n"), nil, tuned)
		changed := map[string]int{}
		for second := range rapid.IntRange(1, 150).Draw(rt, "seconds") {
			if second%rapid.SampledFrom([]int{1, 7, 40}).Draw(rt, "every") == 0 {
				v := &s.servers[rapid.IntRange(0, len(s.servers)-1).Draw(rt, "server")]
				v.hidden = rapid.SampledFrom([]float64{0, 0, 0.2, 0.6, 1}).Draw(rt, "hidden")
				v.ms = rapid.SampledFrom([]float64{20, 45, 400}).Draw(rt, "ms")
				v.blind = rapid.IntRange(0, 9).Draw(rt, "blind") == 0
			}
			before := map[string]map[string]float64{}
			for id, values := range s.settings {
				before[id] = map[string]float64{}
				for name, v := range values {
					before[id][name] = v
				}
			}
			plan := s.second()
			for id, f := range plan.Factor {
				if !(f.Value >= 0.6-1e-9 && f.Value < 1) || !f.Until.After(s.now) || f.Until.After(s.now.Add(4*time.Second)) {
					rt.Fatalf("%s: %+v at %v", id, f, s.now)
				}
			}
			if len(plan.Factor) == len(s.servers) {
				rt.Fatalf("all are cut: %v", plan.Factor)
			}
			for id, values := range s.settings {
				for name, v := range values {
					if v == before[id][name] {
						continue
					}
					if last, ok := changed[id+name]; ok && second-last < 10 {
						rt.Fatalf("%s of %s changes %d s after it changed", name, id, second-last)
					}
					if changed[id+name] = second; v < 1 || v > 400 {
						rt.Fatalf("%s of %s is %v", name, id, v)
					}
				}
			}
		}
	})
}

// The memory of ice survives a restart.
func TestICERemembers(t *testing.T) {
	one, two := newShop(t, 3, nil, tuned), newShop(t, 3, nil, tuned)
	for second := range 120 {
		hidden := 0.0
		if second > 50 && second < 90 {
			hidden = 0.6
		}
		one.servers[1].hidden, two.servers[1].hidden = hidden, hidden
		two.st = reread(t, two.st)
		a, b := one.second(), two.second()
		if len(a.Factor) != len(b.Factor) || !slices.Equal(a.Reasons, b.Reasons) {
			t.Fatalf("second %d: %v, after a restart %v", second, a.Reasons, b.Reasons)
		}
	}
}

// An instance whose weight a person set keeps it, and the plan says so.
func TestICELeavesWeightsThatWereSet(t *testing.T) {
	s := newShop(t, 3, nil, func(*Settings) {})
	s.seconds(2 * bands.Known)
	s.servers[1].hidden = 0.6
	s.byHand = map[string]float64{"i2": 1. / 3}
	plan := s.seconds(5)
	i := slices.IndexFunc(plan.Reasons, func(r quell.Reason) bool { return r.Code == "interference" && r.Instance == "i2" })
	if len(plan.Factor) > 0 || i < 0 || !strings.Contains(plan.Reasons[i].Text, "its weight is set by hand") {
		t.Errorf("%v, %v", plan.Factor, plan.Reasons)
	}
	s.byHand = nil
	if plan = s.seconds(6); plan.Factor["i2"].Value != 0.6 {
		t.Errorf("its weight is no longer set by hand, and it keeps %v: %v", plan.Factor, plan.Reasons)
	}
}
