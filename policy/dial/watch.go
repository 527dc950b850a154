package dial

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// instance is what dial remembers of an instance.
type instance struct {
	At       time.Time          `json:"at,omitzero"`        // end of the last window that was judged
	Above    map[string]int     `json:"above,omitempty"`    // by class, "" for all: windows in a row above the bound; the map is never changed
	Run      int                `json:"run,omitempty"`      // consecutive windows above some bound
	Features map[string]float64 `json:"features,omitempty"` // means over these windows; the map is never changed
	Cause    quell.Resource     `json:"cause,omitempty"`    // the contended resource; "": no interference
	Evidence string             `json:"evidence,omitempty"` // what showed it
	Pool     pooled             `json:"pool,omitzero"`      // recent windows
	Hidden   *model.Estimate    `json:"hidden,omitempty"`   // the neighbours' use; nil: not estimated yet
	Load     float64            `json:"load,omitempty"`     // the lost part of its capacity, by which the load is divided
	Within   int                `json:"within,omitempty"`   // consecutive estimates by which it would not be noticed with an equal share
}

// pooled averages windows, of which older ones fade. Response times of different loads cannot be averaged, so the mean is that of the last
// window's load.
type pooled struct {
	Windows  int     `json:"windows"`
	Requests float64 `json:"requests"` // of all windows
	MS       float64 `json:"mean_ms"`  // mean p90
	Own      float64 `json:"use"`      // own use of the resource that Eq. 1 is over, in the last window
	Rate     float64 `json:"per_s"`    // requests per second in the last window
}

func memoryOf(m *policy.Member) *instance { return policy.MemoryOf[instance](m) }

// Constants of the estimate.
const (
	minJudged  = 20   // requests that an estimate needs
	maxJudged  = 5    // windows after which an estimate is made from fewer requests
	poolKept   = 0.7  // weight of a window in the pool as a fraction of the next one\'s
	maxShifted = 0.5  // change of the rate of requests, as a fraction, after which older windows no longer count
	manyJudged = 1e6  // a window counts as at most this many requests, so that no sum overflows
	minHidden  = 0.02 // neighbours that use less count as none
	minKept    = 0.5  // part of the hidden load that remains at least after one estimate
)

// isNew returns whether the instance has a window that was not judged before.
func (d *plan) isNew(m *policy.Member) bool {
	return m.Fresh && m.Observation.At.After(memoryOf(m).At)
}

// judged is an instance's new window.
type judged struct {
	member    *policy.Member
	p90, rate float64 // in milliseconds and requests per second
	excess    []model.Excess
}

// judge looks at the instances' new windows, and then names what disturbs those that are slow.
func (d *plan) judge() {
	windows, begun := make([]judged, 0, len(d.group.Ready)), 0
	for _, m := range d.group.Ready {
		if w, ok := d.look(m); ok {
			if windows = append(windows, w); memoryOf(m).Run == 1 {
				begun++
			}
		}
	}
	together := begun > 1 && 2*begun > len(windows)
	for _, w := range windows {
		if len(w.excess) > 0 {
			d.classify(w, together)
		}
		if memoryOf(w.member).Cause != "" {
			d.estimate(w.member, w.p90, w.rate)
		}
	}
}

// look counts an instance's last window. ok is false if it is not new. Without a response time nothing is learned, and what was known
// stays.
func (d *plan) look(m *policy.Member) (w judged, ok bool) {
	if !d.isNew(m) {
		return w, false
	}
	mem := memoryOf(m)
	mem.At = m.Observation.At
	rate, known := m.Requests()
	p90, measured := m.Observation.LatencyMS.Of(quell.P90)
	if !known || !measured {
		return w, false
	}
	w = judged{m, p90, rate, d.model.Exceeded(m.Observation, d.trained(rate))}
	mem.count(w.excess, d.model.Features(m.Observation))
	return w, true
}

// count updates for how long response times have been above their bounds, and the mean of the features over that time.
func (mem *instance) count(excess []model.Excess, features map[string]float64) {
	before := mem.Above
	if mem.Above = nil; len(excess) == 0 {
		mem.Run, mem.Features = 0, nil
		return
	}
	mem.Above = make(map[string]int, len(excess))
	for _, e := range excess {
		mem.Above[e.Class] = before[e.Class] + 1
	}
	mem.Run++
	means := maps.Clone(features)
	for name, mean := range mem.Features {
		if v, measured := features[name]; measured {
			means[name] = mean + (v-mean)/float64(mem.Run)
		} else {
			means[name] = mean
		}
	}
	mem.Features = means
}

// classify names the resource that neighbours contend for, if an instance has been above a bound for long enough: for W+1 windows, or for
// one window that chance does not explain. together says that most instances became slow in this window. Then they probably have a common
// cause, such as the load or shared storage that was stuck for a moment, and one window is not enough.
func (d *plan) classify(w judged, together bool) {
	m := w.member
	mem, longest := memoryOf(m), w.excess[0]
	for _, e := range w.excess {
		if mem.Above[e.Class] > mem.Above[longest.Class] {
			longest = e
		}
	}
	clear := -1
	if !together {
		clear = slices.IndexFunc(w.excess, isClear)
	}
	if clear >= 0 && mem.Above[longest.Class] <= d.set.Confirm {
		longest = w.excess[clear]
	}
	above := longest.Text(w.rate)
	if n := mem.Above[longest.Class]; n <= d.set.Confirm && clear < 0 {
		if mem.Cause == "" {
			policy.AddReason(&d.plan, "confirming", m.ID, "%s; waiting for confirmation %d of %d", above, n, d.set.Confirm+1)
		}
		return
	}
	class := d.model.Classifier.Leaf(mem.Features).Class
	evidence := above + d.model.Classifier.Tested(d.model.Usual, mem.Features)
	switch {
	case class != model.NotContended:
		if cause := quell.Resource(class); cause != mem.Cause {
			mem.Cause, mem.Hidden, mem.Pool, mem.Within = cause, nil, pooled{}, 0
		}
		mem.Evidence = evidence
	case mem.Cause == "":
		policy.AddReason(&d.plan, "own_load", m.ID, "%s: no neighbour shows, so it is the load or the service itself, and its share stays",
			evidence)
	}
}

func isClear(e model.Excess) bool { return e.Clear }

// estimate estimates the neighbours' use from the response time by Eq. 1. The p90 of a window scatters, and Eq. 1 is so curved that the
// mean of many estimates would be too low. So response times are averaged over recent windows first.
func (d *plan) estimate(m *policy.Member, p90, rate float64) {
	mem, n := memoryOf(m), m.Observation.LatencyMS.N
	if n < 1 {
		n = minJudged // nobody said how many there were
	}
	w, was := math.Min(float64(n), manyJudged), mem.Pool
	if math.Abs(rate-was.Rate) > maxShifted*was.Rate {
		was = pooled{} // a queue that was full says little about one that is not
	}
	own := d.own(m.Observation, d.model.Over(mem.Cause), rate)
	earlier := poolKept * was.Requests
	mem.Pool = pooled{was.Windows + 1, earlier + w, d.model.P90(p90, n), own, rate}
	if earlier > 0 {
		mem.Pool.MS = (earlier*d.carried(mem.Cause, was, own, rate) + w*mem.Pool.MS) / mem.Pool.Requests
	}
	p := mem.Pool
	if p.Requests < minJudged && p.Windows < maxJudged {
		return
	}
	hidden, ok := d.model.HiddenLoad(mem.Cause, p.MS, int(p.Requests), d.trained(rate), own)
	if !ok { // it counts as one without neighbours, gradually if it had others before
		if mem.Load *= minKept; mem.Load < minHidden {
			mem.Load = 0
		}
		if mem.Within = policy.Consecutive(mem.Within, mem.Run == 0); mem.Within > d.set.Confirm {
			*mem = instance{At: mem.At}
		}
		return
	}
	mem.Hidden = &hidden
	mem.Within = policy.Consecutive(mem.Within, mem.Run == 0 && d.unnoticed(m, hidden.Value, own/rate))
	d.settle(m)
}

// carried converts the mean response time of a pool to another load: its neighbours stay.
func (d *plan) carried(cause quell.Resource, p pooled, own, rate float64) float64 {
	hidden, ok := d.model.HiddenLoad(cause, p.MS, int(p.Requests), d.trained(p.Rate), p.Own)
	if !ok {
		return p.MS
	}
	before := d.model.Predict(cause, d.trained(p.Rate), p.Own, hidden.Value)
	if before <= 0 {
		return p.MS
	}
	return p.MS * d.model.Predict(cause, d.trained(rate), own, hidden.Value) / before
}

// own returns the instance's own use of a resource. If it was not reported, it is what the same requests use elsewhere, or, if that is
// unknown, what they use of the resource that they fill first.
func (d *plan) own(o *quell.Observation, r quell.Resource, rate float64) float64 {
	if use, reported := o.ForRequests(r); reported {
		return math.Min(use, 1)
	}
	if per := d.perRequest(r); per > 0 {
		return math.Min(rate*per, 1)
	}
	return math.Min(rate/d.peak, 1)
}

// unnoticed returns whether an instance beside these neighbours would stay within its bound with an equal share of the load. perRequest is
// its own use of the resource for one request per second.
//
// This is the condition for going back to equal shares, because an instance is often fast only as long as its load is taken away. Without
// neighbours the prediction is the calm response time, which is always within the bound, however badly Eq. 1 fits.
func (d *plan) unnoticed(m *policy.Member, hidden, perRequest float64) bool {
	if d.model.Lost(memoryOf(m).Cause, hidden) < minHidden {
		return true
	}
	rate := d.arrivals / float64(len(d.group.Ready))
	if d.arrivals == 0 {
		rate, _ = m.Requests()
	}
	trained := d.trained(rate)
	predicted := d.model.Predict(memoryOf(m).Cause, trained, perRequest*rate, hidden)
	return predicted <= d.model.Bounds(trained).All
}

// settle sets the hidden load by which the load is divided. The fewer requests an estimate is of, the less of it counts: shares that follow
// chance do more harm than those that follow late. It follows the estimate upwards at once, and downwards by halves. It goes to 0
// only if the neighbours would not be noticed with an equal share either; then the interference is over.
func (d *plan) settle(m *policy.Member) {
	mem := memoryOf(m)
	wanted := d.model.Lost(mem.Cause, (mem.Hidden.Low+mem.Hidden.Value)/2) // half way to what chance explains
	if mem.Within > d.set.Confirm {
		wanted = 0
	}
	if mem.Load = math.Max(wanted, minKept*mem.Load); mem.Load < minHidden {
		mem.Load = 0
	}
	if mem.Within > d.set.Confirm && mem.Load == 0 {
		policy.AddReason(&d.plan, "calm", m.ID, "its neighbours would not be noticed with an equal share: the interference is over")
		*mem = instance{At: mem.At}
	}
}
