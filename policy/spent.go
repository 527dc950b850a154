package policy

import (
	"fmt"
	"slices"

	"github.com/quellhq/quell"
)

// spentCause is the cause in plans of instances that are slow because their provider holds them at the baseline: they have no credits.
const spentCause = quell.Resource(LimitedByCredits)

// spent returns the instances without credits of processor time whose use is held at the baseline. What they wait for then looks like
// neighbours: the hypervisor reports it as stolen time. Only a shown balance of a known type tells the two apart.
func (e *Engine) spent(s *quell.Snapshot, before *State) (ids map[string]bool) {
	set := &e.credits
	for i := range s.Instances {
		in := &s.Instances[i]
		if in.Observation == nil || len(in.Observation.Credits) == 0 {
			continue // no balance is shown
		}
		var seen *bool
		if own, ok := before.Of(in.ID).Memory.(interface{ BeyondCredits() *bool }); ok {
			seen = own.BeyondCredits()
		}
		if set.heldAtBaseline(in, seen) {
			quell.Put(&ids, in.ID, true)
		}
	}
	return ids
}

// heldAtBaseline returns whether an instance has no credits and uses its baseline. sold says whether its use beyond the credits was had.
func (s *CreditSettings) heldAtBaseline(in *quell.Instance, sold *bool) bool {
	o := in.Observation
	shown, isShown := o.Credits[quell.CPU]
	use, measured := o.Utilization[quell.CPU]
	if !measured && o.CPU != nil {
		use, measured = o.CPU.User+o.CPU.System, true
	}
	bucket, known := s.BucketOf(in.Type, quell.CPU)
	return isShown && measured && known && !s.Unslowed(in.Type, sold) && bucket.Empty(shown) && bucket.AtBaseline(use)
}

// withoutInterference returns the snapshot without what these instances show of neighbours: nothing is to be concluded, or learned, from
// it. What they use and serve stays.
func withoutInterference(s *quell.Snapshot, ids map[string]bool) *quell.Snapshot {
	if len(ids) == 0 {
		return s
	}
	next := *s
	next.Instances = slices.Clone(s.Instances)
	for i := range next.Instances {
		if in := &next.Instances[i]; ids[in.ID] {
			in.Observation = unfelt(in.Observation)
		}
	}
	return &next
}

// unfelt returns an observation with a severity of 0 in every resource that was probed, without response times and without waiting.
func unfelt(o *quell.Observation) *quell.Observation {
	next := *o
	next.Severity = map[quell.Resource]float64{quell.CPU: 0}
	for r := range o.Severity {
		next.Severity[r] = 0
	}
	for r := range o.Probe {
		next.Severity[r] = 0
	}
	next.Probe, next.LatencyMS, next.LatencyByClassMS = nil, nil, nil
	if o.CPU != nil {
		times := *o.CPU
		times.Steal = 0
		next.CPU = &times
	}
	if o.Sched != nil {
		sched := *o.Sched
		sched.WaitS, sched.FreeS, sched.Lost, sched.TaskRunS = nil, nil, nil, nil
		next.Sched = &sched
	}
	return &next
}

// noteSpent names the credits as the cause of these instances' slowness.
func noteSpent(s *quell.Snapshot, ids map[string]bool, plan *quell.Plan) {
	for i := range s.Instances {
		in := &s.Instances[i]
		if !ids[in.ID] {
			continue
		}
		quell.Put(&plan.Cause, in.ID, spentCause)
		stolen := ""
		if o := in.Observation; o.CPU != nil && o.CPU.Steal > 0 {
			stolen = fmt.Sprintf(", and the hypervisor withholds %.0f%% of its processors", 100*o.CPU.Steal)
		}
		AddReason(plan, "credits_spent", in.ID, "%s has %.3g credits and is held at its baseline%s: that is no interference, and nothing is "+
			"learned from it", in.ID, in.Observation.Credits[quell.CPU], stolen)
	}
}
