package probe

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A machine or an agent that stands still looks like a link without bandwidth: its probes time out. So each answer tells how many beats the
// server has made so far, and the prober compares them with the time that passed on its own clock.

// awakeHeader is the number of beats that a server has made since it started.
const awakeHeader = "Quell-Awake"

// beat is the time between two beats. While its process is stopped or its machine is paused, a server makes none.
const beat = 100 * time.Millisecond

// pulse counts the beats of a server.
type pulse struct {
	beats   atomic.Int64
	ended   chan struct{}
	endOnce sync.Once
}

func newPulse() *pulse { return &pulse{ended: make(chan struct{})} }

// run counts until end is called. A ticker skips the beats for which it was not read in time, and does not make up for them.
func (p *pulse) run() {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-ticker.C:
			p.beats.Add(1)
		}
	}
}

func (p *pulse) end() { p.endOnce.Do(func() { close(p.ended) }) }

// beatsIn returns the number of beats in an answer's headers. It is 0 if there is none, or if it is more than those of a century.
func beatsIn(h http.Header) int64 {
	beats, err := strconv.ParseInt(h.Get(awakeHeader), 10, 36)
	if err != nil {
		return 0
	}
	return max(0, beats)
}

// doubt holds back the timeouts of a target that tells its beats. Its next answer shows whether it stood still meanwhile.
type doubt struct {
	held  []float64 // times of probes that timed out since the last answer, in ms
	since time.Time // when the first of them began

	beats int64     // in the last answer; 0: the target tells none
	at    time.Time // when that answer came
}

// timedOut takes a probe that timed out. It returns the times that count at once.
func (d *doubt) timedOut(began time.Time, ms float64) []float64 {
	if d.beats == 0 {
		return []float64{ms}
	}
	if len(d.held) == 0 {
		d.since = began
	}
	d.held = append(d.held, ms)
	return nil
}

// answered takes an answer. It returns the times of the timeouts before it that count, and for how long the target stood still. If that is
// most of the time since the first of these probes began, none counts. One beat may be missing by rounding. A target that makes fewer beats
// than before was started again.
func (d *doubt) answered(now time.Time, beats int64) (count []float64, asleep time.Duration) {
	held, made := d.held, beats
	if beats >= d.beats {
		made -= d.beats
	}
	if d.beats > 0 && len(held) > 0 {
		asleep = now.Sub(d.at) - time.Duration(made)*beat
	}
	d.held, d.beats, d.at = nil, beats, now
	if asleep > now.Sub(d.since)/2+beat {
		return nil, asleep
	}
	return held, 0
}
