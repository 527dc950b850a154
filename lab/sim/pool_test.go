package sim

import (
	"os"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/policy/prima"
)

// pooledGroup is examples/scenarios/burstable-group.yaml, and the time for which its credits last if they are all spent.
func pooledGroup(t *testing.T) (sc *scenario.Scenario, bound time.Duration) {
	t.Helper()
	const file = "../../examples/scenarios/burstable-group.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if sc, err = scenario.Parse(file, data); err != nil {
		t.Fatal(err)
	}
	c, cores, credits := sc.Instances.Credits, 0.0, 0.0
	for i, h := range sc.Hosts {
		cores += h.Cores
		credits += c.Balance[i]
	}
	minutes := credits / (sc.Workload.Load*sc.Hosts[0].Cores - c.Baseline*cores)
	return sc, time.Duration(minutes * float64(time.Minute))
}

// heldFor is how long a run keeps the objective: until three judge windows in a row miss it.
func heldFor(t *testing.T, o Options) time.Duration {
	t.Helper()
	held, missed := o.Scenario.Duration, 0
	o.Windows = func(w Window) {
		if missed++; !w.Violated {
			missed = 0
		}
		if missed == 3 {
			held = min(held, w.Start-2*w.Length)
		}
	}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return held
}

// PRIMA is not told what the instances earn and spend. It keeps the objective for at least 90% of the time for which all credits together
// last. Equal shares keep it until the poorest instance has spent its own.
func TestCreditsArePooled(t *testing.T) {
	sc, bound := pooledGroup(t)
	models := prepared(t, sc)
	for _, run := range sc.Runs {
		held := heldFor(t, Options{Scenario: sc, Run: run, Models: models})
		t.Logf("%s %s: %v of %v", run.Policy.Name, run.Scheduling, held, bound)
		settings, isPRIMA := sc.PolicyOf(run).Settings.(prima.Settings)
		switch aware := isPRIMA && settings.Credits.Last > 0; {
		case aware && held < bound*9/10:
			t.Errorf("PRIMA keeps the objective for %v of %v", held, bound)
		case !aware && held > bound*8/10:
			t.Errorf("%s over %s keeps the objective for %v of %v without knowing of credits", run.Policy.Name, run.Scheduling, held, bound)
		}
	}
}

// What a plan says of balances is true: each lies between the bounds, and the forecast of one instance's depletion is right within 4.6%.
func TestForecasts(t *testing.T) {
	sc, _ := pooledGroup(t)
	sc.Hosts, sc.Instances.Start, sc.Instances.Fixed, sc.Service.Group = sc.Hosts[:1], 1, 1, quell.Group{Min: 1, Max: 1}
	sc.Runs = sc.Runs[:1]
	sc.Instances.Credits.Balance, sc.Workload.Load, sc.Runs[0].Fixed = []float64{40}, 0.5, 1
	sc.Duration = 80 * time.Minute // 40 credits at 0.6 a minute last 67
	models := prepared(t, sc)
	truth := map[int]float64{} // by minute
	empty := time.Duration(0)
	type forecast struct {
		at time.Time
		quell.Balance
	}
	var said []forecast
	_, err := Run(t.Context(), Options{Scenario: sc, Run: sc.Runs[0], Models: models,
		Credits: func(at time.Duration, b map[string]float64) {
			truth[int(at.Minutes())] = b["h1"]
			if b["h1"] == 0 && empty == 0 {
				empty = at
			}
		},
		Plans: func(p *quell.Plan) {
			if b, ok := p.Credits["i1"][quell.CPU]; ok {
				said = append(said, forecast{p.At, b})
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if empty == 0 || len(said) < 100 {
		t.Fatalf("spent after %v, %d forecasts", empty, len(said))
	}
	zero := said[len(said)-1].at // moments of plans begin with the start-up; the last is near the end
	late, judged := 0, 0
	for _, f := range said {
		at := sc.Duration - zero.Sub(f.at)
		if at < 35*time.Minute || at > 50*time.Minute || f.DepletedS == nil {
			continue
		}
		judged++
		predicted := at + time.Duration(*f.DepletedS*float64(time.Second))
		if off := (predicted - empty).Abs().Seconds() / empty.Seconds(); off > 0.046 {
			late++
		}
		if now := truth[int(at.Minutes())]; now < f.Low-1.5 || now > f.High+1.5 {
			t.Errorf("after %v: a balance of %.2f is not between %.2f and %.2f", at, now, f.Low, f.High)
		}
	}
	if judged < 50 || late > judged/20 {
		t.Errorf("%d of %d forecasts miss the depletion after %v by more than 4.6%%", late, judged, empty)
	}
}

// If use beyond the credits is sold, shares by credits cost at most 5% more than the least that is possible. As the load is constant, that
// is the price of what is used beyond all credits: nothing is bought as long as any instance has some.
func TestSurplusIsNearTheLeast(t *testing.T) {
	sc, _ := pooledGroup(t)
	c := sc.Instances.Credits
	c.Surplus = 0.05
	c.Cap *= 2
	for i := range c.Balance {
		c.Balance[i] *= 2
	}
	settings := sc.PolicyOf(sc.Runs[0]).Settings.(prima.Settings)
	settings.Credits.Unlimited = new(true)
	sc.Duration = 3 * time.Hour // the credits last 2.7
	cores, credits := 0.0, 0.0
	for i, h := range sc.Hosts {
		cores, credits = cores+h.Cores, credits+c.Balance[i]
	}
	models := prepared(t, sc)
	cost := func(run scenario.Run) (dollars, most float64) {
		var used, length float64 // core-minutes, minutes
		o := Options{Scenario: sc, Run: run, Models: models, check: func(s *simulation) error {
			length = s.w.now / 60
			for _, in := range s.instances {
				used += s.usedBy(in, kindOf(quell.CPU)) / 60
			}
			return nil
		}}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.SurplusUSD == nil || r.SLO.ViolationShare > 0.02 {
			t.Fatalf("%s: costs %v, and misses the objective for %.1f%% of the time", run.Policy.Name, r.SurplusUSD, 100*r.SLO.ViolationShare)
		}
		return *r.SurplusUSD, (used - length*c.Baseline*cores - credits) / 60 * c.Surplus
	}
	run := sc.Runs[0]
	run.Policy.Settings = settings
	aware, least := cost(run)
	equal, _ := cost(scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.RoundRobin, Fixed: 10})
	t.Logf("by credits %.4f dollars, equal weights %.4f, at least %.4f", aware, equal, least)
	if aware > 1.05*least || equal < 1.5*least {
		t.Errorf("by credits %.4f dollars, equal weights %.4f, at least %.4f", aware, equal, least)
	}
}
