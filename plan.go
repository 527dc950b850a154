package quell

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Plan says what a policy wants to be in force after a snapshot, and why. A plan is plain data: it can be printed,
// compared, stored and replayed. An empty part asks for no action.
type Plan struct {
	At                    time.Time           `json:"at"`
	Service               string              `json:"service,omitempty"`
	Host                  string              `json:"host,omitempty"` // set instead of Service if the plan is for a host
	Policy                string              `json:"policy"`
	Weights               map[string]float64  `json:"weights,omitempty"` // of the instances that stay; their sum is 1
	Group                 *GroupChange        `json:"group,omitempty"`
	Limits                []Limit             `json:"limits,omitempty"` // for a host: all; control groups that are not listed have none
	Settings              []Setting           `json:"settings,omitempty"`
	Replace               []string            `json:"replace,omitempty"`
	Factor                map[string]Factor   `json:"factor,omitempty"`   // a fast policy's cuts, by instance
	Capacity              map[string]float64  `json:"capacity,omitempty"` // effective capacity, before headroom
	Used                  map[string]float64  `json:"used,omitempty"`     // the part of its capacity that an instance carries now; above 1: more
	PredictedMS           map[string]float64  `json:"predicted_ms,omitempty"`
	PredictedAtCapacityMS map[string]float64  `json:"predicted_at_capacity_ms,omitempty"`
	MarginMS              map[string]float64  `json:"margin_ms,omitempty"` // in place of headroom: how far predictions stay below the threshold
	Severity              map[string]float64  `json:"severity,omitempty"`  // the values that the decision used, after calibration
	Cause                 map[string]Resource `json:"cause,omitempty"`
	Limiter               map[string]string   `json:"limiter,omitempty"`   // what limits the capacity: a resource or one of the other limiters
	Credits               map[string]Balances `json:"credits,omitempty"`   // of burstable instances
	Waits                 map[string]Waits    `json:"waits,omitempty"`     // of control groups, and of instances that wait long for others
	Tenants               map[string]Tenant   `json:"tenants,omitempty"`   // of control groups
	OwnWork               map[string]OwnWork  `json:"own_work,omitempty"`  // of instances: use that is not for requests
	Reserve               *Reserve            `json:"reserve,omitempty"`   // what is left free so that the error budget suffices
	Authority             Authority           `json:"authority,omitempty"` // how far the plan could go; absent: no limit
	Would                 *Would              `json:"would,omitempty"`     // what the policy wanted, if it could not go that far
	Reasons               []Reason            `json:"reasons,omitempty"`
}

// Reserve is the part of a group's capacity that a policy leaves free, because of what was missed of the objective.
type Reserve struct {
	Share float64 `json:"share"` // of the capacity
	Why   string  `json:"why,omitempty"`
	// OutOfReach says what would be needed if even the largest group misses more than the budget allows; "": it does not.
	OutOfReach string `json:"out_of_reach,omitempty"`
}

// OwnWork is what a machine does beside answering requests. It leaves less of a resource for them, like a neighbour.
type OwnWork struct {
	Resource Resource `json:"resource"`
	Use      float64  `json:"use"`          // a fraction of the resource
	By       string   `json:"by,omitempty"` // the control group or program that uses most of it, if the agent can tell
}

// Balances are the credits of a burstable instance, by resource.
type Balances map[Resource]Balance

// Balance says how many credits a burstable instance has of one resource, and when they run out if its use stays as it has been. A time
// that is absent never comes.
type Balance struct {
	Left      float64  `json:"left"`                 // credits; the middle of Low and High
	Low       float64  `json:"low"`                  // the balance is at least this
	High      float64  `json:"high"`                 // and at most this
	Baseline  float64  `json:"baseline"`             // use that needs no credits, a fraction of the resource
	DepletedS *float64 `json:"depleted_s,omitempty"` // seconds from now
	SoonestS  *float64 `json:"soonest_s,omitempty"`  // at the lowest balance and the highest use that are likely
	LatestS   *float64 `json:"latest_s,omitempty"`
}

// Authority says how far a policy's plans may go. Evidence grants it, and a person can set it.
type Authority string

// The levels of authority. With Full a policy may do everything that the guard allows.
const (
	AuthorityAdvise Authority = "advise" // only say what it would do
	AuthorityStep   Authority = "step"   // small changes
	Full            Authority = "full"
)

// Authorities lists the levels, the lowest first.
var Authorities = []Authority{AuthorityAdvise, AuthorityStep, Full}

// UnmarshalText accepts exactly the names in Authorities, and the empty text.
func (a *Authority) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*a = ""
		return nil
	}
	return parseEnum(a, "authority", b, Authorities)
}

// Would is what a policy wanted but was not allowed to do.
type Would struct {
	Weights map[string]float64 `json:"weights,omitempty"`
	Group   *GroupChange       `json:"group,omitempty"`
}

// Part is a part of a plan that asks for an action.
type Part string

// The parts, in the order in which they are carried out.
const (
	GroupPart    Part = "group"
	ReplacePart  Part = "replace"
	WeightsPart  Part = "weights"
	LimitsPart   Part = "limits"
	SettingsPart Part = "settings"
	FactorPart   Part = "factor"
)

// Asks lists the parts that ask for an action. The other fields of a plan only explain it.
func (p *Plan) Asks() (parts []Part) {
	for _, part := range []struct {
		name Part
		asks bool
	}{
		{GroupPart, !p.Group.Empty()},
		{ReplacePart, len(p.Replace) > 0},
		{WeightsPart, len(p.Weights) > 0},
		{LimitsPart, len(p.Limits) > 0},
		{SettingsPart, len(p.Settings) > 0},
		{FactorPart, len(p.Factor) > 0},
	} {
		if part.asks {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// The causes of waiting for a processor.
const (
	OwnCause        = "own"
	QuotaCause      = "quota"
	NeighboursCause = "neighbours"
	HypervisorCause = "hypervisor"
)

// Waits says how long a control group, or an instance of a service, waited for a processor, and for whom, as fractions of the time in which
// it wanted to run. Own, Quota, Neighbours and Hypervisor add up to Share. Values that the kernel does not report are absent.
type Waits struct {
	Share      *float64 `json:"share,omitempty"`
	Own        *float64 `json:"own,omitempty"`        // for other tasks of the group
	Quota      *float64 `json:"quota,omitempty"`      // for the next period of its own quota
	Neighbours *float64 `json:"neighbours,omitempty"` // for tasks of this machine outside the group
	Hypervisor *float64 `json:"hypervisor,omitempty"` // for processors that the hypervisor gave to other machines (steal)
	Neighbour  string   `json:"neighbour,omitempty"`  // the neighbouring group that ran most; absent: processes outside all groups

	// Cause and Hidden are set for instances of a service. Cause is the largest part, if it is large. Hidden is the estimated use of the
	// instance's processors by neighbours, as a fraction.
	Cause  string   `json:"cause,omitempty"`
	Hidden *float64 `json:"hidden,omitempty"`
}

// Parts describes for whom it waited, the largest part first.
func (w *Waits) Parts() string {
	neighbours := "neighbours on this machine"
	if w.Neighbour != "" {
		neighbours += ", most of them " + w.Neighbour
	}
	type part struct {
		words string
		share *float64
	}
	list := []part{{"its own quota", w.Quota}, {neighbours, w.Neighbours}, {"its own load", w.Own}, {"the hypervisor", w.Hypervisor}}
	const least = 0.001
	list = slices.DeleteFunc(list, func(p part) bool { return p.share == nil || *p.share < least })
	slices.SortStableFunc(list, func(a, b part) int { return cmp.Compare(*b.share, *a.share) })
	var texts []string
	for _, p := range list {
		texts = append(texts, fmt.Sprintf("%.1f%% for %s", 100**p.share, p.words))
	}
	return strings.Join(texts, "; ")
}

// Tenant says how much longer a control group takes for its work than if it had the machine to itself.
type Tenant struct {
	Slowdown  *float64     `json:"slowdown,omitempty"`  // time per unit of work, over that of the group alone; 1: as fast as alone
	From      SlowdownFrom `json:"from,omitempty"`      // where the slowdown comes from
	Wanted    *float64     `json:"wanted,omitempty"`    // processors that it would have used alone
	Predicted *float64     `json:"predicted,omitempty"` // slowdown that the plan's limits are expected to give
	// Correlation is that of reported slowdowns and how long tasks waited, from -1 to 1 (ACS, Eq. 9); absent before two unlike reports.
	Correlation *float64 `json:"correlation,omitempty"`
	Idle        bool     `json:"idle,omitempty"` // it wants next to nothing: its share goes to the others
}

// SlowdownFrom is the source of a slowdown.
type SlowdownFrom string

// The sources of a slowdown: the progress that the group reports; how long its tasks waited for processors; or a prediction from that
// waiting, learned from earlier reports of progress.
const (
	FromProgress   SlowdownFrom = "progress"
	FromScheduling SlowdownFrom = "scheduling"
	FromModel      SlowdownFrom = "model"
)

// GroupChange asks for instances to be added and removed.
type GroupChange struct {
	Add    int      `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Factor multiplies an instance's share until a given time. Value is from 0 to 1. Fast policies set it.
type Factor struct {
	Value float64   `json:"value"`
	Until time.Time `json:"until"`
}

// Left returns the factor at a given time: 1 if there is no cut, or the cut has expired.
func (f *Factor) Left(at time.Time) float64 {
	if f == nil || !at.Before(f.Until) {
		return 1
	}
	return f.Value
}

// Empty returns whether the change asks for nothing.
func (g *GroupChange) Empty() bool { return g == nil || g.Add == 0 && len(g.Remove) == 0 }

// Limit is the most that an instance may use of a resource. Value is in Unit. In WeightUnit it is not a maximum: Value says how much the
// instance, a control group, gets relative to the others while they want more than there is. 1 is the kernel's usual weight.
type Limit struct {
	Instance string   `json:"instance"` // for a group around control groups: its path
	Resource Resource `json:"resource"`
	Value    float64  `json:"value"`
	Unit     string   `json:"unit"`
}

// Units that say what a limit is, if it is not the most that may be used, or sent.
const (
	WeightUnit   = "weight"
	ReceivedUnit = "bit/s received"
)

// Setting is a server parameter of an instance.
type Setting struct {
	Instance string  `json:"instance"`
	Target   string  `json:"target"`
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
}

// Key names the setting among those of its instance, for example apache.MaxRequestWorkers.
func (s *Setting) Key() string { return s.Target + "." + s.Name }
