package route

import (
	"math"
	"slices"
	"time"
)

// answers are a candidate's newest answers, by which it expects how long the next one takes.
type answers struct {
	kept [answersKept]answer
	n    int // ever added
}

type answer struct {
	at       time.Duration
	inFlight int64
	seconds  float64
}

func (a *answers) add(now time.Duration, inFlight int64, seconds float64) {
	a.kept[a.n%answersKept] = answer{now, inFlight, seconds}
	a.n++
}

// expected is the median of the recent answers to requests that met about so many others: of those whose number was
// nearest. It is 0 if there is none.
func (a *answers) expected(now time.Duration, inFlight int64) float64 {
	if a == nil {
		return 0
	}
	var space [answersKept]float64
	near, nearest := space[:0], int64(math.MaxInt64)
	for _, k := range a.kept[:min(a.n, answersKept)] {
		distance := max(k.inFlight-inFlight, inFlight-k.inFlight)
		if now-k.at > answersRelevant || distance > nearest {
			continue
		}
		if distance < nearest {
			near, nearest = near[:0], distance
		}
		near = append(near, k.seconds)
	}
	if len(near) == 0 {
		return 0
	}
	slices.Sort(near)
	return near[len(near)/2]
}

// inFlightWindow keeps the numbers of requests in flight that the newest probes told.
type inFlightWindow struct {
	ring   []int64
	sorted []int64
	next   int
}

func (w *inFlightWindow) add(inFlight int64) {
	if len(w.ring) < inFlightsKept {
		w.ring = append(w.ring, inFlight)
	} else {
		old, _ := slices.BinarySearch(w.sorted, w.ring[w.next])
		w.sorted = slices.Delete(w.sorted, old, old+1)
		w.ring[w.next] = inFlight
		w.next = (w.next + 1) % inFlightsKept
	}
	at, _ := slices.BinarySearch(w.sorted, inFlight)
	w.sorted = slices.Insert(w.sorted, at, inFlight)
}

// quantile is the number above which a candidate is hot.
func (w *inFlightWindow) quantile() int64 {
	if len(w.sorted) == 0 {
		return math.MaxInt64
	}
	return w.sorted[int(math.Ceil(hotQuantile*float64(len(w.sorted))))-1]
}
