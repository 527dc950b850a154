package model

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// alternating are runs in which an interferer comes and goes. The use of the processors follows a linear law, as the
// 0.06 + 0.64 o + 0.21 r + 0.24 c, with o from 0 to 1, r from 0 to 500 requests per second, and c from 0.5 to 4 cycles per instruction.
func alternating(seed uint64, noise float64) (rows []TrainingRow) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for run := range 6 {
		row := TrainingRow{Resource: quell.CPU, Level: 0.3, Interfering: 0.3, Utilization: 0.3, RequestRate: 100,
			ProbeMS: ProbeRun{Mean: 1, Stddev: 0.1, N: 10}, LatencyMS: quell.Latency{Mean: new(20.0), N: 100}}
		use, rate, cpi := 0.3, 0.0, 0.0
		for second := range 300 {
			disturbed := second >= 120
			if second%averaged == 0 {
				rate, cpi = 100+400*rng.Float64(), 1.5+2.5*rng.Float64()
				use = math.Max(0, math.Min(1, 0.02+0.5*use+0.21*rate/500+0.24*(cpi-0.5)/3.5+noise*rng.NormFloat64()))
			}
			w := TrainingWindow{Observation: quell.Observation{WindowS: 1, RequestRate: new(rate),
				Utilization: map[quell.Resource]float64{quell.CPU: use},
				Counters:    map[string]float64{quell.CounterCPI: cpi}}}
			if w.Interfering = 0.4; !disturbed {
				w.Interfering, w.Observation.Counters[quell.CounterCPI] = 0, 0.6+0.1*rng.Float64()+float64(run)/100
			}
			row.Windows = append(row.Windows, w)
		}
		rows = append(rows, row)
	}
	return rows
}

func fittedICE(t *testing.T, rows []TrainingRow) (*ICE, *ICEReport) {
	t.Helper()
	m, report, err := Fit(rows, FitOptions{Metric: quell.Mean})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range report.Sections {
		if ice, ok := part.(*ICEReport); ok {
			return m.ICE(), ice
		}
	}
	t.Fatalf("no report of ICE in %v", report)
	return nil, nil
}

func TestFitICE(t *testing.T) {
	ice, report := fittedICE(t, alternating(1, 0))
	if len(report.Missing) > 0 || ice.Signal != quell.CounterCPI {
		t.Errorf("not fitted: %v; the signal is %s", report.Missing, ice.Signal)
	}
	if ice.Classifier.Feature != quell.CounterCPI || ice.Classifier.Leaves() != 2 {
		t.Errorf("the detector is\n%s", ice.Classifier)
	}
	if n, right := ice.Validated.Total(); n != 1800 || right < 1790 {
		t.Errorf("%d of %d windows are right", right, n)
	}
	e := ice.Estimator
	for _, c := range []struct{ previous, rate, cpi float64 }{{0.5, 300, 2}, {0.8, 150, 3.5}} {
		want := 0.02 + 0.5*c.previous + 0.21*c.rate/500 + 0.24*(c.cpi-0.5)/3.5
		if got := e.Use(c.previous, c.rate, c.cpi); math.Abs(got-want) > 1e-6 {
			t.Errorf("use at %v: %v, want %v", c, got, want)
		}
		if rate, ok := e.Rate(want, c.previous, c.cpi); !ok || math.Abs(rate-c.rate) > 1e-3 {
			t.Errorf("the rate back is %v, want %v", rate, c.rate)
		}
	}
	if len(ice.Fits) != 3 || ice.Fits[0].R2 < 0.999 || ice.Fits[0].Without > 0.9*ice.Fits[0].R2 {
		t.Errorf("polynomials: %+v", ice.Fits)
	}
	again, _ := fittedICE(t, alternating(1, 0))
	if !reflect.DeepEqual(again, ice) {
		t.Error("the same rows give another section")
	}
}

// With noise, higher degrees explain hardly more, and the previous use explains a lot (Figure 5).
func TestFitICEWithNoise(t *testing.T) {
	ice, _ := fittedICE(t, alternating(2, 0.03))
	first, third := ice.Fits[0], ice.Fits[2]
	if first.R2 < 0.8 || third.R2-first.R2 > 0.1 || third.R2 < first.R2-1e-9 || first.Without > first.R2-0.05 {
		t.Errorf("%+v", ice.Fits)
	}
}

// The use that lasts from one window to the next shows at the onsets of the interferer, although load and strength are constant in each run
// and what is read of the use scatters.
func TestFitICESeesThePreviousUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	var rows []TrainingRow
	for run := range 6 {
		row := TrainingRow{Resource: quell.CPU, Level: 0.3, Interfering: 0.3, Utilization: 0.3, RequestRate: 100,
			ProbeMS: ProbeRun{Mean: 1, Stddev: 0.1, N: 10}, LatencyMS: quell.Latency{Mean: new(20.0), N: 100}}
		rate, strength, use := 200+float64(50*(run/2)), 0.6+0.4*float64(run%2), 0.44
		for second := range 600 {
			there := 0.0
			if second%300 >= 120 {
				there = strength
			}
			if second%averaged == 0 {
				use = 0.02 + 0.5*use + 0.000667*rate + 0.2*there
			}
			row.Windows = append(row.Windows, TrainingWindow{Interfering: there, Observation: quell.Observation{WindowS: 1,
				RequestRate: new(rate + 5*rng.NormFloat64()), Utilization: map[quell.Resource]float64{quell.CPU: use + 0.02*rng.NormFloat64()},
				Counters: map[string]float64{quell.CounterCPI: 1 + there + 0.02*rng.NormFloat64()}}})
		}
		rows = append(rows, row)
	}
	ice, _ := fittedICE(t, rows)
	if o := ice.Estimator.Previous; math.Abs(o-0.5) > 0.05 {
		t.Errorf("the coefficient of the previous use is %.3f, want 0.5: %+v", o, *ice.Estimator)
	}
	if got := ice.Estimator.Use(0.44, 300, 2); math.Abs(got-0.64) > 0.02 {
		t.Errorf("at the onset of a neighbour the use is %.3f, want 0.64", got)
	}
}

// eachWindow changes the windows of rows with the interferer. n counts them from 0 in each run.
func eachWindow(rows []TrainingRow, change func(n int, o *quell.Observation)) {
	for i := range rows {
		n := 0
		for k := range rows[i].Windows {
			if w := &rows[i].Windows[k]; w.Interfering > 0 {
				change(n, &w.Observation)
				n++
			}
		}
	}
}

// Means over five seconds with an outlying rate of requests are dropped.
func TestFitICEDropsOutlyingRates(t *testing.T) {
	rows := alternating(1, 0)
	eachWindow(rows, func(n int, o *quell.Observation) {
		if n/5 == 7 {
			o.RequestRate = new(5000.0)
		}
	})
	ice, _ := fittedICE(t, rows)
	e := ice.Estimator
	want := 0.02 + 0.5*0.5 + 0.21*300/500 + 0.24*(2-0.5)/3.5
	if got := e.Use(0.5, 300, 2); e.Range.Requests[1] > 500 || math.Abs(got-want) > 0.01 {
		t.Errorf("outlying rates count: use %.3f, want %.3f; %+v", got, want, *e)
	}
}

// The estimator is fitted to means over five seconds: what scatters within them does not count.
func TestFitICEAveragesFiveSeconds(t *testing.T) {
	rows := alternating(1, 0)
	rates, uses := [5]float64{60, -60, 30, -30, 0}, [5]float64{0.01, 0.03, -0.02, 0, -0.02}
	eachWindow(rows, func(n int, o *quell.Observation) {
		o.RequestRate = new(*o.RequestRate + rates[n%5])
		o.Utilization = map[quell.Resource]float64{quell.CPU: o.Utilization[quell.CPU] + uses[n%5]}
	})
	ice, _ := fittedICE(t, rows)
	if r2 := ice.Fits[0].R2; r2 < 0.999 {
		t.Errorf("R² is %.3f, want 1, because the means follow the law", r2)
	}
}

// A run without counters has substitute signals; a run without any has no estimator, and the report says so.
func TestFitICEWithoutCounters(t *testing.T) {
	rows := alternating(3, 0.03)
	for i := range rows {
		for k := range rows[i].Windows {
			o := &rows[i].Windows[k].Observation
			wait := o.Counters[quell.CounterCPI] / 4
			o.Counters, o.Sched = nil, &quell.Sched{Cores: 1, RunS: 0.5, WaitS: &wait}
		}
	}
	if ice, report := fittedICE(t, rows); ice.Signal == quell.CounterCPI || ice.Estimator == nil || ice.Classifier == nil {
		t.Errorf("signal %q, missing %v", ice.Signal, report.Missing)
	}
	for i := range rows {
		for k := range rows[i].Windows {
			rows[i].Windows[k].Observation = quell.Observation{WindowS: 1}
		}
	}
	ice, report := fittedICE(t, rows)
	if ice.Estimator != nil || !strings.Contains(strings.Join(report.Missing, "\n"), "estimator: ") {
		t.Errorf("%+v, missing %v", ice, report.Missing)
	}
	ice, report = fittedICE(t, []TrainingRow{{Resource: quell.CPU, ProbeMS: ProbeRun{Mean: 1, N: 1}, LatencyMS: quell.Latency{Mean: new(1.0)},
		Windows: []TrainingWindow{{}}}})
	if ice.Classifier != nil || len(report.Missing) != 2 {
		t.Errorf("one window: %+v, missing %v", ice, report.Missing)
	}
}

// Runs whose interferer comes and goes are ICE's only; other sections come from other runs.
func TestRunsAreKeptApart(t *testing.T) {
	steady := law{rand.New(rand.NewPCG(1, 2)), 0.04}.rows()
	both, _, err := Fit(append(alternating(1, 0), steady...), FitOptions{Metric: quell.P90})
	if err != nil {
		t.Fatal(err)
	}
	only, _, err := Fit(steady, FitOptions{Metric: quell.P90})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(both.Prima(), only.Prima()) || !reflect.DeepEqual(both.Dial(), only.Dial()) ||
		only.ICE() != nil || both.ICE() == nil {
		t.Error("runs whose interferer comes and goes change other sections")
	}
}

const iceExample = `{"format": "quell-models/1", "ice": {
  "classifier": {"feature": "cpi", "threshold": 1.5, "above": {"class": "interference", "count": 10},
    "below": {"class": "none", "count": 20}},
  "usual": {"cpi": 0.8}, "signal": "cpi",
  "estimator": {"intercept": 0.06, "previous": 0.64, "requests": 0.21, "cpi": 0.24,
    "range": {"cpu": [0, 1], "requests": [0, 500], "cpi": [0.5, 4]}}}}`

func TestDecodeICE(t *testing.T) {
	ice := decoded(t, iceExample).ICE()
	if found, clear := ice.Disturbed(map[string]float64{"cpi": 1.6}); !found || clear {
		t.Errorf("just above: %v, %v", found, clear)
	}
	if found, clear := ice.Disturbed(map[string]float64{"cpi": 2.4}); !found || !clear {
		t.Errorf("far above: %v, %v", found, clear)
	}
	if found, _ := ice.Disturbed(nil); found {
		t.Error("nothing measured counts as interference")
	}
	for from, c := range map[string]struct{ to, problem string }{
		`"feature": "cpi"`:      {`"feature": "cpy"`, "cpy"},
		`"class": "none"`:       {`"class": "network"`, "network"},
		`"cpu": [0, 1]`:         {`"cpu": [1, 1]`, "no extent"},
		`"requests": [0, 500]`:  {`"requests": [600, 500]`, "begins at 600"},
		`"intercept": 0.06`:     {`"intercept": 1e99`, "intercept"},
		`"usual": {"cpi": 0.8}`: {`"usual": {"cpi": -1}`, "usual.cpi"},
		`"signal": "cpi"`:       {`"signal": 3`, "signal"},
		`"signal": "cpi",`:      {`"signal": "cpy",`, `ice.signal: unknown signal "cpy" (known: cpi, `},
		`{"cpi": 0.8}`:          {`{"cpy": 0.8}`, `ice.usual.cpy: unknown signal "cpy" (known: `},
		`{"cpi": 0.8},`:         {`{"cpi": null},`, "ice.usual.cpi: is null"},
		`[0, 1],`:               {`[null, 1],`, "[null, 1] is no range"},
		`[0.5, 4]`:              {`[0.5]`, "[0.5] is no range"},
		`"cpi": [0.5, 4]`:       {`"cpi": [0.5, 4, 5]`, "[0.5, 4, 5] is no range"},
		`"ice": {`:              {`"ice": {"validated": {"gpu": {"none": 1}},`, `ice.validated.gpu: unknown class "gpu" (known: interference, none)`},
		`"ice": {` + "\n":       {`"ice": {"fits": [null],` + "\n", "ice.fits[0]: is null"},
		`"previous": 0.64,`:     {`"previos": 0.64,`, "previos"},
	} {
		_, err := Decode([]byte(strings.Replace(iceExample, from, c.to, 1)), "line ")
		if user := new(quell.UserError); !errors.As(err, &user) || !strings.Contains(err.Error(), c.problem) ||
			!strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

func TestDescribeICE(t *testing.T) {
	m := decoded(t, iceExample)
	var b strings.Builder
	if err := Describe(&b, m, ShowOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ICE\n", "cpi > 1.5: interference", "0.64 previous use"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
	if pictures, err := Draw(m, ShowOptions{}); err != nil || len(pictures) != 1 {
		t.Errorf("%d pictures, %v", len(pictures), err)
	}
}

// Tasks of a shared processor wait so long that the use of all can be inferred. Absurd readings give no absurd use.
func TestProcessorsOf(t *testing.T) {
	wait := func(own, busy float64) *quell.Observation {
		s := own * busy / (1 - busy)
		return &quell.Observation{WindowS: 1, Utilization: map[quell.Resource]float64{quell.CPU: own},
			Sched: &quell.Sched{Cores: 1, RunS: own, WaitS: &s}}
	}
	for _, c := range []struct{ own, hidden float64 }{{0.3, 0}, {0.3, 0.5}, {0.1, 0.85}} {
		if use, ok := ProcessorsOf(wait(c.own, c.own+c.hidden), 0); !ok || math.Abs(use.Hidden-c.hidden) > 1e-6 || use.Own != c.own {
			t.Errorf("%+v, want %+v", use, c)
		}
	}
	if with, _ := ProcessorsOf(wait(0.3, 0.5), 0.3); with.Hidden >= 0.2 || with.Hidden < 0 {
		t.Errorf("beyond chance: %v", with.Hidden)
	}
	if _, ok := ProcessorsOf(&quell.Observation{}, 0); ok {
		t.Error("nothing measured is a use")
	}
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.Float64Range(0, 1e9)
		waited := any.Draw(t, "wait")
		part := rapid.Float64Range(0, 1)
		o := &quell.Observation{CPU: &quell.CPUTime{User: part.Draw(t, "user"), Steal: part.Draw(t, "steal")},
			Sched: &quell.Sched{Cores: any.Draw(t, "cores"), RunS: any.Draw(t, "run"), WaitS: &waited}}
		if use, _ := ProcessorsOf(o, rapid.Float64Range(0, 10).Draw(t, "chance")); !(use.Own >= 0 && use.Hidden >= 0 && use.Busy() <= 1) {
			t.Fatalf("%+v", use)
		}
	})
}

// The mean of the last windows finds weak neighbours, and one window is enough for strong ones.
func TestICESignalsRemember(t *testing.T) {
	leaf := func(class string) *stats.Tree { return &stats.Tree{Class: class} }
	ice := ICE{Usual: map[string]float64{"cpu_hidden": 0, "cpu_recent": 0, "cpu_lasting": 0},
		Classifier: &stats.Tree{Feature: "cpu_recent", Threshold: 0.2, Above: leaf(Disturbed), Below: leaf(Alone)}}
	var means *HiddenMeans
	for i, want := range []struct {
		hidden float64 // less than 0: nothing was measured
		HiddenMeans
	}{
		{0.2, HiddenMeans{0.2, 0.2}}, {0, HiddenMeans{0.1, 0.17}}, {0.3, HiddenMeans{0.2, 0.1895}}, {-1, HiddenMeans{}},
		{0.1, HiddenMeans{0.1, 0.1}}, {0.6, HiddenMeans{0.35, 0.175}}, {0.6, HiddenMeans{0.475, 0.475}}, // a jump
		{0, HiddenMeans{0.2375, 0.40375}}, {0, HiddenMeans{0.11875, 0.11875}},
	} {
		o := waiting(.3, math.Max(0, want.hidden))
		o.Utilization = map[quell.Resource]float64{quell.CPU: .3}
		if want.hidden < 0 {
			o = &quell.Observation{}
		}
		var signals map[string]float64
		if signals, means = ICESignals(o, means); want.hidden < 0 {
			if means != nil {
				t.Errorf("window %d: nothing was measured, and %v is remembered", i, *means)
			}
			continue
		}
		if means == nil || math.Abs(means.Recent-want.Recent) > 1e-6 || math.Abs(means.Lasting-want.Lasting) > 1e-6 ||
			signals["cpu_recent"] != means.Recent || signals["cpu_lasting"] != means.Lasting {
			t.Errorf("window %d: %+v, %v", i, means, signals)
		}
	}
	for _, c := range []struct {
		hidden, recent float64
		found, clear   bool
	}{{0, 0.1, false, false}, {0.3, 0.25, true, false}, {0.6, 0.3, true, true}, {0.6, 0.1, false, false}, {0, 0.5, true, false}} {
		found, clear := ice.Disturbed(map[string]float64{"cpu_hidden": c.hidden, "cpu_recent": c.recent})
		if found != c.found || clear != c.clear {
			t.Errorf("%+v: %t, %t", c, found, clear)
		}
	}
}
