package route

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

func rng() *rand.Rand { return rand.New(rand.NewPCG(5, 0)) }

func ms(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }

func TestPeakJumpsUpAndComesDownSlowly(t *testing.T) {
	var p peak
	p.add(0, 0.010)
	p.add(time.Second, 0.100)
	if p.value(time.Second) != 0.100 {
		t.Fatalf("after a slow answer %v s", p.value(time.Second))
	}
	if got, want := p.value(time.Second+ewmaDecay), 0.1/math.E; math.Abs(got-want) > 1e-12 {
		t.Errorf("after a decay %v s, want %v", got, want)
	}
	p.add(time.Second+ewmaDecay, 0.010)
	if got, want := p.value(time.Second+ewmaDecay), 0.1/math.E+0.01*(1-1/math.E); math.Abs(got-want) > 1e-12 {
		t.Errorf("after a quick answer %v s, want %v", got, want)
	}
}

// Ten seconds after a slow answer the peak has decayed to 1/e, with and without newer answers.
func TestEWMAForgetsInTenSeconds(t *testing.T) {
	var p peak
	p.add(0, 0.1)
	for at, want := range map[time.Duration]float64{0: 0.1, 5 * time.Second: 0.1 * 0.60653, 10 * time.Second: 0.1 * 0.36788,
		30 * time.Second: 0.1 * 0.049787} {
		if got := p.value(at); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v after an answer of 0.1 s: %v s, want %v", at, got, want)
		}
	}
	p.add(10*time.Second, 0.02)
	if got, want := p.value(10*time.Second), 0.1*0.36788+0.02*0.63212; math.Abs(got-want) > 1e-6 {
		t.Errorf("a quick answer after 10 s: %v s, want %v", got, want)
	}
	for at, want := range map[time.Duration]int{6 * time.Second: 1, 8 * time.Second: 0} { // 0.1 s falls below 0.05 s after 6.93 s
		candidates := group(1, 1)
		e := newEWMA(rng())
		e.Done(candidates[0], Answer{Took: ms(100)})
		e.Advance(at)
		e.Done(candidates[1], Answer{Took: ms(50)})
		for range 20 {
			if i, _ := e.Pick(candidates); i != want {
				t.Fatalf("%v after an answer of 100 ms beside one of 50 ms it picks %d", at, i)
			}
		}
	}
}

func TestEWMAGoesByLatencyInFlightAndWeight(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(a, b *Candidate)
		want   int
	}{
		"the quicker one":               {func(a, b *Candidate) { a.peak, b.peak = peak{seconds: 0.2}, peak{seconds: 0.1} }, 1},
		"the idle one":                  {func(a, b *Candidate) { a.InFlight = 3 }, 1},
		"three times as slow, but idle": {func(a, b *Candidate) { a.peak.seconds, b.InFlight = 0.3, 3 }, 0},
		"the heavier one":               {func(a, b *Candidate) { a.Weight, b.Weight = 1, 3 }, 1},
		"nothing known, nothing open":   {func(a, b *Candidate) { b.peak = peak{} }, 1},
		"nothing known, one open":       {func(a, b *Candidate) { b.peak, b.InFlight = peak{}, 1 }, 0},
	} {
		candidates := group(1, 1)
		candidates[0].peak, candidates[1].peak = peak{seconds: 0.1}, peak{seconds: 0.1}
		tc.change(candidates[0], candidates[1])
		x := newIndexedEWMA(rng())
		x.Reset(candidates)
		e := newEWMA(rng())
		for range 20 {
			if i, _ := e.Pick(candidates); i != tc.want {
				t.Fatalf("%s: picked %d", name, i)
			}
			if i, _ := x.Pick(); i != tc.want {
				t.Fatalf("%s: the index picked %d", name, i)
			}
		}
	}
}

// The second candidate drawn is never the same as the first. Both are drawn in proportion to their weights, whether or not sums of weights
// are given.
func TestEWMADrawsTwoDifferentOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.SampledFrom([]float64{0, 0.1, 1, 2.5}), 2, 30).Draw(t, "weights")
		candidates := group(weights...)
		pickable := 0
		for _, w := range weights {
			if w > 0 {
				pickable++
			}
		}
		x := newIndexedEWMA(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		x.Reset(candidates)
		for range 50 {
			if !x.any() {
				return
			}
			first := x.draw()
			indexed, linear := x.drawBeside(first), draw(x.EWMA.rng, candidates, totalWeight(candidates)-weights[first], first)
			if pickable > 1 && (indexed == first || linear == first || weights[indexed] == 0 || weights[linear] == 0) {
				t.Fatalf("beside %d of %v: %d by sums, %d by a look at all", first, weights, indexed, linear)
			}
			if pickable == 1 && (indexed != first || linear != -1) {
				t.Fatalf("beside the only one: %d and %d", indexed, linear)
			}
		}
	})
}

// learned plays requests one at a time on instances with given latencies, some of which fail, and returns the shares.
func learned(t *testing.T, s quell.Scheduling, latencies []time.Duration, failing map[int]bool) []float64 {
	t.Helper()
	p := mustNew(t, s, 3)
	candidates := group(make([]float64, len(latencies))...)
	for _, c := range candidates {
		c.Weight = 1
	}
	now, shares := time.Duration(0), make([]float64, len(latencies))
	const n = 3000
	for range n {
		p.(Learner).Advance(now)
		i, ok := p.Pick(candidates)
		if !ok {
			t.Fatal("nothing picked")
		}
		shares[i] += 1.0 / n
		now += latencies[i]
		p.(Learner).Advance(now)
		p.(Learner).Done(candidates[i], Answer{Took: latencies[i], Failed: failing[i]})
	}
	return shares
}

func TestLearnersLeaveTheSlowAndTheFailing(t *testing.T) {
	for _, s := range []quell.Scheduling{quell.EWMA, quell.LeastTime, quell.Prequal} {
		slow := learned(t, s, []time.Duration{ms(10), ms(10), ms(100), ms(10), ms(10), ms(10)}, nil)
		if slow[2] > 0.04 || slow[2] == 0 {
			t.Errorf("%s: ten times as slow, and it gets %.3f of the requests", s, slow[2])
		}
		fails := learned(t, s, []time.Duration{ms(10), ms(10), ms(0.1), ms(10), ms(10), ms(10)}, map[int]bool{2: true})
		if fails[2] > 0.07 {
			t.Errorf("%s: it fails fast, and gets %.3f of the requests", s, fails[2])
		}
	}
}

func TestPrequalGoesByHotAndCold(t *testing.T) {
	for name, tc := range map[string]struct {
		inFlight []int64
		seconds  []float64
		want     int
		worst    int
	}{
		"all cold: least latency":         {[]int64{2, 1, 3}, []float64{0.1, 0.3, 0.05}, 2, 1},
		"a hot one is left":               {[]int64{2, 1, 9}, []float64{0.1, 0.3, 0.05}, 0, 2},
		"all hot: fewest in flight":       {[]int64{8, 7, 9}, []float64{0.1, 0.3, 0.05}, 1, 2},
		"equal latency: fewest open":      {[]int64{2, 1, 3}, []float64{0.1, 0.1, 0.1}, 1, 2},
		"nothing known counts as quick":   {[]int64{2, 1, 3}, []float64{0.1, 0.2, 0}, 2, 1},
		"on the quantile is not above it": {[]int64{5, 1, 6}, []float64{0.1, 0.2, 0}, 0, 2},
	} {
		const hot = 5
		best, worst := probe{inFlight: tc.inFlight[0], seconds: tc.seconds[0]}, 0
		bestIndex := 0
		for i := range tc.inFlight {
			e := probe{inFlight: tc.inFlight[i], seconds: tc.seconds[i]}
			if e.goesBefore(&best, hot) {
				best, bestIndex = e, i
			}
			w := probe{inFlight: tc.inFlight[worst], seconds: tc.seconds[worst]}
			if e.worseThan(&w, hot) {
				worst = i
			}
		}
		if bestIndex != tc.want || worst != tc.worst {
			t.Errorf("%s: best %d, worst %d; want %d, %d", name, bestIndex, worst, tc.want, tc.worst)
		}
	}
}

func TestPrequalsPoolKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "instances")
		candidates := group(make([]float64, n)...)
		for _, c := range candidates {
			c.Weight = rapid.SampledFrom([]float64{0, 1, 1, 5}).Draw(t, "weight")
		}
		p := newPrequal(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += ms(rapid.SampledFrom([]float64{0, 0.5, 20, 1500}).Draw(t, "gap"))
			p.Advance(now)
			from := rapid.IntRange(0, n-1).Draw(t, "healthy from")
			among := candidates[from:]
			i, ok := p.Pick(among)
			if ok != (totalWeight(among) > 0) || ok && among[i].Weight == 0 {
				t.Fatalf("picked %d, %v among weights of %v", i, ok, totalWeight(among))
			}
			if ok {
				among[i].InFlight++
				p.Done(among[i], Answer{Took: ms(5), InFlight: among[i].InFlight})
			}
			seen := map[*Candidate]bool{}
			for k, e := range p.pool {
				if seen[e.candidate] || e.uses == 0 || now-e.at > probeAge {
					t.Fatalf("entry %d of %+v", k, p.pool)
				}
				seen[e.candidate] = true
			}
			if len(p.pool) > poolSize || len(p.pool) > n {
				t.Fatalf("%d probes in the pool", len(p.pool))
			}
		}
	})
}

// When a probe is used, its number of requests in flight rises by the new request. So two equal candidates are used in turns,
// and when one reaches the quantile, a slower one is picked.
func TestPrequalCountsWhatItSendsInUsedProbes(t *testing.T) {
	candidates := group(1, 1)
	pooled := func(seconds ...float64) *Prequal {
		p := newPrequal(rng())
		for i, s := range seconds {
			p.pool = append(p.pool, probe{candidate: candidates[i], number: uint64(i), index: int32(i), seconds: s, uses: -1})
		}
		return p
	}
	picks := func(p *Prequal, n int) (got []int) {
		for range n {
			i, ok := p.fromPool(candidates)
			if !ok {
				t.Fatal("nothing picked")
			}
			got = append(got, i)
		}
		return got
	}
	if got := picks(pooled(0.1, 0.1), 6); !slices.Equal(got, []int{0, 1, 0, 1, 0, 1}) {
		t.Errorf("two alike are picked as %v", got)
	}
	p := pooled(0.1, 0.2)
	p.seen.add(2) // a candidate with more than 2 requests in flight is hot
	if got := picks(p, 8); !slices.Equal(got, []int{0, 0, 0, 1, 1, 1, 0, 1}) {
		t.Errorf("a quick and a slow one are picked as %v", got)
	}
}

func TestPrequalReusesProbesAsThePaperSays(t *testing.T) {
	p := newPrequal(rng())
	if uses := p.uses(10); uses != -1 {
		t.Errorf("in a group of 10 a probe may be used %d times, want as often as it lasts", uses)
	}
	sum := int32(0)
	for range 10_000 {
		sum += p.uses(40)
	}
	// b_reuse = (1 + 1) / ((1 - 16/40) * 3 - 1) = 2.5
	if mean := float64(sum) / 10_000; math.Abs(mean-2.5) > 0.05 {
		t.Errorf("in a group of 40 a probe may be used %v times on average, want 2.5", mean)
	}
}

func TestExpectedIsTheMedianNearTheSameNumberInFlight(t *testing.T) {
	var a answers
	if got := a.expected(0, 3); got != 0 {
		t.Errorf("of nothing it expects %v", got)
	}
	for i, seconds := range []float64{0.3, 0.1, 0.2} {
		a.add(time.Duration(i), 2, seconds)
	}
	a.add(4, 9, 5)
	if got := a.expected(5, 3); got != 0.2 {
		t.Errorf("at 3 in flight %v s, want the median of those at 2", got)
	}
	if got := a.expected(5, 8); got != 5 {
		t.Errorf("at 8 in flight %v s, want that at 9", got)
	}
	if got := a.expected(answersRelevant+10, 3); got != 0 {
		t.Errorf("of what is too old it expects %v s", got)
	}
	for range answersKept {
		a.add(6, 50, 7)
	}
	if got := a.expected(6, 2); got != 7 {
		t.Errorf("after many others it expects %v s", got)
	}
}

// A lookup in the sorted answers gives the same result as a search through all answers.
func TestAnswersAndWindowAgreeWithALookAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a answers
		var w inFlightWindow
		var all []datedAnswer
		now := time.Duration(0)
		for range rapid.IntRange(1, 300).Draw(t, "answers") {
			now += ms(rapid.SampledFrom([]float64{0, 5, 3000}).Draw(t, "gap"))
			x := answer{rapid.Int64Range(0, 12).Draw(t, "in flight"), float64(rapid.IntRange(1, 9).Draw(t, "seconds"))}
			all = append(all, datedAnswer{x, now})
			a.add(now, x.inFlight, x.seconds)
			w.add(x.inFlight)
			at := rapid.Int64Range(0, 14).Draw(t, "asked for")
			if got, want := a.expected(now, at), expectedOf(all, now, at); got != want {
				t.Fatalf("at %d in flight %v s, want %v, of %v", at, got, want, all)
			}
			var newest []int64
			for _, k := range all[max(0, len(all)-inFlightsKept):] {
				newest = append(newest, k.inFlight)
			}
			slices.Sort(newest)
			if got, want := w.quantile(), newest[int(math.Ceil(hotQuantile*float64(len(newest))))-1]; got != want {
				t.Fatalf("0.84 quantile %d, want %d, of %v", got, want, newest)
			}
		}
	})
}

// expectedOf computes answers.expected directly by its definition.
func expectedOf(all []datedAnswer, now time.Duration, inFlight int64) float64 {
	near, nearest := []float64{}, int64(math.MaxInt64)
	for _, k := range all[max(0, len(all)-answersKept):] {
		distance := max(k.inFlight-inFlight, inFlight-k.inFlight)
		if now-k.at > answersRelevant || distance > nearest {
			continue
		}
		if distance < nearest {
			near, nearest = near[:0], distance
		}
		near = append(near, k.seconds)
	}
	slices.Sort(near)
	return near[len(near)/2]
}

func TestHotIsAboveTheQuantileOfTheNewest(t *testing.T) {
	var w inFlightWindow
	if w.quantile() != math.MaxInt64 {
		t.Error("before any probe something is hot")
	}
	for i := range int64(1000) {
		w.add(i % 100)
	}
	for i := range int64(100) {
		w.add(i)
	}
	for range inFlightsKept - 100 {
		w.add(1000)
	}
	// 28 of 128 are 1000: the 108th smallest is one of these.
	if got := w.quantile(); got != 1000 {
		t.Errorf("0.84 quantile %d, want 1000", got)
	}
	for i := range int64(inFlightsKept) {
		w.add(i)
	}
	if got := w.quantile(); got != 107 { // the 108th smallest of 0 to 127
		t.Errorf("0.84 quantile %d, want 107", got)
	}
}

func TestLearnersAreReproducible(t *testing.T) {
	for _, s := range []quell.Scheduling{quell.EWMA, quell.LeastTime, quell.Prequal} {
		latencies := []time.Duration{ms(10), ms(30), ms(20), ms(10)}
		first, again := learned(t, s, latencies, nil), learned(t, s, latencies, nil)
		for i := range first {
			if first[i] != again[i] {
				t.Errorf("%s: one seed gave %v and %v", s, first, again)
			}
		}
	}
}
