package acs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quellhq/quell"
)

// plan builds the plan, and stores what is remembered.
func (d *hostCaps) plan(why quell.Reason) quell.Plan {
	d.mem.Groups = make(map[string]group, len(d.tenants))
	plan := quell.Plan{Tenants: make(map[string]quell.Tenant, len(d.tenants)), Reasons: []quell.Reason{why}}
	var blind []string
	for i := range d.tenants {
		t := &d.tenants[i]
		d.mem.Groups[t.id] = t.next
		plan.Tenants[t.id] = t.told(d.total)
		if code, text := t.why(d.total); code != "" {
			plan.Reasons = append(plan.Reasons, quell.Reason{Code: code, Instance: t.id, Text: text})
		}
		if t.blind && t.from == quell.FromScheduling && !t.idle {
			blind = append(blind, t.id)
		}
	}
	if len(blind) > 0 {
		plan.Reasons = append(plan.Reasons, quell.Reason{Code: "acs_blind", Text: fmt.Sprintf("how long %s wait in run queues is not known, "+
			"only how long for caps: without a cap, their weights stay; let them report their progress", strings.Join(blind, ", "))})
	}
	plan.Limits = d.mem.limits()
	return plan
}

// limits lists the caps and weights of the last plan.
func (mem *memory) limits() (list []quell.Limit) {
	for _, id := range slices.Sorted(maps.Keys(mem.Groups)) {
		if processors := mem.Groups[id].Cap; processors > 0 {
			list = append(list, quell.Limit{Instance: id, Resource: quell.CPU, Value: processors, Unit: "processors"})
		}
		if weight := mem.Groups[id].Weight; weight > 0 {
			list = append(list, quell.Limit{Instance: id, Resource: quell.CPU, Value: weight, Unit: quell.WeightUnit})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(mem.Around)) {
		list = append(list, quell.Limit{Instance: path, Resource: quell.CPU, Value: mem.Around[path], Unit: quell.WeightUnit})
	}
	return list
}

// told is what the plan says of a group.
func (t *tenant) told(total float64) (told quell.Tenant) {
	told.Idle = t.idle
	if t.slowdown == 0 {
		return told
	}
	slowdown, want, predicted := t.slowdown, t.want, t.predicted(total)
	told.Slowdown, told.From, told.Wanted, told.Predicted = &slowdown, t.from, &want, &predicted
	if related, ok := t.next.Model.Correlation(); ok {
		told.Correlation = &related
	}
	return told
}

// predicted is the slowdown that is expected under the next cap or weight. Under a cap, the same work takes longer as the processors it
// gets become fewer.
func (t *tenant) predicted(total float64) float64 {
	if t.next.Weight > 0 && !t.foreign() {
		return t.under(t.slowdown)
	}
	processors := min(cmp.Or(t.next.Cap, total), t.want)
	if t.foreign() && t.quota > 0 {
		processors = min(t.quota, t.want)
	}
	return max(1, min(t.slowdown*t.run/processors, acsSlowest))
}

// why explains what happens to a group.
func (t *tenant) why(total float64) (code, text string) {
	switch {
	case t.loose:
		return "acs_not_capped", fmt.Sprintf("its cap of %.2f processors is not in force: it is left out", t.before.Cap)
	case t.bounded:
		return "acs_bounded", fmt.Sprintf("somebody else limits it to %.2f processors, less than it would get: it is left out", t.quota)
	case t.idle && t.next.Weight > 0:
		return "acs_idle", fmt.Sprintf("wants %.2f processors: the others get its share until it wants to run", t.want)
	case t.slowdown == 0 || t.idle && t.next.Cap == 0:
		return "", ""
	case t.idle:
		return "acs_idle", fmt.Sprintf("wants %.2f processors: the others get its share; up to %.2f processors are its own when it wants them",
			t.want, t.next.Cap)
	case t.doubt > 0:
		return "acs_doubt", fmt.Sprintf("reports a slowdown of %.2f, but its tasks waited so little that %.2f is used", t.doubt, t.slowdown)
	case t.next.Held > 0:
		return "acs_held", fmt.Sprintf("slowdown %.2f (from %s): it runs at once when it wakes up, whatever its weight, so it has a cap of %.3f "+
			"processors, too", t.slowdown, t.from, t.next.Held)
	case t.next.Weight > 0:
		return "acs_weighted", fmt.Sprintf("slowdown %.2f (from %s): weight %.2f, expected slowdown %.2f", t.slowdown, t.from, t.next.Weight,
			t.predicted(total))
	case t.next.Cap == 0 && t.before.Cap == 0:
		return "", ""
	case t.next.Cap == 0:
		return "acs_freed", fmt.Sprintf("slowdown %.2f: no cap", t.slowdown)
	}
	return "acs_capped", fmt.Sprintf("slowdown %.2f (from %s): cap %.2f of %g processors, expected slowdown %.2f", t.slowdown, t.from,
		t.next.Cap, total, t.predicted(total))
}
