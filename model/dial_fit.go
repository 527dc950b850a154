package model

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// Constants of the fit.
const (
	detectConfidence = 0.95 // confidence that a window of an undisturbed instance stays below the bound
	minQueueing      = 4    // least number of rows from which the coefficients of Eq. 1 are fitted
	minUses          = 3    // least number of different uses in these rows
	minSamples       = 10   // least number of samples for the classifier
	leafSamples      = 3
	dialFolds        = 10
	dialSeed         = 1
	byClassGain      = 0.8 // classes are fitted separately if that lowers the residual variance to at most this fraction
)

// dialFit is the state of the fit of DIAL's section.
type dialFit struct {
	Dial
	rows, calm []TrainingRow // rows: those with an observation and a p90; calm: those of rows without interference
	report     DialReport
}

// fitDial fits DIAL's section to the rows that have the measurements that its classifier uses. If no row has them, it returns no section.
func fitDial(in fitting) (Section, SectionReport, error) {
	var f dialFit
	for _, r := range in.rows {
		if _, ok := p90Of(&r); !ok || r.Observation == nil || !tells(r.Observation) {
			continue
		}
		if f.rows = append(f.rows, r); r.isolated() {
			f.calm = append(f.calm, r)
		}
	}
	if len(f.rows) == 0 {
		return nil, nil, nil
	}
	f.report.Rows, f.report.Calm = len(f.rows), len(f.calm)
	f.peakRate()
	f.tail()
	f.detection()
	f.expectations()
	f.curves()
	f.queueing()
	if err := f.classifier(in.Unscored); err != nil {
		return nil, nil, fmt.Errorf("dial: %w", err)
	}
	f.report.Dial = &f.Dial
	return &f.Dial, &f.report, nil
}

// tells returns whether an observation has the measurements that the classifier uses.
func tells(o *quell.Observation) bool {
	_, retransmits := o.TCP[retransmitRate]
	_, connects := o.TCP[connectP90]
	_, queues := waits(o.Sched)
	return o.CPU != nil || retransmits || connects || queues
}

func p90Of(r *TrainingRow) (float64, bool) {
	ms, ok := r.LatencyMS.Of(quell.P90)
	return ms, ok && ms > 0
}

// peakRate finds the resource that requests fill first, and the rate at which it is full.
func (f *dialFit) peakRate() {
	most := 0.0
	for _, resource := range quell.Resources {
		var rates, uses []float64
		for _, r := range f.calm {
			if use, ok := useOf(&r, resource); ok && r.RequestRate > 0 {
				rates, uses = append(rates, r.RequestRate), append(uses, use)
			}
		}
		if len(rates) > 0 {
			_, slope := stat.LinearRegression(rates, uses, nil, true)
			most = math.Max(most, slope)
		}
	}
	switch peak := 1 / most; {
	case most <= 0:
		f.leave("peak_rate", "no calm row has requests and a utilization")
	case !(peak >= minPeak && peak <= maxValue):
		f.leave("peak_rate", fmt.Sprintf("%.4g requests per second would fill an instance; check request_rate and utilization", peak))
	default:
		f.PeakRate = peak
	}
}

func (f *dialFit) leave(part, why string) { f.report.Missing = append(f.report.Missing, part+": "+why) }

// useOf returns the instance's own use of a resource, and whether it is known.
func useOf(r *TrainingRow, resource quell.Resource) (float64, bool) {
	if r.Resource == resource {
		return r.Utilization, true
	}
	use, ok := r.Observation.Utilization[resource]
	return use, ok
}

// felt returns whether the response times of a row are clearly above one of their bounds, so that chance hardly makes a row a sample of
// interference that it did not feel. Where it is not known how many requests there were, that the p90 is above its bound must do.
func (f *dialFit) felt(r *TrainingRow) bool {
	if r.Observation.LatencyMS == nil {
		ms, _ := p90Of(r)
		return ms > f.Bounds(r.RequestRate).All
	}
	return slices.ContainsFunc(f.Exceeded(r.Observation, r.RequestRate), func(e Excess) bool { return e.Clear })
}

// classifier fits the tree. Rows without interference have the class NotContended. Rows with interference have the class of their resource,
// and are used only if the instance was slower because of it.
func (f *dialFit) classifier(unscored bool) error {
	var samples []stats.Sample
	var classes []string
	for _, r := range f.rows {
		class := string(r.Resource)
		if r.isolated() {
			class = NotContended
		} else if !f.felt(&r) {
			f.report.Unfelt++
			continue
		}
		samples = append(samples, stats.Sample{Features: f.Features(r.Observation), Class: class})
		classes = append(classes, class)
	}
	if len(samples) < minSamples || len(slices.Compact(slices.Sorted(slices.Values(classes)))) < 2 {
		f.leave("classifier", fmt.Sprintf("%d rows are calm, or slowed by interference; at least %d of both kinds are needed",
			len(samples), minSamples))
		return nil
	}
	fit := func(samples []stats.Sample) (*stats.Tree, error) {
		return stats.FitTree(samples, stats.TreeOptions{Criterion: stats.GainRatio, MinLeaf: leafSamples,
			Folds: min(dialFolds, len(samples)), Seed: dialSeed})
	}
	var err error
	if f.Classifier, err = fit(samples); err != nil || unscored {
		return err
	}
	folds, err := stats.StratifiedFolds(classes, min(dialFolds, len(samples)), 1, dialSeed)
	if err != nil {
		return err
	}
	f.Validated, err = stats.CrossValidate(samples, folds, fit)
	return err
}
