package route

import (
	"math"
	"slices"
	"sort"
	"time"
)

// answers are a candidate's newest answers, from which the time of the next answer is predicted. They are kept both in
// order of arrival and sorted, because a picker uses them several times for each new answer.
type answers struct {
	count  int                 // number of answers kept: the first count of sorted, and in ring count answers from oldest on
	upTo   uint64              // byte k: how many answers had k or fewer requests in flight
	oldest int                 // position of the oldest answer in ring
	since  time.Duration       // when the oldest answer arrived
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

// few is the number of requests in flight from which on answers are found by a search. Smaller numbers are common, so upTo counts the
// answers for each of them.
const few = 8

// ones has a one in each byte.
const ones = 0x0101010101010101

// run returns the range of sorted answers with this many requests in flight. If there are none, the range is
// empty, at the place where they would be.
func (a *answers) run(inFlight int64) (from, to int) {
	if inFlight < few {
		upTo := a.upTo << 8 // from the byte for 0 requests on: how many answers had fewer
		shift := uint(8 * inFlight)
		return int(upTo >> shift & 0xff), int(a.upTo >> shift & 0xff)
	}
	from = sort.Search(a.count, func(i int) bool { return a.sorted[i].inFlight >= inFlight })
	return from, from + sort.Search(a.count-from, func(i int) bool { return a.sorted[from+i].inFlight > inFlight })
}

// place returns the position of an answer in the order of sorted, or where it would be.
func (a *answers) place(x answer) int {
	low, high := a.run(x.inFlight)
	for low < high {
		if middle := (low + high) / 2; a.sorted[middle].seconds < x.seconds {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// countable returns what an answer adds to upTo.
func (x answer) countable() uint64 {
	if x.inFlight >= few {
		return 0
	}
	return ones << uint(8*x.inFlight)
}

func (a *answers) add(now time.Duration, inFlight int64, seconds float64) {
	a.forget(now)
	if a.count == answersKept {
		a.drop()
	}
	x := answer{inFlight, seconds}
	at := a.place(x)
	copy(a.sorted[at+1:a.count+1], a.sorted[at:a.count])
	a.sorted[at] = x
	a.upTo += x.countable()
	a.ring[(a.oldest+a.count)%answersKept] = datedAnswer{x, now}
	a.count++
	a.since = a.ring[a.oldest].at
}

// drop removes the oldest answer.
func (a *answers) drop() {
	x := a.ring[a.oldest].answer
	at := a.place(x)
	copy(a.sorted[at:a.count-1], a.sorted[at+1:a.count])
	a.upTo -= x.countable()
	a.count--
	a.oldest = (a.oldest + 1) % answersKept
	a.since = a.ring[a.oldest].at
}

// forget removes answers that are too old to count.
func (a *answers) forget(now time.Duration) {
	for a.count > 0 && now-a.since > answersRelevant {
		a.drop()
	}
}

// expected returns the median time of recent answers to requests that were sent when about as many others were in flight: the
// answers with the number nearest to inFlight. It is 0 if there is no answer.
func (a *answers) expected(now time.Duration, inFlight int64) float64 {
	if a == nil {
		return 0
	}
	if a.forget(now); a.count == 0 {
		return 0
	}
	from, to := a.run(inFlight)
	if to > from {
		return a.sorted[(from+to)/2].seconds
	}
	return a.nearest(inFlight, from)
}

// nearest returns the median time of the answers whose number in flight is nearest to inFlight. No answer has exactly inFlight, whose
// position in sorted would be place. If a number below and one above are equally near, the answers of both count.
func (a *answers) nearest(inFlight int64, place int) float64 {
	below, above := place, place // the runs are from below to place and from place to above
	distance := int64(math.MaxInt64)
	if place < a.count {
		distance = a.sorted[place].inFlight - inFlight
	}
	if place > 0 {
		distance = min(distance, inFlight-a.sorted[place-1].inFlight)
	}
	for below > 0 && inFlight-a.sorted[below-1].inFlight == distance {
		below--
	}
	for above < a.count && a.sorted[above].inFlight-inFlight == distance {
		above++
	}
	i, j := below, place // the answers of each run are in order of time
	lower := func() bool { return j == above || i < place && a.sorted[i].seconds <= a.sorted[j].seconds }
	for range (above - below) / 2 {
		if lower() {
			i++
		} else {
			j++
		}
	}
	if lower() {
		return a.sorted[i].seconds
	}
	return a.sorted[j].seconds
}

// inFlightWindow keeps the numbers of requests in flight from the newest probes.
type inFlightWindow struct {
	ring []int64
	next int
	upTo uint64 // byte k: how many numbers are k or less
	many []run  // numbers for which upTo has no byte, in increasing order
}

// run is a number and how often it occurs in the window.
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
	if inFlight < few {
		w.upTo += ones << uint(8*inFlight)
		return
	}
	at := w.place(inFlight)
	if at == len(w.many) || w.many[at].inFlight != inFlight {
		w.many = slices.Insert(w.many, at, run{inFlight: inFlight})
	}
	w.many[at].count++
}

func (w *inFlightWindow) drop(inFlight int64) {
	if inFlight < few {
		w.upTo -= ones << uint(8*inFlight)
		return
	}
	at := w.place(inFlight)
	if w.many[at].count--; w.many[at].count == 0 {
		w.many = slices.Delete(w.many, at, at+1)
	}
}

// place returns the position of a number's run in many, or where it would be.
func (w *inFlightWindow) place(inFlight int64) int {
	at := 0
	for at < len(w.many) && w.many[at].inFlight < inFlight {
		at++
	}
	return at
}

// quantile returns the number of requests in flight above which a candidate is hot (loaded too much).
func (w *inFlightWindow) quantile() int64 {
	if len(w.ring) == 0 {
		return math.MaxInt64
	}
	rank := int(math.Ceil(hotQuantile * float64(len(w.ring))))
	for k := range int64(few) {
		if int(w.upTo>>uint(8*k)&0xff) >= rank {
			return k
		}
	}
	rank -= int(w.upTo >> 56)
	for _, r := range w.many {
		if rank -= r.count; rank <= 0 {
			return r.inFlight
		}
	}
	return math.MaxInt64
}
