package redline

import (
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
)

// A capacity far beyond what was measured is not stated.
func TestTextOfWhatWasNotMeasured(t *testing.T) {
	slo := quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}
	for rate, want := range map[float64]string{
		100: "i1 carries 0.50 within 40ms (0.45 to 0.55 of its network, 100 requests/s; measured up to 0.44)",
		211: "i1 carries at least 88 requests/s within 40ms, which is as far as the test came; how much more is not known",
	} {
		r := Result{Instance: "i1", Reached: 88, ReachedUse: 0.44, Resource: quell.Network, Requests: 1000, Why: "its time is over",
			Rate: &Interval{Value: rate, Low: 0.9 * rate, High: 1.1 * rate},
			Use:  &Interval{Value: rate / 200, Low: 0.9 * rate / 200, High: 1.1 * rate / 200}}
		if text := r.Text(slo); !strings.HasPrefix(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
	}
}

// Response times that the load does not lengthen predict no capacity, and what was measured within the objective is said all the same.
func TestTextOfResponseTimesThatDoNotRise(t *testing.T) {
	slo := quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}
	for want, levels := range map[string][]Level{
		"i1: not known within 40ms; ended because its time is over": {{Rate: 70, MS: 41}},
		"i1 carries at least 80 requests/s within 40ms, which is":   {{Rate: 70, MS: 5}, {Rate: 80, MS: 5}, {Rate: 90, MS: 41}},
	} {
		r := Result{Instance: "i1", Reached: 90, Requests: 1000, Why: "its time is over", Levels: levels}
		if text := r.Text(slo); !strings.HasPrefix(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
	}
}
