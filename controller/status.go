package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/policy"
)

// Status is what `quell status` shows.
type Status struct {
	Service    string             `json:"service"`
	At         time.Time          `json:"at,omitzero"` // of the last decision; absent before the first
	Policy     string             `json:"policy"`
	Fast       string             `json:"fast,omitempty"` // the fast policy beside it
	Mode       quell.Mode         `json:"mode"`
	Leading    bool               `json:"leading"`
	Paused     bool               `json:"paused"`
	PausedBy   string             `json:"paused_by,omitempty"`
	Released   *Released          `json:"released,omitempty"`    // everything is, or goes, back to how it was before Quell
	Refused    string             `json:"refused,omitempty"`     // the balancer obeys another controller, so nothing is changed
	Lost       string             `json:"lost,omitempty"`        // which memory was lost; nothing is changed until an operator resumes
	NotLeading string             `json:"not_leading,omitempty"` // why this controller is not the leader
	Standby    bool               `json:"standby,omitempty"`     // it is not the leader because another controller is
	Store      string             `json:"store,omitempty"`       // why decisions cannot be stored for a restart
	Overrides  map[string]float64 `json:"overrides,omitempty"`
	// Temporary are those of the overrides that end by themselves.
	Temporary       map[string]TemporaryOverride `json:"temporary_overrides,omitempty"`
	AuthorityFor    *TemporaryAuthority          `json:"temporary_authority,omitempty"` // absent: the authority has no end
	Orders          int                          `json:"orders,omitempty"`              // number of operators' orders so far
	Comparison      *Comparison                  `json:"comparison,omitempty"`          // in progress
	Nightly         *NightlyStatus               `json:"nightly_redline,omitempty"`     // absent: the configuration asks for no tests by night
	HandedBack      bool                         `json:"handed_back,omitempty"`         // in a turn of it in which the shares are those of before
	Models          string                       `json:"models"`                        // one of the constants below, or why there are none
	Learned         []string                     `json:"learned,omitempty"`             // how well each resource is known on each type of instance
	Authority       quell.Authority              `json:"authority,omitempty"`           // how far the policy may go at present; absent: no limit
	TakenBack       string                       `json:"taken_back,omitempty"`          // the last change that was taken back
	TakenBackAt     time.Time                    `json:"taken_back_at,omitzero"`
	Doubtful        string                       `json:"doubtful,omitempty"` // by how much predictions are off, and since when
	SLO             string                       `json:"slo"`
	ThresholdMS     float64                      `json:"threshold_ms"`
	SamplingS       float64                      `json:"sampling_s,omitempty"`  // the sampling period
	MissedSince     time.Time                    `json:"missed_since,omitzero"` // since when some instance has been above the objective in each period
	Budget          *budget.Report               `json:"budget,omitempty"`      // absent: no target is set
	Reserve         *quell.Reserve               `json:"reserve,omitempty"`     // what the policy leaves free for the budget
	ArrivalRate     *float64                     `json:"arrival_rate,omitempty"`
	Unserved        float64                      `json:"unserved,omitempty"` // requests per second for which balancers had no instance
	Load            float64                      `json:"load"`               // summed utilisation
	Capacity        *float64                     `json:"capacity"`           // summed effective capacity, if known
	Instances       []InstanceStatus             `json:"instances"`
	Coming          int                          `json:"coming,omitempty"`       // instances that were ordered but that the scaler does not list yet
	MayCome         int                          `json:"may_come,omitempty"`     // those that are no longer waited for, and may still come
	Wanted          *int                         `json:"wanted,omitempty"`       // how many instances the last plan wants
	Reasons         []quell.Reason               `json:"reasons"`                // the last plan's reasons
	FastReasons     []quell.Reason               `json:"fast_reasons,omitempty"` // of the fast policy's last plan
	Changes         []string                     `json:"changes"`                // what the last decision that changed anything changed
	ChangedAt       time.Time                    `json:"changed_at,omitzero"`
	Pending         []string                     `json:"pending,omitempty"` // what was applied earlier and is not yet reported as being in force
	Decisions       int                          `json:"decisions"`
	InstanceSeconds float64                      `json:"instance_seconds"`
	UnknownSenders  []UnknownSender              `json:"unknown_senders,omitempty"` // agents that report for unknown instances
	Rejected        int                          `json:"rejected_readings"`
	Bus             string                       `json:"bus,omitempty"`          // why the bus cannot be reached
	Failures        map[string]int               `json:"failures,omitempty"`     // number since the start, by part
	LastFailure     map[string]string            `json:"last_failure,omitempty"` // present failures, by part
	LastFailureAt   map[string]time.Time         `json:"last_failure_at,omitempty"`
}

// Values of Status.Models of a policy that has what it needs.
const (
	modelsInUse     = "in use"
	modelsLearned   = "learned in place"
	modelsNotNeeded = "not needed"
)

// HasModels returns whether the policy has the models that it needs, or learns them.
func (s *Status) HasModels() bool {
	return slices.Contains([]string{modelsInUse, modelsLearned, modelsNotNeeded}, s.Models)
}

// InstanceStatus is an instance's row in the status. Values that were not measured are absent.
type InstanceStatus struct {
	ID          string      `json:"id"`
	Address     string      `json:"address"`
	Probe       string      `json:"probe,omitempty"` // address of its probe server
	State       quell.State `json:"state"`
	Health      string      `json:"health,omitempty"` // while health checks fail: the last check's request and its answer
	Stale       bool        `json:"stale,omitempty"`
	Unprobed    bool        `json:"unprobed,omitempty"` // its agent reports, but its severity has been unknown for too long
	AgeS        float64     `json:"age_s"`
	Weight      *float64    `json:"weight,omitempty"` // its share in the last plan
	Now         *float64    `json:"now,omitempty"`    // its share in force since that plan
	Share       *float64    `json:"share,omitempty"`  // the part of the requests that it got in the last period
	Base        *float64    `json:"base,omitempty"`   // the weight that people gave it, relative to the others'
	Would       *float64    `json:"would,omitempty"`  // the share that the policy wants for it, which the guard may let it reach only in steps
	Cut         *float64    `json:"cut,omitempty"`    // the factor by which a fast policy cuts its share
	RequestRate *float64    `json:"request_rate,omitempty"`
	ErrorRate   *float64    `json:"error_rate,omitempty"`
	ShedRate    *float64    `json:"shed_rate,omitempty"`
	Utilization *float64    `json:"utilization,omitempty"`
	Severity    *float64    `json:"severity,omitempty"`
	Capacity    *float64    `json:"capacity,omitempty"`
	Limiter     string      `json:"limiter,omitempty"`       // what limits its capacity: one of several resources, or another reason
	CanTakeRate *float64    `json:"can_take_rate,omitempty"` // requests per second within the objective: the capacity, by what requests use
	LatencyMS   *float64    `json:"latency_ms,omitempty"`    // the SLO's metric
	MissedSince *time.Time  `json:"missed_since,omitempty"`  // since when that has been above the objective in each period
	PredictedMS *float64    `json:"predicted_ms,omitempty"`
	Replaces    string      `json:"replaces,omitempty"`      // the instance that it will replace
	Missing     *time.Time  `json:"missing_since,omitempty"` // since when the scaler does not list it although the balancer finds it healthy
	Held        *quell.Held `json:"held,omitempty"`          // taken out of rotation by a person
	HeldUntil   *time.Time  `json:"held_until,omitempty"`    // when it is put back by itself; absent: never
	Open        *int64      `json:"open_requests,omitempty"` // open requests, if it is held
	Empty       bool        `json:"empty,omitempty"`         // held, and no request is open
	Reason      string      `json:"reason,omitempty"`

	// Interference is what is known of neighbours, by resource. Waits says for whom its tasks wait for processors.
	Interference map[quell.Resource]policy.Interference `json:"interference,omitempty"`
	Waits        *quell.Waits                           `json:"waits,omitempty"`

	Credits quell.Balances `json:"credits,omitempty"` // of a burstable instance

	ProbeFailed map[quell.Resource]string `json:"probe_failed,omitempty"` // by resource: why its agent's probes measured nothing

	Settings map[string]float64 `json:"settings,omitempty"` // settings in force, as its agent reports them

	// Tenancy is how the agent's own policy divides the machine among control groups. At most mostTenancies instances have it here: those
	// with the group that is slowed down most.
	Tenancy *quell.Tenancy `json:"tenancy,omitempty"`
}

// shown is what other goroutines may read during a step.
type shown struct {
	mu   sync.Mutex
	now  outside
	most float64 // the highest number of instance-seconds shown so far
}

type outside struct {
	status    Status
	members   []quell.Member
	sampling  time.Duration
	objective time.Duration
	fast      time.Duration // the fast policy's period; 0: there is none
	cost      life.Cost
	idle      string // one of idleReasons; "": plans are carried out
	remembers bool   // the memory is the leader's
}

// seconds returns the instance-seconds so far. The number never decreases, even if it turns out later that an instance ended earlier than
// assumed.
func (s *shown) seconds(now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, s.now.cost.Seconds(now))
	return s.most
}

func (s *shown) read() outside {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *shown) write(now outside) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

func (c *core) sampling() time.Duration { return c.shown.read().sampling }

// Ask asks the controller of a service for its status over the bus.
func Ask(ctx context.Context, conn *bus.Conn, service string) (Status, error) {
	var s Status
	reply, err := conn.Ask(ctx, service, bus.Command{Name: bus.Status})
	if err != nil {
		return s, err
	}
	if reply.Error != "" {
		return s, fmt.Errorf("the controller of %s: %s", service, reply.Error)
	}
	if err := json.Unmarshal(reply.Body, &s); err != nil {
		return s, fmt.Errorf("reading the status of %s: %w", service, err)
	}
	return s, nil
}
