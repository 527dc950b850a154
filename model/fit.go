package model

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
)

// FitOptions says what the models are of.
type FitOptions struct {
	Service      string
	InstanceType string
	Metric       quell.Metric // what errors are measured on; every statistic that the rows have is kept
	At           time.Time
	Unscored     bool // leaves the errors out: measuring them costs a fit for each cell
}

// saturated is the total utilisation from which on a cell says nothing about severity: the resource is full, and
// what is felt depends on how the queue overflows.
const saturated = 0.97

// Fit makes models from training runs, with a report of how good they are. Rows that break a rule, a resource
// without a row of interfering 0, and a metric that no row has are errors (*quell.UserError, the latter two
// wrapping quell.ErrNoData).
func Fit(rows []TrainingRow, o FitOptions) (*Models, *Report, error) {
	if err := checkRows(rows, o.Metric); err != nil {
		return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %w", err)}
	}
	m := &Models{
		Trained:      &Trained{At: o.At, Service: o.Service, InstanceType: o.InstanceType, Metric: o.Metric, Rows: len(rows)},
		Isolation:    map[quell.Resource][]Isolation{},
		ResponseTime: map[quell.Resource][]ResponseTime{},
		Interference: map[quell.Resource][]Interference{},
	}
	report := &Report{Service: o.Service, Metric: o.Metric, Rows: len(rows)}
	for _, resource := range resourcesOf(rows) {
		part, err := m.fitResource(resource, ofResource(rows, resource), o.Unscored)
		if err != nil {
			return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %s: %w", resource, err)}
		}
		report.Resources = append(report.Resources, part)
	}
	m.dropEmpty()
	if err := m.Validate(); err != nil {
		return nil, nil, &quell.UserError{Err: fmt.Errorf("fitting models: %w", err)}
	}
	return m, report, nil
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

// dropEmpty leaves out what has no rows.
func (m *Models) dropEmpty() {
	if len(m.ResponseTime) == 0 {
		m.ResponseTime = nil
	}
	if len(m.Interference) == 0 {
		m.Interference = nil
	}
}

// fitResource adds the tables of one resource.
func (m *Models) fitResource(resource quell.Resource, rows []TrainingRow, unscored bool) (ResourceReport, error) {
	if err := m.noteProbing(resource, rows); err != nil {
		return ResourceReport{}, err
	}
	levels, err := groupLevels(rows)
	if err != nil {
		return ResourceReport{}, err
	}
	report := ResourceReport{Resource: resource, Rows: len(rows), Levels: len(levels)}
	isolation := isolationTable(levels)
	if len(isolation) == 0 {
		return report, fmt.Errorf("no training row has interfering 0, so the probe time alone is unknown: %w", quell.ErrNoData)
	}
	m.Isolation[resource] = isolation
	// The quantile is not used, and 0.5 costs nothing: cells are not tested for significance.
	baseline, err := CompileBaseline(m, resource, 0.5)
	if err != nil {
		return report, err
	}
	var response []ResponseTime
	var interference []Interference
	for _, l := range levels {
		l.feel(baseline)
		response = append(response, l.responseRows()...)
		kept := l.interferenceRows()
		interference = append(interference, kept...)
		report.Cells += len(l.cells)
		report.Saturated += l.interfered() - len(kept)
		report.NotConverged = append(report.NotConverged, l.notConverged()...)
	}
	if len(response) > 0 {
		m.ResponseTime[resource] = response
	}
	if len(interference) > 0 {
		m.Interference[resource] = interference
	}
	if !unscored {
		report.Errors = measure(response, m.Trained.Metric, interference)
	}
	m.note(resource, rows, report.Errors)
	return report, nil
}

// noteProbing writes down how the rows were probed. Rows that were probed in different ways tell different probe times of one
// machine, so they make no models together.
func (m *Models) noteProbing(resource quell.Resource, rows []TrainingRow) error {
	var by *quell.Probing
	for i := range rows {
		switch row := &rows[i]; {
		case row.By == nil:
		case by == nil:
			by = row.By
		case !by.Alike(row.By):
			return fmt.Errorf("some rows were probed with %d bytes, others with %d: fit the rows of one training", by.Bytes, row.By.Bytes)
		}
	}
	if by == nil {
		return nil
	}
	if m.Trained.By == nil {
		m.Trained.By = map[quell.Resource]quell.Probing{}
	}
	m.Trained.By[resource] = *by
	return nil
}

// note writes what is known of the resource besides its tables.
func (m *Models) note(resource quell.Resource, rows []TrainingRow, e Errors) {
	if use := usePerRequest(rows); use > 0 {
		if m.Trained.PerRequest == nil {
			m.Trained.PerRequest = map[quell.Resource]float64{}
		}
		m.Trained.PerRequest[resource] = use
	}
	if e != (Errors{}) {
		if m.Trained.Errors == nil {
			m.Trained.Errors = map[quell.Resource]Errors{}
		}
		m.Trained.Errors[resource] = e
	}
}

// usePerRequest is the slope of utilisation on request rate through the origin, over isolation rows: interference
// would not change it, but a saturated resource carries less than is asked of it. 0 if there was no traffic.
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

func isolationTable(levels []*level) []Isolation {
	var out []Isolation
	for _, l := range levels {
		i := slices.IndexFunc(l.cells, func(c cell) bool { return c.isolated })
		if i < 0 {
			continue
		}
		probes := l.cells[i].probes()
		out = append(out, Isolation{
			Utilization: l.utilization, ProbeMS: probes.Mean, StddevMS: probes.Stddev, N: probes.N, Runs: len(l.cells[i].rows),
		})
	}
	return out
}
