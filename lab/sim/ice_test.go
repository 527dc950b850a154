package sim

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy/ice"
	"github.com/quellhq/quell/policy/table"
	"github.com/quellhq/quell/train"
)

func iceHour(t *testing.T) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Load(filepath.Join("..", "..", "examples", "scenarios", "ice-hour.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// iceBeside is ICE beside equal weights, with a parameter of each server that it may change.
func iceBeside() quell.Policy {
	settings := table.All.Whole(quell.Policy{Name: "ice"}).Settings.(ice.Settings)
	settings.Parameters = ice.ParametersOf([]ice.Parameter{{Name: "apache.MaxRequestWorkers", Change: ice.Lower, Min: 50, Max: 400}})
	return quell.Policy{Name: table.All.Plain(), Fast: quell.Fast{Name: "ice", Settings: settings, Sampling: time.Second}}
}

// In an hour in which a neighbour is there for 4 minutes and away for 4 minutes, the share of the disturbed server is cut once in each
// interval and given back once, and its server's parameter is changed once and restored once, never within the time that it takes to
// settle.
func TestICEDoesNotOscillate(t *testing.T) {
	sc := iceHour(t)
	const interval = 4 * time.Minute
	intervals := int(sc.Duration / (2 * interval))
	for _, scheduling := range []quell.Scheduling{quell.RoundRobin, quell.LeastConn} {
		turns, orders, last := 0, 0, 200.0
		var factor, changed float64 = 1, -1e9
		falling, elsewhere := false, 0
		noticed := map[int]bool{}
		_, err := Run(t.Context(), Options{Scenario: sc, Run: scenario.Run{Policy: iceBeside(), Scheduling: scheduling},
			Settings: map[string]float64{"apache.MaxRequestWorkers": 200},
			FastPlans: func(at time.Duration, _ *quell.Snapshot, p *quell.Plan) {
				left := 1.0
				for id, f := range p.Factor {
					if id == "i2" {
						left = f.Value
					} else {
						elsewhere++
					}
				}
				if left < 1 && at > 0 && at%(2*interval) >= interval {
					noticed[int(at/(2*interval))] = true
				}
				if left != factor && (left < factor) != falling {
					falling = left < factor
					turns++
				}
				factor = left
				for _, o := range p.Settings {
					if o.Value == last {
						continue
					}
					if gap := at.Seconds() - changed; gap < 10 {
						t.Errorf("%s: the parameter goes from %v to %v after %.1f s", scheduling, last, o.Value, gap)
					}
					orders, last, changed = orders+1, o.Value, at.Seconds()
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		least := intervals
		if scheduling == quell.LeastConn {
			least = 0 // it sends the disturbed server so few requests itself that the set point is kept
		}
		if len(noticed) < least || turns > 2*intervals+1 || orders > 2*intervals || orders < least || elsewhere > 30 {
			t.Errorf("%s: cut in %d of %d intervals, %d turns of the share, %d orders, %d s with cuts elsewhere", scheduling,
				len(noticed), intervals, turns, orders, elsewhere)
		}
	}
}

// alternating makes the rows of a plan on one of the scenario's machines.
func alternating(t *testing.T, sc *scenario.Scenario, plan train.Plan, seed uint64) []model.TrainingRow {
	t.Helper()
	machine := &Trainer{Scenario: sc, Probing: Probing(sc.Probing)}
	rows, err := train.Run(t.Context(), train.Options{Plan: plan, Resource: quell.CPU, Machines: []train.Machine{machine}, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The detector is right for at least 98% of the seconds of a run that it was not trained with, also if the neighbour is weaker than any
// trained one.
func TestICEDetectsEachSecond(t *testing.T) {
	sc, plan := iceHour(t), train.Alternating()
	plan.Alternate = &train.Alternation{Away: time.Minute, There: 90 * time.Second, Window: time.Second}
	plan.Levels, plan.Run = []float64{0.2, 0.35}, 5*time.Minute
	models, _, err := model.Fit(alternating(t, sc, plan, 1), model.FitOptions{Metric: quell.P50})
	if err != nil {
		t.Fatal(err)
	}
	ice := models.ICE()
	t.Logf("%s%+v", ice.Classifier, ice.Fits)
	plan.Alternate = &train.Alternation{Away: 2 * time.Minute, There: 2 * time.Minute, Window: time.Second}
	plan.Levels, plan.Interference, plan.Run = []float64{0.3}, []float64{0.6, 0.35}, 8*time.Minute
	for _, row := range alternating(t, sc, plan, 100) {
		wrong, disturbed := 0, 0
		var signals map[string]float64
		var means *model.HiddenMeans
		for _, w := range row.Windows {
			signals, means = model.ICESignals(&w.Observation, means)
			found, _ := ice.Disturbed(signals)
			if w.Interfering > 0 {
				disturbed++
			}
			if found != (w.Interfering > 0) {
				wrong++
			}
		}
		n := len(row.Windows)
		t.Logf("neighbours that use %v: %d of %d windows are wrong", *row.InterferingLevel, wrong, n)
		if n != 480 || disturbed != 240 || float64(wrong) > 0.02*float64(n) {
			t.Errorf("neighbours that use %v: %d of %d windows are wrong, %d have neighbours", *row.InterferingLevel, wrong, n, disturbed)
		}
	}
}

// With cookies users stay with a server, so its requests follow a changed weight only as sessions end.
func TestUsersStayWithCookies(t *testing.T) {
	moved := func(sticky int) (changes int) {
		sc := iceHour(t)
		sc.Workload.Kind, sc.Workload.Users, sc.Workload.Think, sc.Workload.Arrivals = scenario.Users, 1, 100*time.Millisecond, ""
		sc.Duration, sc.Timeline = 5*time.Minute, nil
		var last string
		played(t, Options{Scenario: sc, Run: scenario.Run{Policy: iceBeside(), Scheduling: quell.RoundRobin}, Sticky: sticky,
			FastPlans: func(_ time.Duration, s *quell.Snapshot, _ *quell.Plan) {
				for _, in := range s.Instances {
					if o := in.Observation; o != nil && o.RequestRate != nil && *o.RequestRate > 5 && in.ID != last {
						last = in.ID
						changes++
					}
				}
			}})
		return changes
	}
	if few, none := moved(200), moved(1_000_000); few < 5 || few > 40 || none > 1 {
		t.Errorf("a user that stays for 200 requests moves %d times, one that stays for ever %d times", few, none)
	}
}
