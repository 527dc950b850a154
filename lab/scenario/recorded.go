package scenario

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell/setting"
)

// Recorded is a recorded load: how many requests of each class arrived per second.
type Recorded struct {
	Classes []string
	Steps   []RecordedStep // in order of time; the first is at 0
}

// RecordedStep has the rates of the classes, in requests per second, from At until the next step. Those of the last step stay.
type RecordedStep struct {
	At    time.Duration
	Rates []float64 // in the order of Recorded.Classes
}

// total is the rate of all requests of a step.
func (s RecordedStep) total() (sum float64) {
	for _, rate := range s.Rates {
		sum += rate
	}
	return sum
}

// at is the step that holds at time t.
func (r *Recorded) at(t time.Duration) RecordedStep {
	i := slices.IndexFunc(r.Steps, func(s RecordedStep) bool { return s.At > t })
	if i < 0 {
		i = len(r.Steps)
	}
	return r.Steps[max(0, i-1)]
}

// mean is the mean rate of each class over a time from the start.
func (r *Recorded) mean(length time.Duration) []float64 {
	means := make([]float64, len(r.Classes))
	for i, step := range r.Steps {
		to := length
		if i+1 < len(r.Steps) {
			to = min(to, r.Steps[i+1].At)
		}
		for c, rate := range step.Rates {
			means[c] += rate * max(0, to-step.At).Seconds() / length.Seconds()
		}
	}
	return means
}

// MixStep sets the classes' shares, in the order of Workload.Classes, from At until the next step.
type MixStep struct {
	At     time.Duration
	Shares []float64
}

// Mixes returns how the classes' shares change over the run; nil if they stay as Workload.Classes has them.
func (s *Scenario) Mixes() (steps []MixStep) {
	r := s.Workload.Recorded
	if r == nil {
		return nil
	}
	for _, step := range r.Steps {
		mix := MixStep{At: step.At, Shares: make([]float64, len(s.Workload.Classes))}
		for i, c := range s.Workload.Classes {
			mix.Shares[i] = step.Rates[slices.Index(r.Classes, c.Name)]
		}
		steps = append(steps, mix)
	}
	return steps
}

// stretch multiplies all times by a factor.
func (r *Recorded) stretch(factor float64) *Recorded {
	if r == nil {
		return nil
	}
	scaled := &Recorded{Classes: r.Classes, Steps: slices.Clone(r.Steps)}
	for i := range scaled.Steps {
		scaled.Steps[i].At = time.Duration(float64(scaled.Steps[i].At) * factor)
	}
	return scaled
}

// recorded completes a workload with a recorded load: the classes' shares are the means of the recording.
func (f *file) recorded(d *setting.Decoder) {
	w := &f.Workload
	if w.Recorded == nil || w.Kind != Classes || !d.Sound("duration") || f.Duration <= 0 {
		return
	}
	for i, c := range w.Classes {
		path := fmt.Sprintf("workload.classes[%d]", i)
		at := slices.Index(w.Recorded.Classes, c.Name)
		switch {
		case at < 0 && d.Sound(path+".name"):
			d.Refuse(path+".name", "", "is not in the recorded load, which has %s", strings.Join(w.Recorded.Classes, ", "))
		case at < 0:
		case d.Given(path + ".share"):
			d.Refuse(path+".share", "", "must not be given: the recorded load has the shares")
		default:
			w.Classes[i].Share = w.Recorded.mean(f.Duration)[at]
		}
	}
	for _, name := range w.Recorded.Classes {
		if !slices.ContainsFunc(w.Classes, func(c Class) bool { return c.Name == name }) && d.Sound("workload.classes") {
			d.Refuse("workload.recorded", "", "has requests of class %s, which workload.classes lacks", setting.Shorten(name))
		}
	}
}

// parseRecorded reads a heading line of seconds and the names of classes, and lines of seconds and the rate of each class. Lines that begin
// with # are comments.
func parseRecorded(in io.Reader) (*Recorded, error) {
	lines := csv.NewReader(in)
	lines.Comment, lines.TrimLeadingSpace = '#', true // all lines must have as many fields as the first
	heading, err := lines.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: give it the heading seconds,CLASS,CLASS and lines of numbers")
	}
	if err != nil {
		return nil, err
	}
	if len(heading) < 2 || heading[0] != "seconds" {
		return nil, fmt.Errorf("the heading must be seconds and the names of classes, is %q", setting.Shorten(strings.Join(heading, ",")))
	}
	r := &Recorded{Classes: slices.Clone(heading[1:])}
	for i, name := range r.Classes {
		if slices.Contains(r.Classes[:i], name) {
			return nil, fmt.Errorf("the heading has %q twice", setting.Shorten(name))
		}
	}
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := lines.FieldPos(0)
		step, err := recordedStep(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if n := len(r.Steps); n == 0 && step.At != 0 || n > 0 && step.At <= r.Steps[n-1].At {
			return nil, fmt.Errorf("line %d: seconds must begin with 0 and go up, are %q", line, setting.Shorten(fields[0]))
		}
		r.Steps = append(r.Steps, step)
	}
	if len(r.Steps) == 0 {
		return nil, errors.New("has a heading and no rates")
	}
	return r, nil
}

func recordedStep(fields []string) (step RecordedStep, err error) {
	seconds, err := setting.ParseReal(strings.TrimSpace(fields[0]))
	if err != nil || seconds < 0 || seconds > longestTrace {
		return step, fmt.Errorf("seconds must be a number from 0 on, is %q", setting.Shorten(fields[0]))
	}
	step.At = time.Duration(seconds * float64(time.Second))
	for _, field := range fields[1:] {
		rate, err := setting.ParseReal(strings.TrimSpace(field))
		if err != nil || !notNegative(rate) {
			return step, fmt.Errorf("a rate must be a number from 0 on, is %q", setting.Shorten(field))
		}
		step.Rates = append(step.Rates, rate)
	}
	return step, nil
}
