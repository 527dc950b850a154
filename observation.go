package quell

import (
	"fmt"
	"math"
	"time"
)

// Observation is what was measured at one instance over one window.
type Observation struct {
	At               time.Time               `json:"at"`
	WindowS          float64                 `json:"window_s,omitempty"`
	RequestRate      *float64                `json:"request_rate,omitempty"`
	ErrorRate        *float64                `json:"error_rate,omitempty"`
	ShedRate         *float64                `json:"shed_rate,omitempty"`    // requests refused with 429 or 503, over all; absent: none
	LimitedRate      *float64                `json:"limited_rate,omitempty"` // of those, the ones with 429, over all; absent: none
	InFlight         *float64                `json:"in_flight,omitempty"`
	AnsweredRate     *float64                `json:"answered_rate,omitempty"` // answers that began, and requests that ended without one, per second
	RequestRates     map[string]float64      `json:"request_rates,omitempty"`
	LatencyMS        *Latency                `json:"latency_ms,omitempty"`
	LatencyByClassMS map[string]Latency      `json:"latency_by_class_ms,omitempty"`
	Utilization      map[Resource]float64    `json:"utilization,omitempty"`
	Probe            map[Resource]ProbeStats `json:"probe,omitempty"`
	Severity         map[Resource]float64    `json:"severity,omitempty"`
	CPU              *CPUTime                `json:"cpu,omitempty"`
	Counters         map[string]float64      `json:"counters,omitempty"`
	TCP              map[string]float64      `json:"tcp,omitempty"`
	Pressure         map[string]float64      `json:"pressure,omitempty"`
	Slowdown         *float64                `json:"slowdown,omitempty"`
	Credits          map[Resource]float64    `json:"credits,omitempty"`
	CreditsPast      map[Resource]CreditPast `json:"credits_past,omitempty"` // since the provider's figures in Credits were true
	Sched            *Sched                  `json:"sched,omitempty"`
	ProbeFailed      map[Resource]string     `json:"probe_failed,omitempty"` // why the probes of a resource gave no result

	// OwnWork is the part of Utilization that the service's requests do not explain: work of the machine's own, such as a backup, and
	// Others. It is what the decision found, so a reading does not have it.
	OwnWork map[Resource]float64 `json:"own_work,omitempty"`
	// Others is the part of Utilization that requests of other services explain, where one controller runs several services on the machine.
	// The controller finds it, so a reading does not have it.
	Others map[Resource]float64 `json:"others,omitempty"`
	// Top is what used most of a resource on the machine, apart from the service itself.
	Top map[Resource]User `json:"top,omitempty"`
}

// User is a control group or a program of a machine, and its use of a resource as a fraction of the machine's.
type User struct {
	Name string  `json:"name"`
	Use  float64 `json:"use"`
}

// ForRequests returns the part of an instance's use of a resource that its requests cause, and whether its use is known.
func (o *Observation) ForRequests(r Resource) (use float64, ok bool) {
	use, ok = o.Utilization[r]
	return max(0, use-o.OwnWork[r]), ok
}

// CreditPast is what is known of the time since a balance of credits was true. A provider shows balances late; what was used since then
// is integrated on the instance.
type CreditPast struct {
	AgeS  float64 `json:"age_s"`  // how old the balance is
	SeenS float64 `json:"seen_s"` // for how much of this time the use was measured
	Used  float64 `json:"used"`   // the measured use over these seconds: a utilisation times seconds
}

// Latency summarises N response times, in milliseconds.
type Latency struct {
	Mean *float64 `json:"mean,omitempty"`
	P50  *float64 `json:"p50,omitempty"`
	P90  *float64 `json:"p90,omitempty"`
	P95  *float64 `json:"p95,omitempty"`
	P99  *float64 `json:"p99,omitempty"`
	N    int      `json:"n,omitempty"`
}

// Of returns the given statistic in milliseconds, and whether it is present.
func (l *Latency) Of(m Metric) (float64, bool) {
	if l == nil {
		return 0, false
	}
	p := l.field(m)
	if p == nil || *p == nil {
		return 0, false
	}
	return **p, true
}

// Set sets the given statistic, in milliseconds. It does nothing for a metric that does not exist.
func (l *Latency) Set(m Metric, ms float64) {
	if p := l.field(m); p != nil {
		*p = &ms
	}
}

// field returns where a statistic is stored, nil for a metric that does not exist.
func (l *Latency) field(m Metric) **float64 {
	switch m {
	case Mean:
		return &l.Mean
	case P50:
		return &l.P50
	case P90:
		return &l.P90
	case P95:
		return &l.P95
	case P99:
		return &l.P99
	}
	return nil
}

// ProbeStats summarises the durations of the N probes of one window.
type ProbeStats struct {
	MeanMS   float64 `json:"mean_ms"`
	StddevMS float64 `json:"stddev_ms"`
	N        int     `json:"n"`

	By *Probing `json:"by,omitempty"` // how the probes were made; absent if not reported
}

// Probing says how a resource of a machine is probed: how large each probe is, how many are made per period, and by what kind of process.
// Only probes of equal size can be compared.
type Probing struct {
	// Bytes is the size of a download without headers (network), of the buffer that is walked through (memory) or of one operation (disk).
	Bytes   int64   `json:"bytes,omitempty"`
	RunMS   float64 `json:"run_ms,omitempty"` // cpu: the nominal processor time of a computation
	Write   bool    `json:"write,omitempty"`  // disk: the operations are synced writes instead of reads
	Count   int     `json:"count,omitempty"`
	PeriodS float64 `json:"period_s,omitempty"`
	From    string  `json:"from,omitempty"`
}

// sameSize is the largest relative difference between the sizes of two probes that still count as equal.
const sameSize = 0.05

// Alike returns whether two kinds of probes can be compared: both must do the same, and their sizes may differ by at most 5%. If one of
// the two is unknown (nil), they count as alike.
func (p *Probing) Alike(other *Probing) bool {
	if p == nil || other == nil {
		return true
	}
	return p.Write == other.Write && near(float64(p.Bytes), float64(other.Bytes)) && near(p.RunMS, other.RunMS)
}

func near(a, b float64) bool { return math.Abs(a-b) <= sameSize*max(a, b) }

// Sound returns whether p describes a possible probe: no figure is negative, and the probe has a size or a computing time above 0.
func (p *Probing) Sound() bool {
	return p.Bytes >= 0 && p.RunMS >= 0 && p.Count >= 0 && float64(p.Bytes)+p.RunMS > 0
}

// Size describes the size of one probe to a person.
func (p *Probing) Size() string {
	switch {
	case p.RunMS > 0:
		return fmt.Sprintf("%.3g ms of computing", p.RunMS)
	case p.Write:
		return fmt.Sprintf("synced writes of %d bytes", p.Bytes)
	}
	return fmt.Sprintf("%d bytes", p.Bytes)
}

// CPUTime is how an instance's processors spent the window, as fractions of their total time. If an agent reports a control group, only
// that group's part counts, and its processors are its capacity.
type CPUTime struct {
	User   float64  `json:"user"`
	System float64  `json:"system"`
	IOWait *float64 `json:"iowait,omitempty"` // idle while a task waited for a disk; absent if the kernel does not report it for the group
	Steal  float64  `json:"steal"`
}

// CounterProgress is a key of Observation.Counters: units of work that the programs of a control group report, per second.
const CounterProgress = "progress"

// CounterProgressSpan is a key of Observation.Counters: the time over which that rate was measured, in seconds. It is longer than the
// window for programs that report seldom.
const CounterProgressSpan = "progress_s"

// CounterUnserved is a key of Observation.Counters in the readings of a balancer: requests per second for which it had no instance. They
// are in no instance's figures, so each reading of a window has the same value.
const CounterUnserved = "unserved"

// NoInstance is the Reading.Instance of a balancer that has none: otherwise nobody would learn of the requests that it refuses.
const NoInstance = ""

// Keys of Observation.Counters of a machine whose use costs credits.
const (
	CounterProcessors  = "processors"        // in use, all together
	CounterSent        = "network_tx_bit_s"  // of the interface that is watched
	CounterReceived    = "network_rx_bit_s"  // of the same
	CounterOperations  = "disk_operations_s" // reads and writes of the disk that is limited
	CounterConnections = "connections"       // that clients have open to the service's port
)

// Keys of Observation.Counters that processors count themselves.
const (
	CounterCPI      = "cpi"             // cycles per instruction
	CounterMissRate = "cache_miss_rate" // accesses of the last cache that missed, over all accesses of it
)

// PressureFull is a key of Observation.Pressure. Its value is the share of time in which some tasks of a control group
// waited for a processor and none of them ran.
const PressureFull = "cpu_full"

// Sched says how the tasks of a machine or of a control group used processors in a window. Its *S fields are sums over all tasks and
// processors, in seconds.
type Sched struct {
	Cores      float64  `json:"cores,omitempty"` // processors of the machine or of the instance, or the group's quota; absent: no quota
	Group      bool     `json:"group,omitempty"` // of an instance: it is a control group that shares its processors with others
	RunS       float64  `json:"run_s"`           // processor time
	UserS      *float64 `json:"user_s,omitempty"`
	SystemS    *float64 `json:"system_s,omitempty"`
	WaitS      *float64 `json:"wait_s,omitempty"`      // waiting in run queues, while others ran or the quota was used up
	TaskRunS   *float64 `json:"task_run_s,omitempty"`  // processor time of one task: the mean over the seconds of wait_s
	FreeS      *float64 `json:"free_s,omitempty"`      // processor time if each task had a processor of its own, averaged over several windows
	Chains     *float64 `json:"chains,omitempty"`      // how many of a group's tasks work side by side; absent without free_s
	Lost       *float64 `json:"lost,omitempty"`        // part of the window in which a task waited, weighted by demand; absent without free_s
	ThrottledS *float64 `json:"throttled_s,omitempty"` // stopped because the quota was used up; summed over processors, not over tasks
}

// Instance is one member of a service's group, with its newest observation.
type Instance struct {
	ID       string   `json:"id"`
	Type     string   `json:"type,omitempty"`
	State    State    `json:"state"`
	Health   string   `json:"health,omitempty"`   // while health checks fail: the last check's request and its answer
	Gone     bool     `json:"gone,omitempty"`     // failed because the balancer no longer has it, although it was healthy there
	Stuck    bool     `json:"stuck,omitempty"`    // it could not be stopped: it counts against group.max until it is gone
	Weight   *float64 `json:"weight,omitempty"`   // fraction of the traffic it gets now
	Base     *float64 `json:"base,omitempty"`     // the weight that people gave it, relative to the others'; absent: 1
	Override *float64 `json:"override,omitempty"` // the weight that a person set
	Factor   *Factor  `json:"factor,omitempty"`   // the fraction of its share that a fast policy leaves it
	AgeS     *float64 `json:"age_s,omitempty"`
	Held     *Held    `json:"held,omitempty"` // a person took it out of rotation: it has no capacity, and Quell does not put it back
	// Replaces is the ID of the instance that this one will replace. Until it takes that place, this instance is in state
	// starting and is not part of the group.
	Replaces string `json:"replaces,omitempty"`
	// Share is the part of the requests that the instance got in the last period, whatever its weight. Of a control group it is the
	// importance, relative to the others'.
	Share       *float64             `json:"share,omitempty"`
	Within      string               `json:"within,omitempty"` // of a control group: the group that it lies in
	Limits      map[Resource]float64 `json:"limits,omitempty"`
	Settings    map[string]float64   `json:"settings,omitempty"`
	Observation *Observation         `json:"observation,omitempty"`
}

// BaseWeight returns the weight that people gave the instance, relative to the others'; 1 if nobody gave it one.
func (in *Instance) BaseWeight() float64 {
	if in.Base == nil {
		return 1
	}
	return *in.Base
}

// Snapshot is what is known about a service, or about one host, at the end of a sampling period. The instances in a snapshot of a host
// are its control groups.
type Snapshot struct {
	At          time.Time    `json:"at"`
	Service     string       `json:"service,omitempty"`
	Host        string       `json:"host,omitempty"`         // set instead of Service if the snapshot is of a host
	Machine     *Observation `json:"machine,omitempty"`      // of the whole host
	ArrivalRate *float64     `json:"arrival_rate,omitempty"` // requests per second offered to the service's instances
	Unserved    float64      `json:"unserved,omitempty"`     // requests per second for which balancers had no instance
	Scheduling  Scheduling   `json:"scheduling,omitempty"`   // the rule of the balancer; absent: unknown
	IdleFirst   bool         `json:"idle_first,omitempty"`   // the balancer says that it sends a request to an idle instance whatever its weight
	Coming      int          `json:"coming,omitempty"`       // instances that were ordered but that the scaler does not list yet
	// MayCome is the number of ordered instances that are not listed, no longer count as coming, and may still come: the group's bound must
	// hold with them.
	MayCome int `json:"may_come,omitempty"`
	// Excluded says why this period shows nothing about decisions, for example a pause. It is set only if an error budget is kept.
	Excluded  string     `json:"spoiled,omitempty"`
	Turn      *Turn      `json:"turn,omitempty"` // of a comparison: in force from this snapshot on
	Instances []Instance `json:"instances"`
}

// Turn is a turn of a comparison between acting and the weights of before.
type Turn struct {
	Began  time.Time `json:"began"`          // when the comparison began
	Number int       `json:"number"`         // from 0 on
	Back   bool      `json:"back,omitempty"` // control is handed back: the weights are those of before
	AgeS   float64   `json:"age_s"`          // seconds since the turn began
}

// Set enters the weights that people set into the snapshot. Keys are IDs of instances; unknown ones are ignored.
func (s *Snapshot) Set(overrides map[string]float64) {
	for i := range s.Instances {
		if w, ok := overrides[s.Instances[i].ID]; ok {
			s.Instances[i].Override = &w
		}
	}
}

// Cut replaces the factors in the snapshot by those of a fast policy. Keys are IDs of instances.
func (s *Snapshot) Cut(factors map[string]Factor) {
	for i := range s.Instances {
		s.Instances[i].Factor = nil
		if f, ok := factors[s.Instances[i].ID]; ok {
			s.Instances[i].Factor = &f
		}
	}
}

// Put sets a value in a map, which is nil as long as nothing is in it: a missing reading is a missing field.
func Put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// Source is the kind of process that took a reading.
type Source string

// The sources of readings: the agent runs on the machine itself, the prober runs where the traffic comes from, and balancers
// report what they measure about requests.
const (
	FromAgent    Source = "agent"
	FromProber   Source = "prober"
	FromBalancer Source = "balancer"
)

// Sources lists every known source.
var Sources = []Source{FromAgent, FromProber, FromBalancer}

// UnmarshalText accepts exactly the names in Sources.
func (s *Source) UnmarshalText(b []byte) error { return parseEnum(s, "source", b, Sources) }

// Reading is the part of an observation that one source sends over the bus. The receiver stamps it with its own
// clock. Observation.At is the sender's clock and is only displayed.
type Reading struct {
	Service     string      `json:"service"`
	Instance    string      `json:"instance"` // NoInstance: of a balancer that has none
	Source      Source      `json:"source"`
	Sender      string      `json:"sender"`         // distinguishes several balancers or probers
	Fast        bool        `json:"fast,omitempty"` // the window is one period of a fast policy
	Observation Observation `json:"observation"`
	Requests    int64       `json:"requests,omitempty"`    // balancer, or the service itself: requests finished in the window
	Errors      int64       `json:"errors,omitempty"`      // how many of Requests failed
	LatencyHDR  []byte      `json:"latency_hdr,omitempty"` // of the same: HdrHistogram (V2, compressed) of microseconds
	ConnectHDR  []byte      `json:"connect_hdr,omitempty"` // balancer: connect times in the same form

	ClassHDR map[string][]byte `json:"class_hdr,omitempty"` // balancer: response times by class of request, in the same form

	Settings map[string]float64 `json:"settings,omitempty"` // agent: the settings in force; keys as from Setting.Key
	Tenancy  *Tenancy           `json:"tenancy,omitempty"`  // agent: of the policy that divides the machine; absent: there is none
}
