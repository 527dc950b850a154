// Package guard finds the shares within the rules of `guard` that are nearest to those that a policy wants. If no shares are within all of
// them, it relaxes as few as possible, and says so. It is pure.
package guard

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quellhq/quell"
)

// Member is an instance that is ready, and stays.
type Member struct {
	ID              string
	Want            float64  // the policy's share
	Now             float64  // its present share
	Base            float64  // the weight that people gave it
	Uncut           float64  // the part of its share that a fast policy leaves it
	Fixed           *float64 // the share that a person set
	Age             time.Duration
	HasAge          bool
	New             bool     // it has never had a share
	Rated           bool     // it is known what it can take
	Out             bool     // the policy sends it nothing, and a balancer would not follow a share that is small
	Failing         bool     // it answers with errors and must not gain weight
	Stale           bool     // its readings stopped
	Share           *float64 // the part of all requests that it got
	Failed, Refused float64  // parts of its requests
}

// Rules are a service's, and what a decision adds.
type Rules struct {
	quell.Guard
	StepPart    float64 // Step is multiplied by this; 0 means 1
	Policy      string
	HandingOver bool // another policy's shares were in force
	Based       bool // people gave instances different weights
}

// Result has a share for each member, in their order.
type Result struct {
	Shares  []float64
	Settled []float64 // those from which Step counts; nil if no instance has a share yet
	Reasons []quell.Reason
}

// MaxNamed limits how many instances a reason names.
const MaxNamed = 3

// StepReason is the code of the reason that shares move only part of the way at once.
const StepReason = "step"

// Shares returns the shares of these members within the rules.
func Shares(members []Member, rules Rules) Result {
	gd := &guarded{rules: rules, members: members, sizes: sizesOf(members), equal: 1 / float64(len(members))}
	gd.base = gd.settle()
	give := gd.ease()
	list := gd.fractions(give)
	shares, _ := Nearest(list)
	gd.explain(list, shares, give)
	return Result{shares, gd.base, gd.reasons}
}

type guarded struct {
	rules   Rules
	members []Member
	sizes   []float64 // of even shares, in multiples of equal ones
	equal   float64   // an equal share
	base    []float64 // Result.Settled
	reasons []quell.Reason
}

// even returns the share by base weight of the i-th member.
func (gd *guarded) even(i int) float64 { return gd.equal * gd.sizes[i] }

func (gd *guarded) reason(code, instance, format string, args ...any) {
	gd.reasons = append(gd.reasons, quell.Reason{Code: code, Instance: instance, Text: fmt.Sprintf(format, args...)})
}

// eased says which rules of the guard are relaxed because no shares satisfy all of them. The zero value means none.
type eased struct {
	step, floor              float64 // how far each rule is relaxed: 0 not at all, 1 completely
	slowStart, errors, stale bool
}

// sizesOf are the even shares of members, in multiples of equal ones.
func sizesOf(members []Member) []float64 {
	sizes := make([]float64, len(members))
	var sum float64
	for i := range members {
		sizes[i] = members[i].Base
		sum += sizes[i]
	}
	for i := range sizes {
		if sizes[i] *= float64(len(sizes)) / sum; sum == 0 {
			sizes[i] = 1
		}
	}
	return sizes
}

// settle returns the shares from which guard.step counts. These are the present shares, scaled so that they fill what new
// instances, instances that leave and shares that people set give or take. A new instance starts with the policy's share, at
// most an equal one. Scaling gives an instance with errors no larger share if others can take the traffic. If no instance
// that stays has a share yet, settle returns nil, and guard.step does not restrict the first shares.
func (gd *guarded) settle() []float64 {
	known := false
	for i := range gd.members {
		m := &gd.members[i]
		known = known || m.Now > 0
	}
	if !known {
		return nil
	}
	for _, give := range []eased{{}, {slowStart: true}, {slowStart: true, errors: true, stale: true}} {
		if base, ok := Nearest(gd.settled(give)); ok {
			return base
		}
	}
	return nil
}

func (gd *guarded) settled(give eased) []Fraction {
	list := make([]Fraction, len(gd.members))
	for i := range gd.members {
		m := &gd.members[i]
		f := Fraction{m.Now, 0, 1}
		switch {
		case m.Fixed != nil:
			f = Fraction{*m.Fixed, *m.Fixed, *m.Fixed}
		case m.New:
			if f.Want = min(m.Want, gd.even(i), gd.ramp(m)); m.Failing && !give.errors {
				f.Want = 0
			}
			if !give.slowStart {
				f.Low, f.High = f.Want, f.Want
			}
		case m.Stale && !give.stale:
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
	rule := gd.rules.SlowStart
	if rule == 0 || m.Stale || !m.HasAge || m.Age >= rule {
		return 1
	}
	return m.Want * math.Max(0.1, float64(m.Age)/float64(rule))
}

// fractions returns the policy's shares together with the bounds that the rules set when they are relaxed as give says.
func (gd *guarded) fractions(give eased) []Fraction {
	list, sizes := make([]Fraction, len(gd.members)), gd.sizes
	for i := range gd.members {
		m := &gd.members[i]
		low, high := 0.0, 1.0
		if step := gd.step(give) * sizes[i]; gd.base != nil && gd.step(give) < 1 {
			low, high = math.Max(0, gd.base[i]-step), math.Min(1, gd.base[i]+step)
		}
		low, high = gd.bound(m, gd.even(i), low, high, give)
		list[i] = Fraction{m.Want, low, high}
	}
	return list
}

// step returns how far a share may move in this plan; 1 means any distance.
func (gd *guarded) step(give eased) float64 {
	part := cmp.Or(gd.rules.StepPart, 1)
	if gd.rules.Step == 0 && part >= 1 || math.IsInf(part, 1) {
		return 1
	}
	step := math.Min(1, part*cmp.Or(gd.rules.Step, 1)*gd.equal)
	return step + math.Max(0, 1-step)*give.step
}

// bound narrows the bounds low and high of an instance's share, which guard.step gave. If rules contradict each other, the
// earlier one in this list decides: shares that people set, stale readings, errors, the floor. An instance that a fast
// policy takes out, or that gets nothing because a small share would not act, may lose its whole share at once. A ramp
// never takes away what the step or the floor guarantees.
func (gd *guarded) bound(m *Member, even, low, high float64, give eased) (float64, float64) {
	if m.Fixed != nil {
		return *m.Fixed, *m.Fixed
	}
	most := 1.0
	if m.Failing && !give.errors {
		most = gd.mostOfFailing(m, even)
		low, high = math.Min(low, most), math.Min(high, most)
	}
	if m.Stale && !give.stale {
		kept := math.Min(math.Max(m.Want, low), high)
		return kept, kept
	}
	if m.waiting() && !give.slowStart {
		return 0, 0 // otherwise a remainder of the others' steps would count as its first share
	}
	switch {
	case m.Uncut == 0, m.Out && cmp.Or(gd.rules.StepPart, 1) >= 1:
		low = 0
	case !m.waiting() && !m.Out:
		low = math.Max(low, math.Min(most, gd.rules.Floor*even*(1-give.floor)))
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
		return m.Now
	}
	part := math.Max(0.5, even / *m.Share)
	return math.Min(m.Now, math.Max(m.Now*part, gd.rules.Floor*even))
}

// drawsMore returns whether an instance refuses many requests and gets more than an even share of them.
func (m *Member) drawsMore(even float64) bool {
	return m.Refused >= muchRefused && m.Share != nil && *m.Share > even*(1+quell.SumTolerance)
}

// waiting returns whether an instance has no weight yet because nothing is known about it.
func (m *Member) waiting() bool { return m.Now == 0 && m.Want == 0 && !m.Rated }

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
	if m.Failed >= m.Refused {
		gd.reason("errors", m.ID, "%.1f%% of its requests fail: it gains no weight", m.Failed*100)
	} else {
		effect := "gains no weight"
		if m.drawsMore(gd.even(i)) {
			effect = fmt.Sprintf("got %.2f of all, more than an even share, so it loses weight", *m.Share)
		}
		gd.reason("refused", m.ID, "it refuses %.1f%% of its requests (429, 503): it %s", m.Refused*100, effect)
	}
}

// explain records what the rules changed, and which rules were relaxed.
func (gd *guarded) explain(list []Fraction, shares []float64, give eased) {
	for i := range gd.members {
		m := &gd.members[i]
		want := list[i].Want
		if m.Fixed != nil {
			continue
		}
		if m.Failing && !give.errors && !m.Stale && want > gd.mostOfFailing(m, gd.even(i)) {
			gd.reasonOfErrors(i, m)
		}
		if ramp := gd.ramp(m); ramp < want && !give.slowStart {
			gd.reason("slow_start", m.ID, "%s is %.0f s old: %.0f%% of its share", m.ID, m.Age.Seconds(), ramp/want*100)
		}
	}
	if gd.rules.HandingOver {
		gd.reason("handover", "", "another policy's weights were in force: going to those of %s", gd.rules.Policy)
	}
	gd.explainStep(list, shares, give)
	rules := gd.rules
	if give.step > 0 && rules.Step > 0 {
		gd.reason("guard_yields", "",
			"no shares are within all limits of the guard: one may move by %.0f%% of an equal share, not guard.step's %.0f%%",
			gd.step(give)/gd.equal*100, rules.Step*100)
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
	if gd.rules.Based {
		return " (in proportion to its base weight)"
	}
	return ""
}

// explainStep names the instances that do not get the policy's share in this plan because of guard.step.
func (gd *guarded) explainStep(list []Fraction, shares []float64, give eased) {
	step := gd.step(give)
	if gd.base == nil || step >= 1 {
		return
	}
	var named []string
	count, sizes := 0, gd.sizes
	for i := range gd.members {
		m := &gd.members[i]
		if math.Abs(shares[i]-list[i].Want) <= quell.SumTolerance || math.Abs(shares[i]-gd.base[i]) < step*sizes[i]-quell.SumTolerance {
			continue
		}
		if count++; count <= MaxNamed {
			named = append(named, fmt.Sprintf("%s %.3f", m.ID, list[i].Want))
		}
	}
	if count > MaxNamed {
		named = append(named, fmt.Sprintf("%d more", count-MaxNamed))
	}
	if count > 0 {
		gd.reason(StepReason, "", "no share moves by more than %.3f%s at once; on the way to %s", step, gd.relatively(),
			strings.Join(named, ", "))
	}
}
