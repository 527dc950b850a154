package policy

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/guard"
)

// setShares sets the shares of the instances that stay. Instances whose share a person set get it at once; the others
// divide the rest. Then every rule bounds the shares.
func (gd *guarded) setShares() {
	gd.cut()
	gd.fix()
	gd.fadeStale()
	rules := gd.ruled()
	within := guard.Shares(rules, guard.Rules{Guard: gd.in.Service.Guard, StepPart: gd.in.stepPart, Policy: gd.in.Service.Policy.Name,
		HandingOver: gd.group.HandingOver, Based: gd.group.based()})
	gd.plan.Reasons = append(gd.plan.Reasons, within.Reasons...)
	gd.plan.Weights = make(map[string]float64, len(gd.staying))
	for i, m := range gd.staying {
		if m.Settled = m.WeightNow(); within.Settled != nil {
			m.Settled = within.Settled[i]
		}
		if m.Planned = within.Shares[i]; (m.Uncut == 0 || rules[i].Out) && m.Planned < quell.SumTolerance {
			m.Planned = 0 // a share this small is rounding; a balancer with whole weights would give it the weight 1
		}
		gd.plan.Weights[m.ID] = m.Planned
		if gd.group.HandingOver || math.Abs(m.Planned-m.wanted) > quell.SumTolerance {
			m.mem.Clamped = &Clamped{Wanted: m.wanted, Planned: m.Planned}
		}
	}
}

// ruled lists what the rules see of the instances that stay.
func (gd *guarded) ruled() []guard.Member {
	list := make([]guard.Member, len(gd.staying))
	for i, m := range gd.staying {
		list[i] = guard.Member{ID: m.ID, Want: m.Planned, Now: m.WeightNow(), Base: m.BaseWeight(), Uncut: m.Uncut, Fixed: m.Fixed, Age: m.Age(),
			HasAge: m.AgeS != nil, New: m.IsNew(), Rated: m.rated(), Failing: m.Failing, Stale: m.kept, Share: m.Share}
		list[i].Out = gd.in.IdleFirst && gd.in.byCapacity && m.rated() && m.Planned == 0
		if m.Observation != nil {
			list[i].Failed, list[i].Refused = failed(m.Observation), Refused(m.Observation)
		}
	}
	return list
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
	rules, even := gd.in.Service.Guard, Even(gd.staying)
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
		m.Planned = ((1-moved)**m.mem.StaleWeight + moved*even(m)) * m.Uncut
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
}

func (gd *bounded) reason(code, instance, format string, args ...any) {
	AddReason(gd.plan, code, instance, format, args...)
}
