package sim

import (
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/train"
)

// heldOut are pairs of load and interference that no plan contains; at those of the second line response times are near 40 ms.
var heldOut = []train.Cell{
	{Level: 0.15, Interference: 0.15}, {Level: 0.25, Interference: 0.25}, {Level: 0.45, Interference: 0.13}, {Level: 0.35, Interference: 0.33},
	{Level: 0.55, Interference: 0.08},
	{Level: 0.15, Interference: 0.55}, {Level: 0.25, Interference: 0.48}, {Level: 0.35, Interference: 0.38}, {Level: 0.45, Interference: 0.28},
	{Level: 0.55, Interference: 0.18}, {Level: 0.65, Interference: 0.08},
}

// A row contains what agent, prober and balancer would have reported of the run.
func TestTrainingRowsHoldTheObservation(t *testing.T) {
	sc := pages(1, time.Minute)
	rows, err := Train(t.Context(), sc, train.Plan{
		Levels: []float64{0.3}, Interference: []float64{0, 0.2}, Run: 30 * time.Second, WarmUp: time.Second, Repeat: 1, MaxRepeat: 1,
		Interval: 0.05, Confidence: 0.95,
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		o := r.Observation
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if *o.RequestRate != r.RequestRate || *o.LatencyMS.P90 != *r.LatencyMS.P90 || o.Probe[r.Resource].MeanMS != r.ProbeMS.Mean ||
			o.WindowS != 30 {
			t.Errorf("observation %+v of %+v", o, r)
		}
		if o.Utilization[r.Resource] != r.Utilization || !(o.CPU.User+o.CPU.System > 0) {
			t.Errorf("utilization %v, cpu %v, want %v of %s", o.Utilization, o.CPU, r.Utilization, r.Resource)
		}
		var rate float64
		for _, c := range sc.Workload.Classes {
			rate += o.RequestRates[c.Name]
			if o.LatencyByClassMS[c.Name].N == 0 {
				t.Errorf("class %s has no latency in %v", c.Name, o.LatencyByClassMS)
			}
		}
		near(t, "the classes' rates together", rate, r.RequestRate, 1e-9)
	}
}

func heldOutRows(t *testing.T, machines []train.Machine) []model.TrainingRow {
	t.Helper()
	rows, err := train.Run(t.Context(), train.Options{
		Plan: train.HeldOut(heldOut, 20*time.Minute, 5*time.Second), Resource: quell.Network, Machines: machines, Seed: 1_000_003,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestModelsPredictHeldOutPoints: mean errors of both models stay within the paper's, 7.2% and 6.9%, for the mean and
// for the p95.
func TestModelsPredictHeldOutPoints(t *testing.T) {
	machines := []train.Machine{&Trainer{Scenario: noisyNeighbour()}, &Trainer{Scenario: noisyNeighbour()}}
	truth := heldOutRows(t, machines)
	for _, metric := range []quell.Metric{quell.Mean, quell.P95} {
		s, err := train.Compare(t.Context(), "full", train.Full(), machines, truth, metric, 40, []uint64{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: response time %.1f%%, interference %.1f%%", metric, 100*s.Scores.ResponseTime.Mean, 100*s.Scores.Joint.Mean)
		if s.Scores.ResponseTime.Mean > 0.072 || s.Scores.Joint.Mean > 0.069 {
			t.Errorf("%s: the response time is off by %.1f%%, the probe time by %.1f%%", metric, 100*s.Scores.ResponseTime.Mean,
				100*s.Scores.Joint.Mean)
		}
	}
}

// TestAdaptivePlanNeedsFewerRuns: 80 chosen runs predict the capacity about as well as the paper's grid of 9 x 6 x 5 runs.
func TestAdaptivePlanNeedsFewerRuns(t *testing.T) {
	machines := []train.Machine{&Trainer{Scenario: noisyNeighbour()}, &Trainer{Scenario: noisyNeighbour()}}
	truth := heldOutRows(t, machines)
	grid := train.Full()
	grid.Interference, grid.Repeat, grid.MaxRepeat = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5}, 5, 5
	score := func(plan train.Plan) train.PlanScore {
		s, err := train.Compare(t.Context(), "", plan, machines, truth, quell.Mean, 40, []uint64{1, 2, 3, 4, 5, 6})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	whole, chosen := score(grid), score(train.Learn(quell.Mean, 40, 80, 0, 8))
	t.Logf("grid: %.0f runs, capacity off by %.4f; adaptive: %.0f runs, %.4f", whole.Runs, whole.Scores.Capacity.Mean, chosen.Runs,
		chosen.Scores.Capacity.Mean)
	if chosen.Runs > whole.Runs/2 || chosen.Scores.Capacity.Mean > 1.25*whole.Scores.Capacity.Mean {
		t.Errorf("%.0f runs leave the capacity off by %.4f, %.0f chosen ones by %.4f", whole.Runs, whole.Scores.Capacity.Mean, chosen.Runs,
			chosen.Scores.Capacity.Mean)
	}
}

// TestManySmallProbesBeatOneLarge: 20 downloads in a period, at 2% of the link, measure severity at least as exactly as one of 1 MB at
// 5%.
func TestManySmallProbesBeatOneLarge(t *testing.T) {
	const period = 4 * time.Second
	scores, err := train.ProbingStudy{
		Probings: []train.Probing{{Period: period, Count: 1, Bytes: 1_000_000}, {Period: period, Count: 20, Bytes: 20_000}},
		Resource: quell.Network,
		Cells:    []train.Cell{{Level: 0.2, Interference: 0.3}, {Level: 0.4, Interference: 0.3}}, Run: 20 * time.Minute, WarmUp: 5 * time.Second,
		Machines: []train.ProbedMachine{&Trainer{Scenario: noisyNeighbour()}, &Trainer{Scenario: noisyNeighbour()}}, Seed: 1,
	}.Study(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	large, small := scores[0], scores[1]
	if share := small.Share(noisyNeighbour().Hosts[0].Network); share > 0.02 {
		t.Errorf("the small probes take %.3f of the link", share)
	}
	if small.Error > large.Error {
		t.Errorf("severity is off by %.3f with small probes, by %.3f with a large one", small.Error, large.Error)
	}
}
