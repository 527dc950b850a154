package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/config/keys"
)

// OutlierSettings are what outlier can be told; shares are fractions.
type OutlierSettings struct {
	Requests int           // a window with fewer finished requests is not used alone for a response time
	Slower   float64       // an instance is cut if its response time is at least this many times the others' median
	Errors   float64       // by how much more of its requests fail at least, as a share of them
	Hold     time.Duration // how long a first cut stays before the share grows again
	Most     float64       // the largest part of the group that is cut at once
}

var outlierSpec = spec[OutlierSettings]{
	name: "outlier", about: "cuts the share of an instance whose response times or errors leave their band, within two periods",
	scope:    FastScope,
	defaults: OutlierSettings{Requests: 5, Slower: 2, Errors: 0.05, Hold: 10 * time.Second, Most: 0.3},
	keys: func(s *OutlierSettings) keys.Table {
		return keys.Table{
			keys.Opt("requests", keys.Whole(&s.Requests).Between(1, 1_000_000),
				"a window with fewer finished requests is not used alone for a response time"),
			keys.Opt("slower", keys.Decimal(&s.Slower).Between(1.1, 1000),
				"an instance is cut if its response time is at least this many times the others' median"),
			keys.Opt("errors", keys.Share(&s.Errors).Above(0).Between(0, 1),
				"an instance is cut if its share of failed requests exceeds the others' by at least this"),
			keys.Opt("hold", keys.Duration(&s.Hold).Between(time.Second, time.Hour),
				"how long a first cut stays before the share grows again; repeated ones stay longer"),
			keys.Opt("most", keys.Share(&s.Most).Above(0).Between(0, 1),
				"the largest part of the group that is cut at once; one instance of two or more always may be"),
		}
	},
	instance: empty[outlierInstance],
	decide:   outlier,
}

// Constants of the bands. Response times are compared on a logarithmic scale, as ratios to the others' median.
const (
	bandWidth     = 4.0  // deviations from an instance's usual ratio up to which it is in its band
	farOut        = 8.0  // deviations beyond which one window is enough
	leastSpread   = 0.1  // the least deviation that is assumed
	unknownSpread = 0.35 // the least before bandKnown windows were seen
	bandKnown     = 20
	bandMemory    = 50 // windows over which a band is learned
	usualErrors   = 0.01
	surely        = 1e-6 // chance below which errors are no chance, in one window
	probably      = 1e-3 // and in each of two
	leastCut      = 0.5  // a cut leaves this at most
	deepestCut    = 0.1  // and for slowness alone this at least
	mostRepeats   = 5    // cuts after which holds grow no longer
	failedHold    = 3    // times as long a cut stays that leaves nothing: each attempt after it costs failed requests
	mostPooled    = 5    // windows of too few requests that are taken together
)

// outlierInstance is what outlier remembers of an instance.
type outlierInstance struct {
	At      time.Time `json:"at,omitzero"`       // of the last window that was judged
	Usual   float64   `json:"usual,omitempty"`   // mean of the logarithm of its ratio to the others' median
	Spread  float64   `json:"spread,omitempty"`  // its variance
	Windows int       `json:"windows,omitempty"` // that the band was learned from
	Out     int       `json:"out,omitempty"`     // windows in a row out of the band
	Cut     float64   `json:"cut,omitempty"`     // of its share: 0 nothing, 1 all
	Until   time.Time `json:"until,omitzero"`    // when the cut may shrink
	Repeats int       `json:"repeats,omitempty"` // cuts without a long calm between
	Trial   bool      `json:"trial,omitempty"`   // some of the share is back since the cut was last renewed
	Calm    time.Time `json:"calm,omitzero"`     // when the last cut was over
	MS      float64   `json:"ms,omitempty"`      // its last response time that could be told; 0: none of late
	Pool    pool      `json:"pool,omitzero"`     // of windows since, none of which had enough requests
}

// pool is windows of few requests taken together.
type pool struct {
	Windows  int     `json:"windows"`
	Requests int     `json:"requests"`
	SumMS    float64 `json:"sum_ms"` // each window's statistic, as often as it had requests
}

func (m *member) outlier() *outlierInstance { return m.mem.Memory.(*outlierInstance) }

// window is what one instance showed in the last window.
type window struct {
	member   *member
	fresh    bool    // not judged before
	tells    bool    // with the pooled ones before it had enough requests to tell a response time
	ms       float64 // its last response time, by the objective's statistic; 0: unknown
	errors   float64 // failed over all
	requests float64 // finished
	ratio    float64 // logarithm of ms over the others' median; 0 if either is unknown
	median   float64 // of the others, in milliseconds
	sure     bool    // one window is enough
	why      string  // it is out of its band; empty: it is not
}

// outlier is outlier ejection for response times and errors: an instance that misses the objective while it takes several times as long as
// the others, and longer than is usual for it, or whose requests fail where the others' do not, loses a part of its share at once. The
// share comes back by doubling, each step held against the same bands.
func outlier(in *Input, set OutlierSettings, g *group, _ *State) quell.Plan {
	rememberedOf[outlierInstance](g)
	j := &judgement{in: in, set: set, now: in.Snapshot.At}
	j.windows(g)
	j.compare()
	j.cut(len(g.ready))
	j.release(g)
	return j.plan
}

// judgement is one decision in the making.
type judgement struct {
	in   *Input
	set  OutlierSettings
	now  time.Time
	list []window
	plan quell.Plan

	times       []float64 // response times of those that are not cut, in order
	failed, all float64   // requests of all
}

// windows reads what the instances in service showed.
func (j *judgement) windows(g *group) {
	for _, m := range g.ready {
		o := m.Observation
		if o == nil {
			continue
		}
		mem := m.outlier()
		w := window{member: m, fresh: o.At.After(mem.At)}
		if mem.At = o.At; o.ErrorRate != nil {
			w.errors = *o.ErrorRate
		}
		w.requests = finished(o, w.errors)
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

// finished is how many requests ended in a window, failed ones, which have no response time, among them.
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

// responseTime is what an instance takes, in milliseconds, by the objective's statistic, and whether this window tells it. Windows of too
// few requests are taken together; after mostPooled of them nothing is known. Those that finish hide the others where fewer than half of
// what came have: then the open ones tell by Little's law.
func (j *judgement) responseTime(o *quell.Observation, mem *outlierInstance) (ms float64, tells bool) {
	done, known := o.LatencyMS.Of(j.in.Service.SLO.Metric)
	n := 0
	if known {
		n = o.LatencyMS.N
	}
	if came := arrived(o); came >= 1 && float64(n) < came/2 && o.InFlight != nil && *o.InFlight >= 2 {
		mem.Pool = pool{}
		return math.Max(done, 1000**o.InFlight/(*o.RequestRate)), true
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

// compare holds each window against the others', and learns the bands of those that are in them.
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

// compareTimes judges the response time.
func (j *judgement) compareTimes(w *window) {
	mem, least := w.member.outlier(), math.Log(j.set.Slower)
	if !w.tells {
		return
	}
	if w.median = medianOfOthers(j.times, w.ms, mem.Cut == 0); w.median == 0 {
		return
	}
	w.ratio = math.Log(w.ms / w.median)
	if usual, spread := mem.band(least); w.ms > j.in.Service.SLO.ThresholdMS() && w.ratio > math.Max(least, usual+bandWidth*spread) {
		w.sure = w.ratio > math.Max(2*least, usual+farOut*spread)
		w.why = fmt.Sprintf("%s %.0f ms where the others have %.0f", j.in.Service.SLO.Metric, w.ms, w.median)
	}
}

// band is the usual ratio of an instance, and its deviation. What is usual is never more than what it is cut for.
func (mem *outlierInstance) band(most float64) (usual, spread float64) {
	least := leastSpread
	if mem.Windows < bandKnown {
		least = unknownSpread
	}
	return math.Min(mem.Usual, most), math.Max(least, math.Sqrt(mem.Spread))
}

// learn takes a ratio into the band.
func (mem *outlierInstance) learn(ratio float64) {
	mem.Windows = min(mem.Windows+1, bandMemory)
	part := 1 / float64(mem.Windows)
	off := ratio - mem.Usual
	mem.Usual += part * off
	mem.Spread = (1 - part) * (mem.Spread + part*off*off)
}

// compareErrors judges the failed requests by the chance that as many of them or more would fail among the others.
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

// cut cuts the shares of those that are out of their bands, the worst first, and never more of the group than it may.
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
		addReason(&j.plan, "outliers", "", "%d more instance(s) are out of their bands, and %d may be cut: more is load, or the whole service",
			len(fresh), max(0, room))
	}
	slices.SortStableFunc(fresh, func(a, b *window) int { return cmp.Compare(b.badness(), a.badness()) })
	for _, w := range fresh[:min(len(fresh), max(0, room))] {
		j.first(w, w.member.outlier())
	}
}

// badness orders the instances that are out of their bands: errors first.
func (w *window) badness() float64 { return 1000*w.errors + w.ratio }

// first begins a cut.
func (j *judgement) first(w *window, mem *outlierInstance) {
	if j.now.Sub(mem.Calm) > 8*j.set.Hold {
		mem.Repeats = 0
	}
	mem.repeat()
	j.hold(mem, 1-w.leaves())
}

// leaves is what a cut leaves of a share: in proportion to how much slower the instance is, and nothing where requests fail.
func (w *window) leaves() float64 {
	if w.ratio <= 0 || w.errors > 0 {
		return 0
	}
	return math.Min(leastCut, math.Max(deepestCut, math.Exp(-w.ratio)))
}

// again is for an instance that is out of its band although its share is cut: half of what it has left goes. If some of the share had come
// back, that is a repetition.
func (j *judgement) again(w *window, mem *outlierInstance) {
	if mem.Trial {
		mem.repeat()
	}
	j.hold(mem, 1-math.Min(w.leaves(), (1-mem.Cut)/2))
}

// hold cuts a share, for twice as long with each repetition.
func (j *judgement) hold(mem *outlierInstance, cut float64) {
	hold := j.set.Hold << (mem.Repeats - 1)
	if cut == 1 {
		hold *= failedHold
	}
	mem.Cut, mem.Until, mem.Trial = cut, j.now.Add(hold), false
}

func (mem *outlierInstance) repeat() { mem.Repeats = min(mem.Repeats+1, mostRepeats) }

// release lets the shares of those whose time is over grow again, and writes down what is cut.
func (j *judgement) release(g *group) {
	for _, m := range g.ready {
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
		// It outlasts the next two decisions, in which it is renewed.
		j.plan.Factor[m.ID] = quell.Factor{Value: 1 - mem.Cut, Until: j.now.Add(3 * j.in.Service.Sampling)}
		addReason(&j.plan, "outlier", m.ID, "%s", j.tell(m, mem))
	}
}

// grow doubles what a cut leaves.
func (mem *outlierInstance) grow(now time.Time, hold time.Duration) {
	left := math.Max(deepestCut, 2*(1-mem.Cut))
	if mem.Cut = 1 - left; mem.Cut <= 0 {
		mem.Cut, mem.Calm, mem.Trial = 0, now, false
		return
	}
	mem.Until, mem.Trial = now.Add(hold/2), true
}

func (j *judgement) tell(m *member, mem *outlierInstance) string {
	text := fmt.Sprintf("it keeps %.0f%% of its share, and gets more from %s on", 100*(1-mem.Cut), mem.Until.UTC().Format(time.TimeOnly))
	i := slices.IndexFunc(j.list, func(w window) bool { return w.member == m })
	if i >= 0 && j.list[i].why != "" {
		return j.list[i].why + ": " + text
	}
	return text
}

// medianOfOthers is the median of a sorted list without one occurrence of a value, if that is among them; 0 if nothing is left.
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
