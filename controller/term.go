package controller

import "time"

// Term is the time for which a temporary change is in force. While the controller runs it is measured by the monotonic clock, so that
// setting the wall clock does not change it. Over a restart the wall clock counts, but never more than what was left when the memory was
// stored last.
type Term struct {
	Until time.Time `json:"until"`
	LeftS float64   `json:"left_s"` // seconds that were left when the memory was stored last
}

func newTerm(now time.Time, d time.Duration) Term { return Term{Until: now.Add(d), LeftS: d.Seconds()} }

func (t Term) over(now time.Time) bool { return !now.Before(t.Until) }

// left returns how long the term still lasts, 0 if it is over.
func (t Term) left(now time.Time) time.Duration { return max(0, t.Until.Sub(now)) }

// measured returns the term with what is left of it now.
func (t Term) measured(now time.Time) Term { return newTerm(now, t.left(now)) }

// resumed returns a stored term as it goes on in this process. A clock that was set back does not extend it, and time in which no
// controller ran counts.
func (t Term) resumed(now time.Time) Term {
	stored := time.Duration(max(0, t.LeftS) * float64(time.Second))
	return newTerm(now, min(stored, t.left(now)))
}
