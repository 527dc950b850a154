// Package scenario describes an experiment: machines, load and interference over time, the runs to compare, and how
// a run is judged. It is pure: the demo, the simulator and the lab play the same Scenario on different rigs.
//
// Times are since the start of a run. Loads are in units of one instance alone on its machine, uses are shares of a
// machine's resource.
package scenario

import (
	"slices"
	"time"

	"github.com/quellhq/quell"
)

// Scenario is one experiment. The zero value is not valid; see Validate.
type Scenario struct {
	Name      string
	Seed      uint64
	Duration  time.Duration
	Service   quell.Service
	Hosts     []Host
	Instances Instances
	Workload  Workload
	Timeline  []Event // in order of time
	Runs      []Run
	Judge     Judging
}

// Host is one physical machine; at most one of the service's instances runs on it.
type Host struct {
	ID       string
	Network  float64 // bit/s of its link
	Cores    float64
	DiskIOPS float64
	Memory   float64 // memory bandwidth, relative to the reference machine
}

// Instances says how many instances a run begins with.
type Instances struct {
	Start   int           // of runs whose policy scales the group
	Fixed   int           // the size of runs whose policy does not
	Startup time.Duration // emulated boot time of an instance
}

// Kind is the sort of work that clients ask for.
type Kind string

// File is the workload of one object of fixed size.
const File Kind = "file"

// Kinds lists the workloads that can be played.
var Kinds = []Kind{File}

// Arrivals is the process by which requests arrive.
type Arrivals string

// Poisson draws exponential gaps between requests, Deterministic leaves equal ones.
const (
	Poisson       Arrivals = "poisson"
	Deterministic Arrivals = "deterministic"
)

// ArrivalProcesses lists every known arrival process.
var ArrivalProcesses = []Arrivals{Poisson, Deterministic}

// Workload is what clients ask for, and how much of it at the start.
type Workload struct {
	Kind     Kind
	Arrivals Arrivals
	Size     int64   // bytes of one response
	Load     float64 // at the start
}

// Event changes the load, the interference, or both, at one moment; an absent part leaves things as they are.
type Event struct {
	At        time.Duration
	Load      *float64
	Interfere *Interference
	Mark      string // names a moment that reactions are measured from; empty marks nothing
}

// Interference is what a neighbour takes of a host's resource from now on; Use 0 ends it.
type Interference struct {
	Host     string
	Resource quell.Resource
	Use      float64
}

// Run is one pass through the scenario under a policy.
type Run struct {
	Policy     string
	Scheduling quell.Scheduling
	Fixed      int // pins the group to this size; 0: Instances.Fixed for policies that do not scale
}

// Judging says how response times are held against the objective.
type Judging struct {
	Window   time.Duration
	Requests int // a window counts for an instance with at least this many requests in it
}

// DefaultJudging returns the judging of scenarios that say nothing about it.
func DefaultJudging() Judging { return Judging{Window: 5 * time.Second, Requests: 30} }

// LoadAt returns the load at time t.
func (s *Scenario) LoadAt(t time.Duration) float64 {
	load := s.Workload.Load
	for _, e := range s.until(t) {
		if e.Load != nil {
			load = *e.Load
		}
	}
	return load
}

// InterferenceAt returns what neighbours take of the host's resources at time t. Resources left alone are absent.
func (s *Scenario) InterferenceAt(host string, t time.Duration) map[quell.Resource]float64 {
	uses := map[quell.Resource]float64{}
	for _, e := range s.until(t) {
		if e.Interfere == nil || e.Interfere.Host != host {
			continue
		}
		if e.Interfere.Use == 0 {
			delete(uses, e.Interfere.Resource)
			continue
		}
		uses[e.Interfere.Resource] = e.Interfere.Use
	}
	return uses
}

// until returns the events that have happened at time t.
func (s *Scenario) until(t time.Duration) []Event {
	n := slices.IndexFunc(s.Timeline, func(e Event) bool { return e.At > t })
	if n < 0 {
		return s.Timeline
	}
	return s.Timeline[:n]
}

// RatePerSecond returns the request rate that fills the given number of links, by the bytes of the bodies alone:
// load * bit/s / (8 * size). The unit is the link of the first host, where the first instance runs.
func (s *Scenario) RatePerSecond(load float64) float64 {
	return load * s.Hosts[0].Network / (8 * float64(s.Workload.Size))
}

// Step is a request rate that holds from a moment on.
type Step struct {
	At        time.Duration
	PerSecond float64
}

// Rates returns the request rate over the whole run, beginning at 0; each step changes the rate.
func (s *Scenario) Rates() []Step {
	steps := []Step{{PerSecond: s.RatePerSecond(s.Workload.Load)}}
	for _, e := range s.Timeline {
		if e.Load == nil {
			continue
		}
		rate, last := s.RatePerSecond(*e.Load), &steps[len(steps)-1]
		switch {
		case e.At == last.At:
			last.PerSecond = rate
		case rate != last.PerSecond:
			steps = append(steps, Step{At: e.At, PerSecond: rate})
		}
	}
	return steps
}

// Marks returns the moments that reactions are measured from, in order, each once.
func (s *Scenario) Marks() []time.Duration {
	var marks []time.Duration
	for _, e := range s.Timeline {
		if e.Mark != "" {
			marks = append(marks, e.At)
		}
	}
	return slices.Compact(marks)
}

// Size is the group's size in a run that does not scale, else 0.
func (s *Scenario) Size(run Run) int {
	if run.Fixed > 0 || run.Policy != "static" {
		return run.Fixed
	}
	return s.Instances.Fixed
}

// Initial is the number of instances that a run begins with.
func (s *Scenario) Initial(run Run) int {
	if n := s.Size(run); n > 0 {
		return n
	}
	return max(s.Instances.Start, s.Service.Group.Min)
}
