package model

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quellhq/quell"
)

// DescribeOptions says how capacities are shown. The zero value shows them for the metric the models were trained
// for, both interference models, and thresholds of 1.5, 2.5 and 4 times the least trained response time.
type DescribeOptions struct {
	Metric       quell.Metric
	ThresholdsMS []float64
}

// Describe prints the models for people: where they come from, and for each resource its domain, its isolation
// table and the capacity that follows from a severity felt at a utilization.
func Describe(w io.Writer, m *Models, o DescribeOptions) error {
	if o.Metric == "" {
		o.Metric = quell.Mean
		if m.Trained != nil && m.Trained.Metric != "" {
			o.Metric = m.Trained.Metric
		}
	}
	d := describer{models: m, options: o}
	d.origin()
	for _, r := range quell.Resources {
		if len(m.Isolation[r])+len(m.ResponseTime[r])+len(m.Interference[r]) == 0 {
			continue
		}
		if err := d.resource(r); err != nil {
			return fmt.Errorf("describing models of %s: %w", r, err)
		}
	}
	_, err := io.WriteString(w, d.out.String())
	return err
}

type describer struct {
	models  *Models
	options DescribeOptions
	out     strings.Builder
}

func (d *describer) printf(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

// table prints rows of tab-separated cells in aligned columns.
func (d *describer) table(rows []string) {
	t := tabwriter.NewWriter(&d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, row+"\t")
	}
	t.Flush()
}

func (d *describer) origin() {
	t := d.models.Trained
	if t == nil {
		d.printf("origin unknown\n")
		return
	}
	parts := []string{"service " + orUnknown(t.Service), "instance type " + orUnknown(t.InstanceType)}
	if !t.At.IsZero() {
		parts = append(parts, "trained "+t.At.UTC().Format(time.RFC3339))
	}
	if t.Rows > 0 {
		parts = append(parts, fmt.Sprintf("from %d runs", t.Rows))
	}
	d.printf("%s\n", strings.Join(parts, ", "))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func (d *describer) resource(r quell.Resource) error {
	d.printf("\n%s\n", strings.ToUpper(string(r)))
	d.domain(r)
	if t := d.models.Trained; t != nil {
		if use, ok := t.PerRequest[r]; ok {
			d.printf("one request per second uses %.3g%% of an instance\n", 100*use)
		}
		if by, ok := t.By[r]; ok {
			d.printf("probed with %d bytes, %d times in %gs\n", by.Bytes, by.Count, by.PeriodS)
		}
		if e, ok := t.Errors[r]; ok {
			e.write(&d.out, t.Metric)
		}
	}
	d.isolation(r)
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

// domain prints what the tables span.
func (d *describer) domain(r quell.Resource) {
	var use, severity, interfering extent
	for _, row := range d.models.ResponseTime[r] {
		use.add(row.Utilization)
		severity.add(row.Severity)
	}
	if use.n > 0 {
		d.printf("response time: %d rows, utilization %s, severity %s\n", use.n, use, severity)
	}
	use, severity = extent{}, extent{}
	for _, row := range d.models.Interference[r] {
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

func (d *describer) isolation(r quell.Resource) {
	if len(d.models.Isolation[r]) == 0 {
		return
	}
	d.printf("\nprobe of an instance alone\n")
	rows := []string{"utilization\tprobe ms\tstddev ms\tprobes\truns"}
	for _, row := range d.models.Isolation[r] {
		rows = append(rows, fmt.Sprintf("%.3f\t%.3f\t%.3f\t%d\t%d", row.Utilization, row.ProbeMS, row.StddevMS, row.N, max(row.Runs, 1)))
	}
	d.table(rows)
}

// The grid on which capacities are shown.
var (
	shownSeverities   = []float64{0, 0.1, 0.25, 0.5, 1, 2, 4}
	shownUtilizations = []float64{0.1, 0.3, 0.5, 0.7}
)

func (d *describer) capacities(p *Predictor, model quell.InterferenceModel) {
	thresholds := d.options.ThresholdsMS
	if len(thresholds) == 0 {
		least := p.ResponseTime(0, 0)
		thresholds = []float64{1.5 * least, 2.5 * least, 4 * least}
	}
	for _, ms := range thresholds {
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
