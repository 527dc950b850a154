package route

import "time"

// Learner is a Picker, or an Indexed, that also uses the time and the results of requests. The caller reports both, and holds
// the same lock as when it picks.
type Learner interface {
	// Advance sets the time, on a clock of the caller with any origin. A time before the present one is ignored. Advance
	// must be called before every Pick and Done.
	Advance(now time.Duration)
	// Done reports the end of a request that was sent to the candidate.
	Done(c *Candidate, a Answer)
}

// Answer is the end of a request.
type Answer struct {
	Took     time.Duration // from sending it to the last byte
	InFlight int64         // the candidate's requests in flight when this request was sent, without this one
	Failed   bool
}

// counted returns the time of an answer that is used for learning, in seconds. A failure counts as twice the expected time,
// at most a minute, so that a candidate that fails fast does not attract traffic.
func (a Answer) counted(expected func() float64) float64 {
	took := max(a.Took, time.Nanosecond).Seconds()
	if a.Failed {
		took = max(took, min(2*max(expected(), took), time.Minute.Seconds()))
	}
	return took
}
