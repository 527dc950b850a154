package acs

import "math"

// A group that sleeps most of the time runs at once when it wakes up, however small its weight: it used less than its part while it slept.
// If such a group is slowed down less than the others under a small weight, it gets a cap beside it.

// Constants of caps beside weights.
const (
	acsLight    = 0.2   // a group is light if its part is at most this fraction of the mean one
	acsLeastCap = 0.002 // smallest cap, in processors: the kernel gives at least 1 ms in a second
	acsRelief   = 2.0   // a cap goes if the group's level is this many times the mean of the others
)

// release removes the caps of groups that no longer want little. They get an equal part, and weights go on from there.
func (d *hostCaps) release() {
	parts, levels, n := 0.0, 0.0, float64(len(d.active))
	for _, t := range d.active {
		parts, levels = parts+t.next.Part, levels+t.level()
	}
	for _, t := range d.active {
		others := (levels - t.level()) / (n - 1)
		if t.next.Held > 0 && n > 1 && (t.next.Held > d.equal() || t.level() > acsRelief*others) {
			t.next.Held, t.next.Counted, t.next.Part = 0, 0, max(t.next.Part, parts/n)
		}
	}
}

// equal is what each active group would have if all had the same, in processors.
func (d *hostCaps) equal() float64 { return d.total / float64(max(1, len(d.active))) }

// hold sets, keeps, changes and removes caps beside weights.
func (d *hostCaps) hold() {
	mean, near, parts, n := d.mean(), 0, 0.0, 0
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			parts, n = parts+t.next.Part, n+1
			near += count(t.next.Level > 0 && t.next.Away < acsGone)
		}
	}
	for i := range d.tenants {
		t := &d.tenants[i]
		switch {
		case t.foreign():
		case near < 2 || d.wanted < acsFull*d.total || t.next.Away >= acsGone:
			t.hold(0)
		case len(d.active) < 2 || d.mem.Even || !t.active():
			t.hold(t.next.Held)
		default:
			light := t.next.Part <= acsLight*parts/float64(n)
			t.hold(d.heldAt(t, mean/t.share-1, light))
		}
	}
}

// heldAt is the next cap beside a group's weight; 0: none. excess is that of a slowdown at the mean level over 1. Under a cap c, work that
// takes w alone takes w/c, so a slowdown's excess changes about as 1/c does.
func (d *hostCaps) heldAt(t *tenant, excess float64, light bool) float64 {
	slowdown, held := t.level()/t.share, t.next.Held
	switch {
	case excess <= 0:
		return 0
	case held > 0:
		return max(held*min(max(math.Pow(max(0, slowdown-1)/excess, d.set.Gain), 1/acsStep), acsStep), acsLeastCap)
	case !light || t.next.Unheld || t.quota > 0 || slowdown*(1+d.set.Tolerance) >= 1+excess:
		return 0
	}
	use := min(t.want, 1)
	if first := max(use/(excess+use), acsLeastCap); t.want < d.equal() && first < d.equal()/2 {
		t.next.Level, t.next.Counted = (1+excess)*t.share, 1 // as expected under this cap
		return first
	}
	return 0
}

// hold sets the cap beside the weight. What a change of it does to the slowdown is entered into the average.
func (t *tenant) hold(processors float64) {
	if before := t.next.Held; before > 0 && processors > 0 && t.active() {
		t.eased = before / processors
		t.next.Level = t.under(t.next.Level/t.share) * t.share
	}
	t.next.Held, t.next.Cap = processors, processors
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
