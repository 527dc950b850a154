package quell

import (
	"fmt"
	"slices"
	"strings"
)

// Resource is something that machines on the same physical host compete for.
type Resource string

// The resources Quell knows. Memory stands for last-level cache and memory bandwidth.
const (
	CPU     Resource = "cpu"
	Network Resource = "network"
	Disk    Resource = "disk"
	Memory  Resource = "memory"
)

// Resources lists every known resource.
var Resources = []Resource{CPU, Network, Disk, Memory}

// UnmarshalText accepts exactly the names in Resources.
func (r *Resource) UnmarshalText(b []byte) error { return parseEnum(r, "resource", b, Resources) }

// State is where an instance is in its life cycle.
type State string

// The states. An instance is failed if the balancer's health check fails. If only its agent is silent, the instance is
// stale, not failed.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Draining State = "draining"
	Failed   State = "failed"
)

// States lists every known state.
var States = []State{Starting, Ready, Draining, Failed}

// UnmarshalText accepts exactly the names in States.
func (s *State) UnmarshalText(b []byte) error { return parseEnum(s, "state", b, States) }

// Metric is the statistic of response time that the SLO refers to.
type Metric string

// The metrics an SLO can name.
const (
	Mean Metric = "mean"
	P50  Metric = "p50"
	P90  Metric = "p90"
	P95  Metric = "p95"
	P99  Metric = "p99"
)

// Metrics lists every known metric.
var Metrics = []Metric{Mean, P50, P90, P95, P99}

// UnmarshalText accepts exactly the names in Metrics.
func (m *Metric) UnmarshalText(b []byte) error { return parseEnum(m, "metric", b, Metrics) }

// Mode says whether plans are carried out.
type Mode string

// Act applies plans; Advise only records them.
const (
	Act    Mode = "act"
	Advise Mode = "advise"
)

// Modes lists every known mode.
var Modes = []Mode{Act, Advise}

// UnmarshalText accepts exactly the names in Modes.
func (m *Mode) UnmarshalText(b []byte) error { return parseEnum(m, "mode", b, Modes) }

// InterferenceModel selects how severity and interfering utilisation are related.
type InterferenceModel string

// Total is Eq. 3 of the paper (PRIMA), U_total = IM(SF): the severity SF gives the total utilisation. Joint is SF = IM2(U, U_int): the
// severity follows from the instance's own utilisation U and its neighbours' utilisation U_int.
const (
	Total InterferenceModel = "total"
	Joint InterferenceModel = "joint"
)

// InterferenceModels lists every known interference model.
var InterferenceModels = []InterferenceModel{Total, Joint}

// UnmarshalText accepts exactly the names in InterferenceModels.
func (m *InterferenceModel) UnmarshalText(b []byte) error {
	return parseEnum(m, "interference model", b, InterferenceModels)
}

// ScaleOut selects how many instances are added at once when capacity is short.
type ScaleOut string

// One adds one instance, and waits until its severity (how much neighbours slow its probes) was measured. Predicted adds as many
// instances as the missing capacity needs.
const (
	One       ScaleOut = "one"
	Predicted ScaleOut = "predicted"
)

// ScaleOuts lists every known scale-out rule.
var ScaleOuts = []ScaleOut{One, Predicted}

// UnmarshalText accepts exactly the names in ScaleOuts.
func (s *ScaleOut) UnmarshalText(b []byte) error { return parseEnum(s, "scale-out rule", b, ScaleOuts) }

// Scheduling is the algorithm by which a balancer picks an instance for the next request.
type Scheduling string

// The built-in balancer's algorithms. All algorithms except Prequal use the weights; Prequal only skips instances with weight 0.
const (
	RoundRobin Scheduling = "roundrobin"
	LeastConn  Scheduling = "leastconn"
	Random2    Scheduling = "random2"
	EWMA       Scheduling = "ewma"
	LeastTime  Scheduling = "leasttime"
	Prequal    Scheduling = "prequal"
)

// Schedulings lists every known scheduling.
var Schedulings = []Scheduling{RoundRobin, LeastConn, Random2, EWMA, LeastTime, Prequal}

// CountsOpen returns whether the rule looks for an instance with few open requests for its weight. A group behind it is like one queue.
func (s Scheduling) CountsOpen() bool { return s == LeastConn || s == Random2 }

// JudgesTime returns whether the rule looks for an instance that answers fast. It avoids a slow one by itself, whatever its weight.
func (s Scheduling) JudgesTime() bool { return s == EWMA || s == LeastTime || s == Prequal }

// UnmarshalText accepts exactly the names in Schedulings.
func (s *Scheduling) UnmarshalText(b []byte) error {
	return parseEnum(s, "scheduling", b, Schedulings)
}

func parseEnum[T ~string](dst *T, what string, b []byte, known []T) error {
	if !slices.Contains(known, T(b)) {
		names := make([]string, len(known))
		for i, k := range known {
			names[i] = string(k)
		}
		return fmt.Errorf("unknown %s %q (known: %s)", what, b, strings.Join(names, ", "))
	}
	*dst = T(b)
	return nil
}
