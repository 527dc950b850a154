package probe

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
	"gonum.org/v1/gonum/stat"
)

const (
	minCount = 8
	// If Count is not set, probes are usualSpacing apart, or further apart if the budget would leave each less than usualSize bytes.
	usualSpacing  = 100 * time.Millisecond
	usualSize     = 4_000
	maxCount      = 10_000
	defaultBudget = 0.02
	// A probe below minSize would take less time on the wire than the noise of timers; one above maxSize would be a burst.
	minSize = 1_000
	maxSize = 1_000_000
	// headerBytes is the largest size of an answer's headers.
	headerBytes = 160
)

// Slot is the part of a window in which one probe starts: at At, but not later than Until. Both are times since the start of the window.
type Slot struct{ At, Until time.Duration }

// Stratify splits a window into n equal parts and picks a uniformly random moment in each. Gaps then vary between nothing and two parts, so
// probes do not keep in step with anything periodic, and still cover the window evenly.
func Stratify(rng *rand.Rand, n int, window time.Duration) []Slot {
	slots := make([]Slot, n)
	part := float64(window) / float64(n)
	for k := range slots {
		slots[k] = Slot{
			At:    time.Duration((float64(k) + rng.Float64()) * part),
			Until: time.Duration(float64(k+1) * part),
		}
	}
	return slots
}

// allowance is how many bytes one target's probes may take in one period.
func allowance(capacity, budget float64, period time.Duration) float64 {
	return budget * capacity * period.Seconds() / 8
}

// fitSize returns the bytes of one probe: Size or, if that is more than the budget allows, the largest size within the budget.
func fitSize(o Options) (int64, error) {
	if o.Capacity == nil {
		if o.Size == 0 {
			return 0, mistake("probe.size: cannot be derived from the budget without a capacity: set probe.capacity (bit/s) or probe.size")
		}
		return o.Size, nil
	}
	bytes := allowance(*o.Capacity, o.Budget, o.Period)
	most := math.Floor(bytes/float64(o.Count)) - headerBytes
	if most < minSize {
		return 0, mistake("probe.budget: %.3g of %.4g bit/s leaves %.0f bytes a period for %d probes, which need %d: raise probe.budget or "+
			"sampling",
			o.Budget, *o.Capacity, bytes, o.Count, o.Count*(minSize+headerBytes))
	}
	if o.Size > 0 {
		return int64(min(float64(o.Size), most)), nil
	}
	return int64(min(most, maxSize)), nil
}

// withDefaults fills in the fields that are not set and checks the others.
func (o Options) withDefaults() (Options, error) {
	o.Budget = cmp.Or(o.Budget, defaultBudget)
	o.Count = cmp.Or(o.Count, o.usualCount())
	if o.Timeout == 0 && o.Count > 0 {
		o.Timeout = o.Period / time.Duration(o.Count)
	}
	return o, o.check()
}

// usualCount is the default number of probes per period. Many small probes measure more precisely than a few large ones. Without a known
// capacity the count is the least, because the share that probes take is then unknown.
func (o Options) usualCount() int {
	if o.Capacity == nil {
		return minCount
	}
	size := float64(max(o.Size, usualSize) + headerBytes)
	n := math.Min(float64(o.Period/usualSpacing), allowance(*o.Capacity, o.Budget, o.Period)/size)
	return int(math.Max(minCount, math.Min(n, maxCount)))
}

func (o Options) check() error {
	var errs []error
	if o.Period <= 0 {
		errs = append(errs, mistake("sampling: %v is no period", o.Period))
	}
	if o.Count < minCount {
		errs = append(errs, mistake("probe.count: %d is too few to tell interference from chance: at least %d a period", o.Count, minCount))
	}
	if o.Size < 0 || o.Size > mostServed {
		errs = append(errs, mistake("probe.size: %d bytes: give 1 to %d, or 0 to derive it from the budget", o.Size, mostServed))
	}
	if !(o.Budget > 0 && o.Budget <= 1) {
		errs = append(errs, mistake("probe.budget: %v is no share of the capacity: give a number above 0 and at most 1", o.Budget))
	}
	if o.Capacity != nil && (!(*o.Capacity > 0) || math.IsInf(*o.Capacity, 0)) {
		errs = append(errs, mistake("probe.capacity: %v is no capacity: give a positive number of bit/s", *o.Capacity))
	}
	if o.Timeout <= 0 || o.Timeout > o.Period {
		errs = append(errs, mistake("probe.timeout: %v must be above 0 and at most the sampling period of %v", o.Timeout, o.Period))
	}
	return errors.Join(errs...)
}

func mistake(format string, args ...any) error {
	return &quell.UserError{Err: fmt.Errorf(format, args...)}
}

// Summarise returns mean, sample standard deviation and number of single probes; false if there is none. The deviation of one probe is 0.
func Summarise(singles []float64) (quell.ProbeStats, bool) {
	switch len(singles) {
	case 0:
		return quell.ProbeStats{}, false
	case 1:
		return quell.ProbeStats{MeanMS: singles[0], N: 1}, true
	}
	mean, deviation := stat.MeanStdDev(singles, nil)
	return quell.ProbeStats{MeanMS: mean, StddevMS: deviation, N: len(singles)}, true
}
