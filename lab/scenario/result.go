package scenario

import "github.com/quellhq/quell"

// Result is the outcome of one policy's run through a scenario, as the commands demo, sim and lab write it.
type Result struct {
	Scenario        string           `json:"scenario"`
	Policy          string           `json:"policy"`
	Scheduling      quell.Scheduling `json:"scheduling"`
	Balancer        string           `json:"balancer,omitempty"` // set if the scenario has several
	Fixed           int              `json:"fixed"`              // the group's size if the policy does not scale, else 0
	Seed            uint64           `json:"seed"`
	DurationS       float64          `json:"duration_s"`
	Requests        int64            `json:"requests"`
	Errors          int64            `json:"errors"`
	LatencyMS       quell.Latency    `json:"latency_ms"`
	SLO             SLOResult        `json:"slo"`
	InstanceSeconds float64          `json:"instance_seconds"` // sum over instances of the time from start command to exit
	MeanInstances   float64          `json:"mean_instances"`
	MaxInstances    int              `json:"max_instances"`
	SurplusUSD      *float64         `json:"surplus_usd,omitempty"`       // what burstable instances cost beyond their credits, if that is sold
	LargestOverMean *float64         `json:"largest_over_mean,omitempty"` // how evenly the load is spread, from 1 on; nil: not measured
	Decisions       int              `json:"decisions"`                   // plans that changed something
	ReactionS       *Reaction        `json:"reaction_s,omitempty"`
	Warnings        []string         `json:"warnings,omitempty"` // why the figures may be wrong
}

// SLOResult says for how long the objective was missed.
type SLOResult struct {
	Metric         quell.Metric `json:"metric"`
	ThresholdMS    float64      `json:"threshold_ms"`
	ViolationS     float64      `json:"violation_s"`
	ViolationShare float64      `json:"violation_share"`
	RequestsOver   int64        `json:"requests_over"` // single requests that were slower than the threshold (whatever Metric is) or failed
}

// Reaction summarises times in seconds: each from a mark (a named moment of the scenario) to the first plan after it that changed weights
// or the group's size.
type Reaction struct {
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}
