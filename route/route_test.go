package route

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

func group(weights ...float64) []*Candidate {
	candidates := make([]*Candidate, len(weights))
	for i, w := range weights {
		candidates[i] = &Candidate{Weight: w}
	}
	return candidates
}

func picks(t *testing.T, p Picker, candidates []*Candidate, n int) []int {
	t.Helper()
	order := make([]int, n)
	for k := range order {
		i, ok := p.Pick(candidates)
		if !ok {
			t.Fatalf("pick %d: nothing picked", k)
		}
		order[k] = i
	}
	return order
}

func counts(order []int, n int) []int {
	c := make([]int, n)
	for _, i := range order {
		c[i]++
	}
	return c
}

func TestEverySchedulingHasAPicker(t *testing.T) {
	for _, s := range quell.Schedulings {
		p, err := New(s, 1)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if i, ok := p.Pick(group(0, 1)); !ok || i != 1 {
			t.Errorf("%s: picked %d, %v; want 1, true", s, i, ok)
		}
	}
	if _, err := New("fastest", 1); err == nil || !strings.Contains(err.Error(), "roundrobin") {
		t.Errorf("unknown scheduling: error %v does not list the known ones", err)
	}
}

func TestNothingToPick(t *testing.T) {
	for _, s := range quell.Schedulings {
		p, _ := New(s, 1)
		for name, candidates := range map[string][]*Candidate{
			"no candidates": nil,
			"weight 0":      group(0, 0),
			"not weights":   group(math.NaN(), math.Inf(1), -1),
		} {
			if i, ok := p.Pick(candidates); ok {
				t.Errorf("%s, %s: picked %d", s, name, i)
			}
		}
	}
}

func TestWeightZeroIsNeverPicked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(quell.Schedulings).Draw(t, "scheduling")
		p, _ := New(s, rapid.Uint64().Draw(t, "seed"))
		candidates := group(1)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				candidates = append(candidates, &Candidate{Weight: rapid.SampledFrom([]float64{0, 0.1, 1, 7}).Draw(t, "new")})
			case 1:
				i := rapid.IntRange(0, len(candidates)-1).Draw(t, "changed")
				candidates[i].Weight = rapid.SampledFrom([]float64{0, 1e-9, 0.5, 1e9}).Draw(t, "weight")
			case 2:
				i := rapid.IntRange(0, len(candidates)-1).Draw(t, "answered")
				candidates[i].InFlight = 0
			}
			i, ok := p.Pick(candidates)
			if ok != (totalWeight(candidates) > 0) {
				t.Fatalf("ok %v with a total weight of %v", ok, totalWeight(candidates))
			}
			if ok && candidates[i].Weight == 0 {
				t.Fatalf("picked %d, which has weight 0", i)
			}
			if ok {
				candidates[i].InFlight++
			}
		}
	})
}

func TestRoundRobinInterleaves(t *testing.T) {
	order := picks(t, newRoundRobin(), group(5, 1, 1), 7)
	want := []int{0, 0, 1, 0, 2, 0, 0}
	for k := range want {
		if order[k] != want[k] {
			t.Fatalf("order %v, want %v", order, want)
		}
	}
}

func TestRoundRobinIsExactOverEveryCycle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		integers := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 30).Draw(t, "weights")
		scale := rapid.SampledFrom([]float64{1, 0.1, 1.0 / 3, 1e-6}).Draw(t, "scale")
		cycle, candidates := 0, group(make([]float64, len(integers))...)
		for i, w := range integers {
			cycle += w
			candidates[i].Weight = float64(w) * scale
		}
		p := newRoundRobin()
		for range 3 {
			got := make([]int, len(integers))
			for range cycle {
				i, _ := p.Pick(candidates)
				got[i]++
			}
			for i := range got {
				if got[i] != integers[i] {
					t.Fatalf("weights %v were picked %v times in a cycle", integers, got)
				}
			}
		}
	})
}

// However weights and membership change, no candidate gets more than one request more than it earned, nor fewer by
// more than the logarithm of the group's size (the bound of always serving the largest credit).
func TestRoundRobinStaysSmoothWhileWeightsChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates := group(rapid.SliceOfN(rapid.Float64Range(0.01, 100), 2, 12).Draw(t, "weights")...)
		n := len(candidates)
		earned, got := make([]float64, n), make([]float64, n)
		p := newRoundRobin()
		for range 20 {
			changed := rapid.IntRange(0, n-1).Draw(t, "changed")
			candidates[changed].Weight = rapid.SampledFrom([]float64{1e-6, 0.3, 1, 40, 1e6}).Draw(t, "weight")
			for range rapid.IntRange(1, 25).Draw(t, "requests") {
				total := totalWeight(candidates)
				for i, c := range candidates {
					earned[i] += c.Weight / total
				}
				i, _ := p.Pick(candidates)
				got[i]++
			}
			for i := range candidates {
				if lead := got[i] - earned[i]; lead > 1 || lead < -1-math.Log(float64(n)) {
					t.Fatalf("instance %d got %v requests and earned %v", i, got[i], earned[i])
				}
			}
		}
	})
}

func TestRoundRobinOwesNothingForAbsence(t *testing.T) {
	p, all := newRoundRobin(), group(1, 1, 1)
	picks(t, p, all, 2)
	for range 20 {
		picks(t, p, all[:2], 101)
		if got := counts(picks(t, p, all, 30), 3); got[2] < 9 || got[2] > 11 {
			t.Fatalf("of 30 requests the returned instance got %d, want about 10", got[2])
		}
	}
	if got := counts(picks(t, p, append(all, &Candidate{Weight: 1}), 40), 4); got[3] < 9 || got[3] > 11 {
		t.Errorf("of 40 requests a new instance got %d, want about 10", got[3])
	}
}

func TestLeastConn(t *testing.T) {
	tests := []struct {
		why      string
		weights  []float64
		inFlight []int64
		want     int
	}{
		{"the idle one", []float64{1, 1}, []int64{3, 0}, 1},
		{"twice the weight carries twice the requests", []float64{1, 2}, []int64{2, 4}, 1},
		{"(2+1)/1 < (6+1)/2", []float64{1, 2}, []int64{2, 6}, 0},
		{"weight 0 is not idle, it is out", []float64{0, 1}, []int64{0, 50}, 1},
	}
	for _, tt := range tests {
		candidates := group(tt.weights...)
		for i := range candidates {
			candidates[i].InFlight = tt.inFlight[i]
		}
		if i, _ := newLeastConn().Pick(candidates); i != tt.want {
			t.Errorf("%s: picked %d, want %d", tt.why, i, tt.want)
		}
	}
}

func TestIdleFirst(t *testing.T) {
	for _, c := range []struct {
		why      string
		weights  []float64
		inFlight []int64
		want     int
	}{
		{"an idle one, whatever its weight", []float64{1, 0.001}, []int64{1, 0}, 1},
		{"nobody is idle: by weight", []float64{1, 0.001}, []int64{5, 1}, 0},
		{"weight 0 is out", []float64{1, 0}, []int64{5, 0}, 0},
	} {
		candidates := group(c.weights...)
		for i := range candidates {
			candidates[i].InFlight = c.inFlight[i]
		}
		if i, _ := NewIdleFirst().Pick(candidates); i != c.want {
			t.Errorf("%s: picked %d, want %d", c.why, i, c.want)
		}
	}
}

func TestLeastConnRotatesTies(t *testing.T) {
	if got := counts(picks(t, newLeastConn(), group(0.1, 0.1, 0.1), 30), 3); got[0] != 10 || got[1] != 10 || got[2] != 10 {
		t.Errorf("an idle group got %v, want 10 each", got)
	}
	tied := group(0.1, 0.3) // 1/0.1 and 3/0.3 differ only by rounding
	tied[1].InFlight = 2
	if got := counts(picks(t, newLeastConn(), tied, 10), 2); got[0] != 5 {
		t.Errorf("equal loads got %v, want 5 each", got)
	}
}

func TestLeastConnFillsInProportionToWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0.05, 5), 1, 20).Draw(t, "weights")
		candidates, p := group(weights...), newLeastConn()
		const requests = 500
		for range requests {
			i, _ := p.Pick(candidates)
			candidates[i].InFlight++
		}
		for i, c := range candidates {
			share := requests * c.Weight / totalWeight(candidates)
			if off := math.Abs(float64(c.InFlight) - share); off > float64(len(weights)) {
				t.Fatalf("instance %d of %v holds %d of %d requests, its share is %.1f", i, weights, c.InFlight, requests, share)
			}
		}
	})
}

func TestRandom2DrawsByWeightAndPrefersTheLessLoaded(t *testing.T) {
	const n = 20000
	even := picks(t, mustNew(t, quell.Random2, 7), group(1, 1, 1, 1), n)
	for i, c := range counts(even, 4) {
		if c < n/4-500 || c > n/4+500 { // 8 standard deviations
			t.Errorf("equal weights: instance %d got %d of %d", i, c, n)
		}
	}
	loaded := group(1, 1)
	loaded[0].InFlight = 5
	if got := counts(picks(t, mustNew(t, quell.Random2, 7), loaded, n), 2)[0]; got != 0 {
		t.Errorf("the loaded one of two got %d of %d, though two different ones are drawn", got, n)
	}
	if got := counts(picks(t, mustNew(t, quell.Random2, 7), group(0, 2), 100), 2)[1]; got != 100 {
		t.Errorf("the only one with a weight got %d of 100", got)
	}
	uneven := group(1, 3)
	uneven[0].InFlight, uneven[1].InFlight = 0, 2 // equal loads: the first draw decides
	if got := counts(picks(t, mustNew(t, quell.Random2, 7), uneven, n), 2)[0]; got < n/4-500 || got > n/4+500 {
		t.Errorf("weights 1 and 3 at equal load: the first got %d of %d, want a quarter", got, n)
	}
}

func TestRandom2IsReproducible(t *testing.T) {
	run := func(seed uint64) []int { return picks(t, mustNew(t, quell.Random2, seed), group(1, 2, 3), 50) }
	same, again, other := run(3), run(3), run(4)
	differs := false
	for k := range same {
		if same[k] != again[k] {
			t.Fatal("the same seed gave another order")
		}
		differs = differs || same[k] != other[k]
	}
	if !differs {
		t.Error("another seed gave the same order")
	}
}

func mustNew(t *testing.T, s quell.Scheduling, seed uint64) Picker {
	t.Helper()
	p, err := New(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func BenchmarkPick(b *testing.B) {
	for _, s := range quell.Schedulings {
		for _, n := range []int{3, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", s, n), func(b *testing.B) {
				p, _ := New(s, 1)
				candidates := group(make([]float64, n)...)
				for i, c := range candidates {
					c.Weight = float64(1 + i%5)
				}
				b.ReportAllocs()
				for b.Loop() {
					p.Pick(candidates)
				}
			})
		}
	}
}
