package prima

import (
	"testing"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
)

// avoidingEngine decides for four instances behind a balancer that sends requests to idle ones, unless honours is set.
func avoidingEngine(t *testing.T, honours bool) *policy.Engine {
	t.Helper()
	service := learningService(all.Default())
	service.Group, service.IdleFirst = quell.Group{Min: 4, Max: 4}, !honours
	tell(&service, "Confirm", 0)
	tell(&service, "Pooling", policy.Pooling{Learned: true})
	return engine(t, service, pooledModels(0.9, 0.9))
}

// TestMeasuredToMissBesideANeighbour: beside a neighbour of 0.5 the law allows 20 of 40 ms, so the first instance could carry something. It
// was measured to take longer, and no share above 0 changes that: it gets none until neighbours take half as much.
func TestMeasuredToMissBesideANeighbour(t *testing.T) {
	for name, c := range map[string]struct {
		honours bool
		ms      float64 // of the first instance
		n       int     // response times of it
		taken   float64
		out     bool
	}{
		"it misses the objective":       {ms: 55, n: 200, taken: 0.5, out: true},
		"it does not":                   {ms: 35, n: 200, taken: 0.5},
		"too few response times":        {ms: 55, n: 9, taken: 0.5},
		"no neighbour explains it":      {ms: 55, n: 200, taken: 0.01},
		"the balancer honours a weight": {ms: 55, n: 200, taken: 0.5, honours: true},
	} {
		s := together(4, 0.3, c.taken)
		*s.Instances[0].Observation.LatencyMS = quell.Latency{Mean: &c.ms, N: c.n}
		plan, _ := avoidingEngine(t, c.honours).Decide(s, policy.State{})
		if got := plan.Weights["i01"] == 0; got != c.out {
			t.Errorf("%s: weights %v: %+v", name, plan.Weights, plan.Reasons)
		}
	}
}

// TestAvoided: it takes two periods a little above the objective, or one far above it. The instance is tried again after two readings in
// which neighbours take less than half, and if it then misses the objective again, after four; in any case after a while.
func TestAvoided(t *testing.T) {
	slow, slower := seen{taken: 0.5, served: true, over: 1.1, confirm: 1}, seen{taken: 0.5, served: true, over: 1.4, confirm: 1}
	fine := seen{taken: 0.5, served: true, over: 0.9, confirm: 1}
	beside, eased, gone := seen{taken: 0.4, confirm: 1}, seen{taken: 0.1, confirm: 1}, seen{served: true, over: 0.5, confirm: 1}
	for name, c := range map[string]struct {
		periods []seen
		out     string // of each period, whether it is to carry nothing
	}{
		"two periods a little above":     {[]seen{slow, slow, beside}, ".xx"},
		"one, then a good one":           {[]seen{slow, gone, slow, gone}, "...."},
		"one far above":                  {[]seen{slower, beside}, "xx"},
		"nobody keeps to the objective":  {[]seen{{taken: 0.5, served: true, over: 1.4, overloads: true}}, "."},
		"no neighbour":                   {[]seen{{served: true, over: 1.4}}, "."},
		"eased twice":                    {[]seen{slower, eased, beside, eased, eased, beside}, "xxxx.."},
		"again: eased four times":        {[]seen{slower, eased, eased, slower, eased, eased, eased, eased}, "xx.xxxx."},
		"after requests without any":     {[]seen{slower, eased, eased, gone, slower, eased, eased}, "xx..xx."},
		"it serves all the same":         {[]seen{slower, fine, fine}, "xx."},
		"with a confirmation of 0: once": {[]seen{{taken: 0.5, served: true, over: 1.1}}, "x"},
	} {
		var a avoided
		out := ""
		for _, s := range c.periods {
			a = a.next(s)
			out += map[bool]string{true: "x", false: "."}[a.on()]
		}
		if out != c.out {
			t.Errorf("%s: %s, want %s", name, out, c.out)
		}
	}
	a := avoided{Taken: 0.5, Times: 1}
	for range avoidedFor {
		a = a.next(beside)
	}
	if a.on() {
		t.Errorf("it is never tried again: %+v", a)
	}
	for _, times := range []int{-5, 0, 1000} {
		a := avoided{Taken: 0.5, Times: times}
		if a = a.next(eased); !a.on() {
			t.Errorf("it is tried at once: %+v", a)
		}
	}
}
