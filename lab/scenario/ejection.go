package scenario

import "time"

// Ejection names settings of Envoy's outlier detection. Empty: it is off.
type Ejection string

// The settings of Envoy's outlier detection in a run: Envoy's defaults, or settings that make it act soon.
const (
	EjectionDefaults Ejection = "defaults"
	EjectionTuned    Ejection = "tuned"
)

// Ejections lists the settings that are not empty.
var Ejections = []Ejection{EjectionDefaults, EjectionTuned}

// EjectionRules are the settings of Envoy's outlier detection that matter to requests over HTTP. A field that Envoy has too is named as
// in Envoy's config.cluster.v3.OutlierDetection.
//
// What Envoy does with them (envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier, and
// source/common/upstream/outlier_detection_impl.cc): a host is ejected at once after Consecutive answers in a row that are 5xx. If Envoy
// gave up a request (504) or could not bring it to the host (503), Envoy's own answer counts, too. At the end of each interval two more
// rules look at the answers of the interval. These two rules consider only hosts with enough answers, and only if there are enough such
// hosts. One of them ejects a host whose share of successes is below the hosts' mean by more than a multiple of their standard deviation;
// the other ejects a host whose share of failures reaches a threshold. Response times do not count. No host is ejected if more than
// max_ejection_percent of all would then be out. An ejected host comes back, with all of its traffic, at the end of the first interval
// after its time out. The time out is the base time multiplied by a counter. Each ejection adds one to the counter, and each interval in
// service takes one off.
type EjectionRules struct {
	Consecutive     int           // consecutive_5xx
	Interval        time.Duration // interval
	Base            time.Duration // base_ejection_time
	Longest         time.Duration // max_ejection_time
	MostPercent     int           // max_ejection_percent
	MinimumHosts    int           // success_rate_minimum_hosts, failure_percentage_minimum_hosts
	SuccessRequests int           // success_rate_request_volume
	Deviations      float64       // success_rate_stdev_factor, in standard deviations
	FailurePercent  int           // failure_percentage_threshold; 0: enforcing_failure_percentage is 0, the rule is off
	FailureRequests int           // failure_percentage_request_volume
	Timeout         time.Duration // of a request, in the route; 0: longer than clients wait
}

// Rules returns the settings; false if the detection is off.
func (e Ejection) Rules() (r EjectionRules, on bool) {
	r = EjectionRules{
		Consecutive: 5, Interval: 10 * time.Second, Base: 30 * time.Second, Longest: 300 * time.Second, MostPercent: 10,
		MinimumHosts: 5, SuccessRequests: 100, Deviations: 1.9, FailureRequests: 50,
	}
	if e == EjectionTuned {
		r.Consecutive, r.Interval, r.MostPercent = 3, time.Second, 30
		r.SuccessRequests, r.FailurePercent, r.FailureRequests = 20, 30, 20
		r.Timeout = time.Second
	}
	return r, e != ""
}
