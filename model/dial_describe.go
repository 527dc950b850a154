package model

import (
	"fmt"
	"strings"

	"github.com/quellhq/quell"
)

// DialReport describes the quality of DIAL's section.
type DialReport struct {
	*Dial
	Rows    int      // number of rows with the measurements that DIAL uses
	Calm    int      // how many of these rows have no interference
	Unfelt  int      // rows with interference that were no slower than rows without; the classifier leaves them out
	Missing []string // parts that could not be fitted, with the reason
}

func (r *DialReport) write(b *strings.Builder, _ quell.Metric) {
	fmt.Fprintf(b, "dial: %d rows, %d of them calm, %d disturbed but no slower\n", r.Rows, r.Calm, r.Unfelt)
	for _, why := range r.Missing {
		fmt.Fprintf(b, "not fitted: %s\n", why)
	}
	r.quality(func(format string, args ...any) { fmt.Fprintf(b, format, args...) })
}

// quality prints the errors of the fit.
func (s *Dial) quality(printf func(format string, args ...any)) {
	for _, r := range sortedKeys(s.Errors) {
		e := s.Errors[r]
		printf("p90 over use of %s: error %.1f%% on average, %.1f%% at most, over %d rows; %.1f%% without the square term\n",
			r, 100*e.MeanRelative, 100*e.MaxRelative, e.Rows, 100*e.Linear)
	}
	if n, right := s.Validated.Total(); n > 0 {
		printf("classifier: %d of %d rows right (error %.1f%%), each by a tree fitted to others\n%s",
			right, n, 100*float64(n-right)/float64(n), s.Validated)
	}
}

// describe prints what DIAL learned: when an instance suffers, from which resource, and what neighbours then use.
func (s *Dial) describe(d *describer) error {
	d.printf("\nDIAL\n")
	if s.PeakRate > 0 {
		d.printf("an instance alone serves at most %.4g requests per second\n", s.PeakRate)
	}
	if s.DetectMS > 0 {
		d.printf("suffers above a p90 of %.4g ms", s.DetectMS)
		if s.DetectRate > 0 {
			d.printf(" at %.4g requests per second", s.DetectRate)
		}
		for _, class := range sortedKeys(s.DetectByClassMS) {
			d.printf(", %s %.4g ms", class, s.DetectByClassMS[class])
		}
		d.printf("\n")
	}
	for _, name := range sortedKeys(s.Expected) {
		e := s.Expected[name]
		d.printf("%s: %.3g", name, e.Intercept)
		for _, class := range sortedKeys(e.PerRequest) {
			d.printf(" + %.3g x %s", e.PerRequest[class], class)
		}
		d.printf(", rates per second\n")
	}
	if s.Classifier != nil {
		d.printf("\nwhich resource is contended for\n%s", s.Classifier)
	}
	s.describeQueueing(d)
	s.quality(d.printf)
	return nil
}

func (s *Dial) describeQueueing(d *describer) {
	if len(s.Queueing) == 0 {
		return
	}
	d.printf("\np90 in ms over the use of a resource, neighbours included\n")
	rows := []string{"resource\tc0\tc1\tc2\tat 0.1\tat 0.5\tat 0.9"}
	for _, r := range sortedKeys(s.Queueing) {
		q := s.Queueing[r]
		rows = append(rows, fmt.Sprintf("%s\t%.4g\t%.4g\t%.4g\t%.4g\t%.4g\t%.4g", r, q[0], q[1], q[2], q.MS(0.1), q.MS(0.5), q.MS(0.9)))
	}
	d.table(rows)
	if s.Stretch > 0 {
		d.printf("over the use of the processors for memory: neighbours that use h of it lengthen processor time %.3g x h + 1 times\n", s.Stretch)
	}
}

// pictures draws the classifier, and response times over the use of each resource.
func (s *Dial) pictures(*Models, ShowOptions) (out []Picture, err error) {
	if s.Classifier != nil {
		out = append(out, treePicture("dial-classifier", "Which resource is contended for (number of training rows)", s.Classifier))
	}
	if len(s.Queueing) > 0 {
		out = append(out, s.drawQueueing())
	}
	return out, nil
}

func (s *Dial) drawQueueing() Picture {
	p := Picture{Name: "dial-queueing", Title: "Response time (p90) over the use of a resource, neighbours included",
		X: Axis{Label: "use", High: 1, Share: true}, Y: Axis{Label: "response time, ms"}}
	names := sortedKeys(s.Queueing)
	for _, r := range names {
		p.Y.High = max(p.Y.High, 1.1*s.Queueing[r].MS(0.9))
	}
	for i, r := range names {
		p.Layers = append(p.Layers, Layer{Legend: string(r), Colour: shade(float64(i), 0, float64(max(len(names)-1, 1))),
			Points: sampled(func(u float64) float64 { return within(s.Queueing[r].MS(u), 0, p.Y.High) }, 0, 0.98)})
	}
	return p
}
