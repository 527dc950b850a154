package sim

import (
	"math"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/prima"
	"github.com/quellhq/quell/policy/table"
)

// burstable is a scenario with burstable instances on links of 40 Mbit/s: files of 50 KB take 10 ms. A full link spends a credit a minute.
func burstable(n int, load float64, c scenario.Credits, duration time.Duration) *scenario.Scenario {
	sc := plainScenario(n, load, 40e6, duration)
	c.Resource = quell.Network
	sc.Instances.Credits = &c
	sc.Service.Sampling = 10 * time.Second
	return sc
}

// play plays a scenario with policy static, and returns the number of judge windows that violate the objective, by minute.
func violations(t *testing.T, sc *scenario.Scenario, o Options) (byMinute []int) {
	t.Helper()
	o.Scenario, o.Run = sc, sc.Runs[0]
	byMinute = make([]int, int(sc.Duration.Minutes()))
	o.Windows = func(w Window) {
		if at := int(w.Start.Minutes()); w.Violated && at < len(byMinute) {
			byMinute[at]++
		}
	}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return byMinute
}

// An instance works at full speed until its credits are spent, at the time that Eq. 2 gives, and at its baseline from then on.
func TestDepletionIsFelt(t *testing.T) {
	sc := burstable(1, 0.7, scenario.Credits{Baseline: 0.2, Cap: 30, Balance: []float64{5}, Shown: 5 * time.Minute}, 20*time.Minute)
	sc.Service.SLO.Threshold = 100 * time.Millisecond
	s, err := newSimulation(Options{Scenario: sc, Run: sc.Runs[0], WarmUp: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var empty float64
	var look func()
	look = func() {
		if in := s.members[0]; in.bucket.limited && empty == 0 {
			empty = s.w.now
		}
		s.w.agenda.add(s.w.now+1, look)
	}
	s.w.agenda.add(s.boot+1, look)
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Probes take a part of the link, too: 2% at most.
	if want := 5 * 60 / (0.7 - 0.2); empty < 0.9*want || empty > 1.1*want {
		t.Errorf("credits were spent after %.0f s, by Eq. 2 after about %.0f s", empty, want)
	}
	carried := s.w.carried(0, quell.Network, ownService)
	if want := 0.7*empty + 0.2*(s.end-empty); carried < 0.9*want {
		t.Errorf("carried %.0f s of work, want about %.0f", carried, want)
	}
	before, after := 0, 0
	for minute, n := range violations(t, sc, Options{WarmUp: time.Second}) {
		if minute < int(empty/60)-1 {
			before += n
		} else if minute > int(empty/60)+1 {
			after += n
		}
	}
	if before > 0 || after < 100 {
		t.Errorf("%d windows miss the objective while there are credits, %d of 5 s afterwards", before, after)
	}
}

// An instance that rests earns credits up to the cap, and is at full speed again.
func TestCreditsComeBack(t *testing.T) {
	sc := burstable(1, 0.5, scenario.Credits{Baseline: 0.2, Cap: 3}, 40*time.Minute)
	sc.Service.SLO.Threshold = 100 * time.Millisecond
	none := 0.0
	half := 0.5
	sc.Timeline = []scenario.Event{{At: 5 * time.Minute, Load: &none}, {At: 30 * time.Minute, Load: &half}}
	var balances []float64
	byMinute := violations(t, sc, Options{Credits: func(_ time.Duration, b map[string]float64) { balances = append(balances, b["h1"]) }})
	early, late := 0, 0
	for minute, n := range byMinute {
		switch {
		case minute < 5:
			early += n
		case minute >= 30 && minute < 38: // a cap of 3 lasts 3 / (0.5 - 0.2) = 10 minutes
			late += n
		}
	}
	if early < 30 || late > 0 {
		t.Errorf("without credits %d windows miss the objective, with credits %d", early, late)
	}
	if most := maxOf(balances); math.Abs(most-3) > 0.1 {
		t.Errorf("the largest balance is %v, want the cap of 3: %v", most, balances)
	}
}

func maxOf(values []float64) float64 {
	most := math.Inf(-1)
	for _, v := range values {
		most = math.Max(most, v)
	}
	return most
}

// A fresh machine has launch credits, and no limit from the instance that was there before. What the provider shows is the balance.
func TestFreshInstancesHaveLaunchCredits(t *testing.T) {
	sc := burstable(2, 0.35, scenario.Credits{Baseline: 0.1, Cap: 30, Launch: 7, Balance: []float64{0}, Shown: time.Minute}, 10*time.Minute)
	sc.Instances.Start, sc.Instances.Fixed = 1, 1
	sc.Runs[0].Fixed = 1
	s, err := newSimulation(Options{Scenario: sc, Run: sc.Runs[0], Renewals: []Renewal{{Host: "h1", At: 3 * time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.members) != 1 || s.members[0].id != "i2" {
		t.Fatalf("at the end there are %v", s.ids())
	}
	fresh := s.members[0].bucket
	if fresh.limited || fresh.balance > 7 || fresh.balance < 1 || fresh.shown == nil || math.Abs(*fresh.shown-fresh.balance) > 1 {
		t.Errorf("the fresh one has %v of 7 credits, limited %v, shown %v", fresh.balance, fresh.limited, fresh.shown)
	}
	if share := s.w.stations[s.w.hosts[0].stations[kindOf(quell.Network)]].share; share != 1 {
		t.Errorf("the machine that was given back works at %v of its speed", share)
	}
	snapshot := s.snapshot()
	if shown, ok := snapshot.Instances[0].Observation.Credits[quell.Network]; !ok || math.Abs(shown-fresh.balance) > 1 {
		t.Errorf("the snapshot shows %v, %v", shown, ok)
	}
}

// Without credits in the scenario nothing is counted, and nothing is shown.
func TestNoCredits(t *testing.T) {
	played(t, Options{Scenario: plainScenario(1, 0.3, 40e6, time.Minute), Run: scenario.Run{Policy: quell.Policy{Name: "static"},
		Scheduling: quell.LeastConn}, Credits: func(time.Duration, map[string]float64) { t.Error("credits are told") }})
}

// Instances whose credits run out are replaced by fresh ones, one at a time and not before the least interval. No request fails, and the
// objective is kept, although each instance alone has credits for less than an hour.
func TestSpentInstancesAreReplaced(t *testing.T) {
	sc := plainScenario(4, 0, 40e6, 4*time.Hour)
	sc.Instances = scenario.Instances{Start: 2, Fixed: 2, Startup: 20 * time.Second, Credits: &scenario.Credits{
		Resource: quell.CPU, Baseline: 0.2, Cap: 30, Launch: 15, Balance: []float64{15, 12}, Shown: time.Minute,
	}}
	sc.Workload = scenario.Workload{Kind: scenario.Classes, Arrivals: scenario.Poisson, Spread: scenario.Fixed,
		Load:    1.1, // 0.55 for each: 15 credits last 43 minutes
		Classes: []scenario.Class{{Name: "page", Share: 1, CPU: 100 * time.Millisecond}}}
	sc.Probing.Resources = []quell.Resource{quell.CPU}
	settings := table.All.Whole(quell.Policy{Name: "prima"}).Settings.(prima.Settings)
	settings.Resources = policy.ResourcesOf(quell.CPU)
	sc.Service.Policy = quell.Policy{Name: "prima", Settings: settings}
	sc.Service.SLO.Threshold, sc.Service.Sampling = 400*time.Millisecond, 10*time.Second
	sc.Service.Group.Replace = quell.Replace{Below: 0.15, Every: 5 * time.Minute}
	sc.Judge.Window = 30 * time.Second
	models := prepared(t, sc)
	o := Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn, Fixed: 2}, Models: models,
		Plans: func(p *quell.Plan) {
			if len(p.Replace) > 1 {
				t.Errorf("%d instances at once", len(p.Replace))
			}
		}}
	started := 0
	o.check = func(s *simulation) error { started = len(s.instances); return nil }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Errors > 0 || started < 8 || started > 16 {
		t.Errorf("%d of %d requests failed; %d instances were started, want about 2 + 2 x 240/43", r.Errors, r.Requests, started)
	}
	if r.SLO.ViolationShare > 0.02 {
		t.Errorf("%.1f%% of the time misses the objective", 100*r.SLO.ViolationShare)
	}
	o.Scenario.Service.Group.Replace.Below, o.Plans = 0, nil
	without, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if without.SLO.ViolationShare < 0.5 {
		t.Errorf("without replacements only %.1f%% of the time misses the objective", 100*without.SLO.ViolationShare)
	}
}
