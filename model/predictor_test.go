package model

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

func mean(ms float64) quell.Latency { return quell.Latency{Mean: &ms} }

// byHand is small enough to compute every expectation below by hand.
func byHand() *Models {
	return &Models{
		Trained: &Trained{PerRequest: map[quell.Resource]float64{quell.Network: 0.0042}},
		Sections: []Section{&Prima{
			Isolation: map[quell.Resource][]Isolation{quell.Network: {
				{Utilization: 0.5, ProbeMS: 14, StddevMS: 2, N: 41},
				{Utilization: 0.1, ProbeMS: 10, StddevMS: 1, N: 21},
			}},
			ResponseTime: map[quell.Resource][]ResponseTime{quell.Network: {
				{Utilization: 0.2, Severity: 0, LatencyMS: mean(10)},
				{Utilization: 0.2, Severity: 1, LatencyMS: mean(20), Runs: 3},
				{Utilization: 0.2, Severity: 2, LatencyMS: mean(16), Runs: 1}, // pooled with the one before: 19, 19
				{Utilization: 0.2, Severity: 3, LatencyMS: mean(40)},          // last segment 21, secant 10
				{Utilization: 0.4, Severity: 2.5, LatencyMS: mean(37)},        // last segment 2, secant 11
				{Utilization: 0.4, Severity: 0.5, LatencyMS: mean(15)},
				{Utilization: 0.4, Severity: 1.5, LatencyMS: mean(35)},
			}},
			Interference: map[quell.Resource][]Interference{quell.Network: {
				{Utilization: 0.2, Interfering: 0.2, Severity: 0.5},
				{Utilization: 0.2, Interfering: 0.3, Severity: 0.5},          // a plateau
				{Utilization: 0.2, Interfering: 0.4, Severity: 1.5},          // last segment 10, secant 3.75
				{Utilization: 0.4, Interfering: 0.2, Severity: 1.0, Runs: 1}, // total 0.6
				{Utilization: 0.4, Interfering: 0.4, Severity: 2.0, Runs: 3}, // total 0.8; last segment 5, secant 5
			}},
		}},
	}
}

func TestResponseTimeByHand(t *testing.T) {
	p := compiled(t, byHand(), quell.Joint)
	for _, c := range []struct {
		why         string
		u, sf, want float64
	}{
		{"a row", 0.2, 0, 10},
		{"pooled by runs", 0.2, 1, 19},
		{"pooled by runs", 0.2, 1.7, 19},
		{"between rows", 0.2, 0.5, 14.5},
		{"the last segment is steeper than the secant", 0.2, 4, 61},
		{"held below the lowest level", 0, 0.5, 14.5},
		{"held below the lowest severity", 0.4, 0.2, 15},
		{"between rows", 0.4, 1, 25},
		{"the secant is steeper than the last segment", 0.4, 3, 42.5},
		{"the level below overtakes: 40 + 21*7", 0.4, 10, 187},
		{"the level below overtakes where 42.5 + 11 x = 40 + 21 x", 0.4, 3.25, 45.25},
		{"between levels", 0.3, 1, (19.0 + 25) / 2},
		{"between levels", 0.25, 4, 0.75*61 + 0.25*61},
		{"held above the highest level", 0.9, 1, 25},
		{"negative severity is none", 0.2, -1, 10},
	} {
		if got := p.ResponseTime(c.u, c.sf); !nearly(got, c.want) {
			t.Errorf("%s: at %v, %v got %v, want %v", c.why, c.u, c.sf, got, c.want)
		}
	}
}

func TestJointByHand(t *testing.T) {
	p := compiled(t, byHand(), quell.Joint)
	for _, c := range []struct {
		why                  string
		u, interfering, want float64
	}{
		{"starts at 0", 0.2, 0.1, 0.25},
		{"on the plateau", 0.2, 0.25, 0.5},
		{"beyond the last row", 0.2, 0.5, 2.5},
		{"the level above: last segment as steep as the secant", 0.4, 0.5, 2.5},
		{"the level below overtakes beyond 0.5", 0.4, 0.6, 3.5},
		{"between levels", 0.3, 0.2, 0.75},
		{"held below", 0.05, 0.2, 0.5},
		{"held above", 0.8, 0.2, 1},
		{"no interference, no severity", 0.4, 0, 0},
	} {
		if got := p.SeverityAt(c.u, c.interfering); !nearly(got, c.want) {
			t.Errorf("%s: severity at %v, %v is %v, want %v", c.why, c.u, c.interfering, got, c.want)
		}
	}
	for _, c := range []struct {
		why         string
		u, sf, want float64
	}{
		{"a plateau gives the larger value", 0.2, 0.5, 0.3},
		{"before the plateau", 0.2, 0.25, 0.1},
		{"beyond the rows", 0.2, 2.5, 0.5},
		{"bounded by what the instance leaves", 0.2, 50, 0.8},
		{"severity 0 is no interference", 0.2, 0, 0},
		{"an unknown severity below 0 is none", 0.2, -1, 0},
		{"between levels: (0.5 + 1)/2 at 0.2", 0.3, 0.75, 0.2},
	} {
		if got := p.Interfering(c.u, c.sf); !nearly(got, c.want) {
			t.Errorf("%s: interfering at %v, %v is %v, want %v", c.why, c.u, c.sf, got, c.want)
		}
	}
}

func TestTotalByHand(t *testing.T) {
	m := byHand()
	m.Prima().Interference[quell.Network] = []Interference{
		{Utilization: 0.4, Interfering: 0.4, Severity: 1.5},
		{Utilization: 0.2, Interfering: 0.2, Severity: 0.5},          // total 0.4
		{Utilization: 0.4, Interfering: 0.3, Severity: 0.9, Runs: 1}, // total 0.7, then
		{Utilization: 0.1, Interfering: 0.5, Severity: 1.1, Runs: 3}, // total 0.6: pooled to 1.05 at 0.625
		{Utilization: 0.1, Interfering: 0.1, Severity: 0},            // no severity, no point
	}
	p := compiled(t, m, quell.Total)
	for _, c := range []struct {
		why                  string
		u, interfering, want float64
	}{
		{"from the origin", 0.1, 0.1, 0.25},
		{"a row", 0.3, 0.1, 0.5},
		{"between a row and the pooled point", 0.3, 0.2125, 0.775},
		{"the pooled point", 0.5, 0.125, 1.05},
		{"beyond the last: 0.45 over 0.175", 0.5, 0.475, 1.5 + 0.175*0.45/0.175},
		{"no interference, no severity at any utilisation", 0.5, 0, 0},
	} {
		if got := p.SeverityAt(c.u, c.interfering); !nearly(got, c.want) {
			t.Errorf("%s: severity at %v, %v is %v, want %v", c.why, c.u, c.interfering, got, c.want)
		}
	}
	for _, c := range []struct {
		why         string
		u, sf, want float64
	}{
		{"the paper's curve less the own use", 0.1, 0.5, 0.3},
		{"own use above the curve is no interference", 0.5, 0.5, 0},
		{"bounded by what the instance leaves", 0.5, 9, 0.5},
		{"severity 0 is no interference", 0, 0, 0},
	} {
		if got := p.Interfering(c.u, c.sf); !nearly(got, c.want) {
			t.Errorf("%s: interfering at %v, %v is %v, want %v", c.why, c.u, c.sf, got, c.want)
		}
	}
}

// The order of rows in a file must not matter, also for two rows with the same severity.
func TestTotalPoolsEqualSeverities(t *testing.T) {
	for _, rows := range [][]Interference{
		{{0.2, 0.2, 0.5, 1}, {0.2, 0.6, 1, 1}, {0.1, 0.2, 1, 1}},
		{{0.1, 0.2, 1, 1}, {0.2, 0.6, 1, 1}, {0.2, 0.2, 0.5, 1}},
	} {
		if c := totalCurve(rows); len(c) != 3 || !nearly(c[2].x, 0.55) || c[2].y != 1 {
			t.Errorf("got %v, want the points 0.4 and 0.55", c)
		}
	}
}

func TestCapacityByHand(t *testing.T) {
	joint, total := compiled(t, byHand(), quell.Joint), compiled(t, byHand(), quell.Total)
	for _, c := range []struct {
		why                    string
		p                      *Predictor
		interfering, threshold float64
		want                   float64
	}{
		{"alone: 10 at 0.2, 15 at 0.4", joint, 0, 12, 0.28},
		{"alone, at the highest level", joint, 0, 99, 0.4},
		{"alone, below the least response", joint, 0, 9.9, 0},
		{"alone, exactly the least response: held below 0.2", joint, 0, 10, 0.2},
		{"severity 0.25 at 0.2 and 0.5 at 0.4: 12.25 to 15", joint, 0.1, 13, capacityOfJointExample(13)},
		{"not a number allows nothing", joint, 0.1, math.NaN(), 0},
		{"the highest level even so", total, 0.1, 1e6, 0.4},
	} {
		if got := c.p.Capacity(c.interfering, c.threshold); !nearly(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.why, got, c.want)
		}
	}
	if got := joint.FreshCapacity(12); !nearly(got, 0.28) {
		t.Errorf("fresh capacity %v", got)
	}
}

// At 0.2 + 0.2 w the severity is 0.25 + 0.25 w; the level below gives 10 + 9 SF, the level above 15 up to 0.5. So the
// response is (1-w)(12.25 + 2.25 w) + 15 w = 12.25 + 5 w - 2.25 w^2.
func capacityOfJointExample(threshold float64) float64 {
	w := (5 - math.Sqrt(25-9*(threshold-12.25))) / 4.5
	return 0.2 + 0.2*w
}

// A level of the joint model between two levels of the response changes the slope of severity there: 0 up to 0.5, then up
// to 2 at 0.8.
func TestCapacityAcrossALevelOfTheJointModel(t *testing.T) {
	m := byHand()
	m.Prima().ResponseTime[quell.Network] = []ResponseTime{
		{Utilization: 0.2, Severity: 0, LatencyMS: mean(10)}, {Utilization: 0.2, Severity: 2, LatencyMS: mean(30)},
		{Utilization: 0.8, Severity: 0, LatencyMS: mean(10)}, {Utilization: 0.8, Severity: 2, LatencyMS: mean(30)},
	}
	m.Prima().Interference[quell.Network] = []Interference{{0.2, 0.1, 0, 1}, {0.5, 0.1, 0, 1}, {0.8, 0.1, 2, 1}}
	if got := compiled(t, m, quell.Joint).Capacity(0.1, 15); !nearly(got, 0.575) {
		t.Errorf("got %v, want a quarter of the way from 0.5 to 0.8", got)
	}
}

func TestSeverityExplainingByHand(t *testing.T) {
	p := compiled(t, byHand(), quell.Joint)
	for _, c := range []struct {
		why         string
		u, ms, want float64
	}{
		{"no slower than alone", 0.2, 10, 0},
		{"faster than alone", 0.2, 5, 0},
		{"between rows", 0.2, 14.5, 0.5},
		{"a plateau gives the least", 0.2, 19, 1},
		{"beyond the rows", 0.2, 61, 4},
		{"unknown", 0.2, math.NaN(), 0},
	} {
		if got := p.SeverityExplaining(c.u, c.ms); !nearly(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.why, got, c.want)
		}
	}
	m := byHand()
	m.Prima().ResponseTime[quell.Network] = []ResponseTime{{Utilization: 0.2, Severity: 1, LatencyMS: mean(10)}}
	if got := compiled(t, m, quell.Joint).SeverityExplaining(0.2, 20); got != 1 {
		t.Errorf("nothing explains 20 ms: got severity %v, want the highest trained", got)
	}
}

func TestSeverityByHand(t *testing.T) {
	p := compiled(t, byHand(), quell.Joint)
	// At 0.2: R_iso 11, s 1.25, nearer row n 21. t(0.95, 20) = 1.7247; n = 4: margin = 1.7247 * 1.25 * sqrt(1/4 + 1/21).
	margin := 1.7247 * 1.25 * math.Sqrt(0.25+1.0/21)
	for _, c := range []struct {
		why         string
		p           float64
		n           int
		before      bool
		want        float64
		significant bool
	}{
		{"above the margin", 11 + margin + 0.001, 4, false, (margin + 0.001) / 11, true},
		{"inside the margin", 11 + margin - 0.001, 4, false, 0, false},
		{"inside the margin, but it was above", 11 + margin - 0.001, 4, true, (margin - 0.001) / 11, true},
		{"above half of the margin, as before", 11 + margin/2 + 0.001, 4, true, (margin/2 + 0.001) / 11, true},
		{"fallen to half of the margin", 11 + margin/2 - 0.001, 4, true, 0, false},
		{"more probes make the same difference significant", 11 + margin - 0.001, 6, false, (margin - 0.001) / 11, true},
		{"faster than alone", 8, 4, true, 0, false},
		{"no probes", 99, 0, true, 0, false},
		{"not a number", math.NaN(), 4, true, 0, false},
	} {
		sf, significant := p.Severity(0.2, quell.ProbeStats{MeanMS: c.p, StddevMS: 9, N: c.n}, c.before)
		if math.Abs(sf-c.want) > 1e-9 || significant != c.significant {
			t.Errorf("%s: got %v, %v, want %v, %v", c.why, sf, significant, c.want, c.significant)
		}
	}
	if sf, _ := p.Severity(0.2, quell.ProbeStats{MeanMS: math.Inf(1), N: 4}, false); !finite(sf) {
		t.Errorf("severity %v", sf)
	}
}

func TestIsolationByHand(t *testing.T) {
	p := compiled(t, byHand(), quell.Joint)
	for _, c := range []struct {
		u, ms, stddev float64
		n             int
	}{{0, 10, 1, 21}, {0.1, 10, 1, 21}, {0.2, 11, 1.25, 21}, {0.3, 12, 1.5, 21}, {0.4, 13, 1.75, 41}, {0.5, 14, 2, 41}, {0.9, 14, 2, 41}} {
		ms, stddev, n := p.Isolation(c.u)
		if !nearly(ms, c.ms) || !nearly(stddev, c.stddev) || n != c.n {
			t.Errorf("at %v: got %v, %v, %v, want %v, %v, %v", c.u, ms, stddev, n, c.ms, c.stddev, c.n)
		}
	}
}

// The rate of false alarms of the test for interference must match its confidence. The test must allow for the random error of the
// isolation row as well.
func TestSeverityRaisesFalseAlarmsAsPromised(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const rounds, isoProbes, windowProbes = 20000, 6, 8
	alarms := 0
	for range rounds {
		iso := sample(r, isoProbes)
		b := &Baseline{rows: []baselineRow{{
			Isolation: Isolation{ProbeMS: iso.Mean, StddevMS: iso.Stddev, N: iso.N}, t: testQuantile(0.95, iso.N),
		}}}
		window := sample(r, windowProbes)
		if _, significant := b.Severity(0.5, quell.ProbeStats{MeanMS: window.Mean, N: window.N}, false); significant {
			alarms++
		}
	}
	if share := float64(alarms) / rounds; math.Abs(share-0.05) > 0.006 {
		t.Errorf("%.2f%% false alarms at 95%% confidence", 100*share)
	}
}

func TestCompileNamesWhatIsMissing(t *testing.T) {
	good := Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: quell.Total, Confidence: 0.95}
	for _, c := range []struct {
		why    string
		change func(*Models, *Spec)
		want   string
		noData bool
	}{
		{"nothing wrong", func(*Models, *Spec) {}, "", false},
		{"no isolation", func(m *Models, _ *Spec) { m.Prima().Isolation = nil }, "isolation.network", true},
		{"no response time", func(m *Models, _ *Spec) { m.Prima().ResponseTime = nil }, "response_time.network", true},
		{"no interference", func(m *Models, _ *Spec) { m.Prima().Interference = nil }, "interference.network", true},
		{"another resource", func(_ *Models, s *Spec) { s.Resource = quell.Disk }, "isolation.disk", true},
		{"a metric no row has", func(_ *Models, s *Spec) { s.Metric = quell.P99 }, "response_time.network with the p99", true},
		{"nothing was ever felt", func(m *Models, _ *Spec) {
			m.Prima().Interference[quell.Network] = []Interference{{Utilization: 0.2, Interfering: 0.2}}
		}, "with a severity above 0", true},
		{"a metric nobody knows", func(_ *Models, s *Spec) { s.Metric = "p42" }, "metric", false},
		{"a model nobody knows", func(_ *Models, s *Spec) { s.InterferenceModel = "x" }, "interference_model", false},
		{"confidence of a coin", func(_ *Models, s *Spec) { s.Confidence = 0 }, "confidence", false},
		{"a broken rule", func(m *Models, _ *Spec) { m.Prima().Isolation[quell.Network][0].ProbeMS = math.NaN() },
			"isolation.network[0].probe_ms", false},
	} {
		m, s := byHand(), good
		c.change(m, &s)
		_, err := Compile(m, s)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, quell.ErrNoData) != c.noData {
			t.Errorf("%s: got %v, want %q (no data: %v)", c.why, err, c.want, c.noData)
		}
	}
}

func TestPerRequest(t *testing.T) {
	m := byHand()
	if use, ok := compiled(t, m, quell.Joint).PerRequest(); !ok || use != 0.0042 {
		t.Errorf("got %v, %v", use, ok)
	}
	m.Trained = nil
	if _, ok := compiled(t, m, quell.Joint).PerRequest(); ok {
		t.Error("nothing was learned, yet it is known")
	}
}

// Every valid file gives finite predictions, even with nearly equal rows and extreme values.
func TestPredictionsAreFinite(t *testing.T) {
	extreme := rapid.OneOf(rapid.SampledFrom([]float64{0, 5e-324, 1e-300, 1e-9, 1, maxValue}), rapid.Float64Range(0, maxValue))
	share := rapid.OneOf(rapid.SampledFrom([]float64{0, 5e-324, 1e-12, 0.5, 1}), rapid.Float64Range(0, 1))
	rapid.Check(t, func(t *rapid.T) {
		m := &Models{Sections: []Section{&Prima{
			Isolation: map[quell.Resource][]Isolation{quell.Network: {{Utilization: share.Draw(t, "u"), ProbeMS: minProbeMS, StddevMS: maxValue,
				N: 1}}},
			ResponseTime: map[quell.Resource][]ResponseTime{},
			Interference: map[quell.Resource][]Interference{},
		}}}
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			m.Prima().ResponseTime[quell.Network] = append(m.Prima().ResponseTime[quell.Network],
				ResponseTime{Utilization: share.Draw(t, "u"), Severity: extreme.Draw(t, "sf"), LatencyMS: mean(extreme.Draw(t, "ms"))})
			m.Prima().Interference[quell.Network] = append(m.Prima().Interference[quell.Network],
				Interference{Utilization: share.Draw(t, "u"), Interfering: share.Draw(t, "interfering"), Severity: extreme.Draw(t, "sf")})
		}
		if m.Validate() != nil {
			t.Skip("rows repeat")
		}
		p, err := Compile(m, Spec{Resource: quell.Network, Metric: quell.Mean, InterferenceModel: anyModel(t), Confidence: 0.95})
		if err != nil {
			t.Skip(err)
		}
		u, interfering, sf, ms := share.Draw(t, "u"), share.Draw(t, "interfering"), extreme.Draw(t, "sf"), extreme.Draw(t, "ms")
		felt, _ := p.Severity(u, quell.ProbeStats{MeanMS: ms, N: 3}, true)
		for i, v := range []float64{
			p.ResponseTime(u, sf), p.SeverityAt(u, interfering), p.Interfering(u, sf), p.Capacity(interfering, ms),
			p.SeverityExplaining(u, ms), p.FreshCapacity(ms), felt,
		} {
			if !finite(v) || v < 0 {
				t.Fatalf("prediction %d is %v", i, v)
			}
		}
	})
}
