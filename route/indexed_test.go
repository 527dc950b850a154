package route

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
)

// both has the same group twice: once for a picker, and once for its index.
type both struct {
	linear, indexed []*Candidate
}

func twice(weights []float64) both { return both{group(weights...), group(weights...)} }

func TestIndexedLeastConnPicksAsThePickerDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.SampledFrom([]float64{0, 0.1, 1, 1, 2.5})
		b := twice(rapid.SliceOfN(weight, 1, 40).Draw(t, "weights"))
		var p Picker = newLeastConn()
		var x Indexed = newIndexedLeastConn()
		if rapid.Bool().Draw(t, "idle first") {
			p, x = NewIdleFirst(), NewIndexedIdleFirst()
		}
		x.Reset(b.indexed)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			i := rapid.IntRange(0, len(b.linear)-1).Draw(t, "instance")
			switch {
			case rapid.IntRange(0, 19).Draw(t, "reweigh") == 0:
				b.linear[i].Weight = weight.Draw(t, "weight")
				b.indexed[i].Weight = b.linear[i].Weight
				x.Reset(b.indexed)
			case b.linear[i].InFlight > 0 && rapid.Bool().Draw(t, "answered"):
				b.linear[i].InFlight--
				b.indexed[i].InFlight--
				x.Changed(i)
			}
			want, wantOK := p.Pick(b.linear)
			got, ok := x.Pick()
			if got != want || ok != wantOK {
				t.Fatalf("picked %d, %v; want %d, %v", got, ok, want, wantOK)
			}
			if ok {
				b.linear[got].InFlight++
				b.indexed[got].InFlight++
				x.Changed(got)
			}
		}
	})
}

// Ties may be decided differently by rounding, so the index is compared with the guarantees of round robin: no
// candidate gets more than one request more than it earned, nor fewer by more than the logarithm of the group's size.
func TestIndexedRoundRobinStaysSmooth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidates := group(rapid.SliceOfN(rapid.Float64Range(0.01, 100), 2, 40).Draw(t, "weights")...)
		n := len(candidates)
		earned, got := make([]float64, n), make([]float64, n)
		x := &indexedRoundRobin{}
		for range 20 {
			i := rapid.IntRange(0, n-1).Draw(t, "changed")
			candidates[i].Weight = rapid.SampledFrom([]float64{1e-6, 0.3, 1, 40, 1e6}).Draw(t, "weight")
			x.Reset(candidates)
			for range rapid.IntRange(1, 100).Draw(t, "requests") {
				total := totalWeight(candidates)
				for k, c := range candidates {
					earned[k] += c.Weight / total
				}
				k, ok := x.Pick()
				if !ok {
					t.Fatal("nothing picked")
				}
				got[k]++
			}
			for k := range candidates {
				if lead := got[k] - earned[k]; lead > 1+1e-6 || lead < -1-math.Log(float64(n))-1e-6 {
					t.Fatalf("instance %d got %v requests and earned %v", k, got[k], earned[k])
				}
			}
		}
	})
}

func TestIndexedRoundRobinInterleaves(t *testing.T) {
	x := &indexedRoundRobin{}
	x.Reset(group(5, 1, 1))
	for k, want := range []int{0, 0, 1, 0, 2, 0, 0} {
		if got, _ := x.Pick(); got != want {
			t.Errorf("pick %d is %d, want %d", k, got, want)
		}
	}
}

func TestIndexedRandom2FollowsWeights(t *testing.T) {
	x, err := NewIndexed(quell.Random2, 1)
	if err != nil {
		t.Fatal(err)
	}
	candidates := group(0, 1, 3, 0)
	candidates[2].InFlight = 2 // equal loads: the first draw decides
	x.Reset(candidates)
	var counts [4]int
	for range 10_000 {
		i, _ := x.Pick()
		counts[i]++
	}
	if counts[0]+counts[3] > 0 || counts[1] < 2300 || counts[1] > 2700 {
		t.Errorf("picked %v times", counts)
	}
}

func TestIndexedNothingToPick(t *testing.T) {
	for _, s := range quell.Schedulings {
		x, err := NewIndexed(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		for name, candidates := range map[string][]*Candidate{
			"no candidates": nil, "weight 0": group(0, 0, 0), "not weights": group(math.NaN(), math.Inf(1), -1),
		} {
			x.Reset(candidates)
			if i, ok := x.Pick(); ok {
				t.Errorf("%s, %s: picked %d", s, name, i)
			}
		}
		x.Reset(group(0, 1))
		if i, ok := x.Pick(); !ok || i != 1 {
			t.Errorf("%s: picked %d, %v; want 1, true", s, i, ok)
		}
	}
	if _, err := NewIndexed("fastest", 1); err == nil {
		t.Error("an unknown scheduling is accepted")
	}
}
