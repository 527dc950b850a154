package life

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quellhq/quell"
)

// Durations counts the response times of all readings of a service. The zero value has none.
type Durations struct{ h *hdrhistogram.Histogram }

// merge adds a reading's response times. Without a receiver it does nothing.
func (d *Durations) merge(h *hdrhistogram.Histogram) {
	if d == nil {
		return
	}
	if d.h == nil {
		d.h = hdrhistogram.New(1, longest, 2)
	}
	d.h.Merge(h)
}

// Replaced adds the response times of a reading that is thrown away before it was merged into a snapshot. What cannot be decoded is left
// out.
func (d *Durations) Replaced(r *quell.Reading) {
	if len(r.LatencyHDR) == 0 {
		return
	}
	if h, err := decodeDurations(r.LatencyHDR); err == nil {
		d.merge(h)
	}
}

// Each calls f with every duration that was counted, in microseconds and with a precision of 1%, and how often.
func (d *Durations) Each(f func(us, n int64)) {
	if d.h == nil {
		return
	}
	for _, bar := range d.h.Distribution() {
		if bar.Count > 0 {
			f(bar.From, bar.Count)
		}
	}
}

func decodeDurations(encoded []byte) (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("its histogram cannot be read: %w", err)
	}
	if h.Max() > longest {
		return nil, fmt.Errorf("its histogram holds %d microseconds, which is absurd", h.Max())
	}
	return h, nil
}
