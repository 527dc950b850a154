package report

import (
	_ "embed"
	"html/template"
	"io"
	"time"
)

//go:embed report.html.tmpl
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"span": span, "signed": signed, "stamp": stamp, "cause": func(c Cause) string { return c.text() },
	"worst": Span.worst, "percent": func(v float64) float64 { return 100 * v },
}).Parse(page))

// mark is a bar of the picture.
type mark struct {
	X, Width, Y, Height float64
	Colour              string
	Title               string
}

// Colours are those of the pictures, by the cause.
var Colours = map[Kind]string{Interference: "#c0392b", OwnLoad: "#2e86c1", OwnWork: "#8e44ad", Failure: "#212f3c", Release: "#d68910",
	Unknown: "#7f8c8d"}

// OtherColour is the colour of the time above the objective that is expected otherwise.
const OtherColour = "#27ae60"

const pictureWidth, pictureHeight = 720.0, 60.0

// Step is the length of each part of the Timeline, which must not be empty.
func (r *Report) Step() time.Duration { return r.Until.Sub(r.Since) / time.Duration(len(r.Timeline)) }

// marks draws a bar for each part of the time: how much of it was above the objective, by the cause that took most.
func (r *Report) marks(other bool) (list []mark) {
	if len(r.Timeline) == 0 {
		return nil
	}
	width, step := pictureWidth/float64(len(r.Timeline)), r.Step().Seconds()
	for i, b := range r.Timeline {
		missed, colour := b.MissedS, Colours[b.Kind]
		if other {
			missed, colour = b.OtherS, OtherColour
		}
		if height := pictureHeight * min(1, missed/max(step, 1e-9)); height > 0 {
			list = append(list, mark{float64(i) * width, width, pictureHeight - height, height, colour,
				b.At.UTC().Format(time.TimeOnly) + " " + span(missed)})
		}
	}
	return list
}

// Otherwise says what the second picture shows.
func (r *Report) Otherwise() string {
	if r.Acted != nil && (r.Advised == nil || r.Acted.Seconds >= r.Advised.Seconds) {
		return "without Quell's shares (expected)"
	}
	return "with the plans applied (expected)"
}

// WriteHTML writes the report as one file with pictures, which loads nothing from elsewhere.
func (r *Report) WriteHTML(w io.Writer) error {
	return pageTemplate.Execute(w, struct {
		*Report
		Marks, OtherMarks []mark
		Other             string
		Kinds             map[Kind]string
		Outcomes          map[string]*Outcome
		Width, Height     float64
	}{r, r.marks(false), r.marks(true), r.Otherwise(), Colours, map[string]*Outcome{"If plans had been applied": r.Advised,
		"While plans were applied, against people's own weights": r.Acted}, pictureWidth, pictureHeight})
}
