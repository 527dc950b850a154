package kernel

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell/credit"
)

var small = credit.Bucket{Baseline: 0.2, Burst: 1, PerUse: 1.0 / 60, Cap: 0.5}

// Whatever an instance asks for and however late it is counted, it gets at most its baseline, its credits, and what one late count lets
// pass; and it never gets less than its baseline.
func TestAPurseIsATokenBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Float64Range(0, 0.5).Draw(t, "balance")
		p := NewTokenBucket(small, start)
		now, used, late := time.Unix(0, 0), 0.0, 0.0
		allowed := p.Count(now, used, counting)
		for range rapid.IntRange(1, 300).Draw(t, "counts") {
			wait := counting.Seconds() * rapid.SampledFrom([]float64{1, 1, 1, 1, 3}).Draw(t, "late by")
			late = math.Max(late, wait-counting.Seconds())
			used += wait * math.Min(allowed, rapid.Float64Range(0, 2).Draw(t, "wanted"))
			now = now.Add(time.Duration(wait * float64(time.Second)))
			allowed = p.Count(now, used, counting)
			if allowed < small.Baseline-1e-9 || allowed > small.Burst || p.Balance() < 0 || p.Balance() > small.Cap+1e-9 {
				t.Fatalf("%v processors at a balance of %v", allowed, p.Balance())
			}
			// Each late count may pass a balance that was good for one period several times.
			most := start*60 + small.Baseline*now.Sub(time.Unix(0, 0)).Seconds()
			if slack := 300 * late * small.Burst; late == 0 && used > most+1e-6 || used > most+slack+1e-6 {
				t.Fatalf("used %v s of %v s", used, most)
			}
		}
	})
}

func TestAPurseOverTime(t *testing.T) {
	p := NewTokenBucket(small, 0.2)
	now, used := time.Unix(0, 0), 0.0
	over := func(span time.Duration, wanted float64) (got float64) {
		allowed := p.Count(now, used, counting)
		for end := now.Add(span); now.Before(end); {
			now = now.Add(counting)
			used += counting.Seconds() * math.Min(allowed, wanted)
			got += counting.Seconds() * math.Min(allowed, wanted)
			allowed = p.Count(now, used, counting)
		}
		return got / span.Seconds()
	}
	// 0.2 credits are 12 s of a processor: at full speed they last 12 / (1 - 0.2) = 15 s.
	if got := over(14*time.Second, 2); math.Abs(got-1) > 1e-9 {
		t.Errorf("with credits: %v processors", got)
	}
	over(2*time.Second, 2)
	if got := over(20*time.Second, 2); math.Abs(got-0.2) > 1e-6 {
		t.Errorf("without credits: %v processors", got)
	}
	over(10*time.Second, 0) // earns 2 s of a processor
	if got, want := over(10*time.Second, 2), 0.2+0.2; math.Abs(got-want) > 1e-6 {
		t.Errorf("after a rest: %v processors, want %v", got, want)
	}
	before := p.Balance()
	p.Count(now.Add(-time.Hour), used, counting)
	p.Count(now, 0, counting)
	if p.Balance() != before {
		t.Errorf("clock and counter went back: %v credits instead of %v", p.Balance(), before)
	}
}
