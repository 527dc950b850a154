package route

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// answered gives a candidate answers that took the given milliseconds.
func answered(c *Candidate, took ...float64) {
	for _, x := range took {
		learnTime(c, Answer{Took: ms(x)})
	}
}

func TestLeastTimeGoesByMeanTimeInFlightAndWeight(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(a, b *Candidate)
		want   int
	}{
		"the quicker one on average":    {func(a, b *Candidate) { answered(a, 9, 21); answered(b, 2, 22) }, 1},
		"the idle one":                  {func(a, b *Candidate) { answered(a, 10); answered(b, 10); a.InFlight = 1 }, 1},
		"three times as slow, but idle": {func(a, b *Candidate) { answered(a, 30); answered(b, 10); b.InFlight = 3 }, 0},
		"the heavier one":               {func(a, b *Candidate) { answered(a, 10); answered(b, 20); b.Weight = 3 }, 1},
		"nothing known, nothing open":   {func(a, b *Candidate) { answered(a, 1) }, 1},
		"nothing known, one open":       {func(a, b *Candidate) { answered(a, 1000); b.InFlight = 1 }, 0},
		"failures count as slow": {func(a, b *Candidate) {
			answered(a, 10)
			answered(b, 10)
			learnTime(b, Answer{Took: ms(1), Failed: true})
		}, 0},
	} {
		candidates := group(1, 1)
		tc.change(candidates[0], candidates[1])
		x := newIndexedLeastTime()
		x.Reset(candidates)
		if i, _ := newLeastTime().Pick(candidates); i != tc.want {
			t.Errorf("%s: picked %d", name, i)
		}
		if i, _ := x.Pick(); i != tc.want {
			t.Errorf("%s: the index picked %d", name, i)
		}
	}
}

// An answer counts until a hundred newer ones have come.
func TestLeastTimeForgetsAfterAHundredAnswers(t *testing.T) {
	c := &Candidate{Weight: 1}
	answered(c, 1010)
	for range 99 {
		answered(c, 10)
	}
	if got := c.meanSeconds(); got < 0.0199 || got > 0.0201 {
		t.Errorf("the mean of one slow and 99 quick answers is %v s", got)
	}
	answered(c, 10)
	if got := c.meanSeconds(); got < 0.0099 || got > 0.0101 {
		t.Errorf("one answer later the mean is %v s", got)
	}
}

func TestIndexedLeastTimePicksAsThePickerDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.SampledFrom([]float64{0, 0.1, 1, 1, 2.5})
		b := twice(rapid.SliceOfN(weight, 1, 40).Draw(t, "weights"))
		p, x := newLeastTime(), newIndexedLeastTime()
		x.Reset(b.indexed)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			i := rapid.IntRange(0, len(b.linear)-1).Draw(t, "instance")
			if b.linear[i].InFlight > 0 && rapid.Bool().Draw(t, "answered") {
				b.linear[i].InFlight--
				b.indexed[i].InFlight--
				x.Changed(i)
				took := time.Duration(rapid.IntRange(1, 5).Draw(t, "took"))
				a := Answer{Took: took * time.Millisecond, Failed: rapid.IntRange(0, 9).Draw(t, "fails") == 0}
				p.Done(b.linear[i], a)
				x.Done(b.indexed[i], a)
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
