package model

import (
	"io"
	"strings"

	"github.com/quellhq/quell"
)

// Report describes the quality of a fit.
type Report struct {
	Service  string
	Metric   quell.Metric
	Rows     int
	Sections []SectionReport // reports of the sections that were fitted
}

// SectionReport describes the quality of a section's fit.
type SectionReport interface {
	// write prints it for people.
	write(b *strings.Builder, metric quell.Metric)
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for i, part := range r.Sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		part.write(&b, r.Metric)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
