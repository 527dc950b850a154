package rivals

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
)

// Recommendation is a group size that hpa computed at some time.
type Recommendation struct {
	At time.Time `json:"at"`
	N  int       `json:"n"`
}

// hpaMemory is what hpa remembers.
type hpaMemory struct {
	Recommended []Recommendation `json:"recommended,omitempty"` // those within the stabilisation window, oldest first
}

// HPASettings are the settings of hpa.
type HPASettings struct {
	Resource    quell.Resource // whose utilisation counts
	Utilization float64        // the target
}

var HPA = policy.Spec[HPASettings]{
	Name: "hpa", About: "equal weights, and as many instances as bring the mean utilisation to a target, like Kubernetes' autoscaler",
	Scope: policy.ServiceScope, Scales: true, Equal: true,
	Defaults: HPASettings{Resource: quell.Network, Utilization: 0.8},
	Keys: func(s *HPASettings) setting.Table {
		return setting.Table{
			policy.ResourceKey(&s.Resource),
			setting.Opt("utilization", setting.Share(&s.Utilization).Above(0).Between(0, 1), "the target of the mean utilisation"),
		}
	},
	Senses:   func(s HPASettings) policy.Senses { return policy.Sensing(s.Resource) },
	Variants: hpaTargets,
	Memory:   policy.Empty[hpaMemory],
	Decide:   hpa,
}

// hpaTargets returns the target utilisations that the arena, which compares policies, tries.
func hpaTargets(s HPASettings) (list []policy.VariantOf[HPASettings]) {
	for _, target := range []float64{0.3, 0.4, 0.5, 0.6, 0.7, 0.8} {
		s.Utilization = target
		list = append(list, policy.VariantOf[HPASettings]{Step: fmt.Sprintf("%.0f%%", target*100), Settings: s})
	}
	return list
}

// The constants of the Kubernetes HorizontalPodAutoscaler. Its stabilisation of 300 s at one decision every 15 s is
// given in periods here, because sampling periods vary.
const (
	hpaTolerance        = 0.1
	stabilisedPeriods   = 20
	maxAdded            = 4 // largest number of instances added at once; if the group is larger, its size
	unknownWhenShort    = 0.0
	unknownWhenInExcess = 1.0
)

// hpa scales to a target utilisation as Kubernetes' HorizontalPodAutoscaler does, with equal weights: the group's size is
// ceil(n * mean utilisation / target). It grows at once, and shrinks to the largest size recommended within the
// stabilisation window. It does not consider neighbours: an instance that neighbours slow looks as busy as any other.
// Instances whose share a person set are not counted, because they cannot take load from the others.
func hpa(in *policy.Input, set HPASettings, g *policy.Group, st *policy.State) quell.Plan {
	var plan quell.Plan
	g.Equal()
	current := scaled(g)
	target := set.Utilization
	wanted := recommended(g, target)
	mem := policy.Remembered[hpaMemory](st)
	mem.Recommended = remembering(mem.Recommended, Recommendation{in.Snapshot.At, wanted}, stabilisedPeriods*in.Service.Sampling)
	switch stabilised := largest(mem.Recommended); {
	case wanted > current:
		grow(g, in, &plan, current, wanted, target)
	case stabilised < current:
		shrink(g, in, &plan, current, stabilised, target)
	case wanted < current:
		policy.AddReason(&plan, "stabilizing", "",
			"%d instance(s) would do for a mean utilisation of %.0f%%, but up to %d were wanted within %d periods", wanted, target*100, stabilised,
			stabilisedPeriods)
	}
	return plan
}

// recommended returns the size that brings the mean utilisation to the target, or the present size if the mean is within the
// tolerance. When scaling out, instances that are starting or have not reported count as idle. When scaling in, those that have
// not reported count as fully used and starting ones are not counted. If this reverses the decision, the size stays.
func recommended(g *policy.Group, target float64) int {
	current := scaled(g)
	var sum float64
	known := 0
	for _, m := range g.Ready {
		if m.HasUse && m.Fixed == nil {
			sum += m.Use
			known++
		}
	}
	if known == 0 {
		return current
	}
	short := sum > target*float64(known)
	counted, assumed := current-g.Starting, unknownWhenInExcess
	if short {
		counted, assumed = current, unknownWhenShort
	}
	sum += assumed * float64(counted-known)
	ratio := sum / float64(counted) / target
	if quell.AtMost(math.Abs(ratio-1), hpaTolerance) || short != (ratio > 1) {
		return current
	}
	return int(math.Min(math.Ceil(float64(counted)*ratio-quell.SumTolerance), math.MaxInt32))
}

// scaled is the number of instances that share the load.
func scaled(g *policy.Group) int { return len(g.Ready) + g.Starting - len(setByHand(g)) }

// setByHand lists the instances whose share a person set.
func setByHand(g *policy.Group) (ids []string) {
	for _, m := range g.Ready {
		if m.Fixed != nil {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// remembering returns the old recommendations within the window, and the newest. It does not change the old slice. Old entries with a later
// time than the newest are dropped, because they were made before the clock was set back.
func remembering(old []Recommendation, newest Recommendation, window time.Duration) []Recommendation {
	recent := slices.DeleteFunc(slices.Clone(old), func(r Recommendation) bool {
		age := newest.At.Sub(r.At)
		return age < 0 || age > window
	})
	return append(recent, newest)
}

func largest(rs []Recommendation) int {
	return slices.MaxFunc(rs, func(a, b Recommendation) int { return a.N - b.N }).N
}

func grow(g *policy.Group, in *policy.Input, plan *quell.Plan, current, wanted int, target float64) {
	most := g.MaxSize(in) - len(setByHand(g))
	if wanted > most {
		policy.AddReason(plan, "overload", "", "%d instance(s) would bring the mean utilisation to %.0f%%, and %s", wanted, target*100,
			g.Limit(in))
	}
	wanted = min(wanted, most, max(2*current, current+maxAdded))
	if wanted > current {
		plan.Group = &quell.GroupChange{Add: wanted - current}
		policy.AddReason(plan, "utilization", "", "%d instance(s) bring the mean utilisation to %.0f%%: adding %d", wanted, target*100,
			wanted-current)
	}
}

func shrink(g *policy.Group, in *policy.Input, plan *quell.Plan, current, wanted int, target float64) {
	ids := g.Youngest(current-max(wanted, in.Service.Group.Min), setByHand(g))
	if len(ids) == 0 {
		return
	}
	gone := policy.SetOf(ids)
	kept := slices.DeleteFunc(slices.Clone(g.Ready), func(m *policy.Member) bool { return gone[m.ID] })
	for _, m := range g.Ready {
		m.Planned = 0
	}
	for _, m := range kept {
		m.Planned = 1 / float64(len(kept))
	}
	plan.Group = &quell.GroupChange{Remove: ids}
	policy.AddReason(plan, "scale_in", "", "%d instance(s) bring the mean utilisation to %.0f%%: removing %s", current-len(ids), target*100,
		strings.Join(ids, ", "))
}
