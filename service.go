package quell

import "time"

// Service is what Quell manages: a group of instances behind a balancer, and the objective they must meet.
type Service struct {
	Name     string
	SLO      SLO
	Sampling time.Duration // T
	Policy   Policy
	Group    Group
	Guard    Guard
	Mode     Mode
}

// SLO is the response-time objective that must hold at every instance.
type SLO struct {
	Metric    Metric
	Threshold time.Duration // R_th
}

// ThresholdMS is the threshold in milliseconds, the unit of the models.
func (s SLO) ThresholdMS() float64 { return float64(s.Threshold) / float64(time.Millisecond) }

// Policy selects the policy and holds its settings; shares are fractions.
type Policy struct {
	Name              string
	Resource          Resource
	InterferenceModel InterferenceModel
	Confidence        float64 // of the one-sided test behind Eq. 1
	Confirm           int     // W: act on the (W+1)th consecutive snapshot; treat interference as gone after as many without it
	Headroom          float64 // load may reach this share of the summed capacity
	ScaleInMargin     float64 // scale in only if the kept capacity still leaves this much
	ScaleOut          ScaleOut
	Tolerance         float64 // no weight moves by less than this share of itself
	Spare             int     // extra instances kept, the paper's factor of safety
	Calibrate         float64 // delta of section IV; 0 turns calibration off
	CalibrationDecay  float64 // share of a calibrated severity offset forgotten per period
	Utilization       float64 // static only: add an instance above this mean utilisation; 0 turns it off
}

// Group bounds the number of instances.
type Group struct {
	Min       int
	Max       int
	Initial   int           // instances started where there are none yet; at least Min
	Fixed     bool          // nothing can be added or removed: a list of machines that somebody else runs
	Startup   time.Duration // how long an instance may take to become ready
	Protected []string      // never removed or replaced
}

// Guard limits what any policy may do; shares are fractions, zero turns a rule off.
type Guard struct {
	Floor      float64       // least weight, as a fraction of an equal share
	Step       float64       // largest change of a weight, as a fraction of an equal share
	SlowStart  time.Duration // ramp of a new instance's weight
	StaleAfter int           // periods without a reading until an instance is stale
	Fade       int           // further periods over which a stale instance moves to an equal share
	ErrorRate  float64       // above this an instance never gains weight
}

// DefaultService returns the defaults of a service configuration. Name and SLO have none.
func DefaultService() Service {
	return Service{
		Sampling: 10 * time.Second,
		Policy: Policy{
			Name: "prima", Resource: Network, InterferenceModel: Joint, Confidence: 0.95, Confirm: 1, Headroom: 0.9,
			ScaleInMargin: 0.05, ScaleOut: Predicted, Tolerance: 0.05, Calibrate: 0.1, CalibrationDecay: 0.05,
		},
		Group: Group{Min: 1, Max: 10, Startup: 30 * time.Second},
		Guard: Guard{Floor: 0.05, Step: 0.5, StaleAfter: 3, Fade: 10, ErrorRate: 0.05},
		Mode:  Act,
	}
}
