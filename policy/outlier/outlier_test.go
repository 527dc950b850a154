package outlier

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/bands"
)

// flock is a group behind a balancer that reports once a second, for tests of fast policies.
type flock struct {
	t       *testing.T
	fast    *policy.Fast
	st      policy.State
	now     time.Time
	Windows []shown
	byHand  map[int]float64 // weights that a person set, by position
}

// shown is the measurements of an instance in one second.
type shown struct {
	ms, open, errors float64
	shed, limited    float64 // refused with 503 or 429, and of those with 429
	n                int
}

func newFlock(t *testing.T, n int, change func(*Settings)) *flock {
	t.Helper()
	set := Spec.Defaults
	change(&set)
	s := guarding("static", func(s *quell.Service) {
		s.Policy.Fast = quell.Fast{Name: "outlier", Settings: set, Sampling: time.Second}
		s.SLO.Threshold = 50 * time.Millisecond
	})
	fast, err := all.NewFast(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &flock{t: t, fast: fast, now: start, Windows: make([]shown, n)}
	c.calm()
	return c
}

// calm makes every instance answer 50 requests a second in 20 ms.
func (c *flock) calm() {
	for i := range c.Windows {
		c.Windows[i] = shown{ms: 20, open: 1, n: 50}
	}
}

// Second plays one second, and returns the policy's plan.
func (c *flock) Second() quell.Plan {
	c.t.Helper()
	c.now = c.now.Add(time.Second)
	s := &quell.Snapshot{At: c.now, Service: "video"}
	for i, w := range c.Windows {
		rate, weight, failed := 50.0, 1/float64(len(c.Windows)), w.errors
		o := &quell.Observation{At: c.now, WindowS: 1, RequestRate: &rate, InFlight: &w.open, ErrorRate: &failed}
		if w.shed > 0 {
			o.ShedRate, o.LimitedRate = &w.shed, &w.limited
		}
		if w.n > 0 {
			o.LatencyMS = &quell.Latency{Mean: &w.ms, N: w.n}
		}
		in := quell.Instance{ID: fmt.Sprintf("i%d", i+1), State: quell.Ready, Weight: &weight, Observation: o}
		if share, set := c.byHand[i]; set {
			in.Override = &share
		}
		s.Instances = append(s.Instances, in)
	}
	if err := s.Validate(); err != nil {
		c.t.Fatal(err)
	}
	before, _ := json.Marshal(c.st)
	plan, st := c.fast.Decide(s, c.st)
	if after, _ := json.Marshal(c.st); string(after) != string(before) {
		c.t.Fatalf("the memory handed in was changed from %s to %s", before, after)
	}
	c.st = reread(c.t, st)
	return plan
}

// after plays seconds until an instance is cut, at most the given number.
func (c *flock) after(most int) (seconds int, plan quell.Plan) {
	c.t.Helper()
	for seconds = 1; seconds <= most; seconds++ {
		if plan = c.Second(); len(plan.Factor) > 0 {
			return seconds, plan
		}
	}
	return 0, plan
}

func TestOutlierCuts(t *testing.T) {
	for name, tc := range map[string]struct {
		n       int
		change  func(windows []shown)
		settle  func(*Settings)
		seconds int     // seconds until the first cut; 0: no cut
		cut     string  // the instance that is cut
		leaves  float64 // the part of its share that the first cut leaves
	}{
		"slow in a way that leaves no doubt": {5, func(w []shown) { w[1].ms = 400 }, nil, 1, "i2", 0.1},
		"slow":                               {5, func(w []shown) { w[1].ms = 60 }, nil, 2, "i2", 1. / 3},
		"slow, and one request failed":       {5, func(w []shown) { w[1].ms, w[1].errors = 60, .02 }, nil, 2, "i2", 1. / 3},
		"slow, and within the objective":     {5, func(w []shown) { w[1].ms = 49 }, nil, 0, "", 0},
		"not slower than it may be":          {5, func(w []shown) { w[1].ms = 60 }, func(s *Settings) { s.Slower = 4 }, 0, "", 0},
		"all are slow":                       {5, func(w []shown) { each(w, func(w *shown) { w.ms = 400 }) }, nil, 0, "", 0},
		"alone":                              {1, func(w []shown) { w[0].ms = 400 }, nil, 0, "", 0},
		"one of two":                         {2, func(w []shown) { w[0].ms = 400 }, nil, 1, "i1", 0.1},
		"one of two fails":                   {2, func(w []shown) { w[0].errors = .5 }, nil, 1, "i1", 0},
		"nearly everything fails":            {5, func(w []shown) { w[4] = shown{errors: 1, open: 1} }, nil, 1, "i5", 0},
		"a tenth fails":                      {5, func(w []shown) { w[4].errors = .1 }, nil, 2, "i5", 0},
		"half is refused (503)":              {5, func(w []shown) { w[4].shed = .5 }, nil, 1, "i5", 0},
		"clients of one ask too often (429)": {5, func(w []shown) { w[4].shed, w[4].limited = .5, .5 }, nil, 0, "", 0},
		"both, and few with 503":             {5, func(w []shown) { w[4].shed, w[4].limited = .5, .48 }, nil, 0, "", 0},
		"as many fail everywhere":            {5, func(w []shown) { each(w, func(w *shown) { w.errors = .3 }) }, nil, 0, "", 0},
		"one request failed":                 {5, func(w []shown) { w[2].errors = .02 }, nil, 0, "", 0},
		"stuck: nothing finishes":            {5, func(w []shown) { w[3] = shown{open: 20} }, nil, 1, "i4", 0.1},
		"few requests take longer to tell":   {5, func(w []shown) { w[3] = shown{ms: 400, n: 2, open: 1} }, nil, 3, "i4", 0.1},
		"too few requests to tell": {5, func(w []shown) { w[3] = shown{ms: 400, n: 1, open: 1} },
			func(s *Settings) { s.Requests = 6 }, 0, "", 0},
		"three of ten, of which three may be": {10, func(w []shown) { each(w[:3], func(w *shown) { w.ms = 400 }) }, nil, 1, "i1 i2 i3", 0.1},
		"four of ten, of which three may be": {10, func(w []shown) { each(w[:4], func(w *shown) { w.ms = 400 }); w[3].ms = 900 }, nil, 1,
			"i1 i2 i4", 0.1},
		"an error comes before a slow answer":  {3, func(w []shown) { w[0].ms, w[1].errors = 900, .5 }, nil, 1, "i2", 0},
		"the other shows nothing just now":     {2, func(w []shown) { w[0], w[1] = shown{ms: 400, n: 50}, shown{} }, nil, 1, "i1", 0.1},
		"one with times too short to measure":  {1, func(w []shown) { w[0].ms = 0 }, nil, 0, "", 0},
		"all with such times":                  {3, func(w []shown) { each(w, func(w *shown) { w.ms = 0 }) }, nil, 0, "", 0},
		"the others answer with errors at all": {2, func(w []shown) { w[0], w[1] = shown{ms: 20, n: 50}, shown{errors: 1} }, nil, 1, "i2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.settle == nil {
				tc.settle = func(*Settings) {}
			}
			c := newFlock(t, tc.n, tc.settle)
			for range 2 * bands.Known {
				if plan := c.Second(); len(plan.Factor) > 0 {
					t.Fatalf("calm, and %v", plan.Reasons)
				}
			}
			tc.change(c.Windows)
			seconds, plan := c.after(10)
			var ids []string
			for id, f := range plan.Factor {
				if ids = append(ids, id); id == strings.Fields(tc.cut)[0] && math.Abs(f.Value-tc.leaves) > 1e-9 {
					t.Errorf("%s keeps %g, want %g", id, f.Value, tc.leaves)
				}
				if !hasReason(plan, "outlier", id) {
					t.Errorf("no reason for %s in %v", id, plan.Reasons)
				}
			}
			slices.Sort(ids)
			if got := strings.Join(ids, " "); seconds != tc.seconds || got != tc.cut {
				t.Errorf("after %d s: %q, want %q after %d s; %v", seconds, got, tc.cut, tc.seconds, plan.Reasons)
			}
		})
	}
}

// An instance that was slow, and then has no requests for a while, is not cut again because of what it showed before.
func TestOutlierDoesNotCutForOldWindows(t *testing.T) {
	silence := func(c *flock, seconds int) (last quell.Plan) {
		each(c.Windows, func(w *shown) { *w = shown{} })
		for range seconds {
			last = c.Second()
		}
		return last
	}
	slow := func() *flock {
		c := newFlock(t, 5, func(*Settings) {})
		for range 2 * bands.Known {
			c.Second()
		}
		c.Windows[1].ms = 60
		return c
	}
	c := slow()
	if seconds, _ := c.after(2); seconds != 2 {
		t.Fatalf("cut after %d s, want 2", seconds)
	}
	for at := range 120 {
		if plan := silence(c, 1); at > 60 && len(plan.Factor) > 0 {
			t.Fatalf("cut in silence, second %d: %v", at, plan.Reasons)
		}
	}

	c = slow()
	c.Second() // out of its band once
	silence(c, 6)
	c.calm()
	c.Windows[1].ms = 60
	if seconds, _ := c.after(3); seconds != 2 {
		t.Errorf("after a silence it is cut after %d s, want 2: a window of before counts", seconds)
	}
}

// An instance whose weight a person set keeps it. It does not take the place of another one that may be cut.
func TestOutlierLeavesWeightsThatWereSet(t *testing.T) {
	c := newFlock(t, 10, func(s *Settings) { s.Most = 0.1 })
	c.Windows[0].errors = 1
	if seconds, plan := c.after(3); seconds != 1 || plan.Factor["i1"].Value != 0 {
		t.Fatalf("i1 fails everything, and after %d s %v", seconds, plan.Factor)
	}
	c.byHand = map[int]float64{0: 0.1}
	c.Windows[1].errors = 1
	_, plan := c.after(3)
	if _, cut := plan.Factor["i2"]; !cut || len(plan.Factor) != 1 || hasReason(plan, "outlier", "i1") {
		t.Errorf("i2 fails everything, i1 has a weight that was set, and the cuts are %v: %v", plan.Factor, plan.Reasons)
	}
	c.byHand = nil
	c.Windows[1].errors = 0
	for range 300 {
		plan = c.Second()
	}
	if f, cut := plan.Factor["i1"]; !cut || f.Value > 0.2 || !hasReason(plan, "outlier", "i1") {
		t.Errorf("i1 still fails everything, and its weight is no longer set: %v, %v", plan.Factor, plan.Reasons)
	}
}

// When the clock is set back, windows still count, cuts end in time, and what came before does not make the next cut longer.
func TestOutlierWhenTheClockIsSetBack(t *testing.T) {
	c := newFlock(t, 5, func(*Settings) {})
	for range 30 {
		c.Second()
	}
	c.Windows[1].ms = 400
	c.Second()
	c.calm()
	c.now = c.now.Add(-24 * time.Hour)
	for range 30 {
		c.Second()
	}
	if plan := c.Second(); len(plan.Factor) > 0 {
		t.Errorf("half a minute after the clock was set back: %v", plan.Reasons)
	}
	c.now = c.now.Add(-24 * time.Hour)
	c.Windows[1].ms = 400
	if seconds, _ := c.after(10); seconds != 1 {
		t.Errorf("cut %d s after the clock was set back, want 1", seconds)
	}
	c.calm()
	for range 12 {
		c.Second()
	}
	if left := c.Second().Factor["i2"].Value; left <= bands.DeepestCut {
		t.Errorf("12 s after a first cut %g of the share is left: it counts as repeated", left)
	}
}

func each(windows []shown, change func(*shown)) {
	for i := range windows {
		change(&windows[i])
	}
}

// When the time of a cut is over, the share comes back by doubling. An instance that is slow again loses it for longer.
func TestOutlierLetsSharesGrowAgain(t *testing.T) {
	c := newFlock(t, 4, func(*Settings) {})
	left := func(seconds int) (trace []float64) {
		for range seconds {
			f, ok := c.Second().Factor["i1"]
			if !ok {
				f.Value = 1
			}
			if left := math.Round(100*f.Value) / 100; len(trace) == 0 || trace[len(trace)-1] != left {
				trace = append(trace, left)
			}
		}
		return trace
	}
	left(30)
	c.Windows[0].ms = 400
	left(1)
	c.calm()
	if got := left(30); !slices.Equal(got, []float64{.1, .2, .4, .8, 1}) {
		t.Errorf("the share comes back as %v", got)
	}
	c.Windows[0].ms = 400
	left(1)
	c.calm()
	if got := left(19); !slices.Equal(got, []float64{.1}) {
		t.Errorf("the second cut within a short time lasts no longer than the first: %v", got)
	}
	if got := left(20); got[len(got)-1] != 1 {
		t.Errorf("the share comes back as %v", got)
	}
	left(100)
	c.Windows[0].ms = 400
	left(1)
	c.calm()
	if got := left(12); !slices.Equal(got, []float64{.1, .2}) {
		t.Errorf("a cut after a long calm lasts longer than the first: %v", got)
	}
}

// An instance that fails all requests gets no more requests, except in attempts whose intervals grow. Once it answers again, its share
// comes back.
func TestOutlierTriesWhatFailsEverLess(t *testing.T) {
	c := newFlock(t, 4, func(*Settings) {})
	var left float64
	second := func() {
		left = 1
		if f, ok := c.Second().Factor["i1"]; ok {
			left = f.Value
		}
		if c.calm(); left > 0 {
			c.Windows[0] = shown{errors: 1, open: 1}
		} else {
			c.Windows[0] = shown{}
		}
	}
	for range 30 {
		c.Second()
	}
	c.Windows[0] = shown{errors: 1, open: 1}
	var tries []int
	for at := range 240 {
		before := left
		if second(); left > 0 && before == 0 && at > 0 {
			tries = append(tries, at)
		}
	}
	if want := []int{30, 91, 212}; !slices.Equal(tries, want) {
		t.Errorf("tried at %v s, want %v", tries, want)
	}
	c.calm()
	for range 300 {
		plan := c.Second()
		c.calm()
		if left = 1; len(plan.Factor) > 0 {
			left = plan.Factor["i1"].Value
		}
	}
	if left != 1 {
		t.Errorf("it answers again, and keeps %g of its share", left)
	}
}

// In an hour without faults nothing is cut, although the load, and with it response times, vary threefold. Response times also vary by
// chance, like means of 10 to 150 requests.
func TestOutlierIsCalmInCalm(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newFlock(t, 8, func(*Settings) {})
		for second := range 3600 {
			load := 2 + math.Sin(float64(second)/300)
			for i := range c.Windows {
				n := int(50*load*(0.8+0.4*rng.Float64())) / 4
				c.Windows[i] = shown{ms: meanOf(rng, n, 18*load), open: 1, n: n, errors: float64(chance(rng, n, 0.002)) / float64(n)}
			}
			if plan := c.Second(); len(plan.Factor) > 0 {
				t.Fatalf("seed %d, second %d: %v", seed, second, plan.Reasons)
			}
		}
	}
}

// meanOf is the mean of n exponential response times.
func meanOf(rng *rand.Rand, n int, mean float64) (sum float64) {
	for range n {
		sum += mean * rng.ExpFloat64()
	}
	return sum / float64(n)
}

// chance is how many of n requests fail.
func chance(rng *rand.Rand, n int, p float64) (failed int) {
	for range n {
		if rng.Float64() < p {
			failed++
		}
	}
	return failed
}

func TestMedianOfOthers(t *testing.T) {
	for _, tc := range []struct {
		list  []float64
		value float64
		among bool
		want  float64
	}{
		{nil, 1, false, 0}, {[]float64{1}, 1, true, 0}, {[]float64{1}, 5, false, 1}, {[]float64{1, 2}, 1, true, 2},
		{[]float64{1, 2, 9}, 9, true, 1.5}, {[]float64{1, 2, 9}, 1, true, 5.5}, {[]float64{1, 2, 9, 9}, 9, true, 2},
		{[]float64{1, 2, 9, 9}, 5, false, 5.5},
	} {
		if got := bands.MedianOfOthers(tc.list, tc.value, tc.among); got != tc.want {
			t.Errorf("%v without %g (%v): %g, want %g", tc.list, tc.value, tc.among, got, tc.want)
		}
	}
}

// Outlier detection never ejects all hosts, nor nearly all. (envoyproxy/envoy#2671, istio/istio#20135)
func TestNotAllAreOutliers(t *testing.T) {
	for why, change := range map[string]func([]shown){
		"all are slow":        func(w []shown) { each(w, func(s *shown) { s.ms = 900 }) },
		"all but one is slow": func(w []shown) { each(w[1:], func(s *shown) { s.ms = 900 }) },
		"all fail":            func(w []shown) { each(w, func(s *shown) { s.errors = 1 }) },
		"all but one fail":    func(w []shown) { each(w[1:], func(s *shown) { s.errors = 1 }) },
		"half fail":           func(w []shown) { each(w[5:], func(s *shown) { s.errors = 0.5 }) },
	} {
		c := newFlock(t, 10, func(*Settings) {})
		for range 30 {
			c.Second()
		}
		change(c.Windows)
		for range 120 {
			plan := c.Second()
			if len(plan.Factor) > 3 { // outlier.most is 0.3
				t.Fatalf("%s: %d of 10 are cut: %v", why, len(plan.Factor), plan.Reasons)
			}
			if slices.Contains([]string{"all are slow", "all fail"}, why) && len(plan.Factor) > 0 {
				t.Fatalf("%s: cut %+v: %v", why, plan.Factor, plan.Reasons)
			}
		}
	}
}
