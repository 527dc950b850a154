package quell

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Service is what Quell manages: a group of instances behind a balancer, and the objective they must meet.
type Service struct {
	Name     string
	SLO      SLO
	Sampling time.Duration // the sampling period, T in the paper
	Policy   Policy
	Group    Group
	Guard    Guard
	Mode     Mode
	Redline  Redline
	// Scheduling is the rule by which the balancer distributes requests; empty: unknown.
	Scheduling Scheduling
	// IdleFirst says that the balancer sends a request to an idle instance whatever its weight, so that only a weight of 0 keeps requests
	// away while somebody is idle.
	IdleFirst bool
}

// SLO is the response-time objective that every instance must meet.
type SLO struct {
	Metric    Metric
	FirstByte bool          // a request's time ends with the first byte of the response, not with the last
	Threshold time.Duration // R_th in the paper

	Target float64       // part of the time, or of the requests, in which the objective must hold; 0: no error budget is kept
	Of     BudgetOf      // what Target is a part of
	Over   time.Duration // the window of the budget, which ends now
}

// BudgetOf is what an error budget is a part of.
type BudgetOf string

// OfTime counts sampling periods, and each is missed if the worst instance missed the objective in it. OfRequests counts requests, and each
// is missed if its instance missed the objective in that period.
const (
	OfTime     BudgetOf = "time"
	OfRequests BudgetOf = "requests"
)

// BudgetsOf lists what an error budget can be a part of.
var BudgetsOf = []BudgetOf{OfTime, OfRequests}

// Text names the objective, for example p95 <= 80ms.
func (s SLO) Text() string { return fmt.Sprintf("%s <= %s", s.Objective(), s.Threshold) }

// LeastOver returns the shortest window of a budget that is long enough to see ten periods that may be missed.
func (s SLO) LeastOver(sampling time.Duration) time.Duration {
	const misses = 10
	if s.Target <= 0 || s.Target >= 1 {
		return 0
	}
	return time.Duration(math.Ceil(misses/(1-s.Target)-SumTolerance)) * sampling
}

// ThresholdMS is the threshold in milliseconds, the unit of the models.
func (s SLO) ThresholdMS() float64 { return float64(s.Threshold) / float64(time.Millisecond) }

// untilFirstByte begins the names of objectives that are about the time to the first byte.
const untilFirstByte = "ttfb_"

// Objectives lists the names of what an objective can be about: every statistic of the time to the last and to the first byte.
func Objectives() []string {
	var names []string
	for _, prefix := range []string{"", untilFirstByte} {
		for _, m := range Metrics {
			names = append(names, prefix+string(m))
		}
	}
	return names
}

// Objective names what the objective is about, for example p95 or ttfb_p95.
func (s SLO) Objective() string {
	if s.FirstByte {
		return untilFirstByte + string(s.Metric)
	}
	return string(s.Metric)
}

// SetObjective is the opposite of Objective.
func (s *SLO) SetObjective(name string) {
	metric, first := strings.CutPrefix(name, untilFirstByte)
	s.Metric, s.FirstByte = Metric(metric), first
}

// Policy selects a policy. Each policy declares the type of its Settings in package policy. Nil Settings mean the defaults.
type Policy struct {
	Name     string
	Settings any
	Fast     Fast
}

// Fast selects a policy that runs in addition to the main one, at a shorter period (Sampling), and reduces the shares that the main one
// gives. The zero value means that there is no fast policy.
type Fast struct {
	Name     string
	Settings any
	Sampling time.Duration
}

// String is the policy's name.
func (p Policy) String() string { return p.Name }

// Group bounds the number of instances.
type Group struct {
	Min       int
	Max       int
	Initial   int           // instances started if there are none yet; at least Min
	Fixed     bool          // the instances are machines that somebody else runs: none can be added or removed
	Startup   time.Duration // how long an instance may take to become ready
	Protected []string      // never removed or replaced
	Replace   Replace
}

// Replace limits how instances are replaced.
type Replace struct {
	Below float64       // an instance with less than this fraction of its credits may be replaced; 0: none is
	Every time.Duration // least time between two replacements that plans ask for
}

// Guard limits what the plans of any policy may do. Zero turns a rule off.
type Guard struct {
	Floor      float64       // lowest weight, as a fraction of an equal share
	Step       float64       // largest change of a weight in one plan, as a fraction of an equal share
	SlowStart  time.Duration // time over which a new instance's weight rises to its full share
	StaleAfter int           // periods without a reading after which an instance is stale
	Fade       int           // further periods over which a stale instance's weight moves to an equal share
	ErrorRate  float64       // an instance with a higher fraction of failed requests never gains weight
	Undo       bool          // a change after which the service is worse than before, and than predicted, is taken back
}

// Reporting returns the period at which readings are needed: that of the fast policy if there is one, else Sampling.
func (s Service) Reporting() time.Duration {
	if fast := s.Policy.Fast.Sampling; fast > 0 {
		return fast
	}
	return s.Sampling
}

// DefaultService returns the defaults of a service configuration. Name and SLO have none.
func DefaultService() Service {
	return Service{
		SLO:      SLO{Of: OfTime, Over: 7 * 24 * time.Hour},
		Sampling: 10 * time.Second,
		Policy:   Policy{Name: "prima"},
		Group:    Group{Min: 1, Max: 10, Startup: 30 * time.Second, Replace: Replace{Below: 0.1, Every: 15 * time.Minute}},
		Guard:    Guard{Floor: 0.05, Step: 0.5, StaleAfter: 3, Fade: 10, ErrorRate: 0.05, Undo: true},
		Mode:     Act,
		Redline:  Redline{Tests: 1, Risk: 0.01},
	}
}
