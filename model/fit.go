package model

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
)

// FitOptions configure a fit.
type FitOptions struct {
	Service      string
	InstanceType string
	Metric       quell.Metric // the statistic whose errors are measured; the models keep every statistic of the rows
	At           time.Time
	Unscored     bool // leaves the errors out, because measuring them needs a fit for each cell
}

// Fit makes models from training runs, with a report about their quality. Errors are of type *quell.UserError. It is an
// error if a row is invalid, if a resource has no row without interference, or if no row has the metric. The latter two
// errors wrap quell.ErrNoData.
func Fit(rows []TrainingRow, o FitOptions) (*Models, *Report, error) {
	if err := checkRows(rows, o.Metric); err != nil {
		return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %w", err)}
	}
	m := &Models{Trained: &Trained{At: o.At, Service: o.Service, InstanceType: o.InstanceType, Metric: o.Metric, Rows: len(rows)}}
	report := &Report{Service: o.Service, Metric: o.Metric, Rows: len(rows)}
	steady, alternating := apart(rows)
	for _, resource := range resourcesOf(steady) {
		if err := m.Trained.note(resource, ofResource(steady, resource)); err != nil {
			return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %s: %w", resource, err)}
		}
	}
	for _, k := range kinds {
		section, part, err := k.fit(fitting{FitOptions: o, rows: steady, alternating: alternating, trained: m.Trained})
		if err != nil {
			return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %w", err)}
		}
		if section != nil {
			m.Sections = append(m.Sections, section)
		}
		if part != nil {
			report.Sections = append(report.Sections, part)
		}
	}
	if err := m.Validate(); err != nil {
		return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %w", err)}
	}
	return m, report, nil
}

// apart divides rows into runs under constant conditions, and runs in which the interferer came and went. The means of the latter say
// nothing about either condition.
func apart(rows []TrainingRow) (steady, alternating []TrainingRow) {
	for _, r := range rows {
		if len(r.Windows) > 0 {
			alternating = append(alternating, r)
		} else {
			steady = append(steady, r)
		}
	}
	return steady, alternating
}

func checkRows(rows []TrainingRow, metric quell.Metric) error {
	if !slices.Contains(quell.Metrics, metric) {
		return &quell.InvalidError{Path: "metric", Problem: fmt.Sprintf("unknown metric %q", metric)}
	}
	if len(rows) == 0 {
		return fmt.Errorf("no training rows: %w", quell.ErrNoData)
	}
	var errs []error
	for i := range rows {
		if err := rows[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("row %d: %w", i+1, err))
		}
	}
	hasMetric := slices.ContainsFunc(rows, func(r TrainingRow) bool { _, ok := r.LatencyMS.Of(metric); return ok })
	if len(errs) == 0 && !hasMetric {
		return fmt.Errorf("no training row has latency_ms.%s: %w", metric, quell.ErrNoData)
	}
	return errors.Join(errs...)
}

func resourcesOf(rows []TrainingRow) []quell.Resource {
	seen := map[quell.Resource]bool{}
	for _, r := range rows {
		seen[r.Resource] = true
	}
	return sortedKeys(seen)
}

func ofResource(rows []TrainingRow, resource quell.Resource) []TrainingRow {
	return slices.DeleteFunc(slices.Clone(rows), func(r TrainingRow) bool { return r.Resource != resource })
}

// note records how the rows of a resource were probed, and how much of the resource a request uses.
func (t *Trained) note(resource quell.Resource, rows []TrainingRow) error {
	by, err := probingOf(rows)
	if err != nil {
		return err
	}
	if by != nil {
		quell.Put(&t.By, resource, *by)
	}
	if use := usePerRequest(rows); use > 0 {
		quell.Put(&t.PerRequest, resource, use)
	}
	return nil
}

// probingOf returns how the rows were probed, or nil if no row says so. It is an error if they were probed in different ways, because
// then one machine has different probe times.
func probingOf(rows []TrainingRow) (by *quell.Probing, err error) {
	for i := range rows {
		switch row := &rows[i]; {
		case row.By == nil:
		case by == nil:
			by = row.By
		case !by.Alike(row.By):
			return nil, fmt.Errorf("some rows were probed with %s, others with %s: fit the rows of one training", by.Size(), row.By.Size())
		}
	}
	return by, nil
}

// usePerRequest returns the slope of utilisation over request rate through the origin, from rows without interference. Rows
// with interference are not used, because a saturated resource carries less than requested. It is 0 if there was no traffic.
func usePerRequest(rows []TrainingRow) float64 {
	var rates, uses []float64
	for _, r := range rows {
		if r.isolated() && r.RequestRate > 0 {
			rates, uses = append(rates, r.RequestRate), append(uses, r.Utilization)
		}
	}
	if len(rates) == 0 {
		return 0
	}
	_, slope := stat.LinearRegression(rates, uses, nil, true)
	return slope
}
