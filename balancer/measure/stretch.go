package measure

import (
	"time"

	"github.com/quellhq/quell"
)

// Stretch joins consecutive windows of one instance. A fast policy gets a reading of each window; everything else gets one reading of all
// of them together. The zero value is empty.
type Stretch struct {
	tally  *Tally
	length time.Duration
	open   float64 // mean number of open requests, times the length in seconds
}

// Add appends a window, with the mean number of open requests in it.
func (s *Stretch) Add(t *Tally, window time.Duration, meanOpen float64) {
	if s.tally == nil {
		s.tally = New()
	}
	s.tally.Merge(t)
	s.length += window
	s.open += meanOpen * window.Seconds()
}

// Reading returns all windows as one reading.
func (s *Stretch) Reading(at time.Time) (quell.Reading, error) {
	var meanOpen float64
	if s.length > 0 {
		meanOpen = s.open / s.length.Seconds()
	}
	return s.tally.Reading(at, s.length, meanOpen)
}
