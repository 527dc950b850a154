package model

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quellhq/quell"
)

// ShowOptions select how models are printed and drawn. The zero value means the metric of the training, and thresholds of
// 1.5, 2.5 and 4 times the lowest trained response time.
type ShowOptions struct {
	Metric       quell.Metric
	ThresholdsMS []float64
}

// of returns the options. If they name no metric, the metric of the models is filled in.
func (o ShowOptions) of(m *Models) ShowOptions {
	switch {
	case o.Metric != "":
	case m.Trained != nil && m.Trained.Metric != "":
		o.Metric = m.Trained.Metric
	default:
		o.Metric = quell.Mean
	}
	return o
}

// Describe prints the models for people: their origin, and a summary of each section.
func Describe(w io.Writer, m *Models, o ShowOptions) error {
	d := describer{models: m, options: o.of(m)}
	d.origin()
	for _, section := range m.Sections {
		if err := section.describe(&d); err != nil {
			return err
		}
	}
	if len(m.Kept) > 0 {
		d.printf("\nkept, but not known to this version: %q\n", sortedKeys(m.Kept))
	}
	_, err := io.WriteString(w, d.out.String())
	return err
}

type describer struct {
	models  *Models
	options ShowOptions
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
