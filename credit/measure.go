package credit

import (
	"math"
	"slices"

	"github.com/quellhq/quell/stats"
)

// Busy is a window in which all processors of an instance had something to compute.
type Busy struct {
	Seconds float64 // length of the window
	RunS    float64 // processor time by the clocks of the threads that computed
	Rounds  float64 // rounds of the computation that were carried out
}

// Measured is what busy windows say of an instance's credits of processor time. A figure that is not known is nil.
type Measured struct {
	Processors float64   `json:"processors"` // that had something to compute
	Seconds    float64   `json:"seconds"`    // for which they had
	Spent      float64   `json:"spent"`      // credits that this took, including those earned meanwhile
	Burst      *Estimate `json:"burst,omitempty"`
	Baseline   *Estimate `json:"baseline,omitempty"` // processors, all together; nil: the instance never slowed down
	Balance    *Estimate `json:"balance,omitempty"`  // credits at the beginning
	Settled    bool      `json:"settled"`            // further windows would tell no more
}

// Constants of measuring.
const (
	edge        = 5    // fewest windows of a level, and those at the beginning that show how fast one processor computes
	settling    = 20   // windows without credits that suffice
	leastDrop   = 0.2  // without credits an instance is slower by at least this part of its speed
	unexplained = 0.9  // an instance that has less than this part of its processors from the beginning has no credits
	flatness    = 0.01 // a level is constant if its halves differ by at most this part of the full speed
	likely      = 0.95 // confidence of the ranges
)

// Measure estimates burst, baseline and balance from windows in a row, in which the processors (all together) never rested. If the balance
// runs out in between, speed falls from one level to another, perhaps gradually. What was used above the lower level was the balance
// (Eq. 2, MRburst section 3.2.1). An instance that is slow from the beginning had no credits.
func Measure(processors float64, windows []Busy) Measured {
	m := Measured{Processors: processors}
	for _, w := range windows {
		m.Seconds += w.Seconds
		m.Spent += w.RunS / 60
	}
	uses := usesOf(windows)
	if len(uses) < 2*edge {
		return m
	}
	at, fell := fall(uses)
	if !fell {
		if math.Max(levelOf(uses[:edge]).Middle(), levelOf(uses).Middle()) >= unexplained*processors {
			burst := levelOf(uses[:len(uses)/2]) // in the last ones it may have begun to slow down
			m.Burst = &burst
			return m
		}
		level, none := levelOf(uses), Exactly(0)
		m.Baseline, m.Balance = &level, &none
		m.Settled = len(uses) >= settling && flat(uses, processors)
		return m
	}
	// What lies between the levels may be a gradual fall, so each level is taken from the half that is farther from it.
	fast, slow := uses[:max(edge, at/2)], uses[min(len(uses)-edge, (at+len(uses))/2):]
	burst, baseline := levelOf(fast), levelOf(slow)
	m.Burst, m.Baseline = &burst, &baseline
	m.Settled = len(uses)-at >= settling && flat(slow, burst.Middle())
	m.Balance = new(usedAbove(windows, uses, baseline))
	return m
}

// usesOf returns how many processors' work each window carried out. The speed of a whole processor is that of the first windows: later
// ones are not used for this, because some kernels count time that the provider withheld as processor time.
func usesOf(windows []Busy) []float64 {
	var speeds []float64
	for _, w := range windows[:min(edge, len(windows))] {
		if w.RunS > 0 {
			speeds = append(speeds, w.Rounds/w.RunS)
		}
	}
	if len(speeds) == 0 {
		return nil
	}
	slices.Sort(speeds)
	full := speeds[len(speeds)/2]
	if !(full > 0) {
		return nil
	}
	var uses []float64
	for _, w := range windows {
		uses = append(uses, w.Rounds/w.Seconds/full)
	}
	return uses
}

// fall finds the window from which speed is lower: the division into two levels with the least squared errors. fell is false if the
// levels differ by less than leastDrop, or by chance.
func fall(uses []float64) (at int, fell bool) {
	n := float64(len(uses))
	sum := 0.0
	for _, u := range uses {
		sum += u
	}
	best, before := 0.0, 0.0
	for i, u := range uses {
		if i >= edge && i <= len(uses)-edge {
			k := float64(i)
			if d := before/k - (sum-before)/(n-k); d > 0 && d*d*k*(n-k) > best {
				best, at = d*d*k*(n-k), i
			}
		}
		before += u
	}
	if at == 0 {
		return 0, false
	}
	fast, okFast := stats.MeanInterval(uses[:at], likely)
	slow, okSlow := stats.MeanInterval(uses[at:], likely)
	drop := fast.Mean - slow.Mean
	return at, okFast && okSlow && drop >= leastDrop*fast.Mean && drop > 2*(fast.Half+slow.Half)
}

// levelOf returns the confidence interval of the mean use. It needs at least two uses.
func levelOf(uses []float64) Estimate {
	i, _ := stats.MeanInterval(uses, likely)
	return Estimate{math.Max(0, i.Mean-i.Half), i.Mean + i.Half}
}

// flat returns whether two halves of uses are alike.
func flat(uses []float64, full float64) bool {
	first, second := levelOf(uses[:len(uses)/2]), levelOf(uses[len(uses)/2:])
	return math.Abs(first.Middle()-second.Middle()) <= math.Max(flatness*full, (first.High-first.Low+second.High-second.Low)/2)
}

// usedAbove integrates what was used above the baseline, in credits.
func usedAbove(windows []Busy, uses []float64, baseline Estimate) Estimate {
	low, high := 0.0, 0.0
	for i, w := range windows {
		low += (uses[i]*(1-meterError) - baseline.High) * w.Seconds / 60
		high += (uses[i]*(1+meterError) - baseline.Low) * w.Seconds / 60
	}
	return Estimate{math.Max(0, low), math.Max(0, high)}
}

// Bucket returns what was measured as a bucket, in processors. ok is false if the instance never slowed down.
func (m Measured) Bucket() (b Bucket, ok bool) {
	if m.Baseline == nil {
		return Bucket{}, false
	}
	return Bucket{Baseline: m.Baseline.Middle(), Burst: m.Processors, PerUse: wholeProcessor}, true
}
