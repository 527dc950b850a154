package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/life"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/policy"
)

// board keeps what people are told: the status, since when the objective is missed, and the error budget.
type board struct {
	*nights
	told        string               // the last decision that was logged
	missed      map[string]time.Time // instances that are above the objective, and since when
	missedSince time.Time            // since when some instance is
	accounted   time.Time            // when the last period was entered into the budget
	fastReasons []quell.Reason       // of the fast policy's last plan
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

func (c *board) busErr() error {
	if c.opts.Bus == nil {
		return nil
	}
	return c.opts.Bus()
}

func (c *board) show() {
	s := c.status
	s.Service, s.Policy, s.Mode = c.opts.Service.Name, c.opts.Service.Policy.Name, c.opts.Service.Mode
	s.Fast, s.FastReasons = c.opts.Service.Policy.Fast.Name, c.fastReasons
	s.SLO = c.opts.Service.SLO.Text()
	s.ThresholdMS, s.SamplingS = c.opts.Service.SLO.ThresholdMS(), c.opts.Service.Sampling.Seconds()
	s.Leading, s.Paused, s.PausedBy, s.Overrides = c.leading, c.mem.Paused, c.mem.PausedBy, c.mem.overrides()
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
	trust := c.mem.trust()
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
		status: s, idle: idle, remembers: c.remembers, members: c.fleet.Members, sampling: c.opts.Service.Sampling,
		objective: c.opts.Service.SLO.Threshold, fast: c.opts.Service.Policy.Fast.Sampling,
		cost: c.mem.Inventory.Cost(c.now()),
	})
}

// report stores for the status what the last decision was based on and what it wants.
func (c *board) report(v *view, plan *quell.Plan, o outcome, pending []string) {
	snapshot := v.snapshot
	s := Status{At: snapshot.At, ArrivalRate: snapshot.ArrivalRate, Unserved: snapshot.Unserved, Pending: pending}
	s.Reasons = withTimes(plan.Reasons, c.status.Reasons, snapshot.At)
	s.Changes, s.ChangedAt = c.status.Changes, c.status.ChangedAt
	if len(o.changes) > 0 {
		s.Changes, s.ChangedAt = o.changes, snapshot.At
	}
	members := make(map[string]quell.Member, len(v.Members))
	for _, m := range v.Members {
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
		if o.applied && row.Weight != nil {
			row.Now = row.Weight
		}
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
	s.Wanted = life.Size(snapshot, plan)
	c.markMissed(&s)
	s.Budget, s.Reserve = c.budget(), plan.Reserve
	canTake(s.Instances)
	c.status = s
}

// leastTold is the smallest number of judged windows for which the status says how many stayed within the margin.
const leastTold = 100

// learned says how well each resource is known on each type of instance, and how many readings stayed within the predicted margin.
func (c *board) learned() (texts []string) {
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

func (c *board) row(in *quell.Instance, plan *quell.Plan, reasons map[string]string) InstanceStatus {
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
	row.Share, row.Base, row.Capacity = in.Share, in.Base, entry(plan.Capacity, in.ID)
	row.Limiter, row.Credits = plan.Limiter[in.ID], plan.Credits[in.ID]
	row.PredictedMS = entry(plan.PredictedMS, in.ID)
	row.Severity = entry(plan.Severity, in.ID)
	known := c.mem.State.Of(in.ID)
	row.Stale, row.Unprobed = known.StaleFor > 0, known.Unprobed
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
func (c *board) resource() quell.Resource {
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

// missing returns what the configured policy waits for.
func (c *board) missing() string {
	if c.opts.Models == nil {
		return "no models yet: weights are equal and interference is not judged. Set `models:` to a file, or to learn (docs/guide.md#train)"
	}
	return fmt.Sprintf("%v: weights are equal and interference is not judged. Train and fit it (docs/guide.md#train)", c.noModels)
}
