package policy

import (
	"cmp"
	"time"

	"github.com/quellhq/quell"
)

// InstanceState is what is remembered of one instance.
type InstanceState struct {
	Perceived
	Guarded
	Memory any `json:"memory,omitempty"` // the policy's memory of the instance: a pointer to a value that is never changed
}

// Perceived is what is remembered of an instance's readings.
type Perceived struct {
	Felt                               // used if the policy considers one resource
	Resource   quell.Resource          `json:"resource,omitempty"`    // that of Felt; "": the default resource
	Of         map[quell.Resource]Felt `json:"of,omitempty"`          // used if the policy considers several; the map is never changed
	UnratedFor int32                   `json:"unrated_for,omitempty"` // consecutive snapshots in which it was ready but never reported a severity or a utilisation
	Unprobed   bool                    `json:"unprobed,omitempty"`    // it reports, but has had no severity for longer than guard.stale_after
}

// Felt is what is remembered of the readings of one resource.
type Felt struct {
	Utilization *float64   `json:"utilization,omitempty"` // last reading
	SeverityAt  *time.Time `json:"severity_at,omitempty"`
	Severity    *float64   `json:"severity,omitempty"`    // last reading, without calibration
	Significant bool       `json:"significant,omitempty"` // the last severity passed the test of Eq. 1
	Passed      int32      `json:"felt,omitempty"`        // consecutive probe readings that passed that test, up to confirm + 1
	Held        float64    `json:"held,omitempty"`        // later readings for which the last severity was kept; each counts by its evidence
	FoundAt     float64    `json:"found_at,omitempty"`    // the highest own use at which the present interference was found
	Taken       *float64   `json:"taken,omitempty"`       // the neighbours' use, if the instance's own waiting told it; nil: it follows from severity
}

// of returns what is remembered of each resource in list, in the same order.
func (p *Perceived) of(list []Contended, into []Felt) {
	for i := range list {
		r := list[i].Resource
		if into[i] = p.Of[r]; p.Of == nil && r == cmp.Or(p.Resource, DefaultResource) {
			into[i] = p.Felt
		}
	}
}

// keep stores what is to be remembered of each resource.
func (p *Perceived) keep(list []Contended, felt []Felt) {
	p.Felt, p.Resource, p.Of = Felt{}, "", nil
	if len(list) == 1 {
		if p.Felt = felt[0]; list[0].Resource != DefaultResource {
			p.Resource = list[0].Resource
		}
		return
	}
	p.Of = make(map[quell.Resource]Felt, len(list))
	for i := range list {
		p.Of[list[i].Resource] = felt[i]
	}
}

// Guarded is what the guard remembers.
type Guarded struct {
	FailedFor   int      `json:"failed_for,omitempty"`   // consecutive snapshots in state failed
	SilentFor   int      `json:"silent_for,omitempty"`   // ready snapshots without any observation, up to guard.stale_after
	StaleFor    int      `json:"stale_for,omitempty"`    // snapshots without a fresh reading, after the first guard.stale_after ones
	StaleWeight *float64 `json:"stale_weight,omitempty"` // its weight when it became stale
	Joined      bool     `json:"joined,omitempty"`       // it has had a share
	Clamped     *Clamped `json:"clamped,omitempty"`      // set if the guard changed the weight, and during a handover
	// StartingSince is when it began to start; nil: it is not starting.
	StartingSince *time.Time `json:"starting_since,omitempty"`
}

// Clamped is a weight of the last plan that the guard changed.
type Clamped struct {
	Wanted  float64 `json:"wanted"`  // by the policy
	Planned float64 `json:"planned"` // the guard's result
}

// One prober, on one link, probes all machines of a service. If the severities of most machines rise in the same period and their requests
// are not slower, the prober, its link or the host below everything is the likelier cause: these severities do not count until something
// else shows neighbours.

// Probed is what is remembered of an instance to tell a slow prober from neighbours.
type Probed struct {
	CalmMS  float64 `json:"calm_ms,omitempty"` // smoothed mean response time of its requests, in ms, in periods without severity
	Up      int     `json:"up,omitempty"`      // periods in a row with severity
	Doubted bool    `json:"doubted,omitempty"` // its severity does not count
	Alone   int     `json:"alone,omitempty"`   // periods for which it has been doubted while most others had no severity
}
