package sim

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

// PRIMA that begins without models learns them and acts.
func TestLearnsDuringTheRun(t *testing.T) {
	sc := exampleScenario(t, "noisy-neighbour")
	run := scenario.Run{Policy: quell.Policy{Name: table.All.Default()}, Scheduling: quell.LeastConn, Models: scenario.Learn}
	acted := 0
	var last policy.State
	r, err := Run(t.Context(), Options{Scenario: sc, Run: run, Plans: func(p *quell.Plan) {
		if p.Group != nil && p.Group.Add > 0 {
			acted++
		}
	}, check: func(s *simulation) error { last = s.state; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	law := last.Learned.Live().Best(quell.Network)
	if law == nil || acted == 0 {
		t.Fatalf("law %+v, %d plans that add instances", law, acted)
	}
	if law.R0MS < 8 || law.R0MS > 13 {
		t.Errorf("a request of 50 KB over 40 Mbit/s takes 10 ms alone; learned were %.2f", law.R0MS)
	}
	if r.SLO.ViolationShare > 0.5 {
		t.Errorf("violation in %.0f%% of the time", 100*r.SLO.ViolationShare)
	}
}

func exampleScenario(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	file := filepath.Join("../../examples/scenarios", name+".yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := scenario.Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// wronged returns models whose response times belong to another utilisation: with a factor of 2 an instance seems to carry twice what it
// can, with 0.5 half.
func wronged(m *model.Models, factor float64) *model.Models {
	prima := *m.Prima()
	prima.ResponseTime = map[quell.Resource][]model.ResponseTime{}
	for r, rows := range m.Prima().ResponseTime {
		for _, row := range rows {
			scaled := func(ms *float64) *float64 {
				if ms == nil {
					return nil
				}
				v := *ms / factor
				return &v
			}
			row.LatencyMS = quell.Latency{Mean: scaled(row.LatencyMS.Mean), P50: scaled(row.LatencyMS.P50), P90: scaled(row.LatencyMS.P90),
				P95: scaled(row.LatencyMS.P95), P99: scaled(row.LatencyMS.P99), N: row.LatencyMS.N}
			prima.ResponseTime[r] = append(prima.ResponseTime[r], row)
		}
	}
	return &model.Models{Trained: m.Trained, Sections: []model.Section{&prima}}
}

// mostHarm is how long the objective may be missed, in seconds: three periods, or, if changes were taken back, three periods for each
// of them, and one more until the instances that it had removed are back.
func mostHarm(taken int, period time.Duration) float64 {
	return float64(max(3, 4*taken)) * period.Seconds()
}

// TestWrongModelsAreTakenBack plays a group that is large enough, with models by which half as many instances would do. The removal is
// taken back before more than three periods miss the objective, and one more until the instances that had left are back. Models by which
// twice as many are needed only cost.
func TestWrongModelsAreTakenBack(t *testing.T) {
	const period = 5 * time.Second
	sc := plainScenario(4, 0, 40e6, 100*time.Second)
	sc.Workload.Load = 1.4
	sc.Service.Sampling, sc.Service.SLO = period, quell.SLO{Metric: quell.Mean, Threshold: 17 * time.Millisecond}
	sc.Instances = scenario.Instances{Start: 4, Fixed: 4, Startup: time.Second}
	sc.Judge = scenario.Judging{Window: period, Requests: 30}
	right := prepared(t, sc)
	for _, factor := range []float64{4, 2, 0.5} {
		for seed := range uint64(20) {
			taken := 0
			run := scenario.Run{Policy: quell.Policy{Name: table.All.Default()}, Scheduling: quell.LeastConn}
			count := func(p *quell.Plan) {
				for _, why := range p.Reasons {
					if why.Code == "taken_back" {
						taken++
					}
				}
			}
			r, err := Run(t.Context(), Options{Scenario: sc, Run: run, Models: wronged(right, factor), Seed: seed + 1, Plans: count})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("factor %v, seed %d: %d changes taken back, %.0f s of violation, %.0f instance-seconds", factor, seed+1, taken,
				r.SLO.ViolationS, r.InstanceSeconds)
			if factor == 4 && taken == 0 {
				t.Errorf("factor %v, seed %d: no change was taken back, %.0f s of violation", factor, seed+1, r.SLO.ViolationS)
			}
			if most := mostHarm(taken, period); r.SLO.ViolationS > most {
				t.Errorf("factor %v, seed %d: %.0f s of violation, want at most %.0f", factor, seed+1, r.SLO.ViolationS, most)
			}
		}
	}
}

// TestSwappedModelsDoLittleHarm plays a group of three big and three small machines, each judged by the models of the other type. PRIMA
// then keeps the small ones and removes the big ones. Either the removal is taken back, or calibration finds the error and adds instances.
func TestSwappedModelsDoLittleHarm(t *testing.T) {
	const period = 5 * time.Second
	sc := plainScenario(6, 0, 60e6, 100*time.Second)
	for i := range sc.Hosts {
		if sc.Hosts[i].Group = "big"; i%2 == 1 {
			sc.Hosts[i].Group, sc.Hosts[i].Network = "small", 30e6
		}
		sc.Instances.Weights = append(sc.Instances.Weights, 1.0/6)
	}
	sc.Workload.Load = 1.5
	sc.Service.Sampling, sc.Service.SLO = period, quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}
	sc.Instances.Start, sc.Instances.Fixed, sc.Instances.Startup = 6, 6, time.Second
	sc.Judge = scenario.Judging{Window: period, Requests: 30}
	run := scenario.Run{Policy: quell.Policy{Name: table.All.Default()}, Scheduling: quell.LeastConn}
	sc.WarmUp = 4 * period
	wrong := swapped(t, sc, run)
	for seed := range uint64(20) {
		taken := 0
		r, err := Run(t.Context(), Options{Scenario: sc, Run: run, Models: wrong, Seed: seed + 1, Plans: func(p *quell.Plan) {
			for _, why := range p.Reasons {
				if why.Code == "taken_back" {
					taken++
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %d changes taken back, %.0f s of violation", seed+1, taken, r.SLO.ViolationS)
		if most := mostHarm(taken, period); r.SLO.ViolationS == 0 || r.SLO.ViolationS > most {
			t.Errorf("seed %d: %d changes were taken back, %.0f s of violation, want some, and at most %.0f", seed+1, taken, r.SLO.ViolationS, most)
		}
	}
}

// swapped learns the laws of both types of machine, and returns each type with what the other one carries. The times of probes stay,
// because probes of another type could not be compared.
func swapped(t *testing.T, sc *scenario.Scenario, run scenario.Run) *model.Models {
	t.Helper()
	whole := *sc
	whole.Service.Group.Min = len(sc.Hosts)
	run.Models = scenario.Learn
	var learned model.Live
	_, err := Run(t.Context(), Options{Scenario: &whole, Run: run, End: func(st policy.State) { learned = st.Learned.Live() }})
	if err != nil {
		t.Fatal(err)
	}
	big, small := learned[quell.Network]["big"], learned[quell.Network]["small"]
	if big == nil || small == nil || big.R0MS > 0.7*small.R0MS {
		t.Fatalf("of big machines %+v was learned, of small ones %+v", big, small)
	}
	other := func(own, other *model.Law) *model.Law {
		law := *own
		law.R0MS, law.Exponent, law.SeverityExponent, law.PerRequest = other.R0MS, other.Exponent, other.SeverityExponent, other.PerRequest
		law.Refined = other.Refined
		return &law
	}
	return &model.Models{Sections: []model.Section{model.Live{quell.Network: {"big": other(big, small), "small": other(small, big)}}}}
}

// TestLearnsADisk plays a neighbour on disks that are probed once in a period. PRIMA that learns in place misses the objective for at most
// one window of the judge more than PRIMA that was trained, on average, and costs at most 5% more.
func TestLearnsADisk(t *testing.T) {
	sc := exampleScenario(t, "changing-disk")
	models := prepared(t, sc)
	run := scenario.Run{Policy: quell.Policy{Name: table.All.Default()}, Scheduling: quell.LeastConn}
	learning := run
	learning.Models = scenario.Learn
	const seeds = 3
	var more, cost, base float64
	for seed := range uint64(seeds) {
		trained, err := Run(t.Context(), Options{Scenario: sc, Run: run, Models: models, Seed: seed + 1})
		if err != nil {
			t.Fatal(err)
		}
		learned, err := Run(t.Context(), Options{Scenario: sc, Run: learning, Seed: seed + 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: trained %.0f s, %.0f instance-seconds; learned %.0f s, %.0f", seed+1, trained.SLO.ViolationS, trained.InstanceSeconds,
			learned.SLO.ViolationS, learned.InstanceSeconds)
		more += (learned.SLO.ViolationS - trained.SLO.ViolationS) / seeds
		cost, base = cost+learned.InstanceSeconds, base+trained.InstanceSeconds
	}
	if more > sc.Judge.Window.Seconds() || cost > 1.05*base {
		t.Errorf("learned models miss the objective for %.1f s more, at %.1f%% more cost", more, 100*(cost/base-1))
	}
}
