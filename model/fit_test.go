package model

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/golden"
)

// run is one training run whose probes have no spread unless stddev is given.
func run(level, interfering, utilization, probeMS, stddev, latencyMS float64, n int) TrainingRow {
	return TrainingRow{
		Resource: quell.Network, Level: level, Interfering: interfering, Utilization: utilization, RequestRate: utilization * 200,
		LatencyMS: quell.Latency{Mean: &latencyMS, N: 10 * n}, ProbeMS: ProbeRun{Mean: probeMS, Stddev: stddev, N: n},
	}
}

func fitted(t *testing.T, rows []TrainingRow) (*Models, *Report) {
	t.Helper()
	m, report, err := Fit(rows, FitOptions{Service: "video", InstanceType: "t3.medium", Metric: quell.Mean,
		At: time.Unix(1767225600, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	return m, report
}

func TestFitByHand(t *testing.T) {
	p90 := 50.0
	rows := []TrainingRow{
		run(0.2, 0, 0.19, 10, 2, 20, 11),
		run(0.2, 0, 0.21, 13, 2, 26, 21),    // mean of the pooled probes: (110 + 273)/32
		run(0.2, 0.301, 0.20, 20, 1, 30, 4), // in the same cell as the next row: both round to 0.30
		run(0.2, 0.299, 0.22, 22, 1, 40, 12),
		run(0.2, 0.78, 0.18, 90, 1, 200, 4), // 0.2 + 0.78 is too full for an interference row
		run(0.4, 0, 0.40, 15, 1, 25, 10),
		run(0.4, 0.1, 0.40, 14, 1, 27, 10), // faster than without neighbours: severity 0, pooled with the isolated row
	}
	rows[3].LatencyMS.P90 = &p90
	rows[4].RequestRate = 400 // more than the full link could carry
	m, report := fitted(t, rows)

	iso := m.Prima().Isolation[quell.Network]
	if len(iso) != 2 || !nearly(iso[0].Utilization, 0.2) || !nearly(iso[0].ProbeMS, 383.0/32) || iso[0].N != 32 || iso[0].Runs != 2 {
		t.Errorf("isolation %+v", iso)
	}
	between := 11*math.Pow(10-383.0/32, 2) + 21*math.Pow(13-383.0/32, 2)
	if want := math.Sqrt((10*4 + 20*4 + between) / 31); !nearly(iso[0].StddevMS, want) {
		t.Errorf("spread of single probes %v, want %v", iso[0].StddevMS, want)
	}

	response := m.Prima().ResponseTime[quell.Network]
	sf := 21.5/(383.0/32) - 1 // probes: (4*20 + 12*22)/16
	if len(response) != 4 {
		t.Fatalf("response %+v", response)
	}
	if r := response[0]; r.Severity != 0 || !nearly(*r.LatencyMS.Mean, (110*20+210*26)/320.0) || r.Runs != 2 || r.LatencyMS.N != 320 {
		t.Errorf("alone: %+v", r)
	}
	if r := response[1]; !nearly(r.Severity, sf) || !nearly(*r.LatencyMS.Mean, 37.5) || *r.LatencyMS.P90 != 50 || r.Runs != 2 {
		t.Errorf("interfered: %+v, want severity %v", r, sf)
	}
	if r := response[3]; r.Severity != 0 || !nearly(*r.LatencyMS.Mean, 26) || r.Runs != 2 {
		t.Errorf("cells of severity 0 together: %+v", r)
	}

	want := []Interference{{0.2, 0.3, sf, 2}, {0.4, 0.1, 0, 1}}
	got := m.Prima().Interference[quell.Network]
	for i := range want {
		if len(got) != len(want) || !nearly(got[i].Utilization, want[i].Utilization) || !nearly(got[i].Interfering, want[i].Interfering) ||
			!nearly(got[i].Severity, want[i].Severity) || got[i].Runs != want[i].Runs {
			t.Fatalf("interference %+v, want %+v", got, want)
		}
	}
	if use := m.Trained.PerRequest[quell.Network]; !nearly(use, 0.005) {
		t.Errorf("use per request %v", use)
	}
	r := report.Prima()[0]
	if r.Rows != 7 || r.Levels != 2 || r.Cells != 5 || r.Saturated != 1 {
		t.Errorf("report %+v", r)
	}
}

// Use per request is the slope of a line through the origin, so the use of a resource without requests does not count. By hand: (20*0.12 +
// 40*0.22 + 80*0.42) / (20^2 + 40^2 + 80^2).
func TestUsePerRequestIsThroughTheOrigin(t *testing.T) {
	at := func(rate, use, interfering float64) TrainingRow {
		return TrainingRow{Utilization: use, RequestRate: rate, Interfering: interfering}
	}
	rows := []TrainingRow{at(20, 0.12, 0), at(40, 0.22, 0), at(80, 0.42, 0), at(80, 0.2, 0.6), at(0, 0.02, 0)}
	if got, want := usePerRequest(rows), 44.8/8400; !nearly(got, want) {
		t.Errorf("%v of use per request, want %v", got, want)
	}
	if got := usePerRequest(rows[4:]); got != 0 {
		t.Errorf("without requests %v", got)
	}
}

// Runs are grouped by the commanded values if known, however far the carried values are from them.
func TestFitGroupsByTheCommandedInterference(t *testing.T) {
	rows := []TrainingRow{run(0.2, 0, 0.2, 10, 1, 20, 10), run(0.2, 0.25, 0.2, 14, 1, 25, 10), run(0.2, 0.35, 0.2, 16, 1, 30, 10)}
	if m, _ := fitted(t, rows); len(m.Prima().Interference[quell.Network]) != 2 {
		t.Errorf("by what was carried: %+v", m.Prima().Interference)
	}
	commanded := 0.3
	rows[1].InterferingLevel, rows[2].InterferingLevel = &commanded, &commanded
	m, _ := fitted(t, rows)
	if got := m.Prima().Interference[quell.Network]; len(got) != 1 || !nearly(got[0].Interfering, 0.3) || !nearly(got[0].Severity, 0.5) ||
		got[0].Runs != 2 {
		t.Errorf("by what was commanded: %+v", got)
	}
}

func TestFitListsWhatDidNotConverge(t *testing.T) {
	yes, no := true, false
	rows := []TrainingRow{
		run(0.1, 0, 0.1, 10, 1, 20, 10), run(0.1, 0, 0.1, 10.1, 1, 20, 10), run(0.1, 0, 0.1, 9.9, 1, 20, 10), // 2.5% by the rule
		run(0.2, 0, 0.2, 10, 1, 20, 10), run(0.2, 0, 0.2, 14, 1, 20, 10), run(0.2, 0, 0.2, 9, 1, 20, 10), // far apart
		run(0.3, 0, 0.3, 10, 1, 20, 10), // one run, but its trainer marked it as converged
		run(0.4, 0, 0.4, 10, 1, 20, 10), // one run
		run(0.4, 0.2, 0.4, 15, 1, 20, 10),
	}
	rows[6].Converged, rows[8].Converged = &yes, &no
	_, report := fitted(t, rows)
	got := report.Prima()[0].NotConverged
	want := []Cell{{0.2, 0}, {0.4, 0}, {0.4, 0.2}}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConverged(t *testing.T) {
	if relative, ok := Converged([]float64{10, 10.1, 9.9}); !ok || math.Abs(relative-0.0248) > 1e-3 {
		t.Errorf("got %v, %v", relative, ok)
	}
	if relative, ok := Converged([]float64{10, 10.15, 9.9}); ok || math.Abs(relative-0.0312) > 1e-3 {
		t.Errorf("a width of 0.062 of the mean: got %v, %v", relative, ok)
	}
	if _, ok := Converged([]float64{10, 10}); ok {
		t.Error("two runs are too few")
	}
	if relative, ok := Converged([]float64{10}); ok || !math.IsInf(relative, 1) {
		t.Errorf("one run has no interval, got %v, %v", relative, ok)
	}
}

func TestFitRefuses(t *testing.T) {
	alone := run(0.1, 0, 0.1, 10, 1, 20, 10)
	for _, c := range []struct {
		why    string
		rows   []TrainingRow
		metric quell.Metric
		want   string
		noData bool
	}{
		{"nothing", nil, quell.Mean, "no training rows", true},
		{"never alone", []TrainingRow{run(0.1, 0.2, 0.1, 10, 1, 20, 10)}, quell.Mean, "network: no training row has interfering 0", true},
		{"a metric no row has", []TrainingRow{alone}, quell.P99, "no training row has latency_ms.p99", true},
		{"a metric nobody knows", []TrainingRow{alone}, "p42", "unknown metric", false},
		{"a broken row", []TrainingRow{alone, run(0.1, 0, math.NaN(), 10, 1, 20, 10)}, quell.Mean, "row 2: utilization: NaN", false},
		{"two levels that carried the same", []TrainingRow{alone, run(0.2, 0, 0.1, 10, 1, 20, 10)}, quell.Mean, "levels 0.1 and 0.2 both carried",
			false},
	} {
		_, _, err := Fit(c.rows, FitOptions{Metric: c.metric})
		var user *quell.UserError
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &user) || errors.Is(err, quell.ErrNoData) != c.noData {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
}

// sharedLinkRuns are the runs of a training plan on a link that behaves like processor sharing.
func sharedLinkRuns() []TrainingRow {
	var rows []TrainingRow
	for level := 1; level <= 9; level++ {
		u := float64(level) / 10
		for _, interfering := range append([]float64{0}, sharedLinkInterference...) {
			if left := 1 - u - interfering; left > 0.01 {
				for _, scatter := range []float64{0.99, 1, 1.01} {
					rows = append(rows, run(u, interfering, u, 8/left*scatter, 1, 10/left*scatter, 40))
				}
			}
		}
	}
	return rows
}

func TestFitRecoversASharedLink(t *testing.T) {
	m, report := fitted(t, sharedLinkRuns())
	p := compiled(t, m, quell.Joint)
	for _, c := range []struct{ u, interfering float64 }{{0.1, 0.2}, {0.3, 0.3}, {0.5, 0.1}, {0.7, 0.2}} {
		sf := c.interfering / (1 - c.u - c.interfering)
		if got := p.SeverityAt(c.u, c.interfering); math.Abs(got-sf) > 1e-6 {
			t.Errorf("severity at %v is %v, want %v", c, got, sf)
		}
		if got, want := p.ResponseTime(c.u, sf), 10/(1-c.u-c.interfering); math.Abs(got-want) > 1e-6 {
			t.Errorf("response at %v is %v, want %v", c, got, want)
		}
	}
	e := report.Prima()[0].Errors
	if e.ResponseTime == nil || e.ResponseTime.MaxRelative > 0.01 {
		t.Errorf("response is linear in severity here, yet off by %+v", e.ResponseTime)
	}
	if e.Joint == nil || e.Total == nil || e.Joint.Cells != e.Total.Cells || e.Joint.MeanRelative > e.Total.MeanRelative/2 {
		t.Errorf("joint %+v should be far better than total %+v on the same cells", e.Joint, e.Total)
	}
}

// Leaving a cell out by hand: at 0.3 the other rows put 0.5 on the line from 0 at 0 to 1 at 0.4.
func TestErrorsByHand(t *testing.T) {
	rows := []Interference{{0.2, 0.2, 0.8, 1}, {0.2, 0.4, 1, 1}}
	got := interferenceErrors(rows, jointPrediction)
	if got == nil || got.Cells != 1 || got.Skipped != 1 || !nearly(got.MeanRelative, 0.3/1.8) || !nearly(*got.MaxSeverity, 0.3) {
		t.Errorf("joint %+v", got)
	}
	response := []ResponseTime{
		{Utilization: 0.2, Severity: 0, LatencyMS: mean(10)},
		{Utilization: 0.2, Severity: 1, LatencyMS: mean(16)}, // 15 by the other rows
		{Utilization: 0.2, Severity: 2, LatencyMS: mean(20)},
	}
	if got := responseErrors(response, quell.Mean); got == nil || got.Cells != 1 || got.Skipped != 2 || !nearly(got.MaxRelative, 1.0/16) ||
		got.MaxSeverity != nil {
		t.Errorf("response %+v", got)
	}
	if got := responseErrors(response[:2], quell.Mean); got != nil {
		t.Errorf("nothing surrounds two rows, yet %+v", got)
	}
}

func TestReportAndDescriptionForPeople(t *testing.T) {
	m, report := fitted(t, append(sharedLinkRuns(), run(0.95, 0, 0.95, 160, 1, 200, 40)))
	var b bytes.Buffer
	report.Sections = []SectionReport{report.Prima()}
	if err := report.Write(&b); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/report.txt", b.Bytes())
	b.Reset()
	m.Sections = []Section{m.Prima()}
	if err := Describe(&b, m, ShowOptions{ThresholdsMS: []float64{25}}); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/describe.txt", b.Bytes())
}

func TestDescribeLittle(t *testing.T) {
	var b bytes.Buffer
	m := &Models{Sections: []Section{&Prima{Isolation: map[quell.Resource][]Isolation{quell.CPU: {{Utilization: 0.1, ProbeMS: 10, N: 2}}}}}}
	if err := Describe(&b, m, ShowOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"origin unknown", "CPU", "no capacity by the joint model: the models lack response_time.cpu"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}

func TestFitWithoutLoad(t *testing.T) {
	idle := run(0, 0, 0, 1, 0.1, 0, 20)
	spared := run(0, 0.4, 0, 1.6, 0.2, 0, 20)
	for _, r := range []*TrainingRow{&idle, &spared} {
		r.LatencyMS, r.RequestRate = quell.Latency{}, 0
	}
	m, _ := fitted(t, []TrainingRow{
		idle, spared,
		run(0.2, 0, 0.2, 2, 1, 12, 20), run(0.2, 0.4, 0.2, 5, 2, 25, 20),
		run(0.4, 0, 0.4, 3, 2, 16, 20), run(0.4, 0.4, 0.4, 12, 4, 60, 20),
	})
	if iso := m.Prima().Isolation[quell.Network]; len(iso) != 3 || iso[0].Utilization != 0 || iso[0].ProbeMS != 1 {
		t.Errorf("isolation %+v", iso)
	}
	if r := m.Prima().ResponseTime[quell.Network]; r[0].Utilization != 0.2 {
		t.Errorf("a response time without load: %+v", r[0])
	}
	if i := m.Prima().Interference[quell.Network]; i[0].Utilization != 0 || !nearly(i[0].Severity, 0.6) {
		t.Errorf("interference %+v", i[0])
	}
	p, err := Compile(m, Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: quell.Joint, Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	sf, significant := p.Severity(0, quell.ProbeStats{MeanMS: 1.6, StddevMS: 0.2, N: 10}, false)
	if !significant || !nearly(p.Interfering(0, sf), 0.4) {
		t.Errorf("an instance without load beside a neighbour with 0.4: severity %v (%v), U_int %v", sf, significant, p.Interfering(0, sf))
	}
}

// Rows that older versions wrote have no observation. The same rows with an observation give exactly the same models.
func TestFitOfRowsWithObservations(t *testing.T) {
	rows := sharedLinkRuns()
	before, _ := fitted(t, rows)
	for i := range rows {
		r := &rows[i]
		r.Observation = &quell.Observation{
			At: time.Unix(1767225600, 0).UTC(), WindowS: 10, RequestRate: &r.RequestRate, LatencyMS: &r.LatencyMS,
			Utilization: map[quell.Resource]float64{quell.Network: r.Utilization, quell.CPU: 0.9},
		}
	}
	after, _ := fitted(t, rows)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("with observations %+v, without %+v", after, before)
	}
}

// Models record how their machines were probed, and rows with different probes cannot be combined.
func TestModelsKnowTheirProbing(t *testing.T) {
	rows := []TrainingRow{run(0.2, 0, 0.2, 10, 1, 20, 11), run(0.2, 0.3, 0.2, 20, 1, 30, 11), run(0.4, 0, 0.4, 15, 1, 25, 11)}
	for i := range rows {
		rows[i].By = &quell.Probing{Bytes: 10_000, Count: 10, PeriodS: 1, From: "training"}
	}
	rows[1].By = nil // of an older version
	m, _ := fitted(t, rows)
	var text bytes.Buffer
	if err := m.Encode(&text); err != nil {
		t.Fatal(err)
	}
	back, err := Decode(text.Bytes(), "")
	if err != nil || back.Trained.By[quell.Network] != *rows[0].By {
		t.Errorf("%v, %+v", err, back)
	}
	rows[2].By = &quell.Probing{Bytes: 125_000, Count: 8, PeriodS: 10}
	if _, _, err := Fit(rows, FitOptions{Metric: quell.Mean}); err == nil ||
		!strings.Contains(err.Error(), "some rows were probed with 10000 bytes, others with 125000 bytes") {
		t.Errorf("got %v", err)
	}
}
