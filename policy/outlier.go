package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/setting"
)

// OutlierSettings are the settings of the policy outlier. Shares are fractions.
type OutlierSettings struct {
	Requests int           // a window with fewer finished requests does not give a response time on its own
	Slower   float64       // an instance is cut if its response time is at least this many times the others' median
	Errors   float64       // an instance is cut if its share of failed requests exceeds the others' by at least this
	Hold     time.Duration // how long a first cut stays before the share grows again
	Most     float64       // the largest part of the group that is cut at once
}

var Outlier = Spec[OutlierSettings]{
	Name: "outlier", About: "cuts the share of an instance whose response times or errors leave their band, within two periods",
	Scope:    FastScope,
	Defaults: OutlierSettings{Requests: 5, Slower: 2, Errors: 0.05, Hold: 10 * time.Second, Most: 0.3},
	Keys: func(s *OutlierSettings) setting.Table {
		return setting.Table{
			setting.Opt("requests", setting.Whole(&s.Requests).Between(1, 1_000_000),
				"a window with fewer finished requests is not used alone for a response time"),
			setting.Opt("slower", setting.Decimal(&s.Slower).Between(1.1, 1000),
				"an instance is cut if its response time is at least this many times the others' median"),
			setting.Opt("errors", setting.Share(&s.Errors).Above(0).Between(0, 1),
				"an instance is cut if its share of failed requests exceeds the others' by at least this"),
			setting.Opt("hold", setting.Duration(&s.Hold).Between(time.Second, time.Hour),
				"how long a first cut stays before the share grows again; repeated ones stay longer"),
			setting.Opt("most", setting.Share(&s.Most).Above(0).Between(0, 1),
				"the largest part of the group that is cut at once; one instance of two or more always may be"),
		}
	},
	Instance: Empty[outlierInstance],
	Decide:   outlier,
}

// Constants of the bands. A band is the range in which the ratio of an instance's response time to the others' median usually is. Ratios
// are compared on a logarithmic scale.
const (
	bandWidth     = 4.0  // half the width of a band, in deviations from the instance's usual ratio
	farOut        = 8.0  // deviations beyond which one window is enough for a cut
	leastSpread   = 0.1  // a measured deviation below this counts as this
	unknownSpread = 0.35 // the same, until bandKnown windows were seen
	bandKnown     = 20
	bandMemory    = 50 // windows over which a band is learned
	usualErrors   = 0.01
	surely        = 1e-6 // errors in one window lead to a cut if their probability by chance is below this
	probably      = 1e-3 // errors in two windows lead to a cut if the probability of each is below this
	leastCut      = 0.5  // the largest part of a share that a first cut leaves
	deepestCut    = 0.1  // the smallest part that a first cut leaves if the instance is only slow
	mostRepeats   = 5    // number of repeated cuts after which the time of a cut no longer grows
	failedHold    = 3    // a cut that leaves nothing stays this many times as long, because each attempt to end it costs failed requests
	mostPooled    = 5    // the most windows with too few requests that are taken together
)

// outlierInstance is what outlier remembers of an instance.
type outlierInstance struct {
	At      time.Time `json:"at,omitzero"`       // end of the last window that was judged
	Usual   float64   `json:"usual,omitempty"`   // mean of the logarithm of the ratio of its response time to the others' median
	Spread  float64   `json:"spread,omitempty"`  // variance of that logarithm
	Windows int       `json:"windows,omitempty"` // number of windows from which the band was learned
	Out     int       `json:"out,omitempty"`     // number of consecutive windows outside the band
	Cut     float64   `json:"cut,omitempty"`     // the part of its share that is cut: 0 none, 1 all
	Until   time.Time `json:"until,omitzero"`    // when the cut may shrink
	Repeats int       `json:"repeats,omitempty"` // number of cuts that followed each other without a long calm between them
	Trial   bool      `json:"trial,omitempty"`   // some of the share came back after the cut was last renewed
	Calm    time.Time `json:"calm,omitzero"`     // when the last cut was over
	MS      float64   `json:"ms,omitempty"`      // its last known response time; 0: none was known lately
	Pool    pool      `json:"pool,omitzero"`     // the windows after that, which had too few requests each
	Others  *float64  `json:"others,omitempty"`  // open requests that are no ordinary ones; see unexplained
}

// pool sums up several windows, each of which had too few requests for a response time.
type pool struct {
	Windows  int     `json:"windows"`
	Requests int     `json:"requests"`
	SumMS    float64 `json:"sum_ms"` // sum of each window's statistic times its number of requests
}

// outlier returns what is remembered of the instance's response times and errors. ICE watches these in the same way.
func (m *Member) outlier() *outlierInstance {
	if mem, ok := m.mem.Memory.(*iceInstance); ok {
		return &mem.Slow
	}
	return m.mem.Memory.(*outlierInstance)
}

// window is what one instance showed in the last window.
type window struct {
	member   *Member
	fresh    bool    // not judged before
	tells    bool    // with the pooled windows before it, it had enough requests for a response time
	ms       float64 // its last response time, by the objective's statistic; 0: unknown
	errors   float64 // failed and refused requests as a fraction of all
	requests float64 // number of finished requests
	ratio    float64 // logarithm of ms over the others' median; 0 if either is unknown
	median   float64 // the others' median response time in milliseconds
	sure     bool    // this window alone is enough for a cut
	slow     string  // how much longer than the others it takes, if that is outside its band
	slowSure bool    // that alone is enough for a cut
	why      string  // why the instance is outside its band; empty if it is inside
}

// outlier is outlier ejection for response times and errors. It cuts the share of an instance at once in two cases: the instance misses the
// objective and takes several times as long as the others and longer than usual, or clearly more of its requests fail than of the others'.
// Later the share doubles step by step. If the instance leaves its band again after a step, it is cut again.
func outlier(in *Input, set OutlierSettings, g *Group, _ *State) quell.Plan {
	RememberedOf[outlierInstance](g)
	j := &judgement{in: in, set: set, now: in.Snapshot.At}
	j.answers = someAnswered(g)
	j.windows(g)
	j.compare()
	j.cut(len(g.Ready))
	j.release(g)
	return j.plan
}

// judgement is the state of one decision.
type judgement struct {
	in   *Input
	set  OutlierSettings
	now  time.Time
	list []window
	plan quell.Plan

	answers     bool      // some instance finished a request
	times       []float64 // response times of the instances that are not cut, in increasing order
	failed, all float64   // failed and finished requests of all instances together
}

// windows reads the last window of every ready instance.
func (j *judgement) windows(g *Group) {
	for _, m := range g.Ready {
		o := m.Observation
		if o == nil {
			continue
		}
		mem := m.outlier()
		w := window{member: m, fresh: o.At.After(mem.At)}
		if mem.At = o.At; o.ErrorRate != nil {
			w.errors = *o.ErrorRate
		}
		w.requests = finished(o, math.Min(1, w.errors+refused(o)))
		w.errors = math.Min(1, w.errors+refused(o)-orNone(o.LimitedRate)) // clients that ask too often are no fault of the instance
		if w.fresh {
			mem.MS, w.tells = j.responseTime(o, mem)
		}
		if w.ms = mem.MS; w.ms > 0 && mem.Cut == 0 {
			j.times = append(j.times, w.ms)
		}
		j.failed += w.errors * w.requests
		j.all += w.requests
		j.list = append(j.list, w)
	}
	slices.Sort(j.times)
}

// finished returns how many requests ended in a window. Failed requests count, although they have no response time.
func finished(o *quell.Observation, errors float64) float64 {
	if o.LatencyMS != nil && o.LatencyMS.N > 0 && errors < 1 {
		return math.Round(float64(o.LatencyMS.N) / (1 - errors))
	}
	return math.Round(arrived(o))
}

func arrived(o *quell.Observation) float64 {
	if o.RequestRate == nil {
		return 0
	}
	return *o.RequestRate * o.WindowS
}

// responseTime returns the instance's response time in milliseconds, in the objective's statistic, and whether this window gives a new one.
// Windows with too few requests are taken together; if mostPooled of them are still too few, the time is unknown (0). If fewer than half of
// the requests that arrived were answered, the time comes from the open requests by Little's law, as the slow ones are still open. That
// needs some instance that answers, and leaves connections out that requests do not explain.
func (j *judgement) responseTime(o *quell.Observation, mem *outlierInstance) (ms float64, tells bool) {
	done, known := o.LatencyMS.Of(j.in.Service.SLO.Metric)
	n := 0
	if known {
		n = o.LatencyMS.N
	}
	if came := arrived(o); came >= 1 && answered(o, n) < came/2 {
		if open := mem.waiting(o, came); open >= 2 && j.answers {
			mem.Pool = pool{}
			return math.Max(done, 1000*open/(*o.RequestRate)), true
		}
	} else {
		mem.Others = unexplained(o)
	}
	p := &mem.Pool
	p.Windows, p.Requests, p.SumMS = p.Windows+1, p.Requests+n, p.SumMS+float64(n)*done
	whole := *p
	switch {
	case whole.Requests >= j.set.Requests:
		mem.Pool = pool{}
		return whole.SumMS / float64(whole.Requests), true
	case whole.Windows >= mostPooled:
		mem.Pool = pool{}
		return 0, false
	}
	return mem.MS, false
}

// answered returns how many requests of a window were answered, n if that is not reported.
func answered(o *quell.Observation, n int) float64 {
	if o.AnsweredRate == nil {
		return float64(n)
	}
	return math.Max(float64(n), math.Round(*o.AnsweredRate*o.WindowS))
}

// someAnswered returns whether any instance answered a request in its last window.
func someAnswered(g *Group) bool {
	return slices.ContainsFunc(g.Ready, func(m *Member) bool {
		return m.Observation != nil && m.Observation.LatencyMS != nil && m.Observation.LatencyMS.N > 0
	})
}

// waiting returns the number of open requests that wait for an answer. In the first window those that arrived before it count as others.
func (mem *outlierInstance) waiting(o *quell.Observation, came float64) float64 {
	if o.InFlight == nil {
		return 0
	}
	if mem.MS == 0 && mem.Others == nil {
		first := math.Max(0, *o.InFlight-came)
		mem.Others = &first
	}
	if mem.Others == nil {
		return *o.InFlight
	}
	return *o.InFlight - *mem.Others
}

// unexplained returns the number of open requests that the finished ones do not explain by Little's law: upgraded connections, streams and
// downloads that their clients pace. Nil means that it is unknown.
func unexplained(o *quell.Observation) *float64 {
	mean, ok := o.LatencyMS.Of(quell.Mean)
	if !ok || o.InFlight == nil || o.RequestRate == nil {
		return nil
	}
	others := math.Max(0, *o.InFlight-*o.RequestRate*mean/1000)
	return &others
}

// compare compares each instance's window with those of the others. An instance that is inside its band and not cut adds to its band.
func (j *judgement) compare() {
	for i := range j.list {
		w := &j.list[i]
		if !w.fresh {
			continue
		}
		j.compareTimes(w)
		j.compareErrors(w)
		mem := w.member.outlier()
		switch {
		case w.why != "":
			mem.Out++
		case w.tells:
			mem.Out = 0
			if w.median > 0 && mem.Cut == 0 {
				mem.learn(w.ratio)
			}
		}
	}
}

// compareTimes sets w.why if the response time is above its band, the objective and the setting slower.
func (j *judgement) compareTimes(w *window) {
	mem, least := w.member.outlier(), math.Log(j.set.Slower)
	if !w.tells || w.ms == 0 {
		return
	}
	if w.median = medianOfOthers(j.times, w.ms, mem.Cut == 0); w.median == 0 {
		return
	}
	w.ratio = math.Log(w.ms / w.median)
	if usual, spread := mem.band(least); w.ms > j.in.Service.SLO.ThresholdMS() && w.ratio > math.Max(least, usual+bandWidth*spread) {
		w.sure = w.ratio > math.Max(2*least, usual+farOut*spread)
		w.why = fmt.Sprintf("%s %.0f ms where the others have %.0f", j.in.Service.SLO.Metric, w.ms, w.median)
		w.slow, w.slowSure = w.why, w.sure
	}
}

// band returns the mean and the deviation of an instance's usual ratio. The mean is limited to most, the ratio at which an instance is cut,
// so that slowness never becomes usual.
func (mem *outlierInstance) band(most float64) (usual, spread float64) {
	least := leastSpread
	if mem.Windows < bandKnown {
		least = unknownSpread
	}
	return math.Min(mem.Usual, most), math.Max(least, math.Sqrt(mem.Spread))
}

// learn adds a ratio to the mean and the variance of the band.
func (mem *outlierInstance) learn(ratio float64) {
	mem.Windows = min(mem.Windows+1, bandMemory)
	part := 1 / float64(mem.Windows)
	off := ratio - mem.Usual
	mem.Usual += part * off
	mem.Spread = (1 - part) * (mem.Spread + part*off*off)
}

// compareErrors sets w.why if too many requests failed: it computes how likely at least as many failures are at the others' error rate.
func (j *judgement) compareErrors(w *window) {
	n, all := w.requests, j.all-w.requests
	if len(j.list) < 2 || n == 0 {
		return
	}
	elsewhere := 0.0
	if all > 0 {
		elsewhere = math.Max(0, j.failed-w.errors*w.requests) / all
	}
	count := math.Round(w.errors * n)
	if count == 0 || w.errors < elsewhere+j.set.Errors {
		return
	}
	chance := distuv.Binomial{N: n, P: math.Min(0.5, math.Max(elsewhere, usualErrors))}.Survival(count - 1)
	if chance < probably {
		w.sure = w.sure || chance < surely
		w.why = fmt.Sprintf("%.0f%% of its requests fail where the others' %.0f%% do", 100*w.errors, 100*elsewhere)
	}
}

// cut cuts the shares of instances that are outside their bands, the worst first. It never cuts more of the group than the setting most
// allows.
func (j *judgement) cut(ready int) {
	room := int(math.Max(1, math.Floor(j.set.Most*float64(ready)+quell.SumTolerance)))
	if ready < 2 {
		room = 0
	}
	var fresh []*window
	for i := range j.list {
		w := &j.list[i]
		mem := w.member.outlier()
		switch {
		case mem.Cut > 0:
			room--
			if w.fresh && w.why != "" {
				j.again(w, mem)
			}
		case w.fresh && (w.sure || mem.Out >= 2):
			fresh = append(fresh, w)
		}
	}
	if len(fresh) > room {
		AddReason(&j.plan, "outliers", "", "%d more instance(s) are out of their bands, and %d may be cut: more is load, or the whole service",
			len(fresh), max(0, room))
	}
	slices.SortStableFunc(fresh, func(a, b *window) int { return cmp.Compare(b.badness(), a.badness()) })
	for _, w := range fresh[:min(len(fresh), max(0, room))] {
		j.first(w, w.member.outlier())
	}
}

// badness orders the instances that are outside their bands: those with more errors come first, then the slower ones.
func (w *window) badness() float64 { return 1000*w.errors + w.ratio }

// first begins a cut of an instance that was not cut before.
func (j *judgement) first(w *window, mem *outlierInstance) {
	if j.now.Sub(mem.Calm) > 8*j.set.Hold {
		mem.Repeats = 0
	}
	mem.repeat()
	j.hold(mem, 1-w.leaves())
}

// leaves returns the part of a share that a cut leaves: nothing if requests fail, else the less the slower the instance is.
func (w *window) leaves() float64 {
	if w.ratio <= 0 || w.errors > 0 {
		return 0
	}
	return w.keeps()
}

// keeps returns the part of a share that a cut leaves an instance that is only slow: the less the slower it is.
func (w *window) keeps() float64 { return math.Min(leastCut, math.Max(deepestCut, math.Exp(-w.ratio))) }

// again halves the share of an instance that is outside its band although it is cut. If some of its share had come back, this counts as a
// repeated cut.
func (j *judgement) again(w *window, mem *outlierInstance) {
	if mem.Trial {
		mem.repeat()
	}
	j.hold(mem, 1-math.Min(w.leaves(), (1-mem.Cut)/2))
}

// hold cuts a share. Each repetition doubles the time for which the cut stays.
func (j *judgement) hold(mem *outlierInstance, cut float64) {
	hold := j.set.Hold << (mem.Repeats - 1)
	if cut == 1 {
		hold *= failedHold
	}
	mem.Cut, mem.Until, mem.Trial = cut, j.now.Add(hold), false
}

func (mem *outlierInstance) repeat() { mem.Repeats = min(mem.Repeats+1, mostRepeats) }

// release lets shares grow again if the time of their cut is over, and writes the present cuts into the plan.
func (j *judgement) release(g *Group) {
	for _, m := range g.Ready {
		mem := m.outlier()
		if mem.Cut == 0 {
			continue
		}
		if !j.now.Before(mem.Until) {
			mem.grow(j.now, j.set.Hold)
		}
		if mem.Cut == 0 {
			continue
		}
		if j.plan.Factor == nil {
			j.plan.Factor = map[string]quell.Factor{}
		}
		// The factor lasts for three periods, and each decision renews it. Two missed decisions do not end it.
		j.plan.Factor[m.ID] = quell.Factor{Value: 1 - mem.Cut, Until: j.now.Add(3 * j.in.Service.Sampling)}
		AddReason(&j.plan, "outlier", m.ID, "%s", j.tell(m, mem))
	}
}

// grow doubles the part of the share that a cut leaves. When the part is the whole share again, the cut ends.
func (mem *outlierInstance) grow(now time.Time, hold time.Duration) {
	left := math.Max(deepestCut, 2*(1-mem.Cut))
	if mem.Cut = 1 - left; mem.Cut <= 0 {
		mem.Cut, mem.Calm, mem.Trial = 0, now, false
		return
	}
	mem.Until, mem.Trial = now.Add(hold/2), true
}

func (j *judgement) tell(m *Member, mem *outlierInstance) string {
	text := fmt.Sprintf("it keeps %.0f%% of its share, and gets more from %s on", 100*(1-mem.Cut), mem.Until.UTC().Format(time.TimeOnly))
	i := slices.IndexFunc(j.list, func(w window) bool { return w.member == m })
	if i >= 0 && j.list[i].why != "" {
		return j.list[i].why + ": " + text
	}
	return text
}

// medianOfOthers returns the median of a sorted list. If among is true, the list contains value, and one occurrence of it is left out. If
// nothing is left, the median is 0.
func medianOfOthers(sorted []float64, value float64, among bool) float64 {
	n, gone := len(sorted), len(sorted)
	if among {
		gone, _ = slices.BinarySearch(sorted, value)
		n--
	}
	if n == 0 {
		return 0
	}
	at := func(i int) float64 {
		if i >= gone {
			i++
		}
		return sorted[i]
	}
	return (at((n-1)/2) + at(n/2)) / 2
}
