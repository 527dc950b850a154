package model

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quellhq/quell"
)

// describe prints for each resource the range of its tables, the isolation table, and capacities at several severities and utilisations.
func (s *Prima) describe(d *describer) error {
	for _, r := range quell.Resources {
		if len(s.Isolation[r])+len(s.ResponseTime[r])+len(s.Interference[r]) == 0 {
			continue
		}
		if err := s.describeResource(d, r); err != nil {
			return fmt.Errorf("describing models of %s: %w", r, err)
		}
	}
	return nil
}

func (s *Prima) describeResource(d *describer, r quell.Resource) error {
	d.printf("\n%s\n", strings.ToUpper(string(r)))
	s.describeDomain(d, r)
	if t := d.models.Trained; t != nil {
		if use, ok := t.PerRequest[r]; ok {
			d.printf("one request per second uses %.3g%% of an instance\n", 100*use)
		}
		if by, ok := t.By[r]; ok {
			d.printf("probed with %s, %d times in %gs\n", by.Size(), by.Count, by.PeriodS)
		}
		if e, ok := t.Errors[r]; ok {
			e.write(&d.out, t.Metric)
		}
	}
	s.describeIsolation(d, r)
	for _, model := range []quell.InterferenceModel{quell.Joint, quell.Total} {
		p, err := Compile(d.models, Spec{Resource: r, Metric: d.options.Metric, InterferenceModel: model, Confidence: 0.95})
		switch {
		case errors.Is(err, quell.ErrNoData):
			d.printf("\nno capacity by the %s model: %v\n", model, err)
		case err != nil:
			return err
		default:
			d.capacities(p, model)
		}
	}
	return nil
}

// describeDomain prints the range of the tables.
func (s *Prima) describeDomain(d *describer, r quell.Resource) {
	var use, severity, interfering extent
	for _, row := range s.ResponseTime[r] {
		use.add(row.Utilization)
		severity.add(row.Severity)
	}
	if use.n > 0 {
		d.printf("response time: %d rows, utilization %s, severity %s\n", use.n, use, severity)
	}
	use, severity = extent{}, extent{}
	for _, row := range s.Interference[r] {
		use.add(row.Utilization)
		severity.add(row.Severity)
		interfering.add(row.Interfering)
	}
	if use.n > 0 {
		d.printf("interference: %d rows, utilization %s, interfering %s, severity %s\n", use.n, use, interfering, severity)
	}
}

// extent is the range of n values.
type extent struct {
	low, high float64
	n         int
}

func (e *extent) add(v float64) {
	if e.n == 0 {
		e.low, e.high = v, v
	}
	e.low, e.high, e.n = min(e.low, v), max(e.high, v), e.n+1
}

func (e extent) String() string { return fmt.Sprintf("%.3g to %.3g", e.low, e.high) }

func (s *Prima) describeIsolation(d *describer, r quell.Resource) {
	if len(s.Isolation[r]) == 0 {
		return
	}
	d.printf("\nprobe of an instance alone\n")
	rows := []string{"utilization\tprobe ms\tstddev ms\tprobes\truns"}
	for _, row := range s.Isolation[r] {
		rows = append(rows, fmt.Sprintf("%.3f\t%.3f\t%.3f\t%d\t%d", row.Utilization, row.ProbeMS, row.StddevMS, row.N, max(row.Runs, 1)))
	}
	d.table(rows)
}

// The grid on which capacities are shown.
var (
	shownSeverities   = []float64{0, 0.1, 0.25, 0.5, 1, 2, 4}
	shownUtilizations = []float64{0.1, 0.3, 0.5, 0.7}
)

// thresholds returns the thresholds that were requested or, if there are none, some that fit the trained range.
func (o ShowOptions) thresholds(p *Predictor) []float64 {
	if len(o.ThresholdsMS) > 0 {
		return o.ThresholdsMS
	}
	least := p.ResponseTime(0, 0)
	return []float64{1.5 * least, 2.5 * least, 4 * least}
}

func (d *describer) capacities(p *Predictor, model quell.InterferenceModel) {
	for _, ms := range d.options.thresholds(p) {
		d.printf("\neffective capacity, %s model, %s response time within %.4g ms\n", model, d.options.Metric, ms)
		header := "severity"
		for _, u := range shownUtilizations {
			header += fmt.Sprintf("\tfelt at %.1f", u)
		}
		rows := []string{header}
		for _, sf := range shownSeverities {
			row := fmt.Sprintf("%.2f", sf)
			for _, u := range shownUtilizations {
				row += fmt.Sprintf("\t%.3f", p.Capacity(p.Interfering(u, sf), ms))
			}
			rows = append(rows, row)
		}
		d.table(rows)
	}
}
