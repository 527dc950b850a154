package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/quellhq/quell"
)

// windowsOfFewProbes are windows of a calm instance with few probes each, whose times are exponential: windows that were lucky have a small
// mean and a small spread.
func windowsOfFewProbes(rng *rand.Rand, count, probes int) (list []Window) {
	for at := range count {
		var sum, squares float64
		for range probes {
			ms := 5 * rng.ExpFloat64()
			sum, squares = sum+ms, squares+ms*ms
		}
		mean := sum / float64(probes)
		variance := (squares - sum*mean) / float64(probes-1)
		list = append(list, Window{At: at, Use: 0.02 * float64(at%10), ProbeMS: mean, Spread: variance / (mean * mean), ProbeN: probes})
		list[at].ProbeMS /= 1 - list[at].Use
	}
	return list
}

// A window's weight does not depend on how lucky its own probes were: else the probe time without load comes out too small, and calm
// machines look disturbed.
func TestLuckyWindowsWeighNoMore(t *testing.T) {
	const seeds, probes = 40, 3
	var sum float64
	for seed := range uint64(seeds) {
		w := &Law{}
		if _, ok := w.fitProbe(windowsOfFewProbes(rand.New(rand.NewPCG(seed, 7)), 60, probes)); !ok {
			t.Fatalf("seed %d: nothing fitted", seed)
		}
		sum += w.P0MS
	}
	if got := sum / seeds; !near(got, 5, 0.1) {
		t.Errorf("a probe takes %.2f ms alone on average, want 5", got)
	}
}

// Probes of an idle link that pass at once, because it saved up what it may send, say nothing of a link in use: taken for the time without
// load, they would make every instance with requests look disturbed, or the law so steep that nobody does.
func TestBurstsOfAnIdleLinkDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		idleMS float64
		idle   int
	}{"none": {0.1, 0}, "a few": {0.1, 6}, "a third": {0.1, 24}, "idle ones that fit": {1, 24}} {
		rng, w := rand.New(rand.NewPCG(3, 9)), &Law{}
		var windows []Window
		for at := range 48 + c.idle {
			use, ms := 0.35+0.3*rng.Float64(), 1.0
			switch {
			case at >= 48:
				use, ms = 0, c.idleMS
			case at%3 == 0: // beside a neighbour
				ms = 4
			}
			ms *= math.Exp(0.9*crowding(use)) * (0.8 + 0.4*rng.Float64())
			windows = append(windows, Window{At: at, Use: use, ProbeMS: ms, Spread: 0.3, ProbeN: 10})
		}
		if _, ok := w.fitProbe(windows); !ok || math.Abs(w.probe(0.5)/math.Exp(0.9*crowding(0.5))-1) > 0.25 {
			t.Errorf("%s: fitted %v: at a use of 0.5 a probe takes %.2f ms, want %.2f", name, ok, w.probe(0.5), math.Exp(0.9*crowding(0.5)))
		}
	}
}

// Windows that chance explains are of one kind with the calm ones, so that unlucky windows do not outnumber them.
func TestChanceIsNoKind(t *testing.T) {
	r := &Record{Law: &Law{P0MS: 5, ProbeExponent: 1, SpreadIdle: 1, SpreadBusy: 0}}
	calm, unlucky, disturbed := Window{Use: 0.3, ProbeMS: 7.1, ProbeN: 4}, Window{Use: 0.3, ProbeMS: 11, ProbeN: 4},
		Window{Use: 0.3, ProbeMS: 11, ProbeN: 400}
	if a, b, c := r.cell(&calm), r.cell(&unlucky), r.cell(&disturbed); a != b || b == c {
		t.Errorf("kinds: calm %d, unlucky %d, disturbed %d", a, b, c)
	}
}

// When the memory is full, rare windows stay.
func TestRareWindowsStay(t *testing.T) {
	window := func(use float64) Window { return Window{Use: use, ProbeMS: 7, ProbeN: 20, MeanMS: 14, N: 20} }
	r := &Record{}
	r.add(window(0.9))
	for len(r.Windows) < maxWindows {
		w := window(0.3)
		w.Cell = -1 - len(r.Windows)%20 // some other kind
		r.Windows = append(r.Windows, w)
	}
	r.add(window(0.6))
	if len(r.Windows) != maxWindows || r.Windows[0].Use != 0.9 {
		t.Errorf("%d windows, the first with a use of %v", len(r.Windows), r.Windows[0].Use)
	}
}

// However many windows are faster than the law, it is lowered by a tenth at most, and beside a neighbour by no more than without one.
func TestCorrectionsToFasterAreBounded(t *testing.T) {
	w := &Law{R0MS: 10, P0MS: 5, Exponent: 1, ProbeExponent: 1, SeverityExponent: 1, SpreadIdle: 0.01}
	var windows []Window
	for i := range 4000 {
		use := 0.2 + 0.01*float64(i%40)
		x := Window{Use: use, ProbeMS: w.probe(use), ProbeN: 100, N: 100, MeanMS: 0.9 * w.response(use, 0, 1)}
		if i%2 > 0 {
			x.ProbeMS *= 2
			x.MeanMS = 0.5 * w.response(use, 1, 1)
		}
		x.MetricMS = x.MeanMS
		windows = append(windows, x)
	}
	w.refine(windows, quell.Mean)
	alone := map[float64]float64{}
	for _, r := range w.Refined {
		if r.Severity == 0 {
			alone[r.Utilization] = r.LogRatio
		}
	}
	if len(alone) == 0 {
		t.Fatal("nothing was corrected")
	}
	for _, r := range w.Refined {
		if r.LogRatio < -maxFaster-1e-6 || r.LogRatio < math.Min(0, alone[r.Utilization])-minRefined {
			t.Errorf("at %.2f and a severity of %.2f the law is lowered by %.3f, without a neighbour by %.3f", r.Utilization, r.Severity, r.LogRatio,
				alone[r.Utilization])
		}
	}
}
