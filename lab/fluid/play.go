package fluid

import (
	"math"
	"math/rand/v2"
	"slices"
)

// View is what a decider sees of a second.
type View struct {
	Second   int
	Load     float64
	Missed   bool
	Ready    []float64 // capacities of the ready instances, the largest first
	Starting int
}

// Decider decides how many instances to add, or how many of the smallest to remove (below 0).
type Decider func(v View) int

// Result is how a play went.
type Result struct {
	Missed []bool  // by second
	Cost   float64 // instance-seconds
}

type instance struct{ host, ready int }

// Run plays a course under a decider. Instances start on random free hosts. The group begins at the size that the first second needs.
func (w World) Run(c Course, decide Decider, seed uint64) Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	free := rng.Perm(hosts)
	var group []instance
	add := func(ready int) {
		if len(group) < most && len(free) > 0 {
			k := rng.IntN(len(free))
			group = append(group, instance{free[k], ready})
			free = slices.Delete(free, k, k+1)
		}
	}
	for range int(math.Ceil(c.Load[0] / alone)) {
		add(0)
	}
	r := Result{Missed: make([]bool, len(c.Load))}
	v := View{Ready: make([]float64, 0, most)}
	for t, load := range c.Load {
		v.Ready, v.Starting = v.Ready[:0], 0
		left := c.Left[t]
		slices.SortFunc(group, func(a, b instance) int {
			if a.ready > t || b.ready > t {
				return a.ready - b.ready
			}
			if left[a.host] != left[b.host] {
				if left[a.host] > left[b.host] {
					return -1
				}
				return 1
			}
			return a.host - b.host
		})
		sum := 0.0
		for _, in := range group {
			if in.ready > t {
				v.Starting++
				continue
			}
			v.Ready = append(v.Ready, left[in.host])
			sum += left[in.host]
		}
		r.Cost += float64(len(group))
		r.Missed[t] = load > sum
		v.Second, v.Load, v.Missed = t, load, r.Missed[t]
		change := decide(v)
		for range change {
			add(t + 1 + int(w.Startup.Seconds()))
		}
		for ; change < 0 && v.Starting == 0 && len(group) > 1; change++ {
			last := group[len(group)-1]
			free, group = append(free, last.host), group[:len(group)-1]
		}
	}
	return r
}

// Keep decides like PRIMA: the fewest instances whose capacities, less the reserve, carry the load.
func Keep(headroom func(v View) float64, hold int) Decider {
	var recent []int
	return func(v View) int {
		h := headroom(v)
		k, sum := 0, 0.0
		const margin = 0.95
		for k < len(v.Ready) && sum*h*margin < v.Load {
			sum += v.Ready[k]
			k++
		}
		all := sum
		for _, x := range v.Ready[k:] {
			all += x
		}
		want := k
		if all*h < v.Load {
			want = len(v.Ready) + int(math.Ceil((v.Load-all*h)/(h*alone)-1e-9))
		}
		recent = append(recent, want)
		if len(recent) > hold+1 {
			recent = recent[1:]
		}
		have := len(v.Ready) + v.Starting
		if want > have {
			return want - have
		}
		return min(0, max(slices.Max(recent), want)-have)
	}
}

// Autoscale decides like an autoscaler that knows the load and no neighbours: by a target of utilisation, and the largest size that it
// wanted in the last seconds.
func Autoscale(target float64, stabilised int) Decider {
	var recent []int
	return func(v View) int {
		want := max(1, int(math.Ceil(v.Load/(target*alone)-1e-9)))
		recent = append(recent, want)
		if len(recent) > stabilised+1 {
			recent = recent[1:]
		}
		have := len(v.Ready) + v.Starting
		if want > have {
			return want - have
		}
		return min(0, slices.Max(recent)-have)
	}
}
