package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/setting"
	"github.com/quellhq/quell/stats"
)

// DialSettings are the settings of dial. Shares are fractions.
type DialSettings struct {
	Share     Share   // how the load is divided while an instance has neighbours
	SetPoint  float64 // with AtPoint: the most that an instance with neighbours may use of its fullest resource
	Confirm   int     // W: interference counts from the (W+1)th window in a row on
	Floor     float64 // least share of an instance with neighbours, as a fraction of an equal one
	Tolerance float64 // no share changes by less than this fraction of itself or of an equal share
}

var Dial = Spec[DialSettings]{
	Name: "dial", About: "finds the resource that neighbours contend for and how much they use, and sets the weights with the shortest tail",
	Scope:    ServiceScope,
	Lacks:    dialLacks,
	Defaults: DialSettings{Share: Tail, SetPoint: 0.15, Confirm: 1, Floor: 0.1, Tolerance: 0.05},
	Keys: func(s *DialSettings) setting.Table {
		return setting.Table{
			setting.Opt("share", setting.OneOf(&s.Share, []Share{Tail, Proportional, AtPoint}),
				"tail: shares with the shortest tail of response times; proportional: in proportion to what neighbours leave; set_point: see there"),
			setting.Opt("set_point", setting.Share(&s.SetPoint).Above(0).Between(0, 1),
				"with share: set_point, how much of its fullest resource an instance with neighbours may use"),
			ConfirmKey(&s.Confirm),
			setting.Opt("floor", setting.Share(&s.Floor).AtLeast(0).Below(1),
				"an instance with neighbours keeps this part of an equal share, so that its state stays visible"),
			ToleranceKey(&s.Tolerance),
		}
	},
	Variants: dialVariants,
	Memory:   Empty[dialMemory],
	Instance: Empty[dialInstance],
	Decide:   dial,
}

// dialVariants are the rules that the paper compares with (section IV-F). Proportional shares over least connections are its weighted least
// connections; set points are the rule of ICE, for which it reports no value.
func dialVariants(s DialSettings) (list []VariantOf[DialSettings]) {
	list = append(list, VariantOf[DialSettings]{Settings: s})
	over := []quell.Scheduling{quell.RoundRobin, quell.LeastConn}
	s.Share = Proportional
	list = append(list, VariantOf[DialSettings]{Change: string(s.Share), Settings: s, Schedulings: over})
	s.Share = AtPoint
	for _, point := range []float64{0.05, 0.15, 0.3} {
		s.SetPoint = point
		list = append(list, VariantOf[DialSettings]{Change: fmt.Sprintf("set point %.0f%%", 100*point), Settings: s, Schedulings: over})
	}
	return list
}

// dialLacks returns an error if the section of the models lacks a part that the policy cannot work without.
func dialLacks(m *model.Models) error {
	lacks := "dial"
	if d := m.Dial(); d != nil {
		if lacks = d.Incomplete(); lacks == "" {
			return nil
		}
		lacks = "dial." + lacks
	}
	return fmt.Errorf("the models lack %s: train on all resources that requests use, and fit those rows: %w", lacks, quell.ErrNoData)
}

// dialMemory is what dial remembers.
type dialMemory struct {
	Mix      map[quell.Resource]mixed `json:"mix,omitempty"`      // recent use of each resource; the map is never changed
	Overload int                      `json:"overload,omitempty"` // consecutive snapshots with more arrivals than can be served
}

// mixed is the recent use of a resource. Use divided by Rate is what one request per second uses of it.
type mixed struct {
	Use  float64 `json:"use"`
	Rate float64 `json:"rate"`
}

// dialPlan is the state of one decision.
type dialPlan struct {
	in    *Input
	set   DialSettings
	model *model.Dial
	group *Group
	mem   *dialMemory
	plan  quell.Plan

	peak     float64 // r of Eq. 3: requests per second that an instance without neighbours can serve at the present mix of classes
	arrivals float64 // a of Eq. 3; 0: none, or unknown
	limited  bool    // instances with neighbours get the set point
	even     bool    // shares are in proportion to what neighbours leave, so that all are equally busy
}

// dial watches response times (DIAL, section II-B1). If those of an instance are above the bound of undisturbed ones, it names the resource
// that neighbours contend for (II-B2), estimates how much of it they use (II-B3), and divides the load so that the tail of all response
// times is shortest (II-C).
func dial(in *Input, set DialSettings, g *Group, st *State) quell.Plan {
	RememberedOf[dialInstance](g)
	d := &dialPlan{in: in, set: set, model: in.Dial(), group: g, mem: Remembered[dialMemory](st)}
	for i := range g.Members {
		m := &g.Members[i]
		switch mem := m.dial(); {
		case !m.InService():
			*mem = dialInstance{}
		case mem.At.After(in.Snapshot.At): // the clock was set back, or the controller of before had another clock
			mem.At = time.Time{}
		}
	}
	d.arrivals = d.offered()
	d.blend()
	d.peak = d.fills()
	d.judge()
	d.divide()
	d.explain()
	return d.plan
}

// offered returns the requests per second that arrive at the group, or 0 if there are none or nobody counts them.
func (d *dialPlan) offered() (sum float64) {
	if rate := d.in.Snapshot.ArrivalRate; rate != nil {
		return *rate
	}
	for _, m := range d.group.Ready {
		if rate, known := m.Requests(); known {
			sum += rate
		}
	}
	return sum
}

// Requests returns the instance's requests per second, and whether it got any in a window that is not stale.
func (m *Member) Requests() (perSecond float64, known bool) {
	if !m.Fresh || m.Observation.RequestRate == nil || *m.Observation.RequestRate <= 0 {
		return 0, false
	}
	return *m.Observation.RequestRate, true
}

// leastMixed is a utilisation. Below it, what a machine does besides its requests would count as theirs.
const leastMixed = 0.05

// blend updates what a request uses of each resource. Only instances without neighbours count; older windows fade so that the mean covers
// about MixRequests requests. If an instance uses one resource enough, its window counts for all known ones: requests may have stopped
// using another.
func (d *dialPlan) blend() {
	fresh, requests := map[quell.Resource]mixed{}, 0.0
	for _, m := range d.group.Ready {
		rate, known := m.Requests()
		if !known || !d.isNew(m) || m.dial().Cause != "" {
			continue
		}
		requests += rate * m.Observation.WindowS
		busy := slices.ContainsFunc(slices.Collect(maps.Values(m.Observation.Utilization)), func(use float64) bool { return use >= leastMixed })
		for r, use := range m.Observation.Utilization {
			if _, known := d.mem.Mix[r]; use >= leastMixed || known && busy {
				fresh[r] = mixed{fresh[r].Use + use, fresh[r].Rate + rate}
			}
		}
	}
	if len(fresh) == 0 {
		return
	}
	kept := 1 - math.Min(1, requests/MixRequests)
	blended := maps.Clone(d.mem.Mix)
	if blended == nil {
		blended = map[quell.Resource]mixed{}
	}
	for r, now := range fresh {
		old := blended[r]
		blended[r] = mixed{kept*old.Use + now.Use, kept*old.Rate + now.Rate}
	}
	d.mem.Mix = blended
}

// fills returns the rate of requests at which the first resource of an instance without neighbours is full, at the present mix of classes.
// If the present mix is not known, it returns the rate from the training.
func (d *dialPlan) fills() float64 {
	most := 0.0
	for r := range d.mem.Mix {
		most = math.Max(most, d.perRequest(r))
	}
	if most == 0 {
		return d.model.PeakRate
	}
	return math.Min(math.Max(1/most, d.model.PeakRate/mostChanged), d.model.PeakRate*mostChanged)
}

// mostChanged is how many times as much or as little as in training a request needs at most, so that absurd readings have no absurd effect.
const mostChanged = 100

// perRequest returns what one request per second uses of a resource, or 0 if it is unknown.
func (d *dialPlan) perRequest(r quell.Resource) float64 {
	if mix, known := d.mem.Mix[r]; known && mix.Rate > 0 {
		return mix.Use / mix.Rate
	}
	return 0
}

// trained converts a rate of requests into the rate of the trained mix of classes that fills the machine as much.
func (d *dialPlan) trained(rate float64) float64 { return rate * d.model.PeakRate / d.peak }

// divide sets the shares. While no instance has neighbours they are equal. Eq. 3 supposes that each instance is a queue of its own. Behind
// a balancer that counts open requests all are one queue, which is shortest if all are equally busy. Behind one that judges response times
// weights add nothing.
func (d *dialPlan) divide() {
	var free []*Member
	rest, troubled := 1.0, false
	for _, m := range d.group.Ready {
		if m.Fixed != nil {
			rest -= *m.Fixed
			continue
		}
		free = append(free, m)
		troubled = troubled || m.dial().Load > 0
	}
	arrivals := d.arrivals * math.Max(0, rest)
	if len(free) == 0 {
		return
	}
	if arrivals == 0 { // no weights are better than others: the present ones stay
		d.mem.Overload = 0
		for _, m := range free {
			if m.IsNew() {
				m.Planned = rest / float64(len(free))
			}
		}
		return
	}
	queues, served := d.queues(free, arrivals)
	overload := arrivals >= served
	d.overloaded(overload, arrivals, served)
	if rule := d.in.Service.Scheduling; troubled && d.set.Share == Tail && rule.JudgesTime() {
		AddReason(&d.plan, "left_to_balancer", "", "shares stay equal: with %s the balancer sends slow instances fewer requests by itself", rule)
		troubled = false
	}
	d.even = overload || d.set.Share == Proportional || d.set.Share == Tail && d.in.Service.Scheduling.CountsOpen()
	switch {
	case !troubled:
		for _, m := range free {
			m.Planned = rest / float64(len(free))
		}
	case d.even:
		for i := range queues {
			queues[i].rate *= arrivals / served
		}
		d.move(free, queues, rest/arrivals)
	default:
		for i, x := range tailWithin(queues, arrivals) {
			queues[i].rate = x
		}
		d.move(free, queues, rest/arrivals)
	}
}

// queues returns the instances as queues in requests per second, and how much they can serve together. An instance with neighbours gets at
// least the floor, but never more than its share in proportion.
func (d *dialPlan) queues(free []*Member, arrivals float64) (queues []queue, served float64) {
	queues = make([]queue, len(free))
	for i, m := range free {
		rate := d.peak * (1 - m.dial().Load)
		queues[i] = queue{rate: rate, high: rate}
		served += rate
	}
	equal, calm := arrivals/float64(len(free)), 0
	for i, m := range free {
		q := &queues[i]
		if m.dial().Load == 0 {
			calm++
			continue
		}
		q.low = math.Min(d.set.Floor*equal, q.rate*arrivals/served)
	}
	if d.limited = d.set.Share == AtPoint && calm > 0; d.limited {
		d.limit(free, queues, arrivals)
	}
	return queues, served
}

// limit sets bounds as ICE does: an instance with neighbours may use the set point of its fullest resource. If the others could not serve
// the rest, those with neighbours use more, in proportion to what each has left.
func (d *dialPlan) limit(free []*Member, queues []queue, arrivals float64) {
	equal := arrivals / float64(len(free))
	missing, left := arrivals, 0.0
	for i, m := range free {
		q := &queues[i]
		if m.dial().Load == 0 {
			missing -= q.rate
			continue
		}
		q.low = math.Min(math.Max(q.low, math.Min(equal, d.set.SetPoint*d.peak)), q.rate)
		missing, left = missing-q.low, left+q.rate-q.low
	}
	for i, m := range free {
		if q := &queues[i]; m.dial().Load > 0 {
			if missing > 0 && left > 0 {
				q.low += (q.rate - q.low) * math.Min(1, missing/left)
			}
			q.high = q.low
		}
	}
}

// overloaded says that more requests arrive than can be served, and asks for an instance if that lasts.
func (d *dialPlan) overloaded(is bool, arrivals, served float64) {
	d.mem.Overload = Consecutive(d.mem.Overload, is)
	if !is {
		return
	}
	short := fmt.Sprintf("%.1f requests/s arrive, and %d instance(s) beside their neighbours can serve %.1f", arrivals,
		len(d.group.Ready), served)
	if d.mem.Overload <= d.set.Confirm {
		AddReason(&d.plan, "confirming", "", "%s; waiting for confirmation %d of %d", short, d.mem.Overload, d.set.Confirm+1)
		return
	}
	d.group.AddOne(d.in, &d.plan, "overload", short)
}

// move sets shares in proportion to the rates of the queues. If no share would change by more than the tolerance, all stay.
func (d *dialPlan) move(free []*Member, queues []queue, perRate float64) {
	equal, moves := 1/float64(len(d.group.Ready)), false
	for i, m := range free {
		moves = moves || math.Abs(queues[i].rate*perRate-m.Planned) > d.set.Tolerance*math.Max(equal, m.Planned)
	}
	if !moves {
		return
	}
	for i, m := range free {
		m.Planned = queues[i].rate * perRate
	}
	how := "with the shortest tail"
	switch {
	case d.even:
		how = "in proportion to what neighbours leave"
	case d.limited:
		how = fmt.Sprintf("with at most %s of instances that have neighbours, if the others can serve the rest",
			setting.FormatShare(d.set.SetPoint))
	}
	AddReason(&d.plan, "shift", "", "shares %s, for %.1f requests/s of which an instance alone can serve %.1f", how, d.arrivals, d.peak)
}

// explain records the cause of each instance's interference.
func (d *dialPlan) explain() {
	for _, m := range d.group.Ready {
		mem := m.dial()
		if mem.Cause == "" {
			continue
		}
		if d.plan.Cause == nil {
			d.plan.Cause = map[string]quell.Resource{}
		}
		d.plan.Cause[m.ID] = mem.Cause
		evidence := mem.Evidence
		if mem.Run == 0 {
			evidence = "within its bounds now; when it was slow, " + evidence
		}
		switch {
		case mem.Hidden == nil:
			AddReason(&d.plan, "interference", m.ID, "%s: neighbours contend for its %s, and how much they use is not known: %s", evidence,
				mem.Cause, d.unknown(mem.Cause))
		case mem.Load == 0:
			AddReason(&d.plan, "interference", m.ID,
				"%s: it looks as if neighbours contend for its %s, but its own load explains the time, so its share stays", evidence, mem.Cause)
		default:
			AddReason(&d.plan, "interference", m.ID,
				"%s: neighbours use about %.2f (%.2f to %.2f) of its %s, so it can serve %.1f of %.1f requests/s", evidence,
				mem.Hidden.Value, mem.Hidden.Low, mem.Hidden.High, mem.Cause, d.peak*(1-mem.Load), d.peak)
		}
	}
}

// unknown says why the neighbours' use of a resource has not been estimated.
func (d *dialPlan) unknown(r quell.Resource) string {
	if d.model.Queueing[r] == nil {
		return fmt.Sprintf("the models lack dial.queueing.%s, so it counts as one without neighbours", r)
	}
	return "too few requests so far"
}

// told describes the features that a classifier tested on the way to its decision, with their usual values, as the end of a list.
func told(classifier *stats.Tree, usually, features map[string]float64) string {
	var text strings.Builder
	var named []string
	for _, node := range classifier.Path(features) {
		value, measured := features[node.Feature]
		if node.Feature == "" || slices.Contains(named, node.Feature) {
			continue
		}
		named = append(named, node.Feature)
		switch usual, known := usually[node.Feature]; {
		case !measured:
			fmt.Fprintf(&text, ", %s not measured", node.Feature)
		case known:
			fmt.Fprintf(&text, ", %s %.3g (usually %.3g)", node.Feature, value, usual)
		default:
			fmt.Fprintf(&text, ", %s %.3g", node.Feature, value)
		}
	}
	return text.String()
}
