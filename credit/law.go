package credit

import (
	"math"
	"time"
)

// Episode is the time between two balances that a provider showed.
type Episode struct {
	Use   float64 // mean use
	Drain float64 // credits that the balance lost in a second
}

// An episode must be this long: a shorter one is mostly rounding, and in a longer one the balance may have reached the cap.
const (
	shortestEpisode = 30 * time.Second
	longestEpisode  = time.Hour
)

// newEpisode returns the episode between two balances; nil if nothing can be learned from it. At a balance of 0 the provider limits the
// use.
func newEpisode(from, to, used float64, length time.Duration) *Episode {
	if length < shortestEpisode || length > longestEpisode || from <= 0 || to <= 0 {
		return nil
	}
	seconds := length.Seconds()
	return &Episode{Use: used / seconds, Drain: (from - to) / seconds}
}

// Law is how fast credits drain by use, learned from episodes: the line drain = R_c use - R_e of Eq. 2. It holds sums over episodes, of
// which older ones fade. Its zero value has learned nothing.
type Law struct {
	N  float64 `json:"n"`
	X  float64 `json:"x"` // uses
	Y  float64 `json:"y"` // drains
	XX float64 `json:"xx"`
	XY float64 `json:"xy"`
	YY float64 `json:"yy"`
}

// Constants of laws.
const (
	faded          = 0.995 // what is left of the weight of earlier episodes after one more
	leastEpisodes  = 4.9   // weight of five episodes: from these a law is taken
	mostDoubt      = 0.2   // the slope must be known within this part of itself, with two standard errors
	wholeProcessor = 1.0 / 60
)

// With returns the law after one more episode.
func (l Law) With(e Episode) Law {
	for _, sum := range []struct {
		of   *float64
		more float64
	}{{&l.N, 1}, {&l.X, e.Use}, {&l.Y, e.Drain}, {&l.XX, e.Use * e.Use}, {&l.XY, e.Use * e.Drain}, {&l.YY, e.Drain * e.Drain}} {
		*sum.of = faded**sum.of + sum.more
	}
	return l
}

// Bucket returns what was learned: the credits of a resource whose uses are fractions. ok is false if too little is known. If the resource
// is a number of processors (else 0), what they spend follows from the definition of a credit, one processor for one minute, and only what
// is earned is learned.
func (l Law) Bucket(processors float64) (b Bucket, ok bool) {
	if l.N < leastEpisodes {
		return Bucket{}, false
	}
	x, y := l.X/l.N, l.Y/l.N
	slope := processors * wholeProcessor
	if processors == 0 {
		sxx, sxy, syy := l.XX/l.N-x*x, l.XY/l.N-x*y, l.YY/l.N-y*y
		if sxx <= 0 {
			return Bucket{}, false
		}
		slope = sxy / sxx
		doubt := 2 * math.Sqrt(math.Max(0, syy-slope*sxy)/sxx/(l.N-2))
		if !(slope > 0) || doubt > mostDoubt*slope {
			return Bucket{}, false
		}
	}
	b = Bucket{Baseline: x - y/slope, Burst: 1, PerUse: slope}
	return b, b.Sound()
}
