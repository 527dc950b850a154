package sim

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/lab/scenario"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// probedPages is a mix of requests on machines of which every resource is probed.
func probedPages(duration time.Duration) *scenario.Scenario {
	sc := pages(1, duration)
	sc.Probing.Resources = quell.Resources
	return sc
}

// A simulated probe costs as much as a live one: all probes of a resource together take at most 0.5% of it.
func TestProbesOfMachinesKeepTheirBudget(t *testing.T) {
	sc := probedPages(50 * time.Second)
	sc.Service.Sampling = 10 * time.Second
	host := sc.Hosts[0]
	_, err := Run(t.Context(), Options{Scenario: sc, Run: scenario.Run{Policy: quell.Policy{Name: "static"}, Scheduling: quell.LeastConn},
		check: func(s *simulation) error {
			for _, r := range []quell.Resource{quell.CPU, quell.Disk, quell.Memory} {
				part := s.w.carried(0, r, ownProbe) / (s.w.now - s.boot)
				if part > machineBudget*1.01 || part < machineBudget/2 {
					t.Errorf("probes take %.3f%% of the %s", 100*part, r)
				}
			}
			for _, p := range s.probes[0] {
				want, ok := map[quell.Resource]int{quell.CPU: 100, quell.Memory: 100, quell.Disk: int(machineBudget * 10 * host.DiskIOPS)}[p.resource]
				if ok && (p.by.Count != want || p.by.From != string(quell.FromAgent)) {
					t.Errorf("%s is probed by %+v, want %d a period", p.resource, p.by, want)
				}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProbesFeelTheirOwnResource measures which neighbours lengthen which probes in the simulator: only those on the probe's own
// resource.
func TestProbesFeelTheirOwnResource(t *testing.T) {
	sc := probedPages(time.Minute)
	sc.Workload.CacheStretch = 0.1 // neighbours in the caches make the service use more of the processors
	for _, disturbed := range quell.Resources {
		for _, probed := range quell.Resources {
			alone, beside := probeTime(t, sc, probed, disturbed, 0), probeTime(t, sc, probed, disturbed, 0.5)
			if felt := beside/alone - 1; (felt > 0.5) != (probed == disturbed) || felt < -0.1 || probed != disturbed && felt > 0.1 {
				t.Errorf("neighbours on %s: probes of %s take %.3f ms, not %.3f ms", disturbed, probed, beside, alone)
			}
		}
	}
}

// probeTime is the mean time of probes of one resource beside neighbours on another one, in milliseconds.
func probeTime(t *testing.T, sc *scenario.Scenario, probed, disturbed quell.Resource, use float64) float64 {
	t.Helper()
	m := &Trainer{Scenario: sc, Probing: Probing(sc.Probing)}
	plan, err := m.Probing.planOf(probed, sc.Service.Sampling, sc.Hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	r := train.RunRequest{Resource: disturbed, Cell: train.Cell{Level: 0.2, Interference: use}, Run: 5 * time.Minute, Seed: 7}
	row, _, err := m.run(t.Context(), r, plan)
	if err != nil {
		t.Fatal(err)
	}
	return row.ProbeMS.Mean
}

// Every probed resource is trained with neighbours, which use up to the whole part that the service leaves free.
func TestTrainingIsOfEveryProbedResource(t *testing.T) {
	sc := probedPages(time.Minute)
	plan := train.Plan{
		Levels: []float64{0.2, 0.5, 0.8}, Interference: []float64{0, 0.2, 0.4}, Run: 10 * time.Second, WarmUp: time.Second, Repeat: 1,
		MaxRepeat: 1, Interval: 0.05, Confidence: 0.95,
	}
	rows, err := Train(t.Context(), sc, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	models, _, err := model.Fit(rows, model.FitOptions{Service: "pages", Metric: quell.P90})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range quell.Resources {
		spec := model.Spec{Resource: r, Metric: quell.P90, InterferenceModel: quell.Joint, Confidence: 0.95}
		if _, err := model.Compile(models, spec); err != nil {
			t.Error(err)
		}
	}
	most := 0.0
	for _, row := range rows {
		if row.Resource == quell.Disk && row.Level == 0.8 {
			most = max(most, *row.InterferingLevel)
		}
	}
	if most < 0.6 {
		t.Errorf("at a level of 0.8 neighbours take at most %v of a disk that is nearly idle", most)
	}

	sc.Probing = scenario.Probing{}
	alone, err := Train(t.Context(), sc, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	ofNetwork := slices.DeleteFunc(rows, func(r model.TrainingRow) bool { return r.Resource != quell.Network })
	if len(alone) != len(ofNetwork) || *alone[3].LatencyMS.P90 != *ofNetwork[3].LatencyMS.P90 {
		t.Error("the network's rows depend on what else is probed")
	}
}

// If requests do not use the network, the resources that they use can still be trained.
func TestTrainingWithoutTheNetwork(t *testing.T) {
	sc := probedPages(time.Minute)
	sc.Workload.Classes = []scenario.Class{{Name: "sum", Share: 1, CPU: 5 * time.Millisecond}}
	plan := train.Plan{Levels: []float64{0.3, 0.6}, Interference: []float64{0, 0.3}, Run: 10 * time.Second, WarmUp: time.Second, Repeat: 1,
		MaxRepeat: 1, Interval: 0.05, Confidence: 0.95}
	rows, err := Train(t.Context(), sc, plan, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[quell.Resource]float64{}
	for _, r := range rows {
		seen[r.Resource] = math.Max(seen[r.Resource], r.Utilization)
	}
	if len(seen) != 2 || seen[quell.CPU] < 0.5 || seen[quell.Memory] < seen[quell.CPU] {
		t.Errorf("trained %v, want cpu, and memory by the use of the processors", seen)
	}
	sc.Probing = scenario.Probing{}
	var user *quell.UserError
	if _, err := Train(t.Context(), sc, plan, 1); !errors.As(err, &user) {
		t.Errorf("nothing uses the network, which alone is probed: %v", err)
	}
}
