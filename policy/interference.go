package policy

import (
	"time"

	"github.com/quellhq/quell"
)

// Interference is what is known of neighbours on one resource of an instance. Values that are not known are absent.
type Interference struct {
	Severity   *float64   `json:"severity,omitempty"`    // SF of the newest probes, before calibration
	At         *time.Time `json:"at,omitempty"`          // of these probes
	Held       bool       `json:"held,omitempty"`        // Severity is an earlier one: the newest probes alone do not end it
	ProbeMS    *float64   `json:"probe_ms,omitempty"`    // mean of the newest probes
	ExpectedMS *float64   `json:"expected_ms,omitempty"` // the same without neighbours, at the same own use
	Use        *float64   `json:"use,omitempty"`         // own use of the resource, a fraction
	Hidden     *float64   `json:"hidden,omitempty"`      // estimated use by neighbours, a fraction
	Origin     string     `json:"origin,omitempty"`      // cpu: the cause of waiting for processors
}

// Knowing returns the engine with the models that a state has learned: e itself if it learns none, or while too little is known. It is for
// Interference.
func (e *Engine) Knowing(st *State) *Engine {
	if e.learning == nil || st.Learned == nil {
		return e
	}
	now, err := e.with(st.Learned)
	if err != nil {
		return e
	}
	return now
}

// Interference returns what is known of neighbours on each resource of an instance, according to the memory after a decision and to the
// instance's newest observation, which may be nil. It is nil if nothing is known.
func (e *Engine) Interference(st *State, id string, o *quell.Observation) map[quell.Resource]Interference {
	all := map[quell.Resource]Interference{}
	felt := make([]Felt, len(e.contended))
	if mem := st.Instances[id]; mem != nil && e.row.needs != NoModels {
		mem.of(e.contended, felt)
	}
	for i, c := range e.contended {
		f := &felt[i]
		if f.Severity == nil {
			continue
		}
		x := Interference{Severity: f.Severity, At: f.SeverityAt, Held: f.Held > 0, Use: f.Utilization}
		if f.Taken != nil {
			x.Hidden = f.Taken
		} else if c.Predictor != nil && f.Utilization != nil {
			x.Hidden = new(c.Predictor.Supposed(*f.Utilization, *f.Severity))
		}
		if probe, ok := probeOf(o, c.Resource); ok && c.Baseline != nil && f.Utilization != nil && c.Baseline.By().Alike(probe.By) {
			expected, _, _ := c.Baseline.Isolation(*f.Utilization)
			x.ProbeMS, x.ExpectedMS = &probe.MeanMS, &expected
		}
		all[c.Resource] = x
	}
	if waits, ok := Origin(o, st.Usual[id]); ok {
		x := all[quell.CPU]
		x.Origin = waits.Cause
		if x.Hidden == nil {
			x.Hidden = waits.Hidden
		}
		if x != (Interference{}) {
			all[quell.CPU] = x
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func probeOf(o *quell.Observation, r quell.Resource) (quell.ProbeStats, bool) {
	if o == nil {
		return quell.ProbeStats{}, false
	}
	p, ok := o.Probe[r]
	return p, ok
}
