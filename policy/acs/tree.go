package acs

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// The kernel compares the weights of groups that lie in the same group: first it divides the processors among the outermost ones, then the
// part of each among those that lie in it. So if the groups lie in different groups, these get weights, too: each one the sum of the parts
// that lie in it.

// setWeights gives each group, and each group around some of them but not all, the weight of its part. The mean weight of those that lie in
// the same group is the kernel's usual one, so other groups beside these get what they got before.
func (d *hostCaps) setWeights() {
	around := d.around()
	sums, numbers := map[string]float64{}, map[string]int{} // of what lies in each group
	for _, group := range slices.Sorted(maps.Keys(around)) {
		sums[path.Dir(group)] += around[group]
		numbers[path.Dir(group)]++
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			sums[t.within] += t.next.Part
			numbers[t.within]++
		}
	}
	weight := func(part float64, within string) float64 {
		return min(max(part/sums[within]*float64(numbers[within]), acsLightest), acsHeaviest)
	}
	for i := range d.tenants {
		if t := &d.tenants[i]; !t.foreign() {
			t.next.Cap, t.next.Weight = 0, weight(t.next.Part, t.within)
		}
	}
	if len(around) > 0 {
		d.mem.Around = make(map[string]float64, len(around))
	}
	for group, part := range around {
		d.mem.Around[group] = weight(part, path.Dir(group))
	}
}

// around returns the part of each group that some of the groups lie in, but not all. What an idle group has counts only if no other group
// beside it is active, because it wants nothing at present.
func (d *hostCaps) around() map[string]float64 {
	common, ok := d.common()
	if !ok {
		return nil
	}
	active, all := map[string]float64{}, map[string]float64{}
	for i := range d.tenants {
		t := &d.tenants[i]
		if t.foreign() {
			continue
		}
		for at := t.within; at != common; at = path.Dir(at) {
			all[at] += t.next.Part
			if t.active() {
				active[at] += t.next.Part
			}
		}
	}
	maps.Copy(all, active)
	return all
}

// common returns the innermost group that all groups lie in; ok is false if that is not known.
func (d *hostCaps) common() (within string, ok bool) {
	for i, t := range d.tenants {
		if !path.IsAbs(t.within) {
			return "", false
		}
		if i == 0 {
			within = t.within
		}
		for within != t.within && !strings.HasPrefix(t.within, strings.TrimSuffix(within, "/")+"/") {
			within = path.Dir(within)
		}
	}
	return within, len(d.tenants) > 0
}
