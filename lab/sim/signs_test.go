package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

// calendarSite is a scenario whose classes of requests differ in what they need, on three hosts with one core.
func calendarSite() *scenario.Scenario {
	sc := pages(3, 60*time.Second)
	for i := range sc.Hosts {
		sc.Hosts[i].Cores = 1
	}
	sc.Service.SLO = quell.SLO{Metric: quell.P90, Threshold: 40 * time.Millisecond}
	sc.Probing.Resources = quell.Resources
	sc.Workload.Load, sc.Workload.CacheStretch = 1.2, 1.5
	sc.Workload.Classes = []scenario.Class{
		{Name: "home", Share: 5, CPU: 3 * time.Millisecond, Network: 12_000, Disk: 0.3},
		{Name: "event", Share: 2, CPU: 5 * time.Millisecond, Network: 20_000, Disk: 4, Memory: time.Millisecond},
	}
	return sc
}

// On one processor that is shared equally, work waits rho / (1 - rho) times as long as it runs (M/M/1-PS).
func TestWaitingInRunQueues(t *testing.T) {
	sc := pages(1, 400*time.Second)
	sc.Hosts[0].Cores, sc.Service.Sampling = 1, 200*time.Second
	sc.Workload.Load = 0.5
	sc.Workload.Classes = []scenario.Class{{Name: "home", Share: 1, CPU: 10 * time.Millisecond}}
	seen, _ := observations(t, Options{Scenario: sc})
	s := seen[0].Sched
	near(t, "run", s.RunS, 0.5*seen[0].WindowS, 0.1)
	near(t, "wait", *s.WaitS, s.RunS, 0.2)
}

// Neighbours at a resource change the sign of that resource, and hardly the others.
func TestNeighboursShowInTheirSigns(t *testing.T) {
	signs := func(of quell.Resource, use float64) map[string]float64 {
		sc := calendarSite()
		sc.Service.Sampling = 20 * time.Second
		if use > 0 {
			for _, h := range sc.Hosts {
				on := &scenario.Interference{Host: h.ID, Resource: of, Use: use}
				sc.Timeline = append(sc.Timeline, scenario.Event{At: time.Second, Interfere: on})
			}
		}
		seen, _ := observations(t, Options{Scenario: sc})
		o := seen[0]
		return map[string]float64{"cpu": *o.Sched.WaitS / o.Sched.RunS, "disk": *o.CPU.IOWait, "network": o.TCP["connect_ms_p90"],
			"memory": (o.CPU.User + o.CPU.System) / *o.RequestRate}
	}
	calm := signs("", 0)
	for of, use := range map[quell.Resource]float64{quell.CPU: 0.4, quell.Disk: 0.6, quell.Network: 0.6, quell.Memory: 0.5} {
		now := signs(of, use)
		if growth := now[string(of)] / calm[string(of)]; growth < 1.5 {
			t.Errorf("%s: grows %.2f times", of, growth)
		}
		for other, v := range now {
			if of == quell.Memory || other == string(of) {
				continue // work that takes longer also waits longer
			}
			if growth := v / calm[other]; growth > 1.5 {
				t.Errorf("neighbours at the %s: %s grows %.2f times", of, other, growth)
			}
		}
	}
}

func TestSegmentsAreLostBeyondTheQueue(t *testing.T) {
	if got := lost(14_600, 5); got != 0 {
		t.Errorf("60 segments fit: %v are lost", got)
	}
	if got := lost(14_600, 7); math.Abs(got-2) > 1e-9 {
		t.Errorf("of 80 segments a fifth does not fit: %v of 10 are lost", got)
	}
}

// quickPlan is a plan whose runs are few.
func quickPlan() train.Plan {
	p := Plan()
	p.Run, p.Repeat, p.MaxRepeat = 30*time.Second, 1, 1
	p.Levels = []float64{0.1, 0.3, 0.5, 0.7}
	return p
}

// DIAL is trained by the one path: its classifier names the resource in at least 88% of the runs that it was not fitted to, and with most
// seeds a run with it has a shorter p90 than one with equal shares, and names the resources. It hardly names the network, which has no
// neighbours.
func TestDialIsTrainedInTheSimulator(t *testing.T) {
	right, n := 0, 0
	var ratios []float64
	causes := map[quell.Resource]int{}
	for seed := uint64(1); seed <= 10; seed++ {
		models := dialModels(t, seed)
		all, found := models.Dial().Validated.Total()
		right, n = right+found, n+all
		p90 := func(name string) float64 {
			r, err := Run(t.Context(), Options{Scenario: disturbedCalendar(), Seed: seed, Models: models,
				Run: scenario.Run{Policy: quell.Policy{Name: name}, Scheduling: quell.RoundRobin, Fixed: 3},
				Plans: func(p *quell.Plan) {
					for _, cause := range p.Cause {
						causes[cause]++
					}
				}})
			if err != nil {
				t.Fatal(err)
			}
			return *r.LatencyMS.P90
		}
		ratios = append(ratios, p90("dial")/p90(table.All.Plain()))
	}
	if float64(right) < 0.88*float64(n) {
		t.Errorf("only %d of %d runs are classified right", right, n)
	}
	slices.Sort(ratios)
	if ratios[5] > 0.95 || causes[quell.CPU] < 100 || causes[quell.Disk] < 100 || causes[quell.Network] > 25 {
		t.Errorf("p90s relative to equal shares %.2f; causes %v", ratios, causes)
	}
}

// dialModels trains DIAL on quick simulated runs.
func dialModels(t *testing.T, seed uint64) *model.Models {
	t.Helper()
	rows, err := Train(t.Context(), calendarSite(), quickPlan(), seed)
	if err != nil {
		t.Fatal(err)
	}
	models, _, err := model.Fit(rows, model.FitOptions{Metric: quell.P90})
	if err != nil {
		t.Fatal(err)
	}
	d := models.Dial()
	if d == nil || d.Incomplete() != "" {
		t.Fatalf("%+v", d)
	}
	t.Logf("seed %d:\n%s%s", seed, d.Validated, d.Classifier)
	for r, e := range d.Errors {
		t.Logf("%s: Eq. 1 is off by %.1f%%, without the square term by %.1f%%", r, 100*e.MeanRelative, 100*e.Linear)
	}
	return models
}

// disturbedCalendar is a site with a neighbour on one server's processor, then one on another server's disk.
func disturbedCalendar() *scenario.Scenario {
	sc := calendarSite()
	for i, x := range []scenario.Interference{{Resource: quell.CPU, Use: 0.5}, {Resource: quell.Disk, Use: 0.8}} {
		x.Host = sc.Hosts[i].ID
		gone := x
		gone.Use = 0
		from := time.Duration(10+20*i) * time.Second
		sc.Timeline = append(sc.Timeline, scenario.Event{At: from, Interfere: &x}, scenario.Event{At: from + 20*time.Second, Interfere: &gone})
	}
	return sc
}
