package acs

import (
	"math"

	"github.com/quellhq/quell"
)

// By caps, acs stops a group that has used up its quota until the next period of the kernel. The damped rule and the literal one of the
// paper compute the caps.

// Constants of caps.
const (
	acsLeast = 0.75 // smallest factor by which one step of the damped rule changes a cap
	acsMost  = 1.25 // largest one
	acsSpare = 1.25 // a cap is at most this many times what its group wants, if others want the rest;
	acsSated = 1.05 // this many times, if the group does not wait
)

// start gives groups that have no part yet the one that they use at present, and scales all parts so that their sum is 1. Groups that
// somebody else limits are left out.
func (d *hostCaps) start() {
	sum := 0.0
	for i := range d.tenants {
		t := &d.tenants[i]
		if t.foreign() {
			continue
		}
		if t.next.Part == 0 && t.want > 0 {
			t.next.Part = max(t.run/d.total, d.set.Floor)
		}
		sum += t.next.Part
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; sum > 0 && !t.foreign() {
			t.next.Part /= sum
		}
	}
}

// literal changes caps as Eq. 7 and 8 say: cap += K (slowdown - avg) with K = |slowdown - avg| / avg, where 1 is the whole machine. Idle
// groups keep their caps.
func (d *hostCaps) literal() {
	d.start()
	for _, t := range d.active {
		if !d.mem.Even {
			avg := d.mean()
			off := t.level() - avg
			t.next.Part = min(max(t.next.Part+math.Abs(off)/avg*off, d.set.Floor), 1)
		}
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			t.cap(t.next.Part*d.total, d.total)
		}
	}
}

// cap sets a cap of the next plan. A cap of the whole machine is none.
func (t *tenant) cap(processors, total float64) {
	t.next.Cap, t.next.Held, t.next.Weight = 0, 0, 0
	if processors > 0 && processors < total*(1-quell.SumTolerance) {
		t.next.Cap = processors
	}
}

// damped multiplies the caps of the active groups by level / avg, within bounds, and scales them so that they use the whole machine
// together, whatever idle groups had before (Algorithm 2 gives the share of a blocked machine away). Idle groups keep the cap that they
// will have when they come back.
func (d *hostCaps) damped() {
	d.start()
	parts := 0.0
	fractions := make([]share, len(d.active))
	bounds, least := 0.0, d.least()
	for i, t := range d.active {
		parts += t.next.Part
		want := t.next.Part
		if !d.mem.Even {
			want *= min(max(1+d.set.Gain*(t.level()/d.mean()-1), acsLeast), acsMost)
		}
		spare := acsSpare
		if t.slowdown <= 1+d.set.Tolerance/2 {
			spare = acsSated
		}
		fractions[i] = share{want, least, max(min(1, t.want*spare/d.free), least)}
		bounds += fractions[i].high
	}
	if bounds < 1 { // they want less than the machine has: nobody needs to be held back
		for i := range fractions {
			fractions[i].want, fractions[i].high = fractions[i].high, 1
		}
	}
	got := within(fractions)
	for i, t := range d.active {
		t.next.Part = got[i] * parts
		t.cap(got[i]*d.free, d.total)
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.active() && !t.foreign() {
			t.cap(t.next.Part*d.free, d.total)
		}
	}
}

// least is the smallest fraction that every active group can have.
func (d *hostCaps) least() float64 { return min(d.set.Floor, 1/float64(max(1, len(d.active)))) }

// share is a group's wanted fraction of the processors, and its bounds.
type share struct{ want, low, high float64 }

// within scales the wanted fractions by a common factor so that, within their bounds, they sum to 1.
func within(fractions []share) []float64 {
	got := make([]float64, len(fractions))
	sum := func(factor float64) (sum float64) {
		for i, f := range fractions {
			got[i] = min(max(factor*f.want, f.low), f.high)
			sum += got[i]
		}
		return sum
	}
	low, high := 0.0, 1.0
	for sum(high) < 1 && high < 1e12 {
		high *= 2
	}
	for range 100 {
		if middle := (low + high) / 2; sum(middle) < 1 {
			low = middle
		} else {
			high = middle
		}
	}
	sum(high)
	return got
}
