package top

import (
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/controller"
)

// mostSamples limits the response times that are kept of a service. No terminal shows more.
const mostSamples = 240

// Sample is the slowest instance's response time in one sampling period.
type Sample struct {
	At time.Time
	MS *float64 // in the objective's metric, milliseconds; nil: none was measured
}

// SampleOf is a recorded snapshot's sample, in the metric of a status.
func SampleOf(snapshot *quell.Snapshot, slo string) Sample {
	s := Sample{At: snapshot.At}
	name, _, _ := strings.Cut(slo, " ")
	var objective quell.SLO
	objective.SetObjective(name)
	for i := range snapshot.Instances {
		if o := snapshot.Instances[i].Observation; o != nil {
			if ms, ok := o.LatencyMS.Of(objective.Metric); ok {
				s.slower(&ms)
			}
		}
	}
	return s
}

func sampleOf(status *controller.Status) Sample {
	s := Sample{At: status.At}
	for i := range status.Instances {
		s.slower(status.Instances[i].LatencyMS)
	}
	return s
}

func (s *Sample) slower(ms *float64) {
	if ms != nil && (s.MS == nil || *ms > *s.MS) {
		s.MS = ms
	}
}

// joined returns the samples in order of time, one for each time, the newest ones only.
func joined(a, b []Sample) []Sample {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b Sample) int { return a.At.Compare(b.At) })
	all = slices.CompactFunc(all, func(a, b Sample) bool { return a.At.Equal(b.At) })
	return all[max(0, len(all)-mostSamples):]
}

// bars are the steps of a sparkline. The objective is the upper edge of the fourth one, so a taller bar is a period that missed it.
var bars = []rune("▁▂▃▄▅▆▇█")

const stepsWithin = 4

// sparkline draws the newest samples, one column for each, and says which of them are above the objective.
func sparkline(samples []Sample, thresholdMS float64, width int) (line []rune, above []bool) {
	for _, s := range samples[max(0, len(samples)-width):] {
		bar, over := ' ', false
		if s.MS != nil && thresholdMS > 0 {
			over = *s.MS > thresholdMS
			step := int(*s.MS / thresholdMS * stepsWithin)
			if over {
				step = max(step, stepsWithin)
			} else {
				step = min(step, stepsWithin-1)
			}
			bar = bars[min(max(step, 0), len(bars)-1)]
		}
		line, above = append(line, bar), append(above, over)
	}
	return line, above
}
