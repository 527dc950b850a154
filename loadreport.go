package quell

// LoadReport is what the agent of an instance tells balancers that ask for load reports (ORCA).
type LoadReport struct {
	Share float64 `json:"share"` // the fraction of the group's requests that the instance should get
	// Resource is the one that Capacity is about: the use of it, as a fraction, with which the objective is just met. Capacity is absent
	// while it is not known.
	Resource Resource `json:"resource,omitempty"`
	Capacity *float64 `json:"capacity,omitempty"`
	ValidS   float64  `json:"valid_s"` // seconds after which it no longer counts; 0 ends the present one at once
}

// maxValidS bounds for how long a load report may count without being renewed.
const maxValidS = 3600

// Validate returns all rules that the report breaks, joined, or nil.
func (r *LoadReport) Validate() error {
	var p problems
	p.number("share", r.Share, 1)
	p.number("valid_s", r.ValidS, maxValidS)
	if r.Capacity != nil {
		p.resource("resource", r.Resource)
		p.number("capacity", *r.Capacity, maxUtilization)
	}
	return p.err()
}
