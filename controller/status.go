package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/setting"
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
	Load            float64                      `json:"load"`     // summed utilisation
	Capacity        *float64                     `json:"capacity"` // summed effective capacity, if known
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
	Now         *float64    `json:"now,omitempty"`    // its share when that plan was made
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

// Status returns the state after the last step. It never waits for scaler or balancer.
func (c *Controller) Status() Status {
	s := c.shown.read().status
	s.InstanceSeconds = c.shown.seconds(c.now())
	_, s.Rejected = c.gather.totals()
	s.UnknownSenders = c.gather.unknown()
	if err := c.busErr(); err != nil {
		s.Bus = err.Error()
	}
	return s
}

func (c *Controller) busErr() error {
	if c.opts.Bus == nil {
		return nil
	}
	return c.opts.Bus()
}

// release unlocks c.work and publishes the status.
func (c *Controller) release() {
	c.show()
	c.work.Unlock()
}

func (c *Controller) show() {
	s := c.status
	s.Service, s.Policy, s.Mode = c.opts.Service.Name, c.opts.Service.Policy.Name, c.opts.Service.Mode
	s.Fast, s.FastReasons = c.opts.Service.Policy.Fast.Name, c.fastReasons
	s.SLO = fmt.Sprintf("%s <= %s", c.opts.Service.SLO.Metric, c.opts.Service.SLO.Threshold)
	s.ThresholdMS, s.SamplingS = c.opts.Service.SLO.ThresholdMS(), c.opts.Service.Sampling.Seconds()
	s.Leading, s.Paused, s.PausedBy, s.Overrides = c.leading, c.mem.Paused, c.mem.PausedBy, c.overrides()
	s.Temporary, s.AuthorityFor, s.Orders = c.mem.Temporary.Overrides, c.mem.Temporary.Authority, c.mem.Orders
	s.Comparison, s.HandedBack = c.mem.Temporary.Comparison, c.handedBack()
	s.Nightly = c.nightly()
	s.Released = c.mem.Released
	s.Instances = c.showLook(s.Instances)
	s.Refused = ""
	if c.refused != nil {
		s.Refused = c.refused.Error()
	}
	s.Lost, s.Standby = c.mem.Lost, errors.Is(c.behind, ErrStandby)
	if !c.leading && c.behind != nil {
		s.NotLeading = c.behind.Error()
	}
	if c.unsaved != nil {
		s.Store = c.unsaved.Error()
	}
	s.Models = modelsInUse
	if c.engine.Learns() {
		s.Models = modelsLearned
		s.Learned = c.learned()
	}
	trust := c.trust()
	s.Authority, s.TakenBack, s.TakenBackAt = trust.Level, trust.Harm, trust.HarmAt
	s.Doubtful = trust.Doubt.Text()
	if c.noModels != nil {
		s.Models = c.missing()
	} else if c.opts.Models == nil && !c.engine.Learns() {
		s.Models = modelsNotNeeded
	}
	s.Decisions = c.counts.decisions
	s.Failures, s.LastFailure, s.LastFailureAt = maps.Clone(c.counts.failures), nil, nil
	for part, f := range c.counts.last {
		if c.over(f) {
			continue
		}
		if s.LastFailure == nil {
			s.LastFailure, s.LastFailureAt = map[string]string{}, map[string]time.Time{}
		}
		s.LastFailure[part], s.LastFailureAt[part] = f.text, f.at
	}
	s.Coming, s.MayCome = c.mem.Inventory.Coming(), c.mem.Inventory.MayCome()
	idle, _ := c.idleness()
	c.shown.write(outside{
		status: s, idle: idle, members: c.members, sampling: c.opts.Service.Sampling, objective: c.opts.Service.SLO.Threshold,
		fast: c.opts.Service.Policy.Fast.Sampling,
		cost: c.mem.Inventory.Cost(c.now()),
	})
}

// report stores for the status what the last decision was based on and what it wants.
func (c *Controller) report(v *view, plan *quell.Plan, o outcome, pending []string) {
	snapshot := v.snapshot
	s := Status{At: snapshot.At, ArrivalRate: snapshot.ArrivalRate, Pending: pending}
	s.Reasons = withTimes(plan.Reasons, c.status.Reasons, snapshot.At)
	s.Changes, s.ChangedAt = c.status.Changes, c.status.ChangedAt
	if len(o.changes) > 0 {
		s.Changes, s.ChangedAt = o.changes, snapshot.At
	}
	members := make(map[string]quell.Member, len(v.members))
	for _, m := range v.members {
		members[m.ID] = m
	}
	reasons, wanted := reasonsByInstance(s.Reasons, s.At), c.mem.State.Wanted(plan)
	engine := c.engine
	if engine != nil {
		engine = engine.Knowing(&c.mem.State)
	}
	c.totals.predicted(c.status.Instances, snapshot, c.opts.Service.SLO.Metric, o.applied)
	for i := range snapshot.Instances {
		row := c.row(&snapshot.Instances[i], plan, reasons)
		if engine != nil && !row.Stale {
			row.Interference = engine.Interference(&c.mem.State, row.ID, snapshot.Instances[i].Observation)
		}
		row.Address, row.Probe = members[row.ID].Address, members[row.ID].Probe
		if w := entry(wanted, row.ID); w != nil && plan.Would == nil {
			row.Would = w
		}
		if row.Utilization != nil && row.State != quell.Failed {
			s.Load += *row.Utilization
		}
		s.Instances = append(s.Instances, row)
	}
	addTenancies(s.Instances, c.gather.tenancies())
	if len(plan.Capacity) > 0 {
		var sum float64
		for _, capacity := range plan.Capacity {
			sum += capacity
		}
		s.Capacity = &sum
	}
	s.Wanted = size(snapshot, plan)
	c.markMissed(&s)
	s.Budget, s.Reserve = c.budget(), plan.Reserve
	canTake(s.Instances)
	c.status = s
}

// leastTold is the smallest number of judged windows for which the status says how many stayed within the margin.
const leastTold = 100

// learned says how well each resource is known on each type of instance, and how many readings stayed within the predicted margin.
func (c *Controller) learned() (texts []string) {
	learned := c.mem.State.Learned
	live := learned.Live()
	for _, r := range slices.Sorted(maps.Keys(live)) {
		for _, instanceType := range slices.Sorted(maps.Keys(live[r])) {
			text := string(r) + ": " + learned.Text(r, instanceType)
			if instanceType != model.AnyType {
				text = instanceType + ", " + text
			}
			texts = append(texts, text)
		}
	}
	threshold := c.opts.Service.SLO.ThresholdMS()
	if c := learned.Coverage(); c.Windows >= leastTold {
		useless := ""
		if c.WidthMS >= threshold {
			useless = ", wider than the objective: predictions are of no use yet"
		}
		texts = append(texts, fmt.Sprintf("%.0f%% of %.0f predictions held (goal %.0f%%), with margins of %.1f ms on average%s",
			100*c.Share, c.Windows, 100*model.CoverageGoal, c.WidthMS, useless))
	}
	return texts
}

// withTimes returns reasons with the times since when they have been given. before are those of the last decision. Neighbours that were
// only suspected before, and now are certain, have been there since then.
func withTimes(reasons, before []quell.Reason, now time.Time) []quell.Reason {
	type key struct{ code, instance string }
	since := map[key]*time.Time{}
	for _, r := range before {
		since[key{r.Code, r.Instance}] = r.Since
	}
	reasons = slices.Clone(reasons)
	for i := range reasons {
		r := &reasons[i]
		r.Since = cmp.Or(since[key{r.Code, r.Instance}], &now)
		if suspected := since[key{"suspected", r.Instance}]; r.Code == "interference" && suspected != nil && suspected.Before(*r.Since) {
			r.Since = suspected
		}
	}
	return reasons
}

// reasonsByInstance returns the last reason that is shown for each instance.
func reasonsByInstance(all []quell.Reason, at time.Time) map[string]string {
	reasons := map[string]string{}
	for _, r := range quell.ShownReasons(all, at) {
		reasons[r.Instance] = r.Text
	}
	return reasons
}

func (c *Controller) row(in *quell.Instance, plan *quell.Plan, reasons map[string]string) InstanceStatus {
	row := InstanceStatus{ID: in.ID, State: in.State, Health: in.Health, Reason: reasons[in.ID], Settings: in.Settings,
		Replaces: in.Replaces}
	if row.Health != "" {
		row.Reason = "health check: " + row.Health
	}
	if in.AgeS != nil {
		row.AgeS = *in.AgeS
	}
	row.Weight, row.Now, row.Would = entry(plan.Weights, in.ID), in.Weight, entry(plan.Weights, in.ID)
	if plan.Would != nil {
		row.Would = entry(plan.Would.Weights, in.ID)
	}
	row.Share, row.Base = in.Share, in.Base
	row.Cut = cutOf(c.mem.Factors, in.ID)
	row.Capacity = entry(plan.Capacity, in.ID)
	row.Limiter, row.Credits = plan.Limiter[in.ID], plan.Credits[in.ID]
	row.PredictedMS = entry(plan.PredictedMS, in.ID)
	row.Severity = entry(plan.Severity, in.ID)
	row.Stale, row.Unprobed = c.mem.State.Instances[in.ID].StaleFor > 0, c.mem.State.Instances[in.ID].Unprobed
	o := in.Observation
	if o == nil {
		return row
	}
	if waits, ok := policy.Origin(o, c.mem.State.Usual[in.ID]); ok && !row.Stale {
		row.Waits = &waits
	}
	row.RequestRate, row.ErrorRate, row.ShedRate, row.ProbeFailed = o.RequestRate, o.ErrorRate, o.ShedRate, o.ProbeFailed
	resource := c.resource()
	row.Utilization = entry(o.Utilization, resource)
	if row.Severity == nil {
		row.Severity = entry(o.Severity, resource)
	}
	if latency, ok := o.LatencyMS.Of(c.opts.Service.SLO.Metric); ok {
		row.LatencyMS = &latency
	}
	return row
}

// resource returns the resource whose utilisation is shown as load and capacity.
func (c *Controller) resource() quell.Resource {
	if c.noModels != nil {
		return c.opts.Policies.Resource(c.opts.Service.Policy)
	}
	return c.engine.Resource()
}

func entry[K comparable](m map[K]float64, key K) *float64 {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

// Command carries out a person's command: status, pause, resume, release, override, clear, authority, forget, drain, undrain or replace.
// Changes are recorded in the journal and survive a restart. A controller that is not the leader waits before it answers, so that the
// leader answers first.
func (c *Controller) Command(ctx context.Context, cmd bus.Command) bus.Reply {
	if !c.shown.read().status.Leading {
		select {
		case <-ctx.Done():
		case <-time.After(standbyPause):
		}
	}
	switch cmd.Name {
	case bus.Status:
		return replyWith(c.Status())
	case bus.Pause:
		return c.change(ctx, "paused by "+cmd.By, func() error {
			c.mem.Paused, c.mem.PausedBy, c.mem.Temporary.Comparison = true, cmd.By, nil
			return nil
		})
	case bus.Resume:
		return c.change(ctx, "resumed by "+cmd.By, func() error { c.resume(); return nil })
	case bus.Release:
		return c.releaseAll(ctx, cmd)
	case bus.Authority:
		return c.change(ctx, authorityText(cmd), func() error { return c.authorize(cmd) })
	case bus.Forget:
		return c.change(ctx, "what was learned is forgotten, by "+cmd.By, func() error { c.forget(); return nil })
	case bus.Override:
		return c.change(ctx, overrideText(cmd), func() error { return c.override(cmd) })
	case bus.Clear:
		return c.change(ctx, fmt.Sprintf("override of %s cleared by %s", cmd.Instance, cmd.By), func() error { return c.clear(cmd) })
	case bus.Compare:
		return c.change(ctx, compareText(cmd), func() error { return c.compare(cmd) })
	case bus.Drain:
		return c.drain(ctx, cmd)
	case bus.Undrain:
		return c.undrain(ctx, cmd)
	case bus.Train:
		return c.train(ctx, cmd)
	case bus.Replace:
		return c.replace(ctx, cmd)
	}
	return bus.Reply{Error: fmt.Sprintf("unknown command %q", cmd.Name)}
}

// resume ends a pause, a release, and the waiting after a loss of memory.
func (c *Controller) resume() {
	c.mem.Paused, c.mem.PausedBy, c.mem.Lost, c.mem.Released = false, "", "", nil
}

// standbyPause is how much later than the leader another controller answers.
const standbyPause = 500 * time.Millisecond

func replyWith(v any) bus.Reply {
	body, err := json.Marshal(v)
	if err != nil {
		return bus.Reply{Error: err.Error()}
	}
	return bus.Reply{Body: body}
}

// change changes the memory, stores it and records an event. If the memory cannot be stored, the change is undone.
func (c *Controller) change(ctx context.Context, text string, alter func() error) bus.Reply {
	c.work.Lock()
	defer c.release()
	if !c.leading {
		return bus.Reply{Error: "this controller does not hold the lease of the service: another one leads, or none does yet"}
	}
	ctx, cancel := c.limit(ctx)
	defer cancel()
	before := c.mem
	if err := alter(); err != nil {
		return bus.Reply{Error: err.Error()}
	}
	c.mem.Orders++
	err := c.save(ctx)
	late := errors.Is(err, bus.ErrLater)
	if err != nil && !late && !errors.Is(err, bus.ErrStoreClosed) {
		c.mem = before
		return bus.Reply{Error: err.Error()}
	}
	c.event(ctx, text)
	if err != nil { // a full disk must not prevent a pause, so the memory is stored later
		c.unsaved = err
		c.failed("memory", err)
		until := "there is disk space"
		if late {
			until = "the bus stores it"
		}
		text += "; it is in force, but until " + until + " a restart would forget it"
	}
	return replyWith(map[string]string{"done": text})
}

func overrideText(cmd bus.Command) string {
	if cmd.Weight == nil {
		return ""
	}
	return fmt.Sprintf("weight of %s set to %.3f by %s%s", cmd.Instance, *cmd.Weight, cmd.By, forText(cmd))
}

// forText says for how long a command changes something, "" if that has no end.
func forText(cmd bus.Command) string {
	if cmd.ForS == 0 {
		return ""
	}
	return " for " + setting.FormatDuration(cmd.For())
}

func (c *Controller) override(cmd bus.Command) error {
	if cmd.Weight == nil || math.IsNaN(*cmd.Weight) || *cmd.Weight < 0 || *cmd.Weight > 1 {
		return fmt.Errorf("an override wants a weight from 0 to 1, the fraction of traffic")
	}
	if !slices.ContainsFunc(c.status.Instances, func(i InstanceStatus) bool { return i.ID == cmd.Instance }) {
		return fmt.Errorf("no instance %q; `quell status` lists them", cmd.Instance)
	}
	if cmd.ForS > 0 {
		return c.overrideFor(cmd)
	}
	c.mem.Overrides = with(c.mem.Overrides, cmd.Instance, *cmd.Weight)
	c.mem.Temporary.Overrides = without(c.mem.Temporary.Overrides, cmd.Instance)
	c.mem.Temporary.Before = withShare(c.mem.Temporary.Before, cmd.Instance, *cmd.Weight)
	return nil
}

// authorize sets how far the policy may go, and ends the watching of its last change. Without a level the policy begins as it did at first,
// and earns its authority.
func (c *Controller) authorize(cmd bus.Command) error {
	if cmd.ForS > 0 {
		return c.authorizeFor(cmd)
	}
	c.mem.Temporary.Authority = nil
	switch {
	case cmd.Level == "":
		c.mem.State.Trust = policy.Trust{}
	case slices.Contains(quell.Authorities, cmd.Level):
		c.mem.State.Trust = policy.Trust{Level: cmd.Level, ByHand: cmd.By}
	default:
		return fmt.Errorf("authority %q is unknown; known are advise, step and full", cmd.Level)
	}
	return nil
}

// forget drops what was learned about the service, and what the policy has earned with it. A level that a person set stays.
func (c *Controller) forget() {
	c.mem.State.Learned = nil
	if c.mem.State.Trust.ByHand == "" {
		c.mem.State.Trust = policy.Trust{}
	}
}

// authorityText says what a command does to the authority.
func authorityText(cmd bus.Command) string {
	if cmd.Level == "" {
		return "authority no longer set by hand: changed by " + cmd.By
	}
	return fmt.Sprintf("authority set to %s by %s%s", cmd.Level, cmd.By, forText(cmd))
}

func (c *Controller) clear(cmd bus.Command) error {
	_, lasting := c.mem.Overrides[cmd.Instance]
	_, ends := c.mem.Temporary.Overrides[cmd.Instance]
	if !lasting && !ends {
		return fmt.Errorf("no override of %q is in force", cmd.Instance)
	}
	if cmd.Weight != nil {
		return c.clearOwn(cmd)
	}
	if lasting {
		c.mem.Overrides = without(c.mem.Overrides, cmd.Instance)
		c.mem.Temporary.Before = withShare(c.mem.Temporary.Before, cmd.Instance, 1/float64(max(1, len(c.mem.Temporary.Before))))
	}
	if ends {
		c.mem.Temporary.endOverride(cmd.Instance)
	}
	return nil
}

// clearOwn ends a share that the sender set for a time. What somebody has set since then stays.
func (c *Controller) clearOwn(cmd bus.Command) error {
	if o, ends := c.mem.Temporary.Overrides[cmd.Instance]; !ends || o.Weight != *cmd.Weight || o.By != cmd.By {
		return fmt.Errorf("the share of %q was set anew since then", cmd.Instance)
	}
	c.mem.Temporary.endOverride(cmd.Instance)
	return nil
}

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
