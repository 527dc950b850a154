package model

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// curves fits the features that grow with the own use of a resource to the calm rows. Their ratios need their usual values, and have usual
// values themselves.
func (f *dialFit) curves() {
	f.usual()
	defer f.usual()
	values := make([]map[string]float64, len(f.calm))
	for i, r := range f.calm {
		values[i] = f.Features(r.Observation)
	}
	for _, c := range curves {
		var points []point
		for i, r := range f.calm {
			use, known := useOf(&r, c.over)
			if v := values[i][c.feature]; known && v > 0 {
				points = append(points, point{x: use, y: v})
			}
		}
		q, ok := fitQueueing(points, true)
		if !ok || slices.ContainsFunc(points, func(p point) bool { return q.MS(p.x) <= 0 }) {
			continue // it is used as it was measured
		}
		quell.Put(&f.Curves, c.feature, q)
	}
}

// usual keeps the mean values of the features in the calm rows.
func (f *dialFit) usual() {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, r := range f.calm {
		for name, v := range f.Features(r.Observation) {
			sums[name], counts[name] = sums[name]+v, counts[name]+1
		}
	}
	for name, sum := range sums {
		quell.Put(&f.Usual, name, sum/counts[name])
	}
}

// expectations fits the processor times of undisturbed machines to their requests.
func (f *dialFit) expectations() {
	calm := slices.DeleteFunc(slices.Clone(f.calm), contradictory)
	if n := len(f.calm) - len(calm); n > 0 {
		f.leave("expected", fmt.Sprintf("%d calm rows have requests of classes but a request_rate of 0; they are not used", n))
	}
	for _, name := range dialExpectations {
		var rows []TrainingRow
		var uses []float64
		for _, r := range calm {
			switch c := r.Observation.CPU; {
			case c == nil:
			case name == expectedUser:
				rows, uses = append(rows, r), append(uses, c.User)
			default:
				rows, uses = append(rows, r), append(uses, c.System)
			}
		}
		e, ok := expect(rows, uses)
		if !ok {
			f.leave("expected."+name, "too few calm rows with processor times")
			continue
		}
		var c check
		if c.expected("expected."+name, name, e); len(c.errs) > 0 {
			f.report.Missing = append(f.report.Missing, c.errs[0].Error())
			continue
		}
		quell.Put(&f.Expected, name, e)
	}
}

// contradictory returns whether a row has requests by class but none in total.
func contradictory(r TrainingRow) bool {
	for _, rate := range r.Observation.RequestRates {
		if rate > 0 && r.RequestRate == 0 {
			return true
		}
	}
	return false
}

// expect fits uses to the rates of requests. It fits each class separately if that explains clearly more than their sum does.
func expect(rows []TrainingRow, uses []float64) (Expected, bool) {
	total, left, ok := regress(rows, uses, nil)
	if !ok {
		return Expected{}, false
	}
	mix, requests := map[string]float64{}, 0.0
	for _, r := range rows {
		requests += r.RequestRate
		for class, rate := range r.Observation.RequestRates {
			mix[class] += rate
		}
	}
	classes := sortedKeys(mix)
	if len(classes) < 2 || requests == 0 {
		return total, true
	}
	by, leftBy, ok := regress(rows, uses, classes)
	if !ok || leftBy >= byClassGain*left {
		return total, true
	}
	if _, told := by.PerRequest[OtherClasses]; !told { // a class without training costs what a request cost in training
		for _, class := range classes {
			by.PerRequest[OtherClasses] += by.PerRequest[class] * mix[class] / requests
		}
	}
	return by, true
}

// regress fits uses to the rates of each class and to the rate of requests without a class. left is the residual variance.
func regress(rows []TrainingRow, uses []float64, classes []string) (e Expected, left float64, ok bool) {
	a, others := make([][]float64, len(rows)), 0.0
	for i, r := range rows {
		rest := r.RequestRate
		a[i] = []float64{1}
		for _, class := range classes {
			a[i] = append(a[i], r.Observation.RequestRates[class])
			rest -= r.Observation.RequestRates[class]
		}
		a[i] = append(a[i], math.Max(rest, 0))
		others = math.Max(others, rest/math.Max(r.RequestRate, math.SmallestNonzeroFloat64))
	}
	columns := len(classes) + 2
	if len(rows) <= columns {
		return e, 0, false
	}
	x, err := stats.LeastSquares(a, uses)
	if err != nil {
		return e, 0, false
	}
	e = Expected{Intercept: x[0], PerRequest: map[string]float64{}}
	for j, class := range classes {
		e.PerRequest[class] = x[1+j]
	}
	if others > 1e-6 || len(classes) == 0 {
		e.PerRequest[OtherClasses] = x[columns-1]
	}
	for i := range a {
		gap := uses[i] - floats.Dot(a[i], x)
		left += gap * gap
	}
	return e, left / float64(len(rows)-columns), true
}
