package model

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/quellhq/quell"
)

// saturated is a total utilisation. Cells above it are not used for severity, because the resource is full and the response
// time depends on how the queue overflows.
const saturated = 0.97

// untested is a placeholder confidence, because cells are not tested for significance.
const untested = 0.5

// fitPrima makes the tables of every resource that has rows. It is an error if a resource has no row without interference.
func fitPrima(in fitting) (Section, SectionReport, error) {
	if len(in.rows) == 0 {
		return nil, nil, nil
	}
	p := &Prima{
		Isolation:    map[quell.Resource][]Isolation{},
		ResponseTime: map[quell.Resource][]ResponseTime{},
		Interference: map[quell.Resource][]Interference{},
	}
	var report PrimaReport
	for _, resource := range resourcesOf(in.rows) {
		part, err := p.fit(in, resource)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", resource, err)
		}
		report = append(report, part)
	}
	p.dropEmpty()
	return p, report, nil
}

// dropEmpty removes resources without rows.
func (p *Prima) dropEmpty() {
	if len(p.ResponseTime) == 0 {
		p.ResponseTime = nil
	}
	if len(p.Interference) == 0 {
		p.Interference = nil
	}
}

// fit adds the tables of one resource.
func (p *Prima) fit(in fitting, resource quell.Resource) (ResourceReport, error) {
	rows := ofResource(in.rows, resource)
	levels, err := groupLevels(rows)
	if err != nil {
		return ResourceReport{}, err
	}
	report := ResourceReport{Resource: resource, Rows: len(rows), Levels: len(levels)}
	isolation := isolationTable(levels)
	if len(isolation) == 0 {
		return report, fmt.Errorf("no training row has interfering 0, so the probe time alone is unknown: %w", quell.ErrNoData)
	}
	if resource == quell.CPU {
		report.Waits = inferByWaits(isolation, levels)
	}
	p.Isolation[resource] = isolation
	baseline := newBaseline(isolation, untested)
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
		p.ResponseTime[resource] = response
	}
	if len(interference) > 0 {
		p.Interference[resource] = interference
	}
	if in.Unscored {
		return report, nil
	}
	if report.Errors = measure(response, in.Metric, interference); report.Errors != (Errors{}) {
		quell.Put(&in.trained.Errors, resource, report.Errors)
	}
	return report, nil
}

func isolationTable(levels []*level) []Isolation {
	var out []Isolation
	for _, l := range levels {
		alone := l.alone()
		if alone == nil {
			continue
		}
		probes := alone.probes()
		out = append(out, Isolation{
			Utilization: l.utilization, ProbeMS: probes.Mean, StddevMS: probes.Stddev, N: probes.N, Runs: len(alone.rows),
		})
	}
	return out
}

const (
	// waitsTrusted is the largest mean difference between the neighbours' use that is inferred from waiting and their real use with which
	// the inference is relied on.
	waitsTrusted = 0.1
	// waitsTried is the smallest number of cells with neighbours that must show it.
	waitsTried = 4
	// worksEnough is the least own use with which tasks wait often enough for an inference from one window.
	worksEnough = 0.1
)

// inferByWaits compares what NeighboursUse infers in the runs beside neighbours with their real use. It returns the mean difference; nil if
// runs do not say how long tasks waited. If the difference is small, it sets in every row of the table what is inferred without neighbours.
func inferByWaits(table []Isolation, levels []*level) (meanError *float64) {
	var alone []*float64
	var errs []float64
	for _, l := range levels {
		if l.alone() == nil {
			continue
		}
		usual, off, known := l.waits()
		if !known {
			return nil
		}
		alone, errs = append(alone, &usual), append(errs, off...)
	}
	if len(errs) < waitsTried {
		return nil
	}
	meanError = new(stat.Mean(errs, nil))
	if *meanError > waitsTrusted {
		return meanError
	}
	for i := range table {
		table[i].Waits = alone[i]
	}
	return meanError
}

// waits returns what NeighboursUse infers without neighbours at a level that has such runs, and how wrong it is in each cell with
// neighbours. It returns false if a cell does not say how long tasks waited.
func (l *level) waits() (usual float64, errs []float64, known bool) {
	if usual, known = l.alone().waits(); !known {
		return 0, nil, false
	}
	for i := range l.cells {
		c := &l.cells[i]
		if c.isolated || l.utilization < worksEnough {
			continue
		}
		inferred, known := c.waits()
		if !known {
			return 0, nil, false
		}
		errs = append(errs, math.Abs(inferred-usual-c.interfering))
	}
	return usual, errs, true
}

// waits returns the mean of what NeighboursUse infers for the runs that report how long tasks waited.
func (c *cell) waits() (mean float64, known bool) {
	var inferred []float64
	for _, r := range c.rows {
		if share, ok := NeighboursUse(r.Observation); ok {
			inferred = append(inferred, share)
		}
	}
	return stat.Mean(inferred, nil), len(inferred) > 0
}
