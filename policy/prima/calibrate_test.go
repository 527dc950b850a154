package prima

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// calibrating is the golden service with a delta of 10%. Under the golden models the predicted time is 150 U + 75 SF; calibration allows
// measured times of 67.5 to 82.5 ms.
func calibrating(confirm int) quell.Service {
	s := golden("prima", 75, confirm)
	tell(&s, "Calibrate", 0.1)
	tell(&s, "CalibrationDecay", 0.05)
	return s
}

// offsets plays rows of instance i1 and returns its offset after each row.
func offsets(t *testing.T, s quell.Service, rows ...string) []float64 {
	t.Helper()
	e := engine(t, s, goldenModels(t))
	var st policy.State
	var out []float64
	for k, row := range rows {
		_, st = e.Decide(snap(t, k, "i1 weight=1 "+row), st)
		out = append(out, st.Instances["i1"].Memory.(*instance).Offset)
	}
	return out
}

func TestCalibrationOffset(t *testing.T) {
	decay := calibrating(0)
	tell(&decay, "CalibrationDecay", 0.5)
	off := calibrating(0)
	tell(&off, "Calibrate", 0)
	const slow = "use=0.46 cap=0.5 lat=90" // 69 ms are predicted; a severity of 0.28 explains 90 ms
	for _, tc := range []struct {
		why     string
		service quell.Service
		rows    []string
		want    []float64
	}{
		{"in the band and slow: raised to what explains it", calibrating(0), []string{slow}, []float64{.28}},
		{"on top of a measured severity", calibrating(0), []string{"use=0.36 sf=0.2 lat=90"}, []float64{.28}},
		{"turned off", off, []string{slow}, []float64{0}},
		{"W snapshots more are collected", calibrating(1), []string{slow, slow}, []float64{0, .28}},
		{"predicted below the band: off", calibrating(0), []string{"use=0.44 cap=0.5 lat=200"}, []float64{0}},
		{"predicted above the band: off, the model sees it", calibrating(0), []string{"use=0.56 cap=0.5 lat=200"}, []float64{0}},
		{"leaving the band begins anew", calibrating(1), []string{slow, "use=0.4 cap=0.5 lat=90", slow, slow}, []float64{0, 0, 0, .28}},
		{"measured below the threshold: nothing", calibrating(0), []string{"use=0.46 cap=0.5 lat=74"}, []float64{0}},
		{"measured above what was predicted, but at the threshold: nothing", calibrating(0), []string{"use=0.46 cap=0.5 lat=75"}, []float64{0}},
		{"the time is short: an old calm window does not dilute a slow one", calibrating(1),
			[]string{"use=0.46 cap=0.5 lat=60", "use=0.46 cap=0.5 lat=60", slow, slow}, []float64{0, 0, 0, .28}},
		{"a single slow window does nothing", calibrating(1),
			[]string{"use=0.46 cap=0.5 lat=60", "use=0.46 cap=0.5 lat=9000", "use=0.46 cap=0.5 lat=60", "use=0.46 cap=0.5 lat=60"},
			[]float64{0, 0, 0, 0}},
		{"of several slow windows the least counts", calibrating(1),
			[]string{"use=0.46 cap=0.5 lat=9000", slow}, []float64{0, .28}},
		{"fewer than 30 response times: wait for more", calibrating(0),
			[]string{slow + " n=10", slow + " n=10", slow + " n=10"}, []float64{0, 0, .28}},
		{"no response time: wait", calibrating(0), []string{"use=0.46 cap=0.5", slow}, []float64{0, .28}},
		{"an observation that is seen twice counts once", calibrating(0),
			[]string{slow + " n=20", slow + " n=20 seen=10", slow + " n=20"}, []float64{0, 0, .28}},
		{"it decays", decay, []string{slow, "use=0.2 cap=0.5 lat=90", "use=0.2 cap=0.5"}, []float64{.28, .14, .07}},
		{"and is forgotten at a thousandth", decay, []string{
			"use=0.46 cap=0.5 lat=75.2", "use=0.2 cap=0.5", // 0.083
			"use=0.2 cap=0.5", "use=0.2 cap=0.5", "use=0.2 cap=0.5", "use=0.2 cap=0.5", "use=0.2 cap=0.5", "use=0.2 cap=0.5",
		}, []float64{.0826666, .0413333, .0206666, .0103333, .0051666, .0025833, .0012916, 0}},
		{"the band is judged with it: 54 ms plus 0.28 of severity is near the threshold", calibrating(0),
			[]string{slow, "use=0.36 cap=0.5 lat=95"}, []float64{.28, (95 - 54.0) / 75}},
		{"the band is judged with it: 69 ms plus 0.28 of severity is beyond", calibrating(0),
			[]string{slow, "use=0.46 cap=0.5 lat=200"}, []float64{.28, .266}},
		{"lower load does not undo it, nor does one fast answer", calibrating(1),
			[]string{slow, slow, "use=0.2 cap=0.5 lat=30", "use=0.2 cap=0.5 lat=50"}, []float64{0, .28, .266, .2527}},
		{"two fast answers halve it", calibrating(1),
			[]string{slow, slow, "use=0.2 cap=0.5 lat=30", "use=0.2 cap=0.5 lat=30"}, []float64{0, .28, .266, .12635}},
		{"few requests are no fast answer", calibrating(0), []string{slow, "use=0.2 cap=0.5 lat=30 n=29"}, []float64{.28, .266}},
		{"an observation that is seen twice is one fast answer", calibrating(1),
			[]string{slow, slow, "use=0.2 cap=0.5 lat=30", "use=0.2 cap=0.5 lat=30 seen=10"}, []float64{0, .28, .266, .2527}},
		{"it is only ever raised: 75.2 ms ask for 0.263, and 0.266 is in use", calibrating(0),
			[]string{slow, "use=0.36 sf=0.02 lat=75.2"}, []float64{.28, .266}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			for k, got := range offsets(t, tc.service, tc.rows...) {
				if math.Abs(got-tc.want[k]) > 1e-6 {
					t.Errorf("after snapshot %d the offset is %v, want %v", k, got, tc.want[k])
				}
			}
		})
	}
}

// However slow the responses are, the correction stays within the range of the training. Periods with good responses end the correction.
func TestCalibrationIsBounded(t *testing.T) {
	for _, ms := range []int{500, 9000} {
		s := calibrating(1)
		s.SLO.Threshold = 25 * time.Millisecond
		tell(&s, "Tolerance", 0.05)
		models := sharingModels(t)
		e := engine(t, s, models)
		var most float64
		for _, r := range models.Prima().ResponseTime[quell.Network] {
			most = max(most, r.Severity)
		}
		var st policy.State
		capacities := make([]float64, 80)
		for k := range capacities {
			row := fmt.Sprintf("i1 weight=1 use=0.58 sf=0 lat=%d", ms)
			if k > 1 {
				row = "i1 weight=1 use=0.5 sf=0 lat=20"
			}
			var plan quell.Plan
			plan, st = e.Decide(snap(t, k, row), st)
			capacities[k] = plan.Capacity["i1"]
			if sf := plan.Severity["i1"]; sf > most {
				t.Errorf("%d ms, snapshot %d: severity %v, and %v is the highest that was trained", ms, k, sf, most)
			}
		}
		if capacities[1] >= capacities[0] {
			t.Errorf("%d ms: two slow windows leave the capacity at %v", ms, capacities[1])
		}
		if c := capacities[25]; c < 0.95*capacities[0] {
			t.Errorf("%d ms: capacity %.3f, then %.3f, and %.3f after 24 good periods", ms, capacities[0], capacities[1], c)
		}
	}
}

// A raised severity lowers the capacity, and load is shifted at once, because calibration has already waited.
func TestCalibrationShiftsLoad(t *testing.T) {
	s := calibrating(1)
	e := engine(t, s, goldenModels(t))
	rows := []string{"i1 weight=0.6 use=0.46 cap=0.5 lat=90", "i2 weight=0.4 use=0.3 cap=0.5 lat=40"}
	st := play(t, e, at("i1=0.6 i2=0.4", rows...), at("i1=0.419 i2=0.581 calibrated shift", rows...))

	// With the lower load the correction stays and no load moves back.
	plan, _ := e.Decide(snap(t, 2, "i1 weight=0.419 use=0.318 cap=0.5 lat=60", "i2 weight=0.581 use=0.442 cap=0.5 lat=60"), st)
	wantWeights(t, plan, map[string]float64{"i1": .419, "i2": .581})
	if c := plan.Capacity["i1"]; math.Abs(c-(.5-.28*.95/2)) > 1e-9 {
		t.Errorf("capacity of i1 is %v, want 0.367: its offset, less one period's decay", c)
	}
	if math.Abs(plan.Severity["i1"]-.28*.95) > 1e-9 {
		t.Errorf("severity of i1 is %v: what was used includes the calibration", plan.Severity["i1"])
	}
	if plan.Cause != nil {
		t.Errorf("neighbours are blamed for an error of the model: %v", plan.Cause)
	}
}

func TestCalibrationSaysWhy(t *testing.T) {
	plan, _ := engine(t, calibrating(0), goldenModels(t)).Decide(snap(t, 0, "i1 weight=1 use=0.46 cap=0.5 lat=90"), policy.State{})
	for _, r := range plan.Reasons {
		if r.Code == "calibrated" {
			if r.Instance != "i1" || !strings.Contains(r.Text,
				"measured 90.0 ms where 69.0 ms was predicted: taking its severity for 0.28, not 0.00") {
				t.Errorf("reason %+v", r)
			}
			return
		}
	}
	t.Errorf("no reason given: %v", plan.Reasons)
}

// Calibration compares predictions with the metric of the SLO.
func TestCalibrationCollectsTheMetric(t *testing.T) {
	s := calibrating(0)
	e := engine(t, s, goldenModels(t))
	in := snap(t, 0, "i1 weight=1 use=0.46 cap=0.5 lat=90")
	l := in.Instances[0].Observation.LatencyMS
	l.Mean, l.P90 = nil, l.Mean
	if _, st := e.Decide(in, policy.State{}); st.Instances["i1"].Memory.(*instance).Offset != 0 {
		t.Error("a percentile was taken for the mean")
	}
}
