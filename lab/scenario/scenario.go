// Package scenario describes an experiment: machines, load and interference over time, the runs to compare, and how a run is judged. It
// opens no connections and reads no clock: demo, simulator and lab play the same Scenario on different rigs.
//
// Times are since the start of a run. A load of 1 is what fills one instance alone on its machine. Uses are shares of a machine's
// resource.
package scenario

import (
	"slices"
	"strconv"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy/table"
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
	Services  int           `json:",omitzero"` // number of equal services, each with its own hosts, clients, controller and seed; 0: one
	WarmUp    time.Duration // how long the first load is offered before measuring starts; 0: the rig's default
	Timeline  []Event       // in order of time
	Runs      []Run
	Judge     Judging
}

// Readings are the errors that readings get on the way to the controller. The zero value means perfect readings.
type Readings struct {
	Noise float64       // standard deviation of utilisations and probe means, as a share of themselves
	Lost  float64       // share of a machine's readings that never arrive
	Late  time.Duration // mean delay of the readings that do arrive; exponentially distributed
}

// Stations are the resources of the simulated machines. The zero value means that they serve by processor sharing, and that neighbours
// are random flows.
type Stations struct {
	Discipline Discipline
	Neighbours Neighbours
}

// Discipline is how a resource serves several pieces of work.
type Discipline string

// With Sharing (processor sharing) all pieces of work at a resource advance at once, at equal speed. With FirstCome they are served in
// the order of their arrival, one piece per server: each core of a processor is a server, other resources have one.
const (
	Sharing   Discipline = "sharing"
	FirstCome Discipline = "fcfs"
)

// Disciplines lists all disciplines.
var Disciplines = []Discipline{Sharing, FirstCome}

// Neighbours is how neighbours take their share of a resource.
type Neighbours string

// With Flows, pieces of work arrive at random. Fluid neighbours use their share evenly. Let U be the instance's utilisation and U_int the
// neighbours'. Under processor sharing both give the same mean times for requests and probes of every size: size / (1 - U - U_int) under
// Poisson arrivals. Fluid neighbours are much faster to simulate, and times vary less. On processors with several cores fluid neighbours
// slow down even a single request, while flows would leave it a core. For both, U + U_int must be below 1; above 1, flows
// would get less than they ask for, but a fluid neighbour gets all.
const (
	Flows Neighbours = "flows"
	Fluid Neighbours = "fluid"
)

// NeighbourKinds lists all kinds of neighbours.
var NeighbourKinds = []Neighbours{Flows, Fluid}

// Probing is how instances are probed.
type Probing struct {
	Count     int              // probes of an instance in a sampling period; 0: one in 100 ms on average, and at least 8
	Budget    float64          // share of a host's link that probes may take; 0: 2%
	Resources []quell.Resource // the resources that are probed; empty: the network
}

// IsZero says whether all of the probing is left to the defaults.
func (p Probing) IsZero() bool { return p.Count == 0 && p.Budget == 0 && len(p.Resources) == 0 }

// Probed lists the resources that are probed, each once, in the order of quell.Resources.
func (p Probing) Probed() []quell.Resource {
	if len(p.Resources) == 0 {
		return []quell.Resource{quell.Network}
	}
	return slices.DeleteFunc(slices.Clone(quell.Resources), func(r quell.Resource) bool { return !slices.Contains(p.Resources, r) })
}

// LeastProbes is the number of probes per period that are needed to distinguish interference from chance.
const LeastProbes = 8

// Host is one physical machine; at most one of the service's instances runs on it.
type Host struct {
	ID       string
	Group    string  // name of the group of equal hosts; empty: none
	Network  float64 // bit/s of its link
	Cores    float64
	DiskIOPS float64
	Memory   float64 // memory bandwidth, relative to the reference machine
}

// Instances is how many instances a run begins with.
type Instances struct {
	Start   int           // for runs whose policy changes the group's size
	Fixed   int           // for runs whose policy does not change it
	Startup time.Duration // how long an emulated instance takes to boot
	// Weights fixes the first instances' shares of the traffic until measuring starts, to test how a policy over a fixed group leaves that
	// state. Empty: the policy decides from the beginning.
	Weights []float64 `json:",omitempty"`
	Credits *Credits  `json:",omitempty"` // nil: instances are not burstable
}

// Credits make the instances burstable, as a provider does: while an instance has credits it may use all of a resource, without credits
// only the baseline. One credit is a minute of one core or, for other resources, of the whole resource. Policies are not told these
// parameters.
type Credits struct {
	Resource quell.Resource
	Baseline float64       // share of the resource that spends credits as fast as they are earned
	Cap      float64       // largest balance
	Launch   float64       // balance of a new instance
	Balance  []float64     // of the first instances, in the order of their start; those without an entry have Launch
	Shown    time.Duration // how often the provider shows the balance; 0: never
	// Surplus is the price of use beyond the credits, in dollars for an hour of a core or, for other resources, of the whole resource. Then
	// instances are never slowed down (AWS: unlimited mode). 0: it is not sold.
	Surplus float64
}

// Held is Weights by the ids of the instances, which are named in the order of their start: i1, i2, ...
func (n Instances) Held() map[string]float64 {
	held := map[string]float64{}
	for i, w := range n.Weights {
		held["i"+strconv.Itoa(i+1)] = w
	}
	return held
}

// Event changes the load, the interference, the errors or the release of an instance, or ends an instance, at one moment. What an event
// leaves out stays as it was.
type Event struct {
	At        time.Duration
	Load      *float64
	Users     *int // only for a workload of users
	Interfere *Interference
	Fail      *Failure
	Errors    *Errors  `json:",omitzero"`
	Release   *Release `json:",omitzero"`
	Mark      string   // name of a moment from which reactions are measured; empty: none
}

// Failure ends the instance on a host: its process exits, and its open requests fail. Without an instance there it does nothing.
type Failure struct{ Host string }

// Errors sets the share of requests to the instance on a host that get an error as their answer, at once. Its health checks still pass.
type Errors struct {
	Host  string
	Share float64 // of the requests; 0 ends it
}

// Run is one pass through the scenario under one policy.
type Run struct {
	Policy     quell.Policy // without settings: if it is the service's policy, with the service's settings; else with its defaults
	Scheduling quell.Scheduling
	Fixed      int // fixes the group's size; 0: Instances.Fixed if the policy does not scale
	// Balancer is the program that distributes the requests, if the rig supports several such programs; empty: the rig's default.
	Balancer Balancer
	Ejection Ejection `json:",omitzero"` // for balancer envoy
	Models   Models   `json:",omitzero"` // where the policy's models come from; empty: from training
}

// Models says where a run's policy gets its models from.
type Models string

// Learn means that nothing was trained: the policy learns its models during the run.
const Learn Models = "learn"

// Balancer is a program that distributes requests.
type Balancer string

// The balancers. HAProxy is that of a lab; in the simulator it is least connections by HAProxy's rule, under which an idle instance gets a
// request whatever its weight. Envoy balances over a group of fixed size, either by least request among two random instances or by round
// robin.
const (
	HAProxy Balancer = "haproxy"
	Envoy   Balancer = "envoy"
	Builtin Balancer = "builtin"
)

// Judging is how response times are compared with the objective.
type Judging struct {
	Window   time.Duration
	Requests int // an instance's window is judged if it has at least this many requests
}

// DefaultJudging returns the judging of scenarios that do not set it.
func DefaultJudging() Judging { return Judging{Window: 5 * time.Second, Requests: 30} }

// HostFailure is the end of the instance on one host.
type HostFailure struct {
	Host string
	At   time.Duration
}

// Failures lists the instances' failures in order of time.
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

// HostErrors is the share of requests that fail on one host from a moment on.
type HostErrors struct {
	Host  string
	At    time.Duration
	Share float64
}

// Erring lists the changes of the shares of requests that are answered by errors, in order of time.
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

// Marks returns the moments from which reactions are measured, in order, each once.
func (s *Scenario) Marks() []time.Duration {
	var marks []time.Duration
	for _, e := range s.Timeline {
		if e.Mark != "" {
			marks = append(marks, e.At)
		}
	}
	return slices.Compact(marks)
}

// PolicyOf returns a run's policy with its settings in that run.
func (s *Scenario) PolicyOf(run Run) quell.Policy {
	p := run.Policy
	if p.Settings == nil && p.Name == s.Service.Policy.Name {
		p = s.Service.Policy
		if run.Policy.Fast.Name != "" {
			p.Fast = run.Policy.Fast
		}
	}
	return table.All.Whole(p)
}

// Size is the group's size in a run whose policy does not scale; otherwise 0.
func (s *Scenario) Size(run Run) int {
	if run.Fixed > 0 || !table.All.KeepsSize(run.Policy.Name) {
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
