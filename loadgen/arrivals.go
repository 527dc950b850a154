// Package loadgen generates load. It has arrival processes, which are seeded schedules; the requests of each arrival; a runner that
// sends these over HTTP, as an open loop or, for users, as a closed loop; and a recorder of the results. Simulators use the same
// schedules as real requests.
package loadgen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quellhq/quell"
)

// Process is the distribution of the gaps between requests.
type Process string

// Poisson has exponential gaps; Exponential is another name for it. Deterministic has equal gaps. Bursty are bursts at random, of five
// requests on average. Synchronised are twenty clients who send at the same moment, again and again.
const (
	Poisson       Process = "poisson"
	Exponential   Process = "exponential"
	Deterministic Process = "deterministic"
	Bursty        Process = "bursty"
	Synchronised  Process = "synchronised"
)

// The mean size of a burst, and the number of synchronised clients.
const (
	burst   = 5
	clients = 20
)

// Step sets the rate, in requests per second, from At (since the start) until the next step.
type Step struct {
	At        time.Duration
	PerSecond float64
}

// ArrivalOptions describe an arrival process.
type ArrivalOptions struct {
	Process  Process
	Rate     []Step        // in order of At; nothing arrives before the first step's At
	Duration time.Duration // nothing arrives at or after it; 0 means no end
	Seed     uint64
}

// Arrivals is a schedule of intended send times. The same options always give the same times.
//
// The k-th event is at the time when the integral of the rate reaches the sum of the first k gaps, which are drawn for a rate of
// one. So a step in the rate takes effect immediately, even in the middle of a gap.
type Arrivals struct {
	steps    []Step
	expected []float64 // expected[i] is the integral of the rate up to steps[i].At, in requests
	at       int       // the step that the last event fell in
	sum      float64   // the sum of the unit gaps so far
	gap      func() float64
	end      time.Duration
	over     bool
}

// NewArrivals checks the options and returns the schedule. Errors are *quell.InvalidError.
func NewArrivals(o ArrivalOptions) (*Arrivals, error) {
	if err := checkRate(o.Rate); err != nil {
		return nil, err
	}
	if o.Duration < 0 {
		return nil, &quell.InvalidError{Path: "duration", Problem: "must not be negative"}
	}
	a := &Arrivals{steps: o.Rate, expected: make([]float64, len(o.Rate)), end: o.Duration}
	for i := 1; i < len(o.Rate); i++ {
		a.expected[i] = a.expected[i-1] + o.Rate[i-1].PerSecond*(o.Rate[i].At-o.Rate[i-1].At).Seconds()
	}
	var err error
	a.gap, err = gaps(o.Process, o.Seed)
	return a, err
}

// gaps draws the gaps of a process with a rate of one.
func gaps(process Process, seed uint64) (func() float64, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	switch process {
	case Poisson, Exponential:
		return random.ExpFloat64, nil
	case Deterministic:
		return func() float64 { return 1 }, nil
	case Bursty:
		return func() float64 {
			if random.Float64() > 1.0/burst {
				return 0
			}
			return burst * random.ExpFloat64()
		}, nil
	case Synchronised:
		sent := 0
		return func() float64 {
			if sent++; sent%clients != 1 {
				return 0
			}
			return clients
		}, nil
	}
	problem := fmt.Sprintf("unknown process %q (known: %s, %s, %s, %s, %s)", process, Poisson, Exponential, Deterministic, Bursty,
		Synchronised)
	return nil, &quell.InvalidError{Path: "arrivals", Problem: problem}
}

func checkRate(steps []Step) error {
	if len(steps) == 0 {
		return &quell.InvalidError{Path: "rate", Problem: "needs at least one step"}
	}
	for i, s := range steps {
		path := fmt.Sprintf("rate[%d]", i)
		if !(s.PerSecond >= 0) || math.IsInf(s.PerSecond, 0) {
			return &quell.InvalidError{Path: path, Problem: fmt.Sprintf("%v requests per second: must be a finite number, 0 or more", s.PerSecond)}
		}
		if s.At < 0 || i > 0 && s.At <= steps[i-1].At {
			return &quell.InvalidError{Path: path, Problem: fmt.Sprintf("starts at %v: must come after the step before it", s.At)}
		}
	}
	return nil
}

// Next returns the next intended send time since the start; times never decrease. It returns false after the last
// one.
func (a *Arrivals) Next() (at time.Duration, ok bool) {
	if a.over {
		return 0, false
	}
	a.sum += a.gap()
	for a.at+1 < len(a.steps) && a.sum >= a.expected[a.at+1] {
		a.at++
	}
	at, ok = a.instant()
	a.over = !ok
	return at, ok
}

// instant returns the time at which the integral of the rate reaches a.sum.
func (a *Arrivals) instant() (time.Duration, bool) {
	step := a.steps[a.at]
	after := (a.sum - a.expected[a.at]) / step.PerSecond * float64(time.Second)
	if !(after < float64(math.MaxInt64-step.At)) {
		return 0, false // the rate is 0 from here on, or too small to give a representable time
	}
	at := step.At + time.Duration(after)
	return at, a.end == 0 || at < a.end
}
