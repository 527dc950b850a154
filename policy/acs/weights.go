package acs

import "math"

// By weights, acs tells the kernel in which proportions to divide processor time while the groups want more than there is. Weights never
// leave a processor unused: what a group does not use at the moment goes to the others, also within a sampling period.

// Constants of weights.
const (
	acsStep     = 2.0  // largest factor by which one step changes a weight, and one over the smallest
	acsLightest = 0.01 // smallest and largest weight, relative to the kernel's usual one; both versions of control groups accept them
	acsHeaviest = 100.0
)

// weigh multiplies the part of each active group by (level / mean)^gain, and sets the weights that give these parts. Parts of idle groups
// stay, because they count only when the group wants to run.
func (d *hostCaps) weigh() {
	d.enter()
	d.release()
	before, parts := make([]float64, len(d.active)), 0.0
	for i, t := range d.active {
		before[i] = t.next.Part
		parts += t.next.Part
	}
	if !d.mem.Even && len(d.active) > 1 {
		d.shift(parts)
	}
	d.setWeights()
	for i, t := range d.active {
		t.expect(before[i], t.next.Part, parts)
	}
	d.hold()
}

// shift changes the parts of the active groups, whose sum stays. Groups that a cap holds back keep theirs.
func (d *hostCaps) shift(parts float64) {
	mean, sum := d.mean(), 0.0
	var free []*tenant
	for _, t := range d.active {
		if t.next.Held > 0 {
			parts -= t.next.Part
			continue
		}
		factor := min(max(math.Pow(t.level()/mean, d.set.Gain), 1/acsStep), acsStep)
		if t.slowdown <= 1+d.set.Tolerance/2 {
			factor = min(factor, 1) // a group that is not slowed down cannot be helped
		}
		t.next.Part *= factor
		sum += t.next.Part
		free = append(free, t)
	}
	fractions := make([]share, len(free))
	for i, t := range free {
		fractions[i] = share{t.next.Part / sum, acsLightest / float64(len(d.active)), 1}
	}
	for i, got := range within(fractions) {
		free[i].next.Part = got * parts
	}
}

// enter gives groups that have no part yet a mean one, which is what the kernel gives them, and scales all parts so that their sum is 1.
// Groups that somebody else limits are left out.
func (d *hostCaps) enter() {
	known, mean := 0, 1.0
	sum := 0.0
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() && t.next.Part > 0 {
			known++
			sum += t.next.Part
		}
	}
	if known > 0 {
		mean = sum / float64(known)
	}
	sum = 0
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			if t.next.Part == 0 {
				t.next.Part = mean
			}
			sum += t.next.Part
		}
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			t.next.Part /= sum
		}
	}
}

// expect enters the change of a group's weight into its average, which would otherwise answer the change only after several periods, and
// weights would overshoot. before and after are its parts, and all is the sum of the active groups' parts.
//
// A task that competes with others of weight O gets w / (w + O) of a processor and takes 1 + O/w times as long. If it sleeps for some of
// the time, the excess over 1 is smaller by a factor, which does not depend on weights. So the excess changes as O/w does.
func (t *tenant) expect(before, after, all float64) {
	if before <= 0 || after <= 0 || before >= all {
		return
	}
	t.eased = (all - after) / after * before / (all - before)
	t.next.Level = t.under(t.next.Level/t.share) * t.share
}

// under is the slowdown that is expected under the next weight.
func (t *tenant) under(slowdown float64) float64 {
	if t.eased == 0 {
		return slowdown
	}
	return min(1+max(0, slowdown-1)*t.eased, acsSlowest)
}
