package command

import (
	"time"

	"github.com/quellhq/quell"
)

// meter integrates instance-seconds from observations of who is there.
type meter struct {
	sum   float64         // seconds, up to last
	last  time.Time       // the newest observation
	known map[string]bool // those that cost since last
}

func newMeter(now time.Time) *meter { return &meter{last: now, known: map[string]bool{}} }

// observe charges those of the last observation for the time since, and new ones since their start or, where that
// is earlier, since the last observation. An observation older than the last is left out.
func (m *meter) observe(at time.Time, members []quell.Member) {
	if at.Before(m.last) {
		return
	}
	m.sum = m.seconds(at)
	known := make(map[string]bool, len(members))
	for _, in := range members {
		if in.State == quell.Failed {
			continue
		}
		known[in.ID] = true
		if !m.known[in.ID] {
			from := in.Started
			if from.Before(m.last) {
				from = m.last
			}
			m.sum += max(0, at.Sub(from).Seconds())
		}
	}
	m.known, m.last = known, at
}

func (m *meter) seconds(now time.Time) float64 {
	return m.sum + float64(len(m.known))*max(0, now.Sub(m.last).Seconds())
}
