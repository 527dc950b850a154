package credit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A law is learned from balances that change with use, on processors and on a resource of which nothing is known.
func TestLawsAreLearned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cores := float64(rapid.IntRange(1, 8).Draw(t, "cores"))
		want := Bucket{Baseline: rapid.Float64Range(0.05, 0.5).Draw(t, "baseline"), Burst: 1, PerUse: cores / 60}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var law Law
		for range 200 {
			use := 0.3 + 0.3*rng.Float64()
			law = law.With(Episode{Use: use + 0.005*rng.NormFloat64(), Drain: want.Drain(use)})
		}
		for processors, within := range map[float64]float64{cores: 0.005, 0: 0.04} {
			got, ok := law.Bucket(processors)
			if !ok || math.Abs(got.Baseline-want.Baseline) > within || math.Abs(got.PerUse-want.PerUse) > 2*within*want.PerUse {
				t.Fatalf("of %v processors: got %+v, %v, want %+v", processors, got, ok, want)
			}
		}
	})
}

func TestLawsNeedEvidence(t *testing.T) {
	for why, episodes := range map[string][]Episode{
		"none":                      nil,
		"one":                       {{0.5, 0.01}},
		"all alike":                 {{0.5, 0.01}, {0.5, 0.01}, {0.5, 0.01}, {0.5, 0.01}, {0.5, 0.01}, {0.5, 0.01}},
		"more use earns":            {{0.1, 0.05}, {0.2, 0.04}, {0.3, 0.03}, {0.4, 0.02}, {0.5, 0.01}, {0.6, 0.001}},
		"no relation":               {{0.1, 0.05}, {0.2, 0.01}, {0.3, 0.07}, {0.4, 0.02}, {0.5, 0.09}, {0.6, 0.03}},
		"nothing is earned at rest": {{0.1, 0.02}, {0.2, 0.03}, {0.3, 0.04}, {0.4, 0.05}, {0.5, 0.06}, {0.6, 0.07}},
	} {
		var law Law
		for _, e := range episodes {
			law = law.With(e)
		}
		if got, ok := law.Bucket(0); ok {
			t.Errorf("%s: got %+v", why, got)
		}
	}
}

// What a track returns as episodes is what the bucket does, also if balances are shown every five minutes only.
func TestEpisodesOfATrack(t *testing.T) {
	b := Bucket{Baseline: 0.2, Burst: 1, PerUse: 2.0 / 60, Cap: 576}
	rng := rand.New(rand.NewPCG(1, 1))
	balance, shown := 300.0, 300.0
	track, now := Track{}, begin
	var law Law
	for i := range 360 * 4 {
		use := 0.3 + 0.2*rng.Float64()
		balance, now = b.After(balance, use, 10), now.Add(10*time.Second)
		if i%30 == 29 {
			shown = balance
		}
		next, e := track.Follow(nil, Reading{At: now, WindowS: 10, Use: use, Shown: &shown})
		if track = next; e != nil {
			law = law.With(*e)
		}
		if i == 700 { // nothing is heard for an hour: the episode around it teaches nothing
			balance, now = b.After(balance, 0.9, 3600), now.Add(time.Hour)
		}
	}
	got, ok := law.Bucket(2)
	if !ok || math.Abs(got.Baseline-0.2) > 5e-4 {
		t.Errorf("learned %+v, %v", got, ok)
	}
	if !track.Known || track.Middle() != shown {
		t.Errorf("without a law the balance is the one that is shown, %v: %+v", shown, track.Estimate)
	}
}
