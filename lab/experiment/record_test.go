package experiment

import (
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/lab/scenario"
)

func TestRecordKeepsAndSumsUp(t *testing.T) {
	var r Recorder
	u, sf := 0.4, 0.5
	for at := range 4 {
		r.Frame(Frame{At: time.Duration(at) * time.Second, Load: 0.8, Disturbs: map[string]float64{"h1": 0.3}, Runs: []RunFrame{{
			Status: controller.Status{
				Instances: []controller.InstanceStatus{{ID: "i1", Address: "10.77.1.2:80", State: quell.Ready, Utilization: &u, Severity: &sf},
					{ID: "i2", State: quell.Failed}},
				Budget:  &budget.Report{Judged: 4, Missed: 1},
				Reasons: []quell.Reason{{Text: "for all"}, {Instance: "i1", Text: "for one"}},
			},
		}}})
		r.Snapshot(float64(at), quell.Snapshot{Instances: []quell.Instance{
			{ID: "i1", Observation: &quell.Observation{
				Probe:       map[quell.Resource]quell.ProbeStats{quell.Network: {MeanMS: float64(at), N: 10}},
				Utilization: map[quell.Resource]float64{quell.Network: u},
			}}, {ID: "i2"},
		}}, quell.Network)
		r.Sample(scenario.Sample{Intended: time.Duration(at) * time.Second, Instance: "i1", Latency: time.Duration(at+1) * 10 * time.Millisecond})
	}
	r.Sample(scenario.Sample{Intended: 2500 * time.Millisecond, Failed: true})
	r.Change(1.25)
	// Nothing to record in this plan.
	r.Plan(1, &quell.Plan{Reasons: []quell.Reason{{Code: "shift"}, {Code: "confirming"}, {Code: "shift", Instance: "i1"}}})
	r.Plan(2, &quell.Plan{Cause: map[string]quell.Resource{"i1": quell.CPU}, Reasons: []quell.Reason{{Code: "interference", Instance: "i1"},
		{Code: "confirming", Instance: "i2"}}})
	record := r.Record(scenario.Run{Policy: quell.Policy{Name: "prima"}, Scheduling: quell.LeastConn},
		scenario.Result{Requests: 5, Scheduling: quell.LeastConn, SLO: scenario.SLOResult{Metric: quell.Mean}})
	path := filepath.Join(t.TempDir(), "record.json.gz")
	if err := record.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := LoadRecord(path)
	if err != nil || !reflect.DeepEqual(*again, record) {
		t.Fatalf("read back %+v, %v", again, err)
	}
	if c := again.Causes; len(c) != 1 || c[0].AtS != 2 || c[0].Named["i1"] != quell.CPU ||
		!maps.Equal(c[0].Above, map[string]string{"i1": "interference", "i2": "confirming"}) {
		t.Errorf("causes %+v", c)
	}
	if used := again.Uses; len(used) != 4 || used[3].AtS != 3 || used[3].Instance != "i1" || used[3].Use[quell.Network] != u {
		t.Errorf("uses %+v", used)
	}
	p := again.Phase(2, 4)
	in := p.Instances["i1"]
	if p.Size != 1 || p.Requests != 2 || p.Failed != 1 || *p.LatencyMS.Mean != 35 {
		t.Errorf("phase %+v", p)
	}
	if in.Utilization != u || in.Severity != sf || !math.IsNaN(in.Capacity) || in.ProbeMS != 2.5 || in.PerSecond != 1 ||
		*in.LatencyMS.Mean != 35 {
		t.Errorf("instance %+v", in)
	}
	if m := again.Moments[0]; m.Reason != "for all" || m.Disturbs["h1"] != 0.3 || *m.Budget != (SeenBudget{Judged: 4, Missed: 1}) {
		t.Errorf("moment %+v", m)
	}
}

// A cut is the first plan after an onset in which a fast policy leaves an instance less than before. Cuts of before do not count.
func TestRecordOfCuts(t *testing.T) {
	var r Recorder
	for at, left := range []float64{1, 0.6, 0.6, 1, 0.97, 0.5, 0.3} {
		plan := &quell.Plan{Weights: map[string]float64{"i1": 0.5, "i2": 0.5}}
		if left < 1 {
			plan.Factor = map[string]quell.Factor{"i2": {Value: left}}
		}
		r.Plan(float64(at), plan)
	}
	record := r.Record(scenario.Run{}, scenario.Result{})
	if len(record.Shares) != 6 {
		t.Errorf("%+v", record.Shares)
	}
	for _, c := range []struct{ from, to, want float64 }{{0, 6, 1}, {1, 6, 5}, {5, 6, 6}, {1, 4.5, 0}, {6, 9, 0}} {
		if at, ok := record.CutAfter("i2", c.from, c.to, 0.95); at != c.want || ok != (c.want > 0) {
			t.Errorf("%+v: %g, %t", c, at, ok)
		}
	}
	if _, ok := record.CutAfter("i1", 0, 9, 0.95); ok {
		t.Error("i1 was never cut")
	}
}

func TestRecordOfShares(t *testing.T) {
	var r Recorder
	equal, cut := map[string]float64{"i1": 0.5, "i2": 0.5}, map[string]float64{"i1": 0.6, "i2": 0.4}
	for at, weights := range []map[string]float64{equal, equal, nil, cut, cut, equal} {
		r.Plan(float64(at), &quell.Plan{Weights: weights})
	}
	for at, cuts := range [][]string{{"i1"}, {}, {"i1"}, {"i1", "i2"}, {}, {"i2"}} {
		var rows []controller.InstanceStatus
		for _, id := range cuts {
			rows = append(rows, controller.InstanceStatus{ID: id, Cut: new(0.6)})
		}
		r.Frame(Frame{At: time.Duration(at-1) * time.Second, Runs: []RunFrame{{Status: controller.Status{Instances: rows}}}})
	}
	for at, workers := range []float64{50, 50, 100} {
		setting := quell.Setting{Instance: "i2", Target: "apache", Name: "MaxRequestWorkers", Value: workers}
		r.Plan(float64(at), &quell.Plan{Settings: []quell.Setting{setting}})
	}
	record := r.Record(scenario.Run{}, scenario.Result{})
	if len(record.Settings) != 2 || record.Settings[1].AtS != 2 || record.Settings[1].Value != 100 {
		t.Errorf("%+v", record.Settings)
	}
	if len(record.Shares) != 3 {
		t.Errorf("%+v", record.Shares)
	}
	for i, want := range []struct{ at, share float64 }{{0, 0.5}, {3, 0.4}, {5, 0.5}} {
		if got := record.Shares[i]; got.AtS != want.at || got.Shares["i2"] != want.share {
			t.Errorf("%+v, want a share of %g from %g s on", got, want.share, want.at)
		}
	}
	if began, seconds := record.Cuts(); began != 3 || seconds != 3 { // the cut of the warm-up does not count
		t.Errorf("%d cuts, %g s", began, seconds)
	}
}

// A moment shows the use of the period before it, so a phase's use is that of the moments one period later.
func TestPhaseHasTheUseOfItsOwnTime(t *testing.T) {
	r := &Record{}
	for second := range 10 {
		use := 0.2
		if second > 5 { // the load rose at 5 s
			use = 0.6
		}
		r.Moments = append(r.Moments, Moment{AtS: float64(second), Instances: []SeenInstance{{ID: "i1", State: quell.Ready,
			Utilization: &use}}})
		r.Samples = append(r.Samples, RecordedSample{AtS: float64(second) + 0.5, Instance: "i1", LatencyMS: 10})
	}
	for _, c := range []struct{ begin, end, use float64 }{{2, 5, 0.2}, {5, 8, 0.6}} {
		if got := r.Phase(c.begin, c.end).Instances["i1"].Utilization; math.Abs(got-c.use) > 1e-9 {
			t.Errorf("from %v to %v s the use is %v, want %v", c.begin, c.end, got, c.use)
		}
	}
}
