package model

import (
	"math"
	"slices"
)

const (
	// band is how far the median of a period's response times may be from similar earlier windows: a quarter.
	band = 0.22
	// beyond is how many standard deviations of similar earlier windows that difference must be at least.
	beyond = 1.5
	// driftAfter is how many periods in a row must be outside the band before what was learned is dropped.
	driftAfter = 4
	// wildGap is a difference that a service seldom makes, but a wrong unit or a page of errors does: a factor of 30. wildAfter is how many
	// periods in a row must show it before it counts as a change of the service all the same.
	wildGap, wildAfter = 3.4, 30
	// driftWindows is how many windows that must be. The bursts of a single instance's requests may last for some periods.
	driftWindows = 8
	// explains is the part of that difference from which on neighbours are its cause, and not a change of the service.
	explains = 0.5
	// mild is the severity up to which a window is judged. The law of more severe neighbours is too uncertain.
	mild = 0.35
	// minRequests is how many response times a period needs for that judgement.
	minRequests = 20
	// minFree is the part of a resource that must be free. With less, queues grow and drain over several periods, and response times say
	// nothing about the service.
	minFree = 0.15
)

// departs counts periods whose response times differ from those of similar earlier windows, and returns whether there were so many in a
// row that the service must have changed: a release, other requests, other machines. Single disturbed instances do not count.
func (r *Record) departs(windows []Window, period int) bool {
	r.Wild = 0
	if r.Law == nil {
		return false
	}
	var gaps, spreads []float64
	requests := 0
	for i := range windows {
		w := &windows[i]
		if gap, spread, ok := r.gap(w, period); ok && w.N >= fewest {
			gaps, spreads = append(gaps, gap), append(spreads, spread)
			requests += w.N
		}
	}
	if requests < minRequests {
		return false
	}
	limit, gap := max(band, beyond*middle(spreads)), common(gaps)
	before := r.Off
	switch {
	case gap > limit:
		r.Off = max(r.Off, 0) + 1
	case gap < -limit:
		r.Off = min(r.Off, 0) - 1
	default:
		r.Off = 0
	}
	if r.Off == 0 || r.Off*before < 0 {
		r.OffWindows = 0
	}
	r.OffWindows += len(gaps)
	patience := driftAfter
	if math.Abs(gap) > wildGap {
		r.Wild, patience = round(math.Exp(gap)), wildAfter
	}
	if max(r.Off, -r.Off) < patience || r.OffWindows < driftWindows {
		return false
	}
	if r.neighbours(windows, period) >= explains*math.Abs(gap) {
		r.Off, r.OffWindows = 0, 0
		return false
	}
	return true
}

const (
	// creepEvery is how often, in periods, a slow change of the service is looked for.
	creepEvery = 10
	// minCreep is the smallest slow change, as a logarithm, and sureOfCreep how many of its standard errors it must be.
	minCreep, sureOfCreep = 0.06, 4
)

// creep looks for a slow change of the service, such as a mix of requests that shifts during an hour: each period is within the band then,
// and windows of rare kinds would tell of the past for ever. It compares the older half of the windows with newer ones of similar use and
// severity in groups alike. If they differ by more than chance, their response times are dropped. Older windows with no newer one like
// them stay.
func (r *Record) creep() {
	if r.Law == nil || len(r.Windows) < 2*driftWindows {
		return
	}
	severity := make([]float64, len(r.Windows))
	for i := range r.Windows {
		severity[i] = math.Log1p(r.Law.felt(&r.Windows[i]))
	}
	half := len(r.Windows) / 2
	var gaps []float64
	var old []int
	for i := range half {
		if gap, ok := r.outdated(i, half, severity); ok {
			gaps, old = append(gaps, gap), append(old, i)
		}
	}
	if len(gaps) < driftWindows {
		return
	}
	gap := middle(gaps)
	for i := range gaps {
		gaps[i] = math.Abs(gaps[i] - gap)
	}
	se := 1.25 * middle(gaps) / 0.6745 / math.Sqrt(float64(len(gaps))) // of a median
	if math.Abs(gap) < max(minCreep, sureOfCreep*se) {
		return
	}
	for _, i := range old {
		r.Windows[i].mute()
	}
}

// amid returns whether two windows are of groups of like size and use.
func (w *Window) amid(o *Window) bool {
	return w.Alone == o.Alone && w.sized(o) && math.Abs(w.Crowd-o.Crowd) <= lawStep
}

// sized returns whether two windows are of groups of like size.
func (w *Window) sized(o *Window) bool { return math.Abs(w.Size-o.Size) <= 0.1*o.Size }

// outdated returns by how much the response time of newer windows, from the given one on, differs from that of window i at the same use and
// severity, as a logarithm.
func (r *Record) outdated(i, from int, severity []float64) (gap float64, ok bool) {
	w := &r.Windows[i]
	if w.N < fewest || severity[i] > math.Log1p(mild) || w.Use > 1-minFree {
		return 0, false
	}
	var newer []float64
	for j := from; j < len(r.Windows); j++ {
		o := &r.Windows[j]
		if o.N >= fewest && o.amid(w) && math.Abs(o.Use-w.Use) <= lawStep && math.Abs(severity[j]-severity[i]) <= 0.1 {
			newer = append(newer, math.Log(o.MeanMS)+priorExponent.Mean*(crowding(w.Use)-crowding(o.Use))+r.Shown*(severity[i]-severity[j]))
		}
	}
	if len(newer) < driftAfter {
		return 0, false
	}
	return middle(newer) - math.Log(w.MeanMS), true
}

// neighbours returns by how much neighbours changed response times in the last periods, as a logarithm in the direction of Off. The probes
// of one window may be too few to show a neighbour, and a small group may have one beside every instance. The probes of all these windows
// together show it.
func (r *Record) neighbours(windows []Window, period int) float64 {
	var stretch, probes float64
	add := func(w *Window) {
		if w.N < fewest {
			return
		}
		stretch += float64(w.ProbeN) * w.ProbeMS / r.Law.probe(w.Use)
		probes += float64(w.ProbeN)
	}
	for i := range windows {
		add(&windows[i])
	}
	for i := range r.Windows {
		if r.Windows[i].At > period-max(r.Off, -r.Off) {
			add(&r.Windows[i])
		}
	}
	return math.Copysign(1, float64(r.Off)) * r.Shown * math.Log(stretch/probes)
}

// gap returns by how much a window's response time differs from earlier windows of similar use and severity, as a logarithm, after
// the law's difference between them, and the standard deviation of these. It returns false if there are too few, if neighbours disturb the
// instance more than mildly, or if the resource is nearly full.
func (r *Record) gap(w *Window, period int) (gap, spread float64, ok bool) {
	felt := r.Law.felt(w)
	if felt > mild || r.Law.free(w.Use, felt) < minFree {
		return 0, 0, false
	}
	var others []float64
	for i := range r.Windows {
		o := &r.Windows[i]
		if o.N < fewest || o.Alone != w.Alone || o.At >= period-driftAfter || math.Abs(o.Use-w.Use) > 2*lawStep {
			continue
		}
		severity := r.Law.felt(o)
		if r.Law.free(o.Use, severity) < minFree || math.Abs(math.Log1p(severity)-math.Log1p(felt)) > 0.3 {
			continue
		}
		law := r.Shown*(math.Log1p(felt)-math.Log1p(severity)) + r.Law.OtherExponent*(w.Other-o.Other)
		others = append(others, math.Log(o.MeanMS)+law+r.byUse(w, o, math.Log(w.MeanMS/o.MeanMS)-law))
	}
	if len(others) < driftAfter {
		return 0, 0, false
	}
	usual := middle(others)
	for i := range others {
		others[i] = math.Abs(others[i] - usual)
	}
	return math.Log(w.MeanMS) - usual, middle(others) / 0.6745, true
}

// byUse returns how much longer than in o a response takes in w because of use, as a logarithm. seen is by how much it does. Whether the
// instances are each for itself or one station is not known well from groups of one size: of what that allows, the nearest to seen counts.
func (r *Record) byUse(w, o *Window, seen float64) float64 {
	own := priorExponent.Mean * (crowding(w.Use) - crowding(o.Use))
	if r.Law.Together == nil || w.sized(o) {
		return own
	}
	a, _ := r.Law.crowd(w)
	b, _ := r.Law.crowd(o)
	one := math.Log1p(WaitFactor(a.Size, a.Use)) - math.Log1p(WaitFactor(b.Size, b.Use))
	return min(max(seen, min(own, one)), max(own, one))
}

// common sorts values and returns the one in the middle. Of two in the middle it returns the one nearer to 0, so that one instance of two
// does not decide.
func common(values []float64) float64 {
	high := middle(values)
	if low := values[(len(values)-1)/2]; math.Abs(low) < math.Abs(high) {
		return low
	}
	return high
}

// middle sorts values and returns the one in the middle.
func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// muted returns windows without their response times.
func muted(windows []Window) []Window {
	windows = slices.Clone(windows)
	for i := range windows {
		windows[i].mute()
	}
	return windows
}

func (w *Window) mute() { w.N, w.MeanMS, w.MetricMS, w.Rate = 0, 0, 0, 0 }

// beginAgain drops the response times from before a change of the service. Probes are kept, because machines stayed the same.
func (r *Record) beginAgain(period int) {
	for i := range r.Windows {
		if w := &r.Windows[i]; w.At < period-driftAfter+1 {
			w.mute()
		}
	}
	r.Wild = 0
	r.Off, r.OffWindows, r.Drifted = 0, 0, period
	r.Errors, r.Quantile = nil, 0
}
