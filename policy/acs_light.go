package policy

import "math"

// A group that sleeps most of the time runs at once when it wakes up, however small its weight: it used less than its part while it slept.
// If such a group is slowed down less than the others under a small weight, it gets a cap beside it.

// Constants of caps beside weights.
const (
	acsLight    = 0.2  // weights up to this are small
	acsLeastCap = 0.01 // smallest cap, in processors
	acsRelief   = 2.0  // a cap goes if it slows a group down this many times as much as the others,
	acsSmall    = 0.5  // or if it exceeds this fraction of an equal part of the processors
)

// release removes the caps of groups that no longer sleep most of the time. They get an equal part, and weights go on
// from there.
func (d *hostCaps) release() {
	equal := 1 / float64(len(d.active))
	for _, t := range d.active {
		if t.next.Held > acsSmall*equal*d.total || t.next.Held > 0 && t.level() > acsRelief*d.mean() {
			t.next.Held, t.next.Part = 0, max(t.next.Part, equal)
		}
	}
}

// hold sets, keeps, changes and removes caps beside weights.
func (d *hostCaps) hold() {
	mean := d.mean()
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			t.hold(d.heldAt(t, mean))
		}
	}
}

// heldAt is the next cap beside a group's weight; 0: none. Under a cap c, work that takes w alone takes w/c, so the slowdown's excess over 1
// changes about as 1/c does.
func (d *hostCaps) heldAt(t *acsTenant, mean float64) float64 {
	slowdown := t.level() / t.share
	excess := mean/t.share - 1 // that a slowdown of the mean level has
	switch {
	case len(d.active) < 2 || excess <= 0 || t.next.Away >= acsGone:
		return 0
	case d.mem.Even || !t.active():
		return t.next.Held
	case t.next.Held > 0:
		return max(t.next.Held*min(max(math.Pow((slowdown-1)/excess, d.set.Gain), 1/acsStep), acsStep), acsLeastCap)
	case t.next.Weight <= acsLight && slowdown*(1+d.set.Tolerance) < 1+excess:
		use := min(t.want, 1)
		return max(use/(excess+use), acsLeastCap)
	}
	return 0
}

// hold sets the cap beside the weight. A change of it is entered into the average.
func (t *acsTenant) hold(processors float64) {
	if before := t.next.Held; before > 0 && processors > 0 && t.active() {
		t.eased = before / processors
		t.next.Level = t.under(t.next.Level/t.share) * t.share
	}
	t.next.Held, t.next.Cap = processors, processors
}
