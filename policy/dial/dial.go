package dial

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
	"github.com/quellhq/quell/setting"
)

// Settings are the settings of dial. Shares are fractions.
type Settings struct {
	Share     divide.Rule // how the load is divided while an instance has neighbours
	SetPoint  float64     // with AtPoint: the most that an instance with neighbours may use of its fullest resource
	Confirm   int         // W: interference counts from the (W+1)th window in a row on
	Floor     float64     // least share of an instance with neighbours, as a fraction of an equal one
	Tolerance float64     // no share changes by less than this fraction of itself or of an equal share
}

var Spec = policy.Spec[Settings]{
	Name: "dial", About: "finds the resource that neighbours contend for and how much they use, and sets the weights with the shortest tail",
	Scope:    policy.ServiceScope,
	Lacks:    lacks,
	Defaults: Settings{Share: divide.Tail, SetPoint: 0.15, Confirm: 1, Floor: 0.1, Tolerance: 0.05},
	Keys: func(s *Settings) setting.Table {
		return setting.Table{
			setting.Opt("share", setting.OneOf(&s.Share, []divide.Rule{divide.Tail, divide.Proportional, divide.AtPoint}),
				"tail: shares with the shortest tail of response times; proportional: in proportion to what neighbours leave; set_point: see there"),
			setting.Opt("set_point", setting.Share(&s.SetPoint).Above(0).Between(0, 1),
				"with share: set_point, how much of its fullest resource an instance with neighbours may use"),
			policy.ConfirmKey(&s.Confirm),
			setting.Opt("floor", setting.Share(&s.Floor).AtLeast(0).Below(1),
				"an instance with neighbours keeps this part of an equal share, so that its state stays visible"),
			policy.ToleranceKey(&s.Tolerance),
		}
	},
	Variants: variants,
	Memory:   policy.Empty[memory],
	Instance: policy.Empty[instance],
	Decide:   decide,
}

// variants are the rules that the paper compares with (section IV-F). Proportional shares over least connections are its weighted least
// connections; set points are the rule of ICE, for which it reports no value.
func variants(s Settings) (list []policy.VariantOf[Settings]) {
	list = append(list, policy.VariantOf[Settings]{Settings: s})
	over := []quell.Scheduling{quell.RoundRobin, quell.LeastConn}
	s.Share = divide.Proportional
	list = append(list, policy.VariantOf[Settings]{Change: string(s.Share), Settings: s, Schedulings: over})
	s.Share = divide.AtPoint
	for _, point := range []float64{0.05, 0.15, 0.3} {
		s.SetPoint = point
		list = append(list, policy.VariantOf[Settings]{Change: fmt.Sprintf("set point %.0f%%", 100*point), Settings: s, Schedulings: over})
	}
	return list
}

// lacks returns an error if the section of the models lacks a part that the policy cannot work without.
func lacks(m *model.Models) error {
	lacks := "dial"
	if d := m.Dial(); d != nil {
		if lacks = d.Incomplete(); lacks == "" {
			return nil
		}
		lacks = "dial." + lacks
	}
	return fmt.Errorf("the models lack %s: train on all resources that requests use, and fit those rows: %w", lacks, quell.ErrNoData)
}

// memory is what dial remembers.
type memory struct {
	Mix      map[quell.Resource]mixed `json:"mix,omitempty"`      // recent use of each resource; the map is never changed
	Overload int                      `json:"overload,omitempty"` // consecutive snapshots with more arrivals than can be served
}

// mixed is the recent use of a resource. Use divided by Rate is what one request per second uses of it.
type mixed struct {
	Use  float64 `json:"use"`
	Rate float64 `json:"rate"`
}

// plan is the state of one decision.
type plan struct {
	in    *policy.Input
	set   Settings
	model *model.Dial
	group *policy.Group
	mem   *memory
	plan  quell.Plan

	peak     float64 // r of Eq. 3: requests per second that an instance without neighbours can serve at the present mix of classes
	arrivals float64 // a of Eq. 3; 0: none, or unknown
	limited  bool    // instances with neighbours get the set point
	even     bool    // shares are in proportion to what neighbours leave, so that all are equally busy
}

// decide watches response times (DIAL, section II-B1). If those of an instance are above the bound of undisturbed ones, it names the
// resource
// that neighbours contend for (II-B2), estimates how much of it they use (II-B3), and divides the load so that the tail of all response
// times is shortest (II-C).
func decide(in *policy.Input, set Settings, g *policy.Group, st *policy.State) quell.Plan {
	policy.RememberedOf[instance](g)
	d := &plan{in: in, set: set, model: in.Dial(), group: g, mem: policy.Remembered[memory](st)}
	for i := range g.Members {
		m := &g.Members[i]
		switch mem := memoryOf(m); {
		case !m.InService():
			*mem = instance{}
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
func (d *plan) offered() (sum float64) {
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

// minMixed is a utilisation. Below it, what a machine does beside its requests would count as theirs.
const minMixed = 0.05

// blend updates what a request uses of each resource. Only instances without neighbours count; older windows fade so that the mean covers
// about MixRequests requests. If an instance uses one resource enough, its window counts for all known ones: requests may have stopped
// using another.
func (d *plan) blend() {
	fresh, requests := map[quell.Resource]mixed{}, 0.0
	for _, m := range d.group.Ready {
		rate, known := m.Requests()
		if !known || !d.isNew(m) || memoryOf(m).Cause != "" {
			continue
		}
		requests += rate * m.Observation.WindowS
		busy := slices.ContainsFunc(quell.Resources, func(r quell.Resource) bool {
			use, _ := m.Observation.ForRequests(r)
			return use >= minMixed
		})
		for r := range m.Observation.Utilization {
			use, _ := m.Observation.ForRequests(r)
			if _, known := d.mem.Mix[r]; use >= minMixed || known && busy {
				fresh[r] = mixed{fresh[r].Use + use, fresh[r].Rate + rate}
			}
		}
	}
	if len(fresh) == 0 {
		return
	}
	kept := 1 - math.Min(1, requests/policy.MixRequests)
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
func (d *plan) fills() float64 {
	most := 0.0
	for r := range d.mem.Mix {
		most = math.Max(most, d.perRequest(r))
	}
	if most == 0 {
		return d.model.PeakRate
	}
	return math.Min(math.Max(1/most, d.model.PeakRate/maxChanged), d.model.PeakRate*maxChanged)
}

// maxChanged is how many times as much or as little as in training a request needs at most, so that absurd readings have no absurd effect.
const maxChanged = 100

// perRequest returns what one request per second uses of a resource, or 0 if it is unknown.
func (d *plan) perRequest(r quell.Resource) float64 {
	if mix, known := d.mem.Mix[r]; known && mix.Rate > 0 {
		return mix.Use / mix.Rate
	}
	return 0
}

// trained converts a rate of requests into the rate of the trained mix of classes that fills the machine as much.
func (d *plan) trained(rate float64) float64 { return rate * d.model.PeakRate / d.peak }

// divide sets the shares. While no instance has neighbours they are equal. Eq. 3 supposes that each instance is a queue of its own. Behind
// a balancer that counts open requests all are one queue, which is shortest if all are equally busy. Behind one that judges response times
// weights add nothing.
func (d *plan) divide() {
	var free []*policy.Member
	rest, troubled := 1.0, false
	for _, m := range d.group.Ready {
		if m.Fixed != nil {
			rest -= *m.Fixed
			continue
		}
		free = append(free, m)
		troubled = troubled || memoryOf(m).Load > 0
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
	if rule := d.in.Service.Scheduling; troubled && d.set.Share == divide.Tail && rule.JudgesTime() {
		policy.AddReason(&d.plan, "left_to_balancer", "",
			"shares stay equal: with %s the balancer sends slow instances fewer requests by itself", rule)
		troubled = false
	}
	d.even = overload || d.set.Share == divide.Proportional || d.set.Share == divide.Tail && d.in.Service.Scheduling.CountsOpen()
	switch {
	case !troubled:
		for _, m := range free {
			m.Planned = rest / float64(len(free))
		}
	case d.even:
		for i := range queues {
			queues[i].Rate *= arrivals / served
		}
		d.move(free, queues, rest/arrivals)
	default:
		for i, x := range divide.Within(queues, arrivals) {
			queues[i].Rate = x
		}
		d.move(free, queues, rest/arrivals)
	}
}

// queues returns the instances as queues in requests per second, and how much they can serve together. An instance with neighbours gets at
// least the floor, but never more than its share in proportion.
func (d *plan) queues(free []*policy.Member, arrivals float64) (queues []divide.Queue, served float64) {
	queues = make([]divide.Queue, len(free))
	for i, m := range free {
		rate := d.peak * (1 - memoryOf(m).Load)
		queues[i] = divide.Queue{Rate: rate, High: rate}
		served += rate
	}
	equal, calm := arrivals/float64(len(free)), 0
	for i, m := range free {
		q := &queues[i]
		if memoryOf(m).Load == 0 {
			calm++
			continue
		}
		q.Low = math.Min(d.set.Floor*equal, q.Rate*arrivals/served)
	}
	if d.limited = d.set.Share == divide.AtPoint && calm > 0; d.limited {
		d.limit(free, queues, arrivals)
	}
	return queues, served
}

// limit sets bounds as ICE does: an instance with neighbours may use the set point of its fullest resource. If the others could not serve
// the rest, those with neighbours use more, in proportion to what each has left.
func (d *plan) limit(free []*policy.Member, queues []divide.Queue, arrivals float64) {
	equal := arrivals / float64(len(free))
	missing, left := arrivals, 0.0
	for i, m := range free {
		q := &queues[i]
		if memoryOf(m).Load == 0 {
			missing -= q.Rate
			continue
		}
		q.Low = math.Min(math.Max(q.Low, math.Min(equal, d.set.SetPoint*d.peak)), q.Rate)
		missing, left = missing-q.Low, left+q.Rate-q.Low
	}
	for i, m := range free {
		if q := &queues[i]; memoryOf(m).Load > 0 {
			if missing > 0 && left > 0 {
				q.Low += (q.Rate - q.Low) * math.Min(1, missing/left)
			}
			q.High = q.Low
		}
	}
}

// overloaded says that more requests arrive than can be served, and asks for an instance if that lasts.
func (d *plan) overloaded(is bool, arrivals, served float64) {
	d.mem.Overload = policy.Consecutive(d.mem.Overload, is)
	if !is {
		return
	}
	short := fmt.Sprintf("%.1f requests/s arrive, and %d instance(s) beside their neighbours can serve %.1f", arrivals,
		len(d.group.Ready), served)
	if d.mem.Overload <= d.set.Confirm {
		policy.AddReason(&d.plan, "confirming", "", "%s; waiting for confirmation %d of %d", short, d.mem.Overload, d.set.Confirm+1)
		return
	}
	d.group.AddOne(d.in, &d.plan, "overload", short)
}

// move sets shares in proportion to the rates of the queues. If no share would change by more than the tolerance, all stay.
func (d *plan) move(free []*policy.Member, queues []divide.Queue, perRate float64) {
	equal, moves := 1/float64(len(d.group.Ready)), false
	for i, m := range free {
		moves = moves || math.Abs(queues[i].Rate*perRate-m.Planned) > d.set.Tolerance*math.Max(equal, m.Planned)
	}
	if !moves {
		return
	}
	for i, m := range free {
		m.Planned = queues[i].Rate * perRate
	}
	how := "with the shortest tail"
	switch {
	case d.even:
		how = "in proportion to what neighbours leave"
	case d.limited:
		how = fmt.Sprintf("with at most %s of instances that have neighbours, if the others can serve the rest",
			setting.FormatShare(d.set.SetPoint))
	}
	policy.AddReason(&d.plan, "shift", "", "shares %s, for %.1f requests/s of which an instance alone can serve %.1f", how, d.arrivals, d.peak)
}

// explain records the cause of each instance's interference.
func (d *plan) explain() {
	for _, m := range d.group.Ready {
		mem := memoryOf(m)
		if mem.Cause == "" {
			continue
		}
		quell.Put(&d.plan.Cause, m.ID, mem.Cause)
		evidence := mem.Evidence
		if mem.Run == 0 {
			evidence = "within its bounds now; when it was slow, " + evidence
		}
		switch {
		case mem.Hidden == nil:
			policy.AddReason(&d.plan, "interference", m.ID, "%s: neighbours contend for its %s, and how much they use is not known: %s", evidence,
				mem.Cause, d.unknown(mem.Cause))
		case mem.Load == 0:
			policy.AddReason(&d.plan, "interference", m.ID,
				"%s: it looks as if neighbours contend for its %s, but its own load explains the time, so its share stays", evidence, mem.Cause)
		default:
			policy.AddReason(&d.plan, "interference", m.ID,
				"%s: neighbours use about %.2f (%.2f to %.2f) of its %s, so it can serve %.1f of %.1f requests/s", evidence,
				mem.Hidden.Value, mem.Hidden.Low, mem.Hidden.High, mem.Cause, d.peak*(1-mem.Load), d.peak)
		}
	}
}

// unknown says why the neighbours' use of a resource has not been estimated.
func (d *plan) unknown(r quell.Resource) string {
	if d.model.Queueing[r] == nil {
		return fmt.Sprintf("the models lack dial.queueing.%s, so it counts as one without neighbours", r)
	}
	return "too few requests so far"
}
