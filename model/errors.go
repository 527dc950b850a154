package model

import (
	"math"
	"slices"

	"github.com/quellhq/quell"
)

// Errors are the models' errors in a cross-validation: each cell (a level of utilisation under one interference) is left out
// once, the model is fitted to the other cells, and the cell is predicted. Only cells within the range of the other cells of
// their level are predicted; both interference models predict the same ones. A model is nil if no cell could be predicted.
type Errors struct {
	ResponseTime *ModelError `json:"response_time,omitempty"`
	Total        *ModelError `json:"total,omitempty"`
	Joint        *ModelError `json:"joint,omitempty"`
}

// ModelError summarises the errors of one model. Relative errors are errors of the response time. For interference models
// they are errors of the probe time, 1 + SF in units of R_iso, because severity may be 0. Severity errors are differences of SF.
type ModelError struct {
	Cells        int      `json:"cells"` // number of predicted cells
	Skipped      int      `json:"skipped,omitempty"`
	MeanRelative float64  `json:"mean_relative"`
	MaxRelative  float64  `json:"max_relative"`
	MeanSeverity *float64 `json:"mean_severity,omitempty"`
	MaxSeverity  *float64 `json:"max_severity,omitempty"`
}

// measure computes the models' errors for one resource from its tables.
func measure(response []ResponseTime, metric quell.Metric, interference []Interference) Errors {
	return Errors{
		ResponseTime: responseErrors(response, metric),
		Total:        interferenceErrors(interference, totalPrediction),
		Joint:        interferenceErrors(interference, jointPrediction),
	}
}

func responseErrors(rows []ResponseTime, metric quell.Metric) *ModelError {
	var a account
	for i, r := range rows {
		actual, ok := r.LatencyMS.Of(metric)
		if !ok || actual == 0 {
			continue
		}
		others := without(rows, i)
		inside := spanned(r.Severity, severitiesAt(others, r.Utilization, metric))
		if !inside {
			a.skipped++
			continue
		}
		a.add(responseSurface(others, metric).at(r.Utilization, r.Severity)-actual, actual)
	}
	return a.sum(false)
}

func severitiesAt(rows []ResponseTime, u float64, metric quell.Metric) []float64 {
	var out []float64
	for _, r := range rows {
		if _, ok := r.LatencyMS.Of(metric); ok && r.Utilization == u {
			out = append(out, r.Severity)
		}
	}
	return out
}

func interferenceErrors(rows []Interference, predict func([]Interference, Interference) (float64, bool)) *ModelError {
	var a account
	for i, r := range rows {
		others := without(rows, i)
		span := []float64{0} // without interference, every level has severity 0
		for _, o := range others {
			if o.Utilization == r.Utilization {
				span = append(span, o.Interfering)
			}
		}
		sf, ok := predict(others, r)
		if !ok || !spanned(r.Interfering, span) {
			a.skipped++
			continue
		}
		a.add(sf-r.Severity, 1+r.Severity)
	}
	return a.sum(true)
}

func totalPrediction(others []Interference, r Interference) (float64, bool) {
	c := totalCurve(others)
	if c == nil {
		return 0, false
	}
	return c.at(r.Utilization + r.Interfering), true
}

func jointPrediction(others []Interference, r Interference) (float64, bool) {
	if len(others) == 0 {
		return 0, false
	}
	return jointSurface(others).at(r.Utilization, r.Interfering), true
}

func without[R any](rows []R, i int) []R { return slices.Concat(rows[:i], rows[i+1:]) }

// spanned returns whether x is between the lowest and the highest of the values.
func spanned(x float64, values []float64) bool {
	return len(values) > 0 && x >= slices.Min(values) && x <= slices.Max(values)
}

// account adds up errors.
type account struct {
	cells, skipped            int
	relative, largestRelative float64
	absolute, largestAbsolute float64
}

func (a *account) add(err, of float64) {
	err = math.Abs(err)
	a.cells++
	a.relative += err / of
	a.largestRelative = max(a.largestRelative, err/of)
	a.absolute += err
	a.largestAbsolute = max(a.largestAbsolute, err)
}

func (a *account) sum(severity bool) *ModelError {
	if a.cells == 0 {
		return nil
	}
	n := float64(a.cells)
	e := &ModelError{Cells: a.cells, Skipped: a.skipped, MeanRelative: a.relative / n, MaxRelative: a.largestRelative}
	if severity {
		mean, largest := a.absolute/n, a.largestAbsolute
		e.MeanSeverity, e.MaxSeverity = &mean, &largest
	}
	return e
}
