package scenario

import "time"

// Ejection is how Envoy's outlier detection is set. Empty: it is off.
type Ejection string

// The settings of Envoy's outlier detection in a run: Envoy's defaults, and those of somebody who wants it to act soon.
const (
	EjectionDefaults Ejection = "defaults"
	EjectionTuned    Ejection = "tuned"
)

// Ejections lists the known ones.
var Ejections = []Ejection{EjectionDefaults, EjectionTuned}

// EjectionRules are the settings of Envoy's outlier detection that matter to requests over HTTP. The names are those of Envoy's
// config.cluster.v3.OutlierDetection, where a field has one.
//
// What Envoy does with them (envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier, and
// source/common/upstream/outlier_detection_impl.cc): a host is ejected at once when so many of its answers in a row are 5xx, which
// Envoy's own answers for a request that it gave up (504) or could not bring to the host (503) are, too. At the end of each interval two
// more rules look at the answers in it, of the hosts with enough of them and if there are enough such hosts: the share of successes is
// below the hosts' mean by more than a multiple of their standard deviation, or the share of failures reaches a threshold. Response times
// count for nothing. A host is not ejected if that made more than max_ejection_percent of all. It comes back, with all of its traffic, at
// the end of the first interval after the base time, multiplied by the ejections it had; each interval in service takes one off the
// multiple.
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
	Timeout         time.Duration // of a request, the route's; 0: longer than clients wait
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
