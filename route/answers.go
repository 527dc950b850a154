package route

import (
	"math"
	"slices"
	"time"
)

// answers are a candidate's newest answers, by which it expects how long the next one takes. They are kept in order as
// well as they came, because a picker asks several times for each answer that it gets.
type answers struct {
	count  int                 // kept: the first ones of sorted, and in ring those from the oldest on
	oldest int                 // place in ring
	since  time.Duration       // when the oldest came
	sorted [answersKept]answer // by requests in flight, then by time
	ring   [answersKept]datedAnswer
}

type answer struct {
	inFlight int64
	seconds  float64
}

type datedAnswer struct {
	answer
	at time.Duration
}

func (a answer) before(b answer) bool {
	return a.inFlight < b.inFlight || a.inFlight == b.inFlight && a.seconds < b.seconds
}

// place is where an answer stands in order, or belongs.
func (a *answers) place(x answer) int {
	low, high := 0, a.count
	for low < high {
		if middle := (low + high) / 2; a.sorted[middle].before(x) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (a *answers) add(now time.Duration, inFlight int64, seconds float64) {
	a.forget(now)
	if a.count == answersKept {
		a.drop()
	}
	x := answer{inFlight, seconds}
	at := a.count
	for ; at > 0 && x.before(a.sorted[at-1]); at-- {
		a.sorted[at] = a.sorted[at-1]
	}
	a.sorted[at] = x
	a.ring[(a.oldest+a.count)%answersKept] = datedAnswer{x, now}
	a.count++
	a.since = a.ring[a.oldest].at
}

// drop leaves the oldest answer out.
func (a *answers) drop() {
	at := a.place(a.ring[a.oldest].answer)
	copy(a.sorted[at:a.count-1], a.sorted[at+1:a.count])
	a.count--
	a.oldest = (a.oldest + 1) % answersKept
	a.since = a.ring[a.oldest].at
}

// forget drops what is too old to count.
func (a *answers) forget(now time.Duration) {
	for a.count > 0 && now-a.since > answersRelevant {
		a.drop()
	}
}

// expected is the median of the recent answers to requests that met about so many others: of those whose number was
// nearest. It is 0 if there is none.
func (a *answers) expected(now time.Duration, inFlight int64) float64 {
	if a == nil {
		return 0
	}
	if a.forget(now); a.count == 0 {
		return 0
	}
	kept := a.sorted[:a.count]
	fewer := 0
	for fewer < len(kept) && kept[fewer].inFlight < inFlight {
		fewer++
	}
	upTo := fewer
	for upTo < len(kept) && kept[upTo].inFlight == inFlight {
		upTo++
	}
	if upTo > fewer {
		return kept[(fewer+upTo)/2].seconds
	}
	return a.nearest(inFlight)
}

// nearest is the median of the answers whose number in flight is nearest to one that no answer has.
func (a *answers) nearest(inFlight int64) float64 {
	var space [answersKept]float64
	near, nearest := space[:0], int64(math.MaxInt64)
	for _, k := range a.sorted[:a.count] {
		distance := max(k.inFlight-inFlight, inFlight-k.inFlight)
		if distance < nearest {
			near, nearest = near[:0], distance
		}
		if distance == nearest {
			near = append(near, k.seconds)
		}
	}
	slices.Sort(near) // those above follow those below
	return near[len(near)/2]
}

// inFlightWindow keeps the numbers of requests in flight that the newest probes told.
type inFlightWindow struct {
	ring []int64
	next int
	runs []run // in order: there are few different numbers as a rule
}

// run is a number and how often it is in the window.
type run struct {
	inFlight int64
	count    int
}

func (w *inFlightWindow) add(inFlight int64) {
	if len(w.ring) < inFlightsKept {
		w.ring = append(w.ring, inFlight)
	} else {
		old := w.ring[w.next]
		w.ring[w.next] = inFlight
		w.next = (w.next + 1) % inFlightsKept
		if old == inFlight {
			return
		}
		w.drop(old)
	}
	at := w.place(inFlight)
	if at == len(w.runs) || w.runs[at].inFlight != inFlight {
		w.runs = slices.Insert(w.runs, at, run{inFlight: inFlight})
	}
	w.runs[at].count++
}

func (w *inFlightWindow) drop(inFlight int64) {
	at := w.place(inFlight)
	if w.runs[at].count--; w.runs[at].count == 0 {
		w.runs = slices.Delete(w.runs, at, at+1)
	}
}

// place is where a number's run is, or belongs.
func (w *inFlightWindow) place(inFlight int64) int {
	at := 0
	for at < len(w.runs) && w.runs[at].inFlight < inFlight {
		at++
	}
	return at
}

// quantile is the number above which a candidate is hot.
func (w *inFlightWindow) quantile() int64 {
	n := len(w.ring)
	above := n - int(math.Ceil(hotQuantile*float64(n)))
	for at := len(w.runs) - 1; at >= 0; at-- {
		if above < w.runs[at].count {
			return w.runs[at].inFlight
		}
		above -= w.runs[at].count
	}
	return math.MaxInt64
}
