package policy

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Doubt is how far the predictions of a group's law are off. They are doubtful while the middle of the newest errors is large, in either
// direction: then authority does not grow, and a policy with full authority soon makes small steps only. It does not fall further: a policy
// that may do nothing would not even follow the load. The law of single instances is on the safe side on purpose, and is not judged.
type Doubt struct {
	Errors []float64 `json:"errors,omitempty"` // logarithms of measured over predicted response times, the newest last; never changed in place
	Since  time.Time `json:"since,omitzero"`   // when the predictions became doubtful; zero: they are not
	For    int       `json:"for,omitempty"`    // periods since then
}

const (
	// doubtWindows is how many periods are looked at, and after how many more doubtful ones authority falls.
	doubtWindows = 10
	// doubtful is the factor by which predictions must be off.
	doubtful = 1.3
)

// with returns what is known after one more period.
func (d Doubt) with(off float64, at time.Time) Doubt {
	d.Errors = append(slices.Clone(d.Errors), off)
	d.Errors = d.Errors[max(0, len(d.Errors)-doubtWindows):]
	switch {
	case len(d.Errors) < doubtWindows || math.Abs(d.middle()) <= math.Log(doubtful):
		d.Since, d.For = time.Time{}, 0
	case d.Since.IsZero():
		d.Since, d.For = at, 1
	default:
		d.For = min(d.For+1, doubtWindows)
	}
	return d
}

// On returns whether the predictions are doubtful, stays whether they have been for long.
func (d Doubt) On() bool { return !d.Since.IsZero() }

func (d Doubt) stays() bool { return d.For >= doubtWindows }

func (d Doubt) middle() float64 {
	sorted := slices.Sorted(slices.Values(d.Errors))
	return sorted[len(sorted)/2]
}

// Text says by how much predictions are off, and since when; "" if they are not.
func (d Doubt) Text() string {
	if !d.On() {
		return ""
	}
	return fmt.Sprintf("predictions are off: response times are %.2f times as long as predicted, since %s", math.Exp(d.middle()),
		d.Since.UTC().Format(time.DateTime+" UTC"))
}

// errors returns the mean over requests of the logarithm of measured over predicted response times; false if there are too few.
func (g *Group) errors(in *Input) (off float64, known bool) {
	var sum, requests float64
	for _, m := range g.Rated {
		ms, n, measured := m.Measured(in.Service.SLO.Metric)
		if !measured || ms <= 0 {
			continue
		}
		predicted, _ := m.Predict(in)
		sum, requests = sum+float64(n)*math.Log(ms/predicted), requests+float64(n)
	}
	return sum / math.Max(requests, 1), requests > 0
}
