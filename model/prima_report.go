package model

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/quellhq/quell"
)

// PrimaReport describes the quality of PRIMA's tables by resource.
type PrimaReport []ResourceReport

// Prima returns the report's part about PRIMA's tables.
func (r *Report) Prima() PrimaReport {
	for _, part := range r.Sections {
		if prima, ok := part.(PrimaReport); ok {
			return prima
		}
	}
	return nil
}

// ResourceReport is the part of a report about one resource.
type ResourceReport struct {
	Resource     quell.Resource
	Rows         int
	Levels       int
	Cells        int
	Saturated    int // number of cells left out of the interference models, because the resource was full
	Errors       Errors
	NotConverged []Cell
	Waits        *float64 // mean error of the neighbours' use that is inferred from waiting; nil: not measured
}

// Cell is the training runs of one level of utilisation under one level of interference.
type Cell struct {
	Level       float64
	Interfering float64
}

func (r PrimaReport) write(b *strings.Builder, metric quell.Metric) {
	for i := range r {
		if i > 0 {
			b.WriteByte('\n')
		}
		r[i].write(b, metric)
	}
}

func (r *ResourceReport) write(b *strings.Builder, metric quell.Metric) {
	fmt.Fprintf(b, "%s: %d runs in %d cells at %d levels\n", r.Resource, r.Rows, r.Cells, r.Levels)
	if r.Saturated > 0 {
		fmt.Fprintf(b, "left out of the interference models: %d cells whose total utilization is %v or more\n", r.Saturated, saturated)
	}
	if len(r.NotConverged) > 0 {
		fmt.Fprintf(b, "not converged (95%% interval of the mean probe time wider than 5%%, or fewer than 3 runs): %s\n",
			cellList(r.NotConverged))
	}
	r.Errors.write(b, metric)
	if w := r.Waits; w != nil {
		verdict := "PRIMA uses it"
		if *w > waitsTrusted {
			verdict = fmt.Sprintf("PRIMA does not use it, because the error is above %v", waitsTrusted)
		}
		fmt.Fprintf(b, "neighbours' use by how long own tasks waited: wrong by %.3f on average; %s\n", *w, verdict)
	}
}

func cellList(cells []Cell) string {
	names := make([]string, len(cells))
	for i, c := range cells {
		names[i] = fmt.Sprintf("%.4g", c.Level)
		if c.Interfering > 0 {
			names[i] += fmt.Sprintf(" under %.2g", c.Interfering)
		}
	}
	return strings.Join(names, ", ")
}

// write prints the errors, and says how they were measured.
func (e Errors) write(b *strings.Builder, metric quell.Metric) {
	if e == (Errors{}) {
		b.WriteString("errors unknown: no cell has others on both sides in its level\n")
		return
	}
	b.WriteString("errors, each cell predicted from all others; the outermost cells of a level are skipped:\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  model\tmean\tlargest\tmean SF\tlargest SF\tcells\tskipped\tof")
	e.ResponseTime.write(t, "response time", string(metric)+" response time")
	e.Total.write(t, "interference total", "probe time 1 + SF")
	e.Joint.write(t, "interference joint", "probe time 1 + SF")
	t.Flush()
}

func (e *ModelError) write(w io.Writer, name, of string) {
	if e == nil {
		return
	}
	mean, largest := "-", "-"
	if e.MeanSeverity != nil && e.MaxSeverity != nil {
		mean, largest = fmt.Sprintf("%.3f", *e.MeanSeverity), fmt.Sprintf("%.3f", *e.MaxSeverity)
	}
	fmt.Fprintf(w, "  %s\t%.1f%%\t%.1f%%\t%s\t%s\t%d\t%d\t%s\n",
		name, 100*e.MeanRelative, 100*e.MaxRelative, mean, largest, e.Cells, e.Skipped, of)
}
