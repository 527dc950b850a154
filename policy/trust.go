package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Trust is how far the plans of a policy may go, and the change that is being watched. A policy earns more by predictions that hold, and
// loses it by a change that made the service worse. The zero value trusts a policy fully, because somebody trained its models.
//
//	advise --2 periods as predicted--> step --4 periods as predicted--> full
//	   ^------------------ a change was taken back --------------------/
//
// While the objective is missed, a policy may go one level further than it has earned, because there is little to lose.
type Trust struct {
	Level   quell.Authority `json:"level,omitempty"` // empty: full
	Good    int             `json:"good,omitempty"`  // consecutive periods at this level in which the service was as good as predicted
	Barred  int             `json:"barred,omitempty"`
	Harms   int             `json:"harms,omitempty"`    // changes that were taken back
	Change  *Change         `json:"change,omitempty"`   // a change that is being watched; never changed in place
	Harm    string          `json:"harm,omitempty"`     // what was taken back last, for people
	HarmAt  time.Time       `json:"harm_at,omitzero"`   // and when
	Undone  *Undone         `json:"undone,omitempty"`   // by what the taking back is judged; never changed in place
	ByHand  string          `json:"by_hand,omitempty"`  // who set the level
	Measure *Standing       `json:"measured,omitempty"` // the newest comparison
	Doubt   Doubt           `json:"doubt,omitzero"`     // how far predictions of the group's law are off
}

// Change is a change that a plan made, and what was there before.
type Change struct {
	At      time.Time          `json:"at"`
	Periods int                `json:"periods,omitempty"` // for which it has been watched
	Shares  map[string]float64 `json:"shares"`            // in force before
	Removed []string           `json:"removed,omitempty"` // instances that it removed
	Size    int                `json:"size,omitempty"`    // instances in service before; 0: an older version did not say
	SLO     string             `json:"slo,omitempty"`     // the objective then; empty: likewise
	Mute    int                `json:"mute,omitempty"`    // consecutive periods with too few response times to judge it
	Before  float64            `json:"before"`            // Standing.Measured then
	Rate    float64            `json:"rate,omitempty"`    // requests per second then
	Felt    float64            `json:"felt,omitempty"`    // mean severity of the instances then
	FeltBy  map[string]float64 `json:"felt_by,omitempty"` // and that of each instance that felt one
	Good    int                `json:"good,omitempty"`    // periods that were not worse
	Bad     int                `json:"bad,omitempty"`     // periods that were worse than before and than predicted; the plainly worse count twice
}

// Standing says how far the service misses its objective: the mean over requests of response time over threshold, where every value below
// 1 counts as 1. So it is 1 if every instance meets the objective.
type Standing struct {
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"` // what the models give for the same use and severity; 1 if the policy has none
	Requests  int     `json:"requests"`
}

const (
	// adviseFor and stepFor are the periods as predicted after which a policy may make small changes, and any change.
	adviseFor, stepFor = 2, 4
	// barredFor is how many periods a policy only advises after its first change that was taken back. Each further one doubles it.
	barredFor, mostBarred = 10, 4
	// forgivenAfter is how many periods as predicted in a row make one change that was taken back forgotten.
	forgivenAfter = 360
	// watchedFor is how many periods a change is watched, mutedFor after how many without a judgement it is no longer watched.
	watchedFor, mutedFor = 6, 18
	// worse is the factor by which a service must be worse than before, and than predicted, to count as harmed.
	worse = 1.05
	// plainly is the factor at which one period is enough; else two are needed.
	plainly = 1.3
	// MinSample is how many response times an instance needs to be judged by them.
	MinSample = 10
	// minMove is the smallest change of a share, as a part of an equal one, that is watched.
	minMove = 0.05
	// busier is the factor by which requests may increase while a change is watched, and disturbed is by how much the mean severity may. More
	// of either explains longer response times, so such a period is not judged.
	busier, disturbed = 1.1, 0.3
)

// setByHand returns the level that a person set, and nothing of what a policy has earned or lost.
func (t Trust) setByHand() Trust {
	if t.ByHand == "" {
		return Trust{}
	}
	return Trust{Level: t.Level, ByHand: t.ByHand}
}

// unproven returns the trust in a policy that knows too little to decide: when it knows enough, it begins by advising.
func (t Trust) unproven() Trust {
	if t.ByHand != "" {
		return t
	}
	t.Level, t.Good, t.Change, t.Undone = quell.AuthorityAdvise, 0, nil, nil
	return t
}

// retrust changes the trust, and what is earned under another one.
func (s *State) retrust(change func(Trust) Trust) {
	if s.Trust = change(s.Trust); s.Earned != nil {
		s.Earned = new(change(*s.Earned))
	}
}

// level returns the level, full if none is set.
func (t Trust) level() quell.Authority { return cmp.Or(t.Level, quell.Full) }

// standing compares the service with its objective, and with what the models predict for the present use and severity. Instances for which
// leaveOut returns true do not count; nil leaves out none.
func (g *Group) standing(in *Input, leaveOut func(*Member) bool) (s Standing, ok bool) {
	var measured, predicted float64
	threshold := in.Service.SLO.ThresholdMS()
	for _, m := range g.Ready {
		ms, requests, known := m.Measured(in.Service.SLO.Metric)
		if !known || leaveOut != nil && leaveOut(m) {
			continue
		}
		expected := 1.0
		if in.byCapacity {
			if !m.rated() {
				continue
			}
			longest, _ := m.Predict(in)
			expected = math.Max(1, longest/threshold)
		}
		n := float64(requests)
		measured, predicted = measured+n*math.Max(1, ms/threshold), predicted+n*expected
		s.Requests += requests
	}
	if s.Requests == 0 {
		return s, false
	}
	s.Measured, s.Predicted = measured/float64(s.Requests), predicted/float64(s.Requests)
	return s, true
}

// watched is a decision's view of trust.
type watched struct {
	in       *Input
	group    *Group
	Trust    Trust
	Now      Standing
	Known    bool
	TakeBack *Change // the change that this plan takes back
}

// watch compares the service with what was predicted, and finds out whether the last change must be taken back. It is called before the
// policy decides, because calibration changes what the models say.
func watch(in *Input, g *Group, t Trust) *watched {
	w := &watched{in: in, group: g, Trust: t}
	w.Now, w.Known = g.standing(in, nil)
	w.doubt()
	if w.Trust.Barred > 0 {
		w.Trust.Barred--
	}
	if !w.Known {
		w.pass()
		return w
	}
	s := w.Now
	w.Trust.Measure = &s
	asPredicted := s.Measured <= worse*s.Predicted
	w.retry()
	w.weigh()
	if w.TakeBack != nil {
		return w
	}
	if !asPredicted {
		w.Trust.Good = 0
		return w
	}
	w.Trust.Good++
	switch {
	case w.Trust.Barred > 0 || w.Trust.ByHand != "": // a level that a person set stays
	case w.Trust.Doubt.stays() && w.Trust.level() == quell.Full:
		w.Trust.Level, w.Trust.Good = quell.AuthorityStep, 0
	case w.Trust.Doubt.On():
	case w.Trust.level() == quell.AuthorityAdvise && w.Trust.Good >= adviseFor:
		w.Trust.Level, w.Trust.Good = quell.AuthorityStep, 0
	case w.Trust.level() == quell.AuthorityStep && w.Trust.Good >= stepFor:
		w.Trust.Level, w.Trust.Good = quell.Full, 0
	case w.Trust.Harms > 0 && w.Trust.Good >= forgivenAfter:
		w.Trust.Harms, w.Trust.Good = w.Trust.Harms-1, 0
	}
	return w
}

// pass ends the watching of a change that could not be judged for long: by then, much else may have changed.
func (w *watched) pass() {
	if w.Trust.Change == nil {
		return
	}
	c := *w.Trust.Change
	c.Mute++
	if w.Trust.Change = &c; c.Mute >= mutedFor {
		w.Trust.Change = nil
	}
}

// weigh judges the watched change by the newest period.
func (w *watched) weigh() {
	if w.Trust.Change == nil || !w.in.Service.Guard.Undo {
		w.Trust.Change = nil
		return
	}
	c := *w.Trust.Change
	if !c.inForce(w.group) || c.overtaken(w.group) || c.SLO != "" && c.SLO != objective(w.in) {
		w.Trust.Change = nil
		return
	}
	c.Periods++
	c.Mute = 0
	w.Trust.Change = &c
	// An instance that the change relieved is not slow because of it, and would get more load if the change were taken back. Neither is
	// one beside which a neighbour came since.
	now, known := w.group.standing(w.in, func(m *Member) bool {
		return m.WeightNow() < c.Shares[m.ID]-leastShift(w.group) || severest(m) > c.FeltBy[m.ID]+disturbed
	})
	limit := math.Max(c.Before, now.Predicted)
	switch {
	case !known:
	case w.rate() > busier*c.Rate || w.group.felt() > c.Felt+disturbed:
	case now.Measured > plainly*limit && w.in.byCapacity && c.Good == 0:
		c.Bad += 2 // after a good period, one bad one may as well have another cause
	case !w.in.byCapacity && now.Measured <= plainly*limit: // without models, neighbours explain as much
	case now.Measured > worse*limit:
		c.Bad++
	default:
		c.Good++
	}
	switch {
	case c.Bad >= 2:
		w.TakeBack = &c
		w.Trust.Change = nil
	case c.Periods >= watchedFor:
		w.Trust.Change = nil
	}
}

// felt is the mean over the rated instances of the highest severity of a resource.
func (g *Group) felt() float64 {
	var sum float64
	for _, m := range g.Rated {
		sum += severest(m)
	}
	return sum / math.Max(1, float64(len(g.Rated)))
}

// feltBy is the severity that each rated instance feels, of those that feel any.
func feltBy(g *Group) map[string]float64 {
	felt := map[string]float64{}
	for _, m := range g.Rated {
		if severity := severest(m); severity > 0 {
			felt[m.ID] = severity
		}
	}
	return felt
}

// severest is the highest severity of a resource that an instance feels.
func severest(m *Member) (highest float64) {
	for i := range m.Senses {
		highest = math.Max(highest, m.Senses[i].Measured)
	}
	return highest
}

// inForce returns whether the change was carried out: a paused controller, or one in advise mode, leaves everything as it was.
func (c *Change) inForce(g *Group) bool {
	if gone := SetOf(c.Removed); len(gone) > 0 {
		return !slices.ContainsFunc(g.Ready, func(m *Member) bool { return gone[m.ID] })
	}
	return slices.ContainsFunc(g.Ready, func(m *Member) bool { return math.Abs(m.WeightNow()-c.Shares[m.ID]) > leastShift(g) })
}

// objective names the objective. What was measured of another one cannot be compared.
func objective(in *Input) string {
	return fmt.Sprintf("%s %v", in.Service.SLO.Metric, in.Service.SLO.Threshold)
}

// overtaken returns whether shares moved since for another reason than the change: a person set one, or an instance was lost.
func (c *Change) overtaken(g *Group) bool {
	there := SetOf(c.Removed)
	for _, m := range g.Ready {
		there[m.ID] = true
		if before, was := c.Shares[m.ID]; m.Override != nil && was && math.Abs(m.WeightNow()-before) > leastShift(g) {
			return true
		}
	}
	for id := range c.Shares {
		if !there[id] {
			return true
		}
	}
	return false
}

// leastShift is how far a share must be from what it was before a change to count as moved by it.
func leastShift(g *Group) float64 { return minMove / 2 / float64(max(1, len(g.Ready))) }

func (w *watched) rate() float64 {
	if r := w.in.Snapshot.ArrivalRate; r != nil {
		return *r
	}
	return 0
}

// Level returns the authority of this plan.
func (w *watched) Level() quell.Authority {
	level := w.Trust.level()
	if !w.Known || w.Now.Measured <= worse || w.Trust.Barred > 0 || w.Trust.ByHand != "" {
		return level
	}
	return quell.Authorities[min(slices.Index(quell.Authorities, level)+1, len(quell.Authorities)-1)]
}

// Restrict reduces a policy's plan to what it may do at present.
func (w *watched) Restrict(plan *quell.Plan) {
	if w.TakeBack != nil {
		w.undo(plan)
		return
	}
	level := w.Level()
	if w.Trust.Level != "" {
		plan.Authority = level
	}
	switch level {
	case quell.AuthorityAdvise:
		w.onlyAdvise(plan)
	case quell.AuthorityStep:
		w.smallSteps(plan)
	}
}

// inForce returns the shares in force. A new instance gets an equal one.
func (g *Group) inForce() map[string]float64 {
	shares, even := make(map[string]float64, len(g.Ready)), Even(g.Ready)
	for _, m := range g.Ready {
		if shares[m.ID] = m.WeightNow(); m.IsNew() {
			shares[m.ID] = even(m)
		}
	}
	return shares
}

// wish keeps in the plan what the policy wanted.
func (w *watched) wish(plan *quell.Plan) {
	would := &quell.Would{Weights: make(map[string]float64, len(w.group.Ready)), Group: plan.Group}
	gone := removed(plan)
	for _, m := range w.group.Ready {
		if !gone[m.ID] {
			would.Weights[m.ID] = m.Planned
		}
	}
	plan.Would = would
}

// onlyAdvise leaves the shares in force, and removes nothing. Instances are added only while the objective is missed.
func (w *watched) onlyAdvise(plan *quell.Plan) {
	w.wish(plan)
	w.setShares(w.group.inForce())
	add := 0
	if plan.Group != nil && w.Known && w.Now.Measured > worse {
		add = plan.Group.Add
	}
	plan.Group, plan.Replace = nil, nil
	if add > 0 {
		plan.Group = &quell.GroupChange{Add: add}
	}
	text := "it has not shown yet that its predictions hold: it only advises" + w.unjudged()
	switch {
	case w.Trust.ByHand != "":
		text = fmt.Sprintf("it only advises, as %s set it: `quell authority auto` ends that", w.Trust.ByHand)
	case w.Trust.Barred > 0:
		text = fmt.Sprintf("a change was taken back: it only advises for %d more period(s)", w.Trust.Barred)
	}
	AddReason(plan, "authority", "", "policy %s: %s. `quell authority full` lets it act at once", w.in.Service.Policy.Name, text)
}

// unjudged says why a period tells nothing about the predictions, "" if it does.
func (w *watched) unjudged() string {
	if w.Known {
		return ""
	}
	return fmt.Sprintf(" (this period is not judged: that takes a prediction and at least %d response times at one instance)", MinSample)
}

func (w *watched) setShares(shares map[string]float64) {
	for _, m := range w.group.Ready {
		m.Planned = shares[m.ID]
	}
}

// smallSteps limits how far shares move, in steps that grow with every period as predicted, and removes one instance at most.
func (w *watched) smallSteps(plan *quell.Plan) {
	w.wish(plan)
	w.in.stepPart = math.Min(1, 0.5*math.Exp2(float64(w.Trust.Good)/stepFor))
	if plan.Group != nil && len(plan.Group.Remove) > 1 {
		for _, id := range plan.Group.Remove[:len(plan.Group.Remove)-1] {
			for _, m := range w.group.Ready {
				if m.ID == id {
					m.Planned = m.WeightNow()
				}
			}
		}
		change := *plan.Group
		change.Remove = change.Remove[len(change.Remove)-1:]
		plan.Group = &change
	}
	name := w.in.Service.Policy.Name
	if w.Trust.Doubt.On() {
		AddReason(plan, "authority", "", "policy %s makes small steps while its predictions are doubtful", name)
		return
	}
	if w.Trust.ByHand != "" {
		AddReason(plan, "authority", "", "policy %s makes small steps, as %s set it: `quell authority auto` ends that", name, w.Trust.ByHand)
		return
	}
	AddReason(plan, "authority", "", "policy %s makes small steps until its predictions have held for %d more period(s)%s",
		name, stepFor-w.Trust.Good, w.unjudged())
}

// undo puts back what was in force before the watched change: the shares at once, and as many instances as it removed.
func (w *watched) undo(plan *quell.Plan) {
	c := w.TakeBack
	w.wish(plan)
	shares := w.group.inForce()
	for _, m := range w.group.Ready {
		if before, ok := c.Shares[m.ID]; ok {
			shares[m.ID] = before
		}
	}
	w.setShares(shares)
	plan.Group, plan.Replace = nil, nil
	missing := len(c.Removed)
	if c.Size > 0 {
		missing = min(missing, c.Size-len(w.group.Ready)-w.group.Starting)
	}
	if missing > 0 {
		plan.Group = &quell.GroupChange{Add: missing}
	}
	w.in.stepPart = math.Inf(1)
	t := &w.Trust
	t.Level, t.Good, t.Barred = quell.AuthorityAdvise, 0, barredFor<<min(t.Harms, mostBarred)
	t.Harms++
	t.Undone = &Undone{Change: c, Measured: w.Now.Measured, Rate: w.rate(), Felt: w.group.felt(),
		Size: len(w.group.Ready) + w.group.Starting + max(0, missing)}
	t.HarmAt, t.ByHand = w.in.Snapshot.At, ""
	t.Harm = fmt.Sprintf("the change of %s was taken back: requests take %.2f times the objective; before it was %.2f, predicted were %.2f",
		c.At.UTC().Format(time.TimeOnly), w.Now.Measured, c.Before, w.Now.Predicted)
	plan.Authority = quell.AuthorityAdvise
	AddReason(plan, "taken_back", "", "%s. Policy %s only advises for %d period(s)", t.Harm, w.in.Service.Policy.Name, t.Barred)
}

// Follow begins to watch the plan if it changes something that can do harm: shares, or the number of instances downwards.
func (w *watched) Follow(plan *quell.Plan) Trust {
	t := w.Trust
	if w.TakeBack != nil || !w.in.Service.Guard.Undo || len(w.group.Ready) == 0 {
		return t
	}
	var gone []string
	moves := false
	if plan.Group != nil {
		gone = plan.Group.Remove
	}
	least := minMove / float64(len(w.group.Ready))
	for _, m := range w.group.Ready {
		if m.IsNew() {
			return t // shares move because an instance joins
		}
		moves = moves || m.stays && m.Weight != nil && math.Abs(m.Planned-m.Settled) > least
	}
	if len(gone) == 0 && !moves {
		return t
	}
	if t.Change != nil { // what was in force before the first of several changes is what all of them are judged by
		c := *t.Change
		c.Removed = slices.Concat(c.Removed, gone)
		if len(gone) > 0 {
			c.Periods, c.Good = 0, 0
		}
		t.Change = &c
		return t
	}
	if !w.Known || w.Now.Measured > plainly {
		return t // while a queue drains or grows, response times say nothing about a change
	}
	t.Change = &Change{At: w.in.Snapshot.At, Shares: w.group.inForce(), Removed: gone, Size: len(w.group.Ready) + w.group.Starting,
		SLO: objective(w.in), Before: w.Now.Measured, Rate: w.rate(), Felt: w.group.felt(), FeltBy: feltBy(w.group)}
	return t
}

// doubt judges the predictions by the newest period.
func (w *watched) doubt() {
	if !w.in.byCapacity || !w.in.Stationed() {
		w.Trust.Doubt = Doubt{}
		return
	}
	if off, known := w.group.errors(w.in); known {
		w.Trust.Doubt = w.Trust.Doubt.with(off, w.in.Snapshot.At)
	}
}
