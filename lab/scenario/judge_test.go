package scenario

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

const ms = time.Millisecond

// judgeOf judges a run of 12 s in windows of 5 s (the last is 2 s long). The objective is a mean of at most 30 ms; an instance counts
// with two requests.
func judgeOf(metric quell.Metric, samples ...Sample) Verdict {
	j := NewJudge(JudgeOptions{
		SLO:      quell.SLO{Metric: metric, Threshold: 30 * ms},
		Duration: 12 * time.Second,
		Judging:  Judging{Window: 5 * time.Second, Requests: 2},
	})
	for _, s := range samples {
		j.Add(s)
	}
	return j.Verdict()
}

// at returns a request that was to be sent at the given second, and took the given time at an instance.
func at(second float64, instance string, latency time.Duration) Sample {
	intended := time.Duration(second * float64(time.Second))
	return Sample{Intended: intended, Finished: intended + latency, Instance: instance, Latency: latency}
}

func failed(second float64) Sample {
	return Sample{Intended: time.Duration(second * float64(time.Second)), Failed: true}
}

func TestViolations(t *testing.T) {
	for name, c := range map[string]struct {
		metric  quell.Metric
		samples []Sample
		want    float64
	}{
		"no request, no violation":  {quell.Mean, nil, 0},
		"at the threshold is kept":  {quell.Mean, []Sample{at(1, "i1", 30*ms), at(2, "i1", 30*ms)}, 0},
		"above the threshold":       {quell.Mean, []Sample{at(1, "i1", 30*ms), at(2, "i1", 31*ms)}, 5},
		"too few requests to count": {quell.Mean, []Sample{at(1, "i1", 900*ms)}, 0},
		"too few at each instance":  {quell.Mean, []Sample{at(1, "i1", 900*ms), at(1, "i2", 900*ms)}, 0},
		"one bad instance among good ones": {quell.Mean, []Sample{
			at(1, "i1", ms), at(1, "i1", ms), at(1, "i1", ms), at(2, "i2", 40*ms), at(3, "i2", 40*ms)}, 5},
		"a window is told by the intended time, not the end": {quell.Mean, []Sample{
			at(4.9, "i1", 2*time.Second), at(4.99, "i1", 2*time.Second), at(6, "i1", ms), at(7, "i1", ms)}, 5},
		"the boundary belongs to the next window": {quell.Mean, []Sample{
			at(4, "i1", ms), at(4, "i1", ms), at(5, "i1", 40*ms), at(5, "i1", 40*ms), at(9, "i1", 40*ms)}, 5},
		"the last window counts its true length": {quell.Mean, []Sample{at(10, "i1", 40*ms), at(11, "i1", 40*ms)}, 2},
		"a failed request makes a violation":     {quell.Mean, []Sample{at(1, "i1", ms), failed(11)}, 2},
		"all windows":                            {quell.Mean, []Sample{failed(0), failed(5), failed(11)}, 12},
		"median of a skewed pair":                {quell.P50, []Sample{at(1, "i1", ms), at(1, "i1", 900*ms)}, 0},
		"tail of a skewed pair":                  {quell.P99, []Sample{at(1, "i1", ms), at(1, "i1", 900*ms)}, 5},
		"after the end is not judged":            {quell.Mean, []Sample{failed(12), at(13, "i1", 40*ms)}, 0},
		"before the start is not judged":         {quell.Mean, []Sample{failed(-1)}, 0},
	} {
		v := judgeOf(c.metric, c.samples...)
		if v.SLO.ViolationS != c.want {
			t.Errorf("%s: violation_s %v, want %v", name, v.SLO.ViolationS, c.want)
		}
		if want := c.want / 12; math.Abs(v.SLO.ViolationShare-want) > 1e-12 {
			t.Errorf("%s: violation_share %v, want %v", name, v.SLO.ViolationShare, want)
		}
	}
}

func TestVerdictCounts(t *testing.T) {
	v := judgeOf(quell.Mean, at(1, "i1", 10*ms), at(2, "i1", 30*ms), at(6, "i2", 20*ms), failed(7), failed(12))
	if v.Requests != 4 || v.Errors != 1 {
		t.Errorf("requests %d, errors %d, want 4 and 1", v.Requests, v.Errors)
	}
	if v.LatencyMS.N != 3 || *v.LatencyMS.Mean != 20 || *v.LatencyMS.P50 != 20 || *v.LatencyMS.P99 != 30 {
		t.Errorf("latency %+v: want 3 requests with mean 20, median 20, p99 30", v.LatencyMS)
	}
	if v.SLO.Metric != quell.Mean || v.SLO.ThresholdMS != 30 {
		t.Errorf("objective %+v", v.SLO)
	}
	want := []Window{
		{Start: 0, Length: 5 * time.Second, MetricMS: map[string]float64{"i1": 20}},
		{Start: 5 * time.Second, Length: 5 * time.Second, Violated: true, Failed: 1, MetricMS: map[string]float64{}},
		{Start: 10 * time.Second, Length: 2 * time.Second, MetricMS: map[string]float64{}},
	}
	if !reflect.DeepEqual(v.Windows, want) {
		t.Errorf("windows %+v, want %+v", v.Windows, want)
	}
}

func TestSummarize(t *testing.T) {
	if got := Summarize(nil); got != (quell.Latency{}) {
		t.Errorf("of nothing: %+v, want nothing", got)
	}
	latencies := make([]time.Duration, 100)
	for i := range latencies {
		latencies[i] = time.Duration(100-i) * ms
	}
	got := Summarize(latencies)
	if *got.Mean != 50.5 || *got.P50 != 50 || *got.P90 != 90 || *got.P95 != 95 || *got.P99 != 99 || got.N != 100 {
		t.Errorf("of 1..100 ms: mean %v p50 %v p90 %v p95 %v p99 %v n %d",
			*got.Mean, *got.P50, *got.P90, *got.P95, *got.P99, got.N)
	}
}

func TestPercentilesByDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 300).Draw(t, "ms")
		latencies := make([]time.Duration, len(values))
		for i, v := range values {
			latencies[i] = time.Duration(v) * ms
		}
		s := Summarize(latencies)
		for percent, got := range map[int]*float64{50: s.P50, 90: s.P90, 95: s.P95, 99: s.P99} {
			within := func(limit float64) (n int) {
				for _, v := range values {
					if float64(v) <= limit {
						n++
					}
				}
				return n
			}
			if 100*within(*got) < percent*len(values) || 100*within(*got-0.5) >= percent*len(values) {
				t.Fatalf("p%d of %v is %v", percent, values, *got)
			}
		}
	})
}

func TestVerdictKnowsNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 0))
		samples := make([]Sample, rapid.IntRange(0, 60).Draw(t, "n"))
		for i := range samples {
			samples[i] = at(12*rng.Float64(), []string{"i1", "i2"}[rng.IntN(2)], time.Duration(rng.IntN(60))*ms)
			samples[i].Failed = rng.IntN(20) == 0
		}
		first := judgeOf(quell.P90, samples...)
		rng.Shuffle(len(samples), func(i, k int) { samples[i], samples[k] = samples[k], samples[i] })
		second := judgeOf(quell.P90, samples...)
		if !reflect.DeepEqual(first.SLO, second.SLO) || first.Requests != second.Requests {
			t.Fatalf("%+v in one order, %+v in another", first, second)
		}
		var sum time.Duration
		for _, w := range first.Windows {
			if w.Violated {
				sum += w.Length
			}
		}
		if first.SLO.ViolationS != sum.Seconds() || first.SLO.ViolationS > 12 || int(first.Requests) != len(samples) {
			t.Fatalf("verdict %+v over %d samples", first, len(samples))
		}
	})
}

func TestReactions(t *testing.T) {
	seconds := func(s ...float64) (out []time.Duration) {
		for _, x := range s {
			out = append(out, time.Duration(x*float64(time.Second)))
		}
		return out
	}
	for name, c := range map[string]struct {
		marks, changes []time.Duration
		want           *Reaction
	}{
		"no marks":                       {nil, seconds(1), nil},
		"no changes":                     {seconds(1), nil, nil},
		"only changes before":            {seconds(5), seconds(1, 4), nil},
		"a change at the mark is none":   {seconds(5), seconds(5), nil},
		"first after the mark":           {seconds(5), seconds(1, 5, 7, 8), &Reaction{Median: 2, Max: 2}},
		"middle of two":                  {seconds(5, 20), seconds(6, 23), &Reaction{Median: 2, Max: 3}},
		"middle of three":                {seconds(0, 10, 20), seconds(1, 12, 29), &Reaction{Median: 2, Max: 9}},
		"one change answers two marks":   {seconds(5, 6), seconds(7), &Reaction{Median: 1.5, Max: 2}},
		"an unanswered mark is left out": {seconds(5, 30), seconds(9), &Reaction{Median: 4, Max: 4}},
	} {
		if got := Reactions(c.marks, c.changes); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestReactionsByDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moments := rapid.Custom(func(t *rapid.T) []time.Duration {
			list := rapid.SliceOfN(rapid.IntRange(0, 40), 0, 6).Draw(t, "s")
			slices.Sort(list)
			out := make([]time.Duration, len(list))
			for i, s := range list {
				out[i] = time.Duration(s) * time.Second
			}
			return out
		})
		marks, changes := moments.Draw(t, "marks"), moments.Draw(t, "changes")
		longest, answered := time.Duration(0), false
		for _, m := range marks {
			if i := slices.IndexFunc(changes, func(c time.Duration) bool { return c > m }); i >= 0 {
				longest, answered = max(longest, changes[i]-m), true
			}
		}
		got := Reactions(marks, changes)
		if answered != (got != nil) || got != nil && (got.Max != longest.Seconds() || got.Median > got.Max || got.Median <= 0) {
			t.Fatalf("reactions %+v for marks %v and changes %v", got, marks, changes)
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	j := NewJudge(JudgeOptions{
		SLO: quell.SLO{Metric: quell.Mean, Threshold: 30 * ms}, Duration: time.Hour, Judging: DefaultJudging(),
	})
	b.ReportAllocs()
	for i := range b.N {
		j.Add(Sample{Intended: time.Duration(i%3600) * time.Second, Instance: "i1", Latency: ms})
	}
}

// Requests over the threshold count in all windows, also in those with too few requests to be judged.
func TestRequestsOver(t *testing.T) {
	j := NewJudge(JudgeOptions{
		SLO: quell.SLO{Metric: quell.Mean, Threshold: 40 * time.Millisecond}, Duration: 10 * time.Second,
		Judging: Judging{Window: time.Second, Requests: 30},
	})
	for _, ms := range []int{10, 40, 41, 900} {
		j.Add(Sample{Intended: time.Second, Instance: "i1", Latency: time.Duration(ms) * time.Millisecond})
	}
	if v := j.Verdict(); v.SLO.RequestsOver != 2 || v.SLO.ViolationS != 0 {
		t.Errorf("%d requests over, %v s of violation, want 2 and none", v.SLO.RequestsOver, v.SLO.ViolationS)
	}
	j.Add(Sample{Intended: 5 * time.Second, Failed: true})
	if v := j.Verdict(); v.SLO.RequestsOver != 3 {
		t.Errorf("%d requests over, want 3: one failed", v.SLO.RequestsOver)
	}
}
