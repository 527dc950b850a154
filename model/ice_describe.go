package model

import (
	"fmt"
	"strings"

	"github.com/quellhq/quell"
)

// ICEReport describes the quality of ICE's section.
type ICEReport struct {
	*ICE
	Runs      int      // training runs in which the interferer came and went
	Windows   int      // windows of these runs
	Disturbed int      // how many of these windows had the interferer
	Missing   []string // parts that could not be fitted, with the reason
}

func (r *ICEReport) write(b *strings.Builder, _ quell.Metric) {
	fmt.Fprintf(b, "ice: %d windows of %d runs, %d of them with the interferer\n", r.Windows, r.Runs, r.Disturbed)
	for _, why := range r.Missing {
		fmt.Fprintf(b, "not fitted: %s\n", why)
	}
	r.quality(func(format string, args ...any) { fmt.Fprintf(b, format, args...) })
}

// quality prints how good the fit is.
func (s *ICE) quality(printf func(format string, args ...any)) {
	if n, right := s.Validated.Total(); n > 0 {
		printf("detector: %d of %d windows right (%.1f%%), each by a tree fitted to others\n", right, n, 100*float64(right)/float64(n))
	}
	for _, fit := range s.Fits {
		printf("estimator of degree %d: R² %.3f, %.3f without the previous use\n", fit.Degree, fit.R2, fit.Without)
	}
}

// describe prints what ICE learned: when an instance has neighbours, and how busy its processors are then.
func (s *ICE) describe(d *describer) error {
	d.printf("\nICE\n")
	if s.Classifier != nil {
		d.printf("an instance has neighbours if\n%s", s.Classifier)
	}
	if e := s.Estimator; e != nil {
		d.printf("use = %.3g + %.3g previous use + %.3g requests + %.3g %s, each scaled to its range:\n", e.Intercept, e.Previous,
			e.Requests, e.CPI, s.Signal)
		d.printf("use %.3g to %.3g, requests %.4g to %.4g per second, %s %.4g to %.4g\n", e.Range.CPU[0], e.Range.CPU[1], e.Range.Requests[0],
			e.Range.Requests[1], s.Signal, e.Range.CPI[0], e.Range.CPI[1])
	}
	s.quality(d.printf)
	return nil
}

// pictures draws the classifier, and how much of the use polynomials explain (Figure 5).
func (s *ICE) pictures(*Models, ShowOptions) (out []Picture, err error) {
	if s.Classifier != nil {
		out = append(out, treePicture("ice-classifier", "Which windows have neighbours (number of training windows)", s.Classifier))
	}
	if len(s.Fits) > 1 {
		out = append(out, s.drawFits())
	}
	return out, nil
}

func (s *ICE) drawFits() Picture {
	p := Picture{Name: "ice-estimator", Title: "How much of the use of the processors polynomials explain",
		X: Axis{Label: "degree", Low: 1, High: highestDegree}, Y: Axis{Label: "R²", High: 1}}
	with := Layer{Legend: "previous use, requests, " + s.Signal, Colour: shade(0, 0, 1)}
	without := Layer{Legend: "requests, " + s.Signal, Colour: shade(1, 0, 1)}
	for _, fit := range s.Fits {
		with.Points = append(with.Points, Point{X: float64(fit.Degree), Y: within(fit.R2, 0, 1)})
		without.Points = append(without.Points, Point{X: float64(fit.Degree), Y: within(fit.Without, 0, 1)})
	}
	p.Layers = []Layer{with, without}
	return p
}
