package model

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// TrainingWindow is what was measured in one short window of a training run in which the interferer came and went.
type TrainingWindow struct {
	Interfering float64           `json:"interfering"` // commanded use of the interferer in this window; 0: there was none
	Observation quell.Observation `json:"observation"`
}

// Constants of the fit of ICE's section.
const (
	minWindows     = 40 // least number of windows of each class
	iceLeaf        = 10 // least number of windows in a leaf
	iceFolds       = 5
	iceBlock       = 20 // successive windows that stay in one fold, because the lasting mean spans several
	iceSeed        = 1
	averaged       = 5  // windows that one row of the estimator averages
	minAverages    = 20 // rows of the estimator
	highestDegree  = 3
	minMeasured    = 0.9 // a signal is used for the estimator if it was measured in this share of the rows
	outlyingSpread = 1.5 // interquartile ranges beyond the quartiles at which a rate of requests is an outlier
)

// iceFit is the state of the fit of ICE's section.
type iceFit struct {
	ICE
	rows   []TrainingRow // with windows
	report ICEReport
}

// fitICE fits ICE's section to the windows of runs in which the interferer came and went (ICE, section IV). If there are none, it returns
// no section.
func fitICE(in fitting) (Section, SectionReport, error) {
	if len(in.alternating) == 0 {
		return nil, nil, nil
	}
	f := iceFit{rows: in.alternating}
	f.report.Runs = len(f.rows)
	if err := f.classifier(in.Unscored); err != nil {
		return nil, nil, fmt.Errorf("ice: %w", err)
	}
	f.estimator()
	f.report.ICE = &f.ICE
	return &f.ICE, &f.report, nil
}

func (f *iceFit) leave(part, why string) { f.report.Missing = append(f.report.Missing, part+": "+why) }

// classifier fits the decision tree. A window's class says whether the interferer was there.
func (f *iceFit) classifier(unscored bool) error {
	var samples []stats.Sample
	var classes []string
	sums, counts := map[string]float64{}, map[string]float64{}
	for i := range f.rows {
		var means *HiddenMeans
		for k := range f.rows[i].Windows {
			w := &f.rows[i].Windows[k]
			s := stats.Sample{Class: Alone}
			s.Features, means = ICESignals(&w.Observation, means)
			if w.Interfering > 0 {
				s.Class = Disturbed
				f.report.Disturbed++
			} else {
				for name, v := range s.Features {
					sums[name], counts[name] = sums[name]+v, counts[name]+1
				}
			}
			samples, classes = append(samples, s), append(classes, s.Class)
		}
	}
	f.report.Windows = len(samples)
	if alone := f.report.Windows - f.report.Disturbed; min(alone, f.report.Disturbed) < minWindows {
		f.leave("classifier", fmt.Sprintf("%d windows without and %d with the interferer; at least %d of both are needed", alone,
			f.report.Disturbed, minWindows))
		return nil
	}
	f.Usual = map[string]float64{}
	for name, sum := range sums {
		f.Usual[name] = sum / counts[name]
	}
	fit := func(samples []stats.Sample) (*stats.Tree, error) {
		return stats.FitTree(samples, stats.TreeOptions{Criterion: stats.Gini, MinLeaf: iceLeaf, Folds: iceFolds, Block: iceBlock,
			Seed: iceSeed})
	}
	var err error
	if f.Classifier, err = fit(samples); err != nil || unscored {
		return err
	}
	folds, err := stats.StratifiedFolds(classes, iceFolds, iceBlock, iceSeed)
	if err != nil {
		return err
	}
	f.Validated, err = stats.CrossValidate(samples, folds, fit)
	return err
}

// averages is a row of the estimator's regression: means over averaged successive windows with the interferer.
type averages struct {
	use, previous, rate float64
	signals             map[string]float64
}

// estimator fits the regression, and polynomials of higher degree for comparison.
func (f *iceFit) estimator() {
	rows := withoutOutliers(f.averages())
	if len(rows) < minAverages {
		f.leave("estimator", fmt.Sprintf("%d means over %d successive windows with the interferer; at least %d are needed", len(rows), averaged,
			minAverages))
		return
	}
	best := -math.Inf(1)
	for _, signal := range estimatorSignals {
		known := slices.DeleteFunc(slices.Clone(rows), func(a averages) bool { return !hasKey(a.signals, signal) })
		if float64(len(known)) < minMeasured*float64(len(rows)) {
			continue
		}
		r := newRegression(known, signal)
		if r2, ok := r.fit(1, true); ok && r2 > best {
			best, f.Signal, f.Estimator, f.Fits = r2, signal, r.estimator(), r.fits()
		}
		if signal == quell.CounterCPI && f.Estimator != nil {
			return // what the paper uses
		}
	}
	if f.Estimator == nil {
		f.leave("estimator", "the rate of requests, the use of the processors or every signal is the same in all windows")
	}
}

// averages makes the rows. Each has the mean use of the windows before it. For the first row after an onset these are without the
// interferer. Only there the previous use is far from the present one: while load and interference last, both follow from r and c, and
// their scatter alone would pull the coefficient of o to 0.
func (f *iceFit) averages() (list []averages) {
	for i := range f.rows {
		windows := f.rows[i].Windows
		for at := averaged; at+averaged <= len(windows); {
			group, before := windows[at:at+averaged], windows[at-averaged:at]
			if alone := slices.IndexFunc(group, withoutInterferer); alone >= 0 {
				at += alone + 1
				continue
			}
			mean, ok := averageOf(group)
			earlier, known := averageOf(before)
			if mean.previous = earlier.use; ok && known {
				list = append(list, mean)
			}
			at += averaged
		}
	}
	return list
}

func withoutInterferer(w TrainingWindow) bool { return w.Interfering == 0 }

// averageOf averages windows. It returns false if one has no use of the processors or no rate of requests.
func averageOf(group []TrainingWindow) (mean averages, ok bool) {
	mean.signals = map[string]float64{}
	part, counts := 1/float64(len(group)), map[string]int{}
	for i := range group {
		o := &group[i].Observation
		use, known := ProcessorsOf(o, 0)
		if !known || o.RequestRate == nil {
			return mean, false
		}
		mean.use += part * use.Busy()
		mean.rate += part * *o.RequestRate
		signals, _ := ICESignals(o, nil)
		for name, v := range signals {
			mean.signals[name] += part * v
			counts[name]++
		}
	}
	maps.DeleteFunc(mean.signals, func(name string, _ float64) bool { return counts[name] < len(group) })
	return mean, true
}

// withoutOutliers drops rows whose rate of requests is further than outlyingSpread interquartile ranges from the quartiles.
func withoutOutliers(rows []averages) []averages {
	if len(rows) == 0 {
		return nil
	}
	rates := make([]float64, len(rows))
	for i, r := range rows {
		rates[i] = r.rate
	}
	slices.Sort(rates)
	first, third := stat.Quantile(0.25, stat.Empirical, rates, nil), stat.Quantile(0.75, stat.Empirical, rates, nil)
	far := outlyingSpread * (third - first)
	return slices.DeleteFunc(slices.Clone(rows), func(a averages) bool { return a.rate < first-far || a.rate > third+far })
}

// regression is the fit of use to o, r and c, which are scaled to their ranges.
type regression struct {
	scales  EstimatorRange
	x       [][]float64 // o, r and c of each row
	y       []float64
	factors []float64 // of the last fit: first the constant
}

func newRegression(rows []averages, signal string) *regression {
	r := &regression{}
	var uses, rates, signals []float64
	for _, a := range rows {
		uses, rates, signals = append(uses, a.use, a.previous), append(rates, a.rate), append(signals, a.signals[signal])
	}
	of := func(values []float64) Range { return Range{floats.Min(values), floats.Max(values)} }
	r.scales = EstimatorRange{CPU: of(uses), Requests: of(rates), CPI: of(signals)}
	for _, a := range rows {
		r.x = append(r.x, []float64{r.scales.CPU.scaled(a.previous), r.scales.Requests.scaled(a.rate), r.scales.CPI.scaled(a.signals[signal])})
		r.y = append(r.y, r.scales.CPU.scaled(a.use))
	}
	return r
}

// fit fits a polynomial and returns its R². Without o, the polynomial is in r and c only. ok is false if the rows do not determine it.
func (r *regression) fit(degree int, withPrevious bool) (r2 float64, ok bool) {
	a := make([][]float64, len(r.x))
	for i, x := range r.x {
		if !withPrevious {
			x = x[1:]
		}
		a[i] = monomials(x, degree)
	}
	free := make([]int, len(a[0]))
	for j := range free {
		free[j] = j
	}
	factors, err := stats.LeastSquares(a, r.y, free...)
	if err != nil {
		return 0, false
	}
	r.factors = factors
	mean, left, total := stat.Mean(r.y, nil), 0.0, 0.0
	for i, y := range r.y {
		gap, off := y-floats.Dot(a[i], factors), y-mean
		left, total = left+gap*gap, total+off*off
	}
	if total == 0 {
		return 0, false
	}
	return 1 - left/total, true
}

// monomials returns all products of powers of the variables up to a degree, the constant first, then the variables.
func monomials(x []float64, degree int) []float64 {
	list, last := []float64{1}, [][]int{{}}
	for range degree {
		var next [][]int
		for _, of := range last {
			begin := 0
			if len(of) > 0 {
				begin = of[len(of)-1]
			}
			for j := begin; j < len(x); j++ {
				next = append(next, append(slices.Clone(of), j))
			}
		}
		for _, of := range next {
			product := 1.0
			for _, j := range of {
				product *= x[j]
			}
			list = append(list, product)
		}
		last = next
	}
	return list
}

// estimator returns the linear function.
func (r *regression) estimator() *Estimator {
	if _, ok := r.fit(1, true); !ok {
		return nil
	}
	return &Estimator{Intercept: r.factors[0], Previous: r.factors[1], Requests: r.factors[2], CPI: r.factors[3], Range: r.scales}
}

// fits compares the polynomials. A degree that the rows do not determine is left out.
func (r *regression) fits() (list []EstimatorFit) {
	for degree := 1; degree <= highestDegree; degree++ {
		with, ok := r.fit(degree, true)
		without, also := r.fit(degree, false)
		if ok && also {
			list = append(list, EstimatorFit{degree, with, without})
		}
	}
	return list
}
