package model

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/stats"
)

// probedOnce replaces the probes of a snapshot by single ones of exponentially distributed length.
func (w *lawWorld) probedOnce(s *quell.Snapshot) *quell.Snapshot {
	for i := range s.Instances {
		for r, p := range s.Instances[i].Observation.Probe {
			s.Instances[i].Observation.Probe[r] = quell.ProbeStats{MeanMS: p.MeanMS * (0.5 + 0.5*w.rng.ExpFloat64()), N: 1, By: p.By}
		}
	}
	return s
}

// A resource that is probed once in a period is learned from windows of several periods.
func TestLearnsFromSingleProbes(t *testing.T) {
	for seed := range uint64(10) {
		w := newLawWorld(seed)
		var l *Learner
		for p := range 120 {
			var beside []float64
			if p%60 >= 30 {
				beside = []float64{0.3}
			}
			l = l.Learn(w.probedOnce(w.snapshot(three(p, beside...)...)), learnedSLO)
		}
		law := lawOf(t, l)
		if !near(law.R0MS, 10, 0.15) || !near(law.P0MS, 5, 0.27) {
			t.Errorf("seed %d: R0 %.2f (10), P0 %.2f (5)", seed, law.R0MS, law.P0MS)
		}
		if got, want := law.response(0.4, law.severity(0.4, 0.3), 1), 10/0.3; !near(got, want, 0.3) {
			t.Errorf("seed %d: at a use of 0.4 beside 0.3 it predicts %.1f ms, the truth is %.1f", seed, got, want)
		}
	}
}

// Parts of a window survive a restart, and an instance that left leaves none.
func TestPartsAreMemory(t *testing.T) {
	w := newLawWorld(1)
	one := func() *quell.Snapshot { return w.probedOnce(w.snapshot(three(w.period)...)) }
	l := (*Learner)(nil).Learn(one(), learnedSLO)
	if len(l.Parts) != 3 || len(l.Parts["i1"][quell.Network]) != 1 {
		t.Fatalf("parts after one period: %+v", l.Parts)
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	restarted := &Learner{}
	if err := json.Unmarshal(text, restarted); err != nil {
		t.Fatal(err)
	}
	for range 2 * wholeWindow {
		s := one()
		l, restarted = l.Learn(s, learnedSLO), restarted.Learn(s, learnedSLO)
	}
	a, _ := json.Marshal(l)
	b, _ := json.Marshal(restarted)
	if string(a) != string(b) {
		t.Errorf("after a restart something else is learned:\n%s\n%s", a, b)
	}
	if windows, _ := l.Count(quell.Network); windows != 6 {
		t.Errorf("%d windows after %d periods of three machines, want 6", windows, 2*wholeWindow+1)
	}
	s := one()
	s.Instances = s.Instances[:1]
	if l = l.Learn(s, learnedSLO); len(l.Parts) > 1 {
		t.Errorf("parts of instances that left: %+v", l.Parts)
	}
}

func TestPool(t *testing.T) {
	small, large := &quell.Probing{Bytes: 4096}, &quell.Probing{Bytes: 1 << 20}
	parts := []seenBy{{Window{At: 1, ProbeN: 1}, small}, {Window{At: 10, ProbeN: 1}, small}}
	for _, c := range []struct {
		name string
		w    seenBy
		want []int // the periods of the parts
	}{
		{"the next period", seenBy{Window{At: 11, ProbeN: 1}, small}, []int{1, 10, 11}},
		{"old parts are dropped", seenBy{Window{At: 1 + oldestPart, ProbeN: 1}, small}, []int{10, 1 + oldestPart}},
		{"probes of another size", seenBy{Window{At: 11, ProbeN: 1}, large}, []int{11}},
		{"unknown size", seenBy{Window{At: 11, ProbeN: 1}, nil}, []int{1, 10, 11}},
	} {
		var got []int
		for _, p := range pool(parts, c.w) {
			got = append(got, p.At)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: parts of periods %v, want %v", c.name, got, c.want)
		}
	}
}

// A joined window has the moments of all single probes, and the mean response time of all requests.
func TestJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []seenBy
		var all []stats.Moments
		var sum, n float64
		for range rapid.IntRange(1, wholeWindow).Draw(t, "parts") {
			p := Window{ProbeMS: rapid.Float64Range(0.1, 100).Draw(t, "probe"), ProbeN: 1, Use: rapid.Float64Range(0, 1).Draw(t, "use"),
				N: rapid.IntRange(0, 50).Draw(t, "requests"), MeanMS: rapid.Float64Range(1, 100).Draw(t, "mean")}
			parts, all = append(parts, seenBy{Window: p}), append(all, stats.Moments{Mean: p.ProbeMS, N: 1})
			sum, n = sum+float64(p.N)*p.MeanMS, n+float64(p.N)
		}
		got, want := joined(parts), stats.Pool(all)
		if !near(got.ProbeMS, want.Mean, 1e-4) || got.ProbeN != want.N || !near(got.ProbeMS*math.Sqrt(got.Spread), want.Stddev, 1e-3) {
			t.Fatalf("probes %+v, want %+v", got, want)
		}
		if got.N != int(n) || n > 0 && !near(got.MeanMS, sum/n, 1e-4) {
			t.Fatalf("%d requests of %v ms, want %v of %v", got.N, got.MeanMS, n, sum/n)
		}
	})
}

// An instance whose reading did not come keeps its parts, and they are not counted twice.
func TestSilenceKeepsParts(t *testing.T) {
	w := newLawWorld(1)
	s := w.probedOnce(w.snapshot(three(0)...))
	l := (*Learner)(nil).Learn(s, learnedSLO)
	later := *s
	later.At = s.At.Add(10 * time.Second)
	l = l.Learn(&later, learnedSLO)
	if parts := l.Parts["i1"][quell.Network]; len(parts) != 1 {
		t.Errorf("parts after the same observation came again: %+v", parts)
	}
}
