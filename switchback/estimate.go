package switchback

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
)

// Verdict is what a comparison concludes.
type Verdict string

// The verdicts.
const (
	Better  Verdict = "better"  // acting shortens the time above the objective
	Worse   Verdict = "worse"   // acting prolongs it
	Neither Verdict = "neither" // the interval contains 0
	Few     Verdict = "few"     // too few whole blocks
)

const (
	leastRequests = 30   // that an instance needs to be judged, per period over both turns of a block
	leastBlocks   = 6    // for an interval
	confidence    = 0.95 // of the intervals
	gap           = 3    // periods without a snapshot after which a period is not used
)

// Options of an estimate. All are required.
type Options struct {
	SLO      quell.SLO
	Sampling time.Duration
	CarryS   float64 // seconds at the beginning of each turn that are not used, because they show what the turn before did
}

// For returns the options for a service.
func For(s quell.Service) Options {
	return Options{SLO: s.SLO, Sampling: s.Sampling, CarryS: CarryOver(s.Sampling).Seconds()}
}

// CarryOver is how much of a turn is not used: the periods in which shares move by steps, and queues drain.
func CarryOver(sampling time.Duration) time.Duration { return 3 * sampling }

// Arm is what was measured while Quell acted, or while control was handed back.
type Arm struct {
	Seconds  float64 `json:"seconds"`
	MissedS  float64 `json:"missed_s"` // an instance was above the objective
	Requests float64 `json:"requests"`
	Over     float64 `json:"over"` // requests at instances that were above it
}

// Interval is a value with its 95% interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Result is what a comparison found.
type Result struct {
	Began        time.Time `json:"began"`
	Turns        int       `json:"turns"`                   // that were begun
	Blocks       int       `json:"blocks"`                  // whole ones, that could be used
	Thin         int       `json:"thin_blocks,omitempty"`   // whole ones that could not, because no instance had enough requests
	MostRequests float64   `json:"most_requests,omitempty"` // of an instance in a period of these, as a mean
	Acting       Arm       `json:"acting"`
	Back         Arm       `json:"handed_back"`
	SavedS       *Interval `json:"saved_s_per_hour,omitempty"` // seconds above the objective that acting saves in an hour
	Saved        *Interval `json:"saved_share,omitempty"`      // the share of all requests that it keeps from instances above the objective
	Verdict      Verdict   `json:"verdict"`
}

func (a *Arm) add(b *Arm) {
	a.Seconds, a.MissedS, a.Requests, a.Over = a.Seconds+b.Seconds, a.MissedS+b.MissedS, a.Requests+b.Requests, a.Over+b.Over
}

// Result estimates from whole blocks: the differences between the two turns of a block are independent of each other, and have the mean
// that is looked for, so their t interval is one for it (Bojinov, Simchi-Levi and Zhao, Management Science 69(7), 2023, for turns that are
// longer than what carries over). It returns nil if nothing was compared.
func (c *Collector) Result() *Result {
	all := c.done.with(c.o, c.turns)
	if all.turns == 0 {
		return nil
	}
	r := &Result{Began: c.began, Turns: all.turns, Blocks: len(all.seconds), Acting: all.acting, Back: all.back, Verdict: Few}
	if all.thin > 0 {
		r.Thin, r.MostRequests = all.thin, all.most
	}
	if r.Blocks < leastBlocks {
		return r
	}
	saved, share := interval(all.seconds), interval(all.shares)
	r.SavedS, r.Saved, r.Verdict = &saved, &share, Neither
	switch {
	case saved.Low > 0:
		r.Verdict = Better
	case saved.High < 0:
		r.Verdict = Worse
	}
	return r
}

// interval is the t interval of a mean.
func interval(values []float64) Interval {
	n := float64(len(values))
	mean, sd := stat.MeanStdDev(values, nil)
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1+confidence)/2) * sd / math.Sqrt(n)
	return Interval{mean, mean - half, mean + half}
}

// unused says why blocks could not be used, "" if all could.
func (r *Result) unused() string {
	if r.Thin == 0 {
		return ""
	}
	return fmt.Sprintf("%d more could not be used, because no instance had %d requests in a sampling period (at most %.0f): compare while "+
		"there is more load, or with a longer sampling period; ", r.Thin, leastRequests, r.MostRequests)
}

// Text says what was found, for people.
func (r *Result) Text() string {
	what := fmt.Sprintf("(%d blocks of two turns since %s UTC)", r.Blocks, r.Began.UTC().Format(time.DateTime))
	missed := fmt.Sprintf("while Quell acted, the objective was missed for %.0f of %.0f s; while control was handed back, for %.0f of %.0f s",
		r.Acting.MissedS, r.Acting.Seconds, r.Back.MissedS, r.Back.Seconds)
	switch r.Verdict {
	case Few:
		return fmt.Sprintf("The comparison cannot tell yet: it has %d whole blocks of two turns, and needs %d; %s%s.", r.Blocks, leastBlocks,
			r.unused(), missed)
	case Better:
		return fmt.Sprintf("Acting saves %.0f s above the objective in an hour, 95%% interval %.0f to %.0f s %s: %s.", r.SavedS.Value,
			r.SavedS.Low, r.SavedS.High, what, missed)
	case Worse:
		return fmt.Sprintf("Acting costs %.0f s above the objective in an hour, 95%% interval %.0f to %.0f s %s: %s.", -r.SavedS.Value,
			-r.SavedS.High, -r.SavedS.Low, what, missed)
	}
	return fmt.Sprintf("No difference is shown: acting saves %.0f s above the objective in an hour, 95%% interval %.0f to %.0f s %s: %s.",
		r.SavedS.Value, r.SavedS.Low, r.SavedS.High, what, missed)
}
