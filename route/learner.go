package route

import "time"

// Learner is a Picker, or an Indexed, that also goes by time and by how requests end. Its caller tells both, under the
// lock under which it picks.
type Learner interface {
	// Advance tells the time, on a clock of the caller's that begins anywhere; what is earlier than before is ignored.
	// It goes before every Pick and every Done.
	Advance(now time.Duration)
	// Done says how a request ended that was sent to the candidate.
	Done(c *Candidate, a Answer)
}

// Answer is the end of a request.
type Answer struct {
	Took     time.Duration // from sending it to the last byte
	InFlight int64         // of the candidate when it was sent, itself left out
	Failed   bool
}

// counted is the time that an answer counts as, in seconds. A failure counts as twice what was expected of the
// candidate, so that one that fails fast does not draw traffic; up to a minute, however many follow each other.
func (a Answer) counted(expected func() float64) float64 {
	took := max(a.Took, time.Nanosecond).Seconds()
	if a.Failed {
		took = max(took, min(2*max(expected(), took), time.Minute.Seconds()))
	}
	return took
}
