package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// totals are sums over all periods.
type totals struct {
	recordedS, judgedS, missedS float64
	requests, over              float64
	thin                        bool // judged by fewer requests than leastRequests
	causes                      map[causeKey]*causeSum
	spans                       []Span
	open                        *Span
	change                      changeSum
	advised, acted              outcomeSum
	ratios                      ratios
	bins                        map[int]*binSum
}

type causeKey struct {
	kind     Kind
	instance int32
	resource int8
}

type causeSum struct {
	seconds     float64
	first, last time.Time
	neighbour   float64 // seconds times their use
}

type changeSum struct {
	plans, different int
	moved            float64
	addedS, planS    float64
	most             int
	lost             map[int32]*lostSum
}

type lostSum struct{ n, share, planned float64 }

// outcomeSum sums what happened, and what would have happened for three values of the bias: its 5%, 50% and 95% quantile.
type outcomeSum struct {
	seconds, missed, machineS float64
	over                      float64
	other, otherOver          [3]float64
	variance, overVariance    float64
}

type binSum struct {
	missed, other float64
	kinds         map[Kind]float64
}

func newTotals() totals {
	return totals{causes: map[causeKey]*causeSum{}, bins: map[int]*binSum{}, change: changeSum{lost: map[int32]*lostSum{}}}
}

// mostBins is how many parts a picture has.
const mostBins = 144

// binOf returns the part of the picture that a time belongs to.
func (o *Options) binOf(at time.Time) int {
	whole := o.Until.Sub(o.Since)
	if whole <= 0 {
		return 0
	}
	return min(max(int(float64(mostBins)*float64(at.Sub(o.Since))/float64(whole)), 0), mostBins-1)
}

func (t *totals) bin(o *Options, at time.Time) *binSum {
	i := o.binOf(at)
	b := t.bins[i]
	if b == nil {
		b = &binSum{kinds: map[Kind]float64{}}
		t.bins[i] = b
	}
	return b
}

// blame counts a period above the objective.
func (t *totals) blame(key causeKey, p *period, neighbour float64) {
	sum := t.causes[key]
	if sum == nil {
		sum = &causeSum{first: p.at}
		t.causes[key] = sum
	}
	sum.seconds, sum.last = sum.seconds+p.seconds, p.at
	sum.neighbour += neighbour * p.seconds
}

// missing extends the present span above the objective, or begins one.
func (t *totals) missing(p *period, instance string, kind Kind, ms float64) {
	if t.open == nil {
		t.open = &Span{From: p.at.Add(-seconds(p.seconds)), Instance: instance, Kind: kind, WorstMS: ms}
	}
	t.open.To = p.at
	if ms > t.open.WorstMS {
		t.open.WorstMS, t.open.Instance, t.open.Kind = ms, instance, kind
	}
}

// mostSpans is how many spans are kept.
const mostSpans = 10

// met ends the present span.
func (t *totals) met() {
	if t.open == nil {
		return
	}
	t.spans = append(t.spans, *t.open)
	t.open = nil
	if len(t.spans) >= 8*mostSpans {
		t.spans = longest(t.spans)
	}
}

func longest(spans []Span) []Span {
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(b.To.Sub(b.From), a.To.Sub(a.From)) })
	return spans[:min(len(spans), mostSpans)]
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ratios is a histogram of logarithms of measured over predicted response times.
type ratios struct {
	n      int
	within int
	bins   [601]int // from -3 to 3
}

func (x *ratios) add(log float64) {
	x.n++
	if math.Abs(math.Expm1(log)) <= 0.25 {
		x.within++
	}
	x.bins[min(max(int(math.Round(100*log))+300, 0), 600)]++
}

// quantile returns a quantile of the ratio.
func (x *ratios) quantile(q float64) float64 {
	left := q * float64(x.n)
	for i, n := range x.bins {
		if left -= float64(n); left <= 0 {
			return math.Exp(float64(i-300) / 100)
		}
	}
	return 1
}

func (x *ratios) result() Predictions {
	if x.n == 0 {
		return Predictions{}
	}
	return Predictions{Checked: x.n, Bias: x.quantile(0.5), Low: x.quantile(0.05), High: x.quantile(0.95),
		Within: float64(x.within) / float64(x.n)}
}

// confidence is the quantile of the normal distribution for the interval of 90%.
const confidence = 1.645

// estimate turns a sum for three values of the bias, and the variance of chance, into an interval.
func estimate(by [3]float64, variance, most float64) Estimate {
	chance := confidence * math.Sqrt(variance)
	low, high := min(by[0], by[1], by[2]), max(by[0], by[1], by[2])
	return Estimate{Value: by[1], Low: max(0, by[1]-math.Hypot(by[1]-low, chance)), High: min(most, by[1]+math.Hypot(high-by[1], chance))}
}

// minus returns v minus an estimate.
func (e Estimate) minus(v float64) Estimate { return Estimate{v - e.Value, v - e.High, v - e.Low} }

// negative returns the estimate with the opposite sign.
func (e Estimate) negative() Estimate { return e.minus(0) }

// result compares the two. Savings have the sign for "acting is better".
func (x *outcomeSum) result(acted bool, o *Options) *Outcome {
	if x.seconds == 0 {
		return nil
	}
	r := &Outcome{Seconds: x.seconds, MissedS: x.missed, OtherS: estimate(x.other, x.variance, x.seconds), MachineHours: x.machineS / hour}
	over := estimate(x.otherOver, x.overVariance, math.Inf(1))
	r.SavedS, r.SavedOver = r.OtherS.minus(x.missed), over.minus(x.over)
	if acted {
		r.SavedS, r.SavedOver = r.SavedS.negative(), r.SavedOver.negative()
	}
	if o.PerMachineHour > 0 {
		cost := r.MachineHours * o.PerMachineHour
		r.Money = &Estimate{cost, cost, cost}
	}
	return r
}

func (c *Collector) causes() (list []Cause) {
	for key, sum := range c.totals.causes {
		cause := Cause{Kind: key.kind, MissedS: sum.seconds, First: sum.first, Last: sum.last}
		if key.instance >= 0 {
			cause.Instance = c.ids[key.instance]
		}
		if key.resource >= 0 {
			cause.Resource = quell.Resources[key.resource]
			cause.Neighbour = sum.neighbour / sum.seconds
		}
		list = append(list, cause)
	}
	slices.SortFunc(list, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.MissedS, a.MissedS), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Instance, b.Instance))
	})
	return list
}

func (c *Collector) change() Change {
	s := &c.totals.change
	r := Change{Plans: s.plans, Different: s.different, AddedMost: s.most}
	if s.different > 0 {
		r.MovedMean = s.moved / float64(s.different)
	}
	if s.planS > 0 {
		r.AddedMean = s.addedS / s.planS
	}
	most := 0.0
	for id := range int32(len(c.ids)) {
		if l := s.lost[id]; l != nil && l.share-l.planned > most {
			most = l.share - l.planned
			r.Instance, r.Share, r.Planned = c.ids[id], l.share/l.n, l.planned/l.n
		}
	}
	return r
}

func (c *Collector) timeline() (list []Bin) {
	step := c.o.Until.Sub(c.o.Since) / mostBins
	for i := range mostBins {
		b := c.totals.bins[i]
		bin := Bin{At: c.o.Since.Add(time.Duration(i) * step)}
		if b != nil {
			bin.MissedS, bin.OtherS = b.missed, b.other
			for _, kind := range []Kind{Interference, OwnLoad, OwnWork, Failure, Release, Unknown} {
				if b.kinds[kind] > b.kinds[bin.Kind] {
					bin.Kind = kind
				}
			}
		}
		list = append(list, bin)
	}
	return list
}
