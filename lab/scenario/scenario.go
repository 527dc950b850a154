// Package scenario describes an experiment: machines, load and interference over time, the runs to compare, and how
// a run is judged. It is pure: the demo, the simulator and the lab play the same Scenario on different rigs.
//
// Times are since the start of a run. Loads are in units of one instance alone on its machine, uses are shares of a
// machine's resource.
package scenario

import (
	"slices"
	"strconv"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
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
	Readings  Readings
	Stations  Stations      `json:",omitzero"`
	Probing   Probing       `json:",omitzero"`
	Services  int           `json:",omitzero"` // number of equal services, each with hosts, clients, a controller and a seed of its own; 0: one
	WarmUp    time.Duration // the first load is offered for this long before measuring starts; 0: the rig's default
	Timeline  []Event       // in order of time
	Runs      []Run
	Judge     Judging
}

// Readings are errors of readings on the way to the controller. The zero value means perfect readings.
type Readings struct {
	Noise float64       // standard deviation of utilisations and probe means, as a share of themselves
	Lost  float64       // share of a machine's readings that never arrive
	Late  time.Duration // mean delay of the readings that arrive, exponentially distributed
}

// Stations says how the machines' resources serve open work. The zero value means processor sharing, and neighbours
// as random flows.
type Stations struct {
	Discipline Discipline
	Neighbours Neighbours
}

// Discipline is how the open work at a resource is served.
type Discipline string

// Sharing is processor sharing: all open work advances at once, at equal speed. FirstCome serves it in the order of
// its arrival, one piece per server: a processor's cores are a server each, other resources are one.
const (
	Sharing   Discipline = "sharing"
	FirstCome Discipline = "fcfs"
)

// Disciplines lists the known ones.
var Disciplines = []Discipline{Sharing, FirstCome}

// Neighbours is how neighbours take their share of a resource.
type Neighbours string

// Flows arrive at random, each with its own work. Fluid neighbours use their share evenly. Under processor sharing both give the
// same mean times of requests and probes of every size (each is size / (1 - U - U_int) for Poisson arrivals); fluid neighbours are
// much faster to simulate, and times vary less. On processors with several cores fluid neighbours slow down even a single request,
// for which flows would leave a core. Both need U and U_int together below 1: above that flows would get less, and a fluid
// neighbour does not.
const (
	Flows Neighbours = "flows"
	Fluid Neighbours = "fluid"
)

// NeighbourKinds lists the known ones.
var NeighbourKinds = []Neighbours{Flows, Fluid}

// Probing says how instances are probed.
type Probing struct {
	Count     int              // of an instance in a sampling period; 0: one in 100 ms on average, and at least 8
	Budget    float64          // share of a host's link that probes may take; 0: 2%
	Resources []quell.Resource // that are probed; empty: the network
}

// IsZero says whether nothing is said about the probing.
func (p Probing) IsZero() bool { return p.Count == 0 && p.Budget == 0 && len(p.Resources) == 0 }

// Probed lists the resources that are probed, each once, in the order of quell.Resources.
func (p Probing) Probed() []quell.Resource {
	if len(p.Resources) == 0 {
		return []quell.Resource{quell.Network}
	}
	return slices.DeleteFunc(slices.Clone(quell.Resources), func(r quell.Resource) bool { return !slices.Contains(p.Resources, r) })
}

// LeastProbes is the number of probes per period that is needed to distinguish interference from chance.
const LeastProbes = 8

// Host is one physical machine; at most one of the service's instances runs on it.
type Host struct {
	ID       string
	Group    string  // like hosts that one name stands for; empty: none
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
	// Weights fixes the first instances' shares of the traffic until measuring starts, to test how a policy of a fixed
	// group leaves that state. Empty: the policy decides from the beginning.
	Weights []float64 `json:",omitempty"`
}

// Held is Weights by instance. Instances are named in the order of their start: i1, i2, ...
func (n Instances) Held() map[string]float64 {
	held := map[string]float64{}
	for i, w := range n.Weights {
		held["i"+strconv.Itoa(i+1)] = w
	}
	return held
}

// Event changes the load, the interference, the errors of an instance, or ends it, at one moment; an absent part leaves things
// as they are.
type Event struct {
	At        time.Duration
	Load      *float64
	Users     *int // of a workload of users
	Interfere *Interference
	Fail      *Failure
	Errors    *Errors `json:",omitzero"`
	Mark      string  // names a moment that reactions are measured from; empty marks nothing
}

// Failure ends the instance on a host, if there is one: its process exits, and open requests fail.
type Failure struct{ Host string }

// Errors is how many of the requests to the instance on a host are answered by an error, at once. Health checks still pass.
type Errors struct {
	Host  string
	Share float64 // of the requests; 0 ends it
}

// Run is one pass through the scenario under a policy.
type Run struct {
	Policy     quell.Policy // without settings: the service's policy as it is there, another one with its defaults
	Scheduling quell.Scheduling
	Fixed      int // pins the group to this size; 0: Instances.Fixed for policies that do not scale
	// Balancer is the program that spreads the requests where a rig has several; empty: the rig's own.
	Balancer Balancer
	Ejection Ejection `json:",omitzero"` // of balancer envoy
}

// Balancer is a program that spreads requests.
type Balancer string

// The balancers of a lab besides HAProxy. Envoy balances over a fixed group, by least request among two at random or by turns.
const (
	Envoy   Balancer = "envoy"
	Builtin Balancer = "builtin"
)

// Judging says how response times are held against the objective.
type Judging struct {
	Window   time.Duration
	Requests int // a window counts for an instance with at least this many requests in it
}

// DefaultJudging returns the judging of scenarios that say nothing about it.
func DefaultJudging() Judging { return Judging{Window: 5 * time.Second, Requests: 30} }

// HostFailure is the end of what runs on one host.
type HostFailure struct {
	Host string
	At   time.Duration
}

// Failures returns when what runs on which host ends, in order of time.
func (s *Scenario) Failures() []HostFailure {
	var all []HostFailure
	for _, e := range s.Timeline {
		if e.Fail == nil {
			continue
		}
		for _, host := range s.hostsNamed(e.Fail.Host) {
			all = append(all, HostFailure{host, e.At})
		}
	}
	return all
}

// HostErrors is what share of requests fails on one host from a moment on.
type HostErrors struct {
	Host  string
	At    time.Duration
	Share float64
}

// Erring returns when which share of requests is answered by errors on which host, in order of time.
func (s *Scenario) Erring() []HostErrors {
	var all []HostErrors
	for _, e := range s.Timeline {
		if e.Errors == nil {
			continue
		}
		for _, host := range s.hostsNamed(e.Errors.Host) {
			all = append(all, HostErrors{host, e.At, e.Errors.Share})
		}
	}
	return all
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

// PolicyOf is a run's policy with the settings that it has there.
func (s *Scenario) PolicyOf(run Run) quell.Policy {
	p := run.Policy
	if p.Settings == nil && p.Name == s.Service.Policy.Name {
		p = s.Service.Policy
		if run.Policy.Fast.Name != "" {
			p.Fast = run.Policy.Fast
		}
	}
	return policy.Whole(p)
}

// Size is the group's size in a run that does not scale, else 0.
func (s *Scenario) Size(run Run) int {
	if run.Fixed > 0 || !policy.KeepsSize(run.Policy.Name) {
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
