package credit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Step is a time in which a service keeps a constant number of processors busy.
type Step struct {
	Seconds float64
	Use     float64 // processors, of all instances together
}

// Demand is what recorded snapshots say of a service: how many processors it kept busy, and how busy instances were in windows that kept
// an objective and in others. Its zero value has no data.
type Demand struct {
	Steps   []Step
	windows []judged
	last    time.Time
}

// judged is one window of one instance.
type judged struct {
	use  float64 // utilisation of its processors
	kept bool
}

// longestStep is the longest time between two snapshots in which the demand counts as constant. A longer one is a gap in the recording.
const longestStep = 5 * time.Minute

// Add adds a snapshot, which must not be older than those before. cores is the number of processors of instances that do not report it, and
// table has those of their types. If the objective's threshold is 0, windows are not judged.
func (d *Demand) Add(s *quell.Snapshot, slo quell.SLO, table *Table, cores float64) error {
	busy, seen, present, window := 0.0, 0, 0, 0.0
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.State != quell.Ready && in.State != quell.Draining {
			continue
		}
		present++
		use, ok := utilization(in.Observation)
		if !ok {
			continue
		}
		processors, err := processorsOf(in, table, cores)
		if err != nil {
			return err
		}
		seen++
		busy += use * processors
		window = math.Max(window, in.Observation.WindowS)
		if ms, ok := in.Observation.LatencyMS.Of(slo.Metric); ok && slo.Threshold > 0 {
			d.windows = append(d.windows, judged{use, ms <= slo.ThresholdMS()})
		}
	}
	if seen == 0 {
		return nil
	}
	seconds := window
	if gap := s.At.Sub(d.last); !d.last.IsZero() && gap > 0 && gap <= longestStep {
		seconds = gap.Seconds()
	}
	d.last = s.At
	if seconds > 0 {
		d.Steps = append(d.Steps, Step{seconds, busy * float64(present) / float64(seen) * unserved(s)})
	}
	return nil
}

// utilization returns that of the processors in an observation.
func utilization(o *quell.Observation) (use float64, ok bool) {
	if o == nil {
		return 0, false
	}
	use, ok = o.Utilization[quell.CPU]
	return use, ok
}

// processorsOf returns how many processors an instance has.
func processorsOf(in *quell.Instance, table *Table, cores float64) (float64, error) {
	if s := in.Observation.Sched; s != nil && s.Cores > 0 {
		return s.Cores, nil
	}
	if entry, ok := table.Type(in.Type); ok && entry.VCPUs > 0 {
		return entry.VCPUs, nil
	}
	if cores > 0 {
		return cores, nil
	}
	return 0, fmt.Errorf("instance %q does not say how many processors it has: give --cores", in.ID)
}

// mostUnserved is the largest factor for requests that were not served.
const mostUnserved = 10

// unserved returns by how much more processors would have been busy if all requests that arrived had been served.
func unserved(s *quell.Snapshot) float64 {
	if s.ArrivalRate == nil {
		return 1
	}
	served := 0.0
	for i := range s.Instances {
		o := s.Instances[i].Observation
		if o != nil && o.RequestRate != nil {
			served += *o.RequestRate
		}
	}
	if served <= 0 || *s.ArrivalRate <= served {
		return 1
	}
	return math.Min(*s.ArrivalRate/served, mostUnserved)
}

// Seconds is the length of the recording without gaps.
func (d *Demand) Seconds() (sum float64) {
	for _, s := range d.Steps {
		sum += s.Seconds
	}
	return sum
}

// Mean is the mean number of busy processors.
func (d *Demand) Mean() (mean float64) {
	whole := d.Seconds()
	for _, s := range d.Steps {
		mean += s.Use * s.Seconds / whole
	}
	return mean
}

// Peak is the largest number of busy processors.
func (d *Demand) Peak() (peak float64) {
	for _, s := range d.Steps {
		peak = math.Max(peak, s.Use)
	}
	return peak
}

// Constants of HeldUpTo.
const (
	binWidth    = 0.05 // of utilisation
	leastInBin  = 5    // windows, for a judgement
	mostMissing = 0.05 // part of a bin's windows that may miss the objective
)

// HeldUpTo returns the highest utilisation of an instance's processors up to which the objective was kept in 95% of the windows. Nothing
// is concluded about utilisations that were not seen.
func (d *Demand) HeldUpTo() (use float64, err error) {
	if len(d.windows) == 0 {
		return 0, errors.New("no window has both a utilisation of the processors and a response time")
	}
	windows := slices.Clone(d.windows)
	slices.SortFunc(windows, func(a, b judged) int { return cmp.Compare(a.use, b.use) })
	for len(windows) > 0 {
		n, missed := 0, 0
		for n < len(windows) && (windows[n].use < windows[0].use+binWidth || n < leastInBin) {
			if !windows[n].kept {
				missed++
			}
			n++
		}
		if float64(missed) > mostMissing*float64(n) {
			break
		}
		use, windows = windows[n-1].use, windows[n:]
	}
	if use == 0 {
		return 0, errors.New("the objective was missed even when instances had little to do")
	}
	return use, nil
}
