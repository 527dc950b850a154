package measure

import (
	"time"

	"github.com/quellhq/quell"
)

// Stretch joins windows of one instance that follow each other: what a fast policy is told of each of them, the others are told of all
// together. The zero value is empty.
type Stretch struct {
	tally  *Tally
	length time.Duration
	open   float64 // mean number of open requests, times the length in seconds
}

// Add joins a window with the mean number of its open requests.
func (s *Stretch) Add(t *Tally, window time.Duration, meanOpen float64) {
	if s.tally == nil {
		s.tally = New()
	}
	s.tally.Merge(t)
	s.length += window
	s.open += meanOpen * window.Seconds()
}

// Reading is all windows as one.
func (s *Stretch) Reading(at time.Time) (quell.Reading, error) {
	var meanOpen float64
	if s.length > 0 {
		meanOpen = s.open / s.length.Seconds()
	}
	return s.tally.Reading(at, s.length, meanOpen)
}
