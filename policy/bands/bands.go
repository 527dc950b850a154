// Package bands compares each instance's response times and errors with those of the others, and with what is usual for it. A band is the
// range in which the ratio of an instance's response time to the others' median usually is. Ratios are compared on a logarithmic scale.
package bands

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

const (
	Width      = 4.0 // half the width of a band, in deviations from the instance's usual ratio
	FarOut     = 8.0 // deviations beyond which one window is enough
	Known      = 20  // windows from which on the spread of a band is known
	Longest    = 50  // windows over which a band is learned
	LargestCut = 0.5 // the part of its share that a slow instance keeps at most when it is cut,
	DeepestCut = 0.1 // and at least
)

const (
	minSpread     = 0.1  // a measured deviation below this counts as this
	unknownSpread = 0.35 // the same, until Known windows were seen
	usualErrors   = 0.01
	surely        = 1e-6 // errors in one window are enough if their probability by chance is below this
	probably      = 1e-3 // errors in two windows are enough if the probability of each is below this
	maxPooled     = 5    // the most windows with too few requests that are taken together
)

// Settings say what is outside a band. Shares are fractions.
type Settings struct {
	Requests int     // a window with fewer finished requests does not give a response time on its own
	Slower   float64 // an instance is out if its response time is at least this many times the others' median
	Errors   float64 // an instance is out if its share of failed requests exceeds the others' by at least this
}

// Defaults are the settings that are used if a configuration names none.
var Defaults = Settings{Requests: 5, Slower: 2, Errors: 0.05}

// Memory is what is remembered of an instance.
type Memory struct {
	At      time.Time `json:"at,omitzero"`       // end of the last window that was judged
	Usual   float64   `json:"usual,omitempty"`   // mean of the logarithm of the ratio of its response time to the others' median
	Spread  float64   `json:"spread,omitempty"`  // variance of that logarithm
	Windows int       `json:"windows,omitempty"` // number of windows from which the band was learned
	Out     int       `json:"out,omitempty"`     // number of consecutive windows outside the band
	Cut     float64   `json:"cut,omitempty"`     // the part of its share that is cut: 0 none, 1 all. While it is cut, its band is not learned
	MS      float64   `json:"ms,omitempty"`      // its last known response time; 0: none was known lately
	Pool    Pool      `json:"pool,omitzero"`     // the windows after that, which had too few requests each
	Others  *float64  `json:"others,omitempty"`  // open requests that are no ordinary ones; see unexplained
}

// Pool sums up several windows, each of which had too few requests for a response time.
type Pool struct {
	Windows  int     `json:"windows"`
	Requests int     `json:"requests"`
	SumMS    float64 `json:"sum_ms"` // sum of each window's statistic times its number of requests
}

// Window is what one instance showed in the last window.
type Window struct {
	Member   *policy.Member
	Fresh    bool    // not judged before
	Errors   float64 // failed and refused requests as a fraction of all
	Ratio    float64 // logarithm of its response time over the others' median; 0 if either is unknown
	Sure     bool    // this window alone is enough for a cut
	Slow     string  // how much longer than the others it takes, if that is outside its band
	SlowSure bool    // that alone is enough for a cut
	Why      string  // why the instance is outside its band; empty if it is inside

	tells    bool    // with the pooled windows before it, it had enough requests for a response time
	ms       float64 // its last response time, by the objective's statistic; 0: unknown
	requests float64 // number of finished requests
	median   float64 // the others' median response time in milliseconds
}

// Judgement is the comparison of one snapshot.
type Judgement struct {
	List []Window // of the ready instances that report

	in  *policy.Input
	set Settings
	of  func(*policy.Member) *Memory

	answers     bool      // some instance finished a request
	times       []float64 // response times of the instances that are not cut, in increasing order
	failed, all float64   // failed and finished requests of all instances together
}

// Judge compares the ready instances of a group. of returns what is remembered of a member, which is brought up to date. With stuck an
// instance that answers too little counts as slow by its open requests, if others answer.
func Judge(in *policy.Input, g *policy.Group, set Settings, stuck bool, of func(*policy.Member) *Memory) *Judgement {
	j := &Judgement{in: in, set: set, of: of}
	j.answers = stuck && someAnswered(g)
	j.windows(g)
	j.compare()
	return j
}

// windows reads the last window of every ready instance.
func (j *Judgement) windows(g *policy.Group) {
	for _, m := range g.Ready {
		o := m.Observation
		if o == nil {
			continue
		}
		mem := j.of(m)
		w := Window{Member: m, Fresh: !o.At.Equal(mem.At)} // an earlier one is of a clock that was set back
		if mem.At = o.At; o.ErrorRate != nil {
			w.Errors = *o.ErrorRate
		}
		w.requests = finished(o, math.Min(1, w.Errors+policy.Refused(o)))
		w.Errors = math.Min(1, w.Errors+policy.Refused(o)-policy.OrNone(o.LimitedRate)) // clients that ask too often are no fault of the instance
		if w.Fresh {
			mem.MS, w.tells = j.responseTime(o, mem)
		}
		if w.ms = mem.MS; w.ms > 0 && mem.Cut == 0 {
			j.times = append(j.times, w.ms)
		}
		j.failed += w.Errors * w.requests
		j.all += w.requests
		j.List = append(j.List, w)
	}
	slices.Sort(j.times)
}

// finished returns how many requests ended in a window. Failed requests count, although they have no response time.
func finished(o *quell.Observation, errors float64) float64 {
	if o.LatencyMS != nil && o.LatencyMS.N > 0 && errors < 1 {
		return math.Round(float64(o.LatencyMS.N) / (1 - errors))
	}
	return math.Round(policy.Arrived(o))
}

// responseTime returns the instance's response time in milliseconds, in the objective's statistic, and whether this window gives a new one.
// Windows with too few requests are taken together; if maxPooled of them are still too few, the time is unknown (0). If fewer than half of
// the requests that arrived were answered, the time comes from the open requests by Little's law, as the slow ones are still open. That
// needs some instance that answers, and leaves connections out that requests do not explain.
func (j *Judgement) responseTime(o *quell.Observation, mem *Memory) (ms float64, tells bool) {
	done, known := o.LatencyMS.Of(j.in.Service.SLO.Metric)
	n := 0
	if known {
		n = o.LatencyMS.N
	}
	if came := policy.Arrived(o); came >= 1 && answered(o, n) < came/2 {
		if open := mem.waiting(o, came); open >= 2 && j.answers {
			mem.Pool = Pool{}
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
		mem.Pool = Pool{}
		return whole.SumMS / float64(whole.Requests), true
	case whole.Windows >= maxPooled:
		mem.Pool, mem.Out = Pool{}, 0
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
func someAnswered(g *policy.Group) bool {
	return slices.ContainsFunc(g.Ready, func(m *policy.Member) bool {
		return m.Observation != nil && m.Observation.LatencyMS != nil && m.Observation.LatencyMS.N > 0
	})
}

// waiting returns the number of open requests that wait for an answer. In the first window those that arrived before it count as others.
func (mem *Memory) waiting(o *quell.Observation, came float64) float64 {
	if o.InFlight == nil {
		return 0
	}
	if mem.MS == 0 && mem.Others == nil {
		mem.Others = new(math.Max(0, *o.InFlight-came))
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
	return new(math.Max(0, *o.InFlight-*o.RequestRate*mean/1000))
}

// compare compares each instance's window with those of the others. An instance that is inside its band and not cut adds to its band.
func (j *Judgement) compare() {
	for i := range j.List {
		w := &j.List[i]
		if !w.Fresh {
			continue
		}
		j.compareTimes(w)
		j.compareErrors(w)
		mem := j.of(w.Member)
		switch {
		case w.Why != "":
			mem.Out++
		case w.tells:
			mem.Out = 0
			if w.median > 0 && mem.Cut == 0 {
				mem.learn(w.Ratio)
			}
		}
	}
}

// compareTimes sets Why if the response time is above its band, the objective and the setting slower.
func (j *Judgement) compareTimes(w *Window) {
	mem, least := j.of(w.Member), math.Log(j.set.Slower)
	if !w.tells || w.ms == 0 {
		return
	}
	if w.median = MedianOfOthers(j.times, w.ms, mem.Cut == 0); w.median == 0 {
		return
	}
	w.Ratio = math.Log(w.ms / w.median)
	if usual, spread := mem.band(least); w.ms > j.in.Service.SLO.ThresholdMS() && w.Ratio > math.Max(least, usual+Width*spread) {
		w.Sure = w.Ratio > math.Max(2*least, usual+FarOut*spread)
		w.Why = fmt.Sprintf("%s %.0f ms where the others have %.0f", j.in.Service.SLO.Metric, w.ms, w.median)
		w.Slow, w.SlowSure = w.Why, w.Sure
	}
}

// band returns the mean and the deviation of an instance's usual ratio. The mean is limited to most, the ratio at which an instance is cut,
// so that slowness never becomes usual.
func (mem *Memory) band(most float64) (usual, spread float64) {
	least := minSpread
	if mem.Windows < Known {
		least = unknownSpread
	}
	return math.Min(mem.Usual, most), math.Max(least, math.Sqrt(mem.Spread))
}

// learn adds a ratio to the mean and the variance of the band.
func (mem *Memory) learn(ratio float64) {
	mem.Windows = min(mem.Windows+1, Longest)
	part := 1 / float64(mem.Windows)
	off := ratio - mem.Usual
	mem.Usual += part * off
	mem.Spread = (1 - part) * (mem.Spread + part*off*off)
}

// compareErrors sets Why if too many requests failed: it computes how likely at least as many failures are at the others' error rate.
func (j *Judgement) compareErrors(w *Window) {
	n, all := w.requests, j.all-w.requests
	if len(j.List) < 2 || n == 0 {
		return
	}
	elsewhere := 0.0
	if all > 0 {
		elsewhere = math.Max(0, j.failed-w.Errors*w.requests) / all
	}
	count := math.Round(w.Errors * n)
	if count == 0 || w.Errors < elsewhere+j.set.Errors {
		return
	}
	chance := distuv.Binomial{N: n, P: math.Min(0.5, math.Max(elsewhere, usualErrors))}.Survival(count - 1)
	if chance < probably {
		w.Sure = w.Sure || chance < surely
		w.Why = fmt.Sprintf("%.0f%% of its requests fail where the others' %.0f%% do", 100*w.Errors, 100*elsewhere)
	}
}

// MedianOfOthers returns the median of a sorted list. If among is true, the list contains value, and one occurrence of it is left out. If
// nothing is left, the median is 0.
func MedianOfOthers(sorted []float64, value float64, among bool) float64 {
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

// Failing returns whether the instance is outside its band because of failed requests.
func (w *Window) Failing() bool { return w.Why != w.Slow }

// Keeps returns the part of a share that a cut leaves an instance that is only slow: the less the slower it is.
func (w *Window) Keeps() float64 {
	return math.Min(LargestCut, math.Max(DeepestCut, math.Exp(-w.Ratio)))
}
