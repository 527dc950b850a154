package policy

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// eased says which rules of the guard are relaxed because no shares satisfy all of them. The zero value means none.
type eased struct {
	step, floor              float64 // how far each rule is relaxed: 0 not at all, 1 completely
	slowStart, errors, stale bool
}

// setShares sets the shares of the instances that stay. Instances whose share a person set get it at once; the others
// divide the rest. Then every rule bounds the shares.
func (gd *guarded) setShares() {
	gd.cut()
	gd.fix()
	gd.fadeStale()
	gd.base = gd.settle()
	give := gd.ease()
	list := gd.fractions(give)
	shares, _ := nearest(list)
	gd.explain(list, shares, give)
	gd.plan.Weights = make(map[string]float64, len(gd.staying))
	for i, m := range gd.staying {
		if m.Settled = m.WeightNow(); gd.base != nil {
			m.Settled = gd.base[i]
		}
		if m.Planned = shares[i]; m.Uncut == 0 && m.Planned < exactly {
			m.Planned = 0 // a share this small is rounding; a balancer with whole weights would give it the weight 1
		}
		gd.plan.Weights[m.ID] = m.Planned
		if gd.group.HandingOver || math.Abs(m.Planned-m.wanted) > quell.SumTolerance {
			m.mem.Clamped = &Clamped{Wanted: m.wanted, Planned: m.Planned}
		}
	}
}

// fix applies the shares that people set, and divides the rest among the others in the policy's proportions, or
// equally if the policy gives them nothing.
func (gd *guarded) fix() {
	fixed := fixByHand(gd.staying)
	if fixed.count > 0 || fixed.refused {
		gd.reason("override", "", "%s", fixed.text(gd.staying))
	}
	var wanted float64
	for _, m := range gd.staying {
		if m.Fixed == nil {
			wanted += m.Planned
		}
	}
	rest := math.Max(0, 1-fixed.sum)
	if fixed.count == 0 && isWhole(wanted) {
		return
	}
	for _, m := range gd.staying {
		switch {
		case m.Fixed != nil:
			m.Planned = *m.Fixed
		case wanted > 0:
			m.Planned = m.Planned / wanted * rest
		default:
			m.Planned = rest / float64(len(gd.staying)-fixed.count)
		}
	}
}

// fadeStale keeps the last weight of an instance whose readings stopped, and moves it to an equal share over
// guard.fade periods.
func (gd *guarded) fadeStale() {
	rules := gd.in.Service.Guard
	for _, m := range gd.staying {
		periods := m.mem.StaleFor
		if periods == 0 || m.Fixed != nil {
			continue
		}
		if m.mem.StaleWeight == nil {
			last := m.Planned
			if m.Weight != nil {
				last = *m.Weight
			}
			m.mem.StaleWeight = &last
		}
		moved := 1.0
		if rules.Fade > 0 {
			moved = math.Min(1, float64(periods)/float64(rules.Fade))
		}
		m.kept = true
		m.Planned = ((1-moved)**m.mem.StaleWeight + moved*m.Even(gd.staying)) * m.Uncut
		gd.tellStale(m, moved)
	}
}

func (gd *guarded) tellStale(m *Member, moved float64) {
	code, hint := "stale", ""
	if m.mem.Unprobed {
		code, hint = "unprobed", ". Nothing waits for it. "+m.whyUnprobed()
	}
	periods := m.mem.StaleFor + gd.in.patience()
	gd.reason(code, m.ID, "no %s of %s for %d period(s): keeping its weight, %.0f%% on the way to an equal share%s", m.misses(), m.ID, periods,
		moved*100, hint)
}

// sizes are the even shares of the instances that stay, in multiples of equal ones.
func (gd *guarded) sizes() []float64 {
	sizes := make([]float64, len(gd.staying))
	var sum float64
	for i, m := range gd.staying {
		sizes[i] = m.BaseWeight()
		sum += sizes[i]
	}
	for i := range sizes {
		if sizes[i] *= float64(len(sizes)) / sum; sum == 0 {
			sizes[i] = 1
		}
	}
	return sizes
}

func (gd *guarded) equal() float64 { return 1 / float64(len(gd.staying)) }

// settle returns the shares from which guard.step counts. These are the present shares, scaled so that they fill what new
// instances, instances that leave and shares that people set give or take. A new instance starts with the policy's share, at
// most an equal one. Scaling gives an instance with errors no larger share if others can take the traffic. If no instance
// that stays has a share yet, settle returns nil, and guard.step does not restrict the first shares.
func (gd *guarded) settle() []float64 {
	known := false
	for _, m := range gd.staying {
		known = known || m.WeightNow() > 0
	}
	if !known {
		return nil
	}
	for _, give := range []eased{{}, {slowStart: true}, {slowStart: true, errors: true, stale: true}} {
		if base, ok := nearest(gd.settled(give)); ok {
			return base
		}
	}
	return nil
}

func (gd *guarded) settled(give eased) []fraction {
	list := make([]fraction, len(gd.staying))
	for i, m := range gd.staying {
		f := fraction{m.WeightNow(), 0, 1}
		switch {
		case m.Fixed != nil:
			f = fraction{*m.Fixed, *m.Fixed, *m.Fixed}
		case m.IsNew():
			if f.Want = min(m.Planned, m.Even(gd.staying), gd.ramp(m)); m.Failing && !give.errors {
				f.Want = 0
			}
			if !give.slowStart {
				f.Low, f.High = f.Want, f.Want
			}
		case m.kept && !give.stale:
			f.Low, f.High = f.Want, f.Want
		case m.Failing && !give.errors:
			f.High = f.Want
		}
		list[i] = f
	}
	return list
}

// ramp returns the largest share that guard.slow_start allows an instance. The rule does not apply to an instance without readings.
func (gd *guarded) ramp(m *Member) float64 {
	rule := gd.in.Service.Guard.SlowStart
	if rule == 0 || m.kept || m.AgeS == nil || m.Age() >= rule {
		return 1
	}
	return m.Planned * math.Max(0.1, float64(m.Age())/float64(rule))
}

// fractions returns the policy's shares together with the bounds that the rules set when they are relaxed as give says.
func (gd *guarded) fractions(give eased) []fraction {
	list, sizes := make([]fraction, len(gd.staying)), gd.sizes()
	for i, m := range gd.staying {
		low, high := 0.0, 1.0
		if step := gd.step(give) * sizes[i]; gd.base != nil && gd.step(give) < 1 {
			low, high = math.Max(0, gd.base[i]-step), math.Min(1, gd.base[i]+step)
		}
		low, high = gd.bound(m, gd.equal()*sizes[i], low, high, give)
		list[i] = fraction{m.Planned, low, high}
	}
	return list
}

// step returns how far a share may move in this plan; 1 means any distance.
func (gd *guarded) step(give eased) float64 {
	part := cmp.Or(gd.in.stepPart, 1)
	if gd.in.Service.Guard.Step == 0 && part >= 1 || math.IsInf(part, 1) {
		return 1
	}
	step := math.Min(1, part*cmp.Or(gd.in.Service.Guard.Step, 1)*gd.equal())
	return step + math.Max(0, 1-step)*give.step
}

// bound narrows the bounds low and high of an instance's share, which guard.step gave. If rules contradict each other, the
// earlier one in this list decides: shares that people set, stale readings, errors, the floor. An instance that a fast
// policy takes out may lose its whole share at once. A ramp never takes away what the step or the floor guarantees.
func (gd *guarded) bound(m *Member, even, low, high float64, give eased) (float64, float64) {
	if m.Fixed != nil {
		return *m.Fixed, *m.Fixed
	}
	most := 1.0
	if m.Failing && !give.errors {
		most = gd.mostOfFailing(m, even)
		low, high = math.Min(low, most), math.Min(high, most)
	}
	if m.kept && !give.stale {
		kept := math.Min(math.Max(m.Planned, low), high)
		return kept, kept
	}
	if m.waiting() && !give.slowStart {
		return 0, 0 // otherwise a remainder of the others' steps would count as its first share
	}
	switch {
	case m.Uncut == 0:
		low = 0
	case !m.waiting():
		low = math.Max(low, math.Min(most, gd.in.Service.Guard.Floor*even*(1-give.floor)))
	}
	if !give.slowStart {
		high = math.Min(high, math.Max(low, gd.ramp(m)))
	}
	return low, high
}

// muchRefused is a share of refused requests that clients who ask too often, and stick to one instance, do not explain.
const muchRefused = 0.25

// mostOfFailing returns the largest share of an instance that fails or refuses requests. It gains none. If it refuses many, and a balancer
// that looks for idle instances therefore sends it more than an even share, it loses some.
func (gd *guarded) mostOfFailing(m *Member, even float64) float64 {
	if !m.drawsMore(even) {
		return m.WeightNow()
	}
	part := math.Max(0.5, even / *m.Share)
	return math.Min(m.WeightNow(), math.Max(m.WeightNow()*part, gd.in.Service.Guard.Floor*even))
}

// drawsMore returns whether an instance refuses many requests and gets more than an even share of them.
func (m *Member) drawsMore(even float64) bool {
	return Refused(m.Observation) >= muchRefused && m.Share != nil && *m.Share > even*(1+quell.SumTolerance)
}

// waiting returns whether an instance has no weight yet because nothing is known about it.
func (m *Member) waiting() bool { return m.WeightNow() == 0 && m.Planned == 0 && !m.rated() }

// ease finds which rules must be relaxed so that shares within all bounds exist. It relaxes guard.step first, then
// guard.floor, each as little as possible, and the other rules only if that is not enough.
func (gd *guarded) ease() eased {
	last := eased{slowStart: true, errors: true, stale: true}
	for _, give := range []eased{{}, {slowStart: true}, {slowStart: true, errors: true}, last} {
		if gd.fits(give) {
			return give
		}
		if give.step = 1; gd.fits(give) {
			return gd.least(func(part float64) eased { give.step = part; return give })
		}
		if give.floor = 1; gd.fits(give) {
			return gd.least(func(part float64) eased { give.floor = part; return give })
		}
	}
	last.step, last.floor = 1, 1
	return last
}

func (gd *guarded) fits(give eased) bool { return feasible(gd.fractions(give)) }

// least finds the smallest part between 0 and 1 for which give(part) relaxes the rules enough.
func (gd *guarded) least(give func(part float64) eased) eased {
	short, enough := 0.0, 1.0
	for range 30 {
		if middle := (short + enough) / 2; gd.fits(give(middle)) {
			enough = middle
		} else {
			short = middle
		}
	}
	return give(enough)
}

// reasonOfErrors says why an instance gains no weight.
func (gd *guarded) reasonOfErrors(i int, m *Member) {
	if failed, refused := failed(m.Observation), Refused(m.Observation); failed >= refused {
		gd.reason("errors", m.ID, "%.1f%% of its requests fail: it gains no weight", failed*100)
	} else {
		effect := "gains no weight"
		if m.drawsMore(gd.equal() * gd.sizes()[i]) {
			effect = fmt.Sprintf("got %.2f of all, more than an even share, so it loses weight", *m.Share)
		}
		gd.reason("refused", m.ID, "it refuses %.1f%% of its requests (429, 503): it %s", refused*100, effect)
	}
}

// explain records what the rules changed, and which rules were relaxed.
func (gd *guarded) explain(list []fraction, shares []float64, give eased) {
	for i, m := range gd.staying {
		want := list[i].Want
		if m.Fixed != nil {
			continue
		}
		if m.Failing && !give.errors && !m.kept && want > gd.mostOfFailing(m, gd.equal()*gd.sizes()[i]) {
			gd.reasonOfErrors(i, m)
		}
		if ramp := gd.ramp(m); ramp < want && !give.slowStart {
			gd.reason("slow_start", m.ID, "%s is %.0f s old: %.0f%% of its share", m.ID, m.Age().Seconds(), ramp/want*100)
		}
	}
	if gd.group.HandingOver {
		gd.reason("handover", "", "another policy's weights were in force: going to those of %s", gd.in.Service.Policy.Name)
	}
	gd.explainStep(list, shares, give)
	rules := gd.in.Service.Guard
	if give.step > 0 && rules.Step > 0 {
		gd.reason("guard_yields", "",
			"no shares are within all limits of the guard: one may move by %.0f%% of an equal share, not guard.step's %.0f%%",
			gd.step(give)/gd.equal()*100, rules.Step*100)
	}
	if give.floor > 0 && rules.Floor > 0 {
		gd.reason("guard_yields", "",
			"no shares are within all limits of the guard: the least is %.1f%% of an equal share, not guard.floor's %.1f%%",
			rules.Floor*(1-give.floor)*100, rules.Floor*100)
	}
	switch {
	case give.stale:
		gd.reason("guard_yields", "", "only instances without readings could take the traffic: their weights change")
	case give.errors:
		gd.reason("guard_yields", "", "only instances that answer with errors could take the traffic: they gain weight")
	case give.slowStart:
		gd.reason("guard_yields", "", "only new instances could take the traffic: guard.slow_start waits for others")
	}
}

// relatively qualifies an amount for an instance of mean base weight.
func (gd *guarded) relatively() string {
	if gd.group.based() {
		return " (in proportion to its base weight)"
	}
	return ""
}

// explainStep names the instances that do not get the policy's share in this plan because of guard.step.
func (gd *guarded) explainStep(list []fraction, shares []float64, give eased) {
	step := gd.step(give)
	if gd.base == nil || step >= 1 {
		return
	}
	var named []string
	count, sizes := 0, gd.sizes()
	for i, m := range gd.staying {
		if math.Abs(shares[i]-list[i].Want) <= quell.SumTolerance || math.Abs(shares[i]-gd.base[i]) < step*sizes[i]-quell.SumTolerance {
			continue
		}
		if count++; count <= maxNamed {
			named = append(named, fmt.Sprintf("%s %.3f", m.ID, list[i].Want))
		}
	}
	if count > maxNamed {
		named = append(named, fmt.Sprintf("%d more", count-maxNamed))
	}
	if count > 0 {
		gd.reason(stepReason, "", "no share moves by more than %.3f%s at once; on the way to %s", step, gd.relatively(),
			strings.Join(named, ", "))
	}
}

// cut multiplies shares by the factors of a fast policy, and gives what that frees to the other instances. Shares that people set are not
// cut. If cuts left no instance any share, none is applied.
func (gd *guarded) cut() {
	var whole, left float64
	var cuts []string
	for _, m := range gd.staying {
		if m.Fixed != nil {
			continue
		}
		whole += m.Planned
		left += m.Planned * m.Uncut
		if m.Uncut < 1 {
			cuts = append(cuts, fmt.Sprintf("%s has %.0f%% of its share, until %s if that is not renewed", m.ID, 100*m.Uncut,
				m.Factor.Until.UTC().Format(time.TimeOnly)))
		}
	}
	switch {
	case len(cuts) == 0:
		return
	case left == 0:
		gd.reason("cut", "", "not in force: %s, and nothing would be left", strings.Join(cuts, ", "))
		return
	}
	gd.reason("cut", "", "%s", strings.Join(cuts, ", "))
	for _, m := range gd.staying {
		if m.Fixed == nil {
			m.Planned *= m.Uncut * whole / left
		}
	}
}

// bounded is a plan whose group the guard bounds.
type bounded struct {
	in    *Input
	group *Group
	plan  *quell.Plan
}

// guarded is a plan whose shares the guard bounds.
type guarded struct {
	bounded
	staying []*Member // ready, and not removed
	base    []float64 // shares of staying from which guard.step counts; nil if no instance has a share yet
}

func (gd *bounded) reason(code, instance, format string, args ...any) {
	AddReason(gd.plan, code, instance, format, args...)
}
