package tick

import (
	"context"
	"time"
)

// Subsamples paces short looks at what comes and goes between two samples.
type Subsamples struct {
	Look func(now time.Time)
	// Every is the time between two looks. It should be no whole part of a second, so that programs with a rhythm are not always seen in
	// the same state.
	Every time.Duration
	Pause int              // the pause after a look is at least this many times as long as the look took, at most one second
	Now   func() time.Time // nil means time.Now
	next  time.Time
}

// NewSubsamples returns the pace at which an instance's sensors subsample. The pause after a subsample is at least 250 times as long
// as it took, at most one second. now is the clock; nil means time.Now.
func NewSubsamples(sensors interface{ Subsample() }, now func() time.Time) *Subsamples {
	return &Subsamples{Look: func(time.Time) { sensors.Subsample() }, Every: 170 * time.Millisecond, Pause: 250, Now: now}
}

// Until looks until that moment, and returns whether ctx has not ended.
func (g *Subsamples) Until(ctx context.Context, end time.Time) bool {
	if now := g.now(); g.next.Before(now) {
		g.next = now.Add(g.Every)
	}
	for g.next.Before(end) {
		if !Sleep(ctx, g.next.Sub(g.now())) {
			return false
		}
		began := g.now()
		g.Look(began)
		ended := g.now()
		g.next = ended.Add(max(g.Every, min(time.Duration(g.Pause)*ended.Sub(began), time.Second))) // it may have been stopped meanwhile
	}
	return Sleep(ctx, end.Sub(g.now()))
}

func (g *Subsamples) now() time.Time {
	if g.Now == nil {
		return time.Now()
	}
	return g.Now()
}
